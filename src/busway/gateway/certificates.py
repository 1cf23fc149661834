"""The certificates of a data directory: the authority that clients are told to trust, and the server's own.

The official admin clients speak https only, so a server on somebody's laptop needs a certificate they can be
told to trust. `DATA/tls` holds four files: `ca.pem` (what clients trust), `ca.key`, `server.pem` and
`server.key`. `authority` makes them, at a first start and when they are near their end.

Most starts make nothing, and the library that makes them costs a start a tenth of its time, and ten megabytes for as
long as the server runs. So whether they are good is asked without it. Who has to be content is a client that trusts
the authority: one connects, in memory, and OpenSSL, which is there in any case, checks keys, signature and time.
Whatever is not certain then is looked at closely by `authority`.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final

from busway.clock import Clock, Entropy
from busway.gateway.tls_files import RENEWAL_BEFORE_END, CertificateError, TlsFiles

_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
#: How the second line of a key on the curve P-256 begins (PKCS #8), such as `authority` makes.
_OUR_KIND_OF_KEY: Final = b"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
#: Each end of a handshake speaks twice.
_HANDSHAKE_ROUNDS: Final = 3


def ensure_certificates(
    folder: Path, clock: Clock, entropy: Entropy, extra_names: Sequence[str] = ()
) -> TlsFiles:
    """Make or renew what is missing or near its end in `folder` (DATA/tls); nothing else is touched."""
    files = TlsFiles(*(folder / name for name in ("ca.pem", "ca.key", "server.pem", "server.key")))
    moment = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
    names = _names(extra_names)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not are_good(files, names, moment):
            from busway.gateway.authority import make_what_is_missing  # see the head of this file

            make_what_is_missing(files, names, moment, entropy)
    except OSError as error:
        raise CertificateError(f"The certificates in {folder} cannot be written: {error}.") from error
    return files


def are_good(files: TlsFiles, names: Sequence[str], moment: datetime) -> bool:
    """Whether nothing has to be made for a while. False says no more than that a closer look is worth its while."""
    try:
        if not all(_OUR_KIND_OF_KEY in key.read_bytes() for key in (files.ca_key, files.server_key)):
            return False
        server_context(files.ca, files.ca_key)  # which refuses a key that is not the authority's
        client = _client_that_trusts(files.ca)
        [authority] = client.get_ca_certs()
        shown = _shown(server_context(files.server, files.server_key), client)
        ends_s = min(ssl.cert_time_to_seconds(str(each["notAfter"])) for each in (authority, shown))
    except (OSError, ValueError, KeyError, CertificateError):
        return False
    if datetime.fromtimestamp(ends_s, UTC) - moment < RENEWAL_BEFORE_END:
        return False
    alternatives = {_comparable(name) for _, name in shown.get("subjectAltName", ())}
    return {_comparable(name) for name in names} <= alternatives


def dns_names(certificate: Path, key: Path) -> list[str]:
    """The names a server certificate is for, in its own order; none when it cannot be read."""
    try:
        client = _client_that_trusts(certificate)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # without regard to who has signed it
        shown = _shown(server_context(certificate, key), client)
    except (OSError, ValueError, CertificateError):
        from busway.gateway.authority import (
            names_in,
        )  # one that clients do not take may have names all the same

        return names_in(certificate)
    return [name for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"]


def _client_that_trusts(certificate: Path) -> ssl.SSLContext:
    """Under whichever name it connects."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    return client


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """The server's certificate as such a client sees it. Raises OSError or ValueError when it does not accept it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_HANDSHAKE_ROUNDS):
        for end in (asking, answering):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return asking.getpeercert() or {}


def _comparable(name: str) -> str | IPv4Address | IPv6Address:
    """An address may be written in several ways."""
    try:
        return ip_address(name)
    except ValueError:
        return name


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer, no renegotiation, no compression, no client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError: unreadable file, not a certificate, or a key that belongs to another one.
        raise CertificateError(
            f"The certificate {certificate} and the key {key} cannot be used together: {error}."
        ) from error
    return context


def _refuse_password() -> str:
    """Without this OpenSSL would ask on the terminal and the server would hang."""
    raise ValueError("the key is protected by a password; give one that is not")


def _names(extra_names: Sequence[str]) -> list[str]:
    """What the certificate is for: the loopback names, this machine's own, and what the caller adds."""
    candidates = [*_LOCAL_NAMES, socket.gethostname().lower(), *extra_names]
    unique = dict.fromkeys(candidates)
    return [name for name in unique if name and name.isascii() and len(name) <= 253]
