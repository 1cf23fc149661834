"""Makes the certificate authority at a first start, and the server's certificate when it has to be made anew.

The authority can sign no further authority (path length 0). The server certificate is made anew when it is near its
end or no longer fits its key, its authority or the machine's names; the authority stays, so clients that trust it go
on working. `certificates` has us loaded when something may have to be made: the library is large.

Files appear whole or not at all: each is written under a temporary name, created exclusively with mode 0600
(0644 for certificates) whatever the umask says, synced, then renamed. A damaged authority is never replaced
silently, because every client's trust hangs on it: that is an error which names the file.
"""

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from busway.clock import Entropy
from busway.gateway.tls_files import RENEWAL_BEFORE_END, CertificateError, TlsFiles

_AUTHORITY_LIFE: Final = timedelta(days=3650)
#: Browsers and Apple's systems refuse server certificates that live longer than 398 days.
_SERVER_LIFE: Final = timedelta(days=390)
#: Clocks of machines in one house differ a little.
_BACKDATED: Final = timedelta(hours=1)
_SERIAL_BYTES: Final = 19  # 152 bits of chance, below the 160 bits of RFC 5280
_COMMON_NAME_CHARACTERS_MAX: Final = 64


class _Identity(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_what_is_missing(files: TlsFiles, names: Sequence[str], moment: datetime, entropy: Entropy) -> None:
    """Or near its end, or not as it should be. Nothing else is touched."""
    authority = _authority(files, moment, entropy)
    if not _server_is_good(files, authority, names, moment):
        _make_server(files, authority, names, moment, entropy)


def names_in(certificate: Path) -> list[str]:
    """The DNS names of a certificate in their order; none when it cannot be read."""
    try:
        first = x509.load_pem_x509_certificate(certificate.read_bytes())
        alternatives = first.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return alternatives.value.get_values_for_type(x509.DNSName)


# -- the authority --


def _authority(files: TlsFiles, moment: datetime, entropy: Entropy) -> _Identity:
    present = [path.exists() for path in (files.ca, files.ca_key)]
    if not any(present):
        return _make_authority(files, moment, entropy)
    if present == [False, True]:
        # A crash between the two files: the key comes first, and no client knows a certificate of it yet.
        files.ca_key.unlink()
        return _make_authority(files, moment, entropy)
    identity = _read(files.ca, files.ca_key)
    if identity is None:
        raise CertificateError(
            f"The certificate authority in {files.ca} and {files.ca_key} is damaged or incomplete. Restore both"
            " files, or remove both to get a new authority (clients must then trust the new one)."
        )
    if identity.certificate.not_valid_after_utc - moment < RENEWAL_BEFORE_END:
        raise CertificateError(
            f"The certificate authority in {files.ca} ends on {identity.certificate.not_valid_after_utc:%Y-%m-%d}."
            f" Remove {files.ca} and {files.ca_key} to get a new one, and let clients trust it."
        )
    return identity


def _make_authority(files: TlsFiles, moment: datetime, entropy: Entropy) -> _Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Busway authority of {socket.gethostname()}")
    public = key.public_key()
    certificate = (
        _builder(name, name, public, moment, _AUTHORITY_LIFE, entropy)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    identity = _Identity(certificate, key)
    _write(identity, files.ca, files.ca_key)
    return identity


# -- the server --


def _make_server(
    files: TlsFiles, authority: _Identity, names: Sequence[str], moment: datetime, entropy: Entropy
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())
    life = min(_SERVER_LIFE, authority.certificate.not_valid_after_utc - moment)
    certificate = (
        _builder(_name("localhost"), authority.certificate.subject, public, moment, life, entropy)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    _write(_Identity(certificate, key), files.server, files.server_key)


def _server_is_good(files: TlsFiles, authority: _Identity, names: Sequence[str], moment: datetime) -> bool:
    if not (files.server.exists() and files.server_key.exists()):
        return False
    identity = _read(files.server, files.server_key)
    if identity is None or identity.certificate.not_valid_after_utc - moment < RENEWAL_BEFORE_END:
        return False
    try:
        identity.certificate.verify_directly_issued_by(authority.certificate)
        alternatives = identity.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return {_general_name(name) for name in names} <= set(alternatives.value)


# -- parts --


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_CHARACTERS_MAX])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    moment: datetime,
    life: timedelta,
    entropy: Entropy,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(int.from_bytes(entropy.bytes(_SERIAL_BYTES)) | 1)
        .not_valid_before(moment - _BACKDATED)
        .not_valid_after(moment + life)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


# -- files --


def _read(certificate_path: Path, key_path: Path) -> _Identity | None:
    """None when the pair is damaged, incomplete or does not belong together."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        return None
    return _Identity(certificate, key)


def _write(identity: _Identity, certificate_path: Path, key_path: Path) -> None:
    """The key first: a certificate never lies there without the key it needs."""
    key_bytes = identity.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_file(key_path, key_bytes, 0o600)
    _write_file(certificate_path, identity.certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write_file(path: Path, content: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    # O_EXCL: whoever put a file or a link there in between does not get our key.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, mode)
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
