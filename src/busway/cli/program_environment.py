"""The environment of a program that uses the bus: where it is, and whom to trust.

Every family of clients has its own variable for extra authorities. Those that replace the built-in list get a
bundle (the usual roots and ours), so that the program's other https calls keep working.
"""

import contextlib
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import certifi

from busway.cli.verbs import CommandFailed

CONNECTION_VARIABLES: Final = (
    "BUSWAY_CONNECTION_STRING",
    "AZURE_SERVICEBUS_CONNECTION_STRING",
    "SERVICEBUS_CONNECTION_STRING",
)
#: OpenSSL and Go; requests and azure-core; curl.
BUNDLE_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
#: Any text does: the store holds public certificates only, but Java wants a password.
_TRUST_STORE_PASSWORD: Final = "changeit"
_PEM_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def environment_of(
    present: Mapping[str, str], connection_string: str, ca_file: Path | None
) -> dict[str, str]:
    environment = dict(present)
    for name in CONNECTION_VARIABLES:
        environment[name] = connection_string
    if ca_file is None:
        return environment
    if not ca_file.is_file():
        raise CommandFailed(f"The certificate authority {ca_file} does not exist.")
    bundle = str(_bundle(ca_file, _roots(present)))
    for name in BUNDLE_VARIABLES:
        environment[name] = bundle
    environment["NODE_EXTRA_CA_CERTS"] = str(ca_file.resolve())
    environment["BUSWAY_CA_FILE"] = str(ca_file.resolve())
    if shutil.which("java", path=present.get("PATH")) is not None:
        options = _java_options(Path(bundle))
        environment["JAVA_TOOL_OPTIONS"] = f"{present.get('JAVA_TOOL_OPTIONS', '')} {options}".strip()
    return environment


def _roots(present: Mapping[str, str]) -> Path:
    """The list the program would have used: its own variable's, else the usual one."""
    own = present.get("SSL_CERT_FILE")
    return Path(own) if own is not None and Path(own).is_file() else Path(certifi.where())


def _bundle(ca_file: Path, roots: Path) -> Path:
    return _cached(roots.read_bytes().rstrip() + b"\n" + ca_file.read_bytes(), "pem")


def _java_options(bundle: Path) -> str:
    """Java reads no PEM list; a PKCS#12 store with the same certificates does."""
    store = bundle.with_suffix(".p12")
    if not store.exists():
        _replace(store, _trust_store(bundle.read_bytes()))
    return (
        f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12 "
        f"-Djavax.net.ssl.trustStorePassword={_TRUST_STORE_PASSWORD}"
    )


def _trust_store(pem: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    trusted = []
    for number, block in enumerate(_PEM_BLOCK.findall(pem)):
        # Old roots of the usual list bend the rules of certificates: they are taken quietly, or left out.
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter("ignore")
            certificate = x509.load_pem_x509_certificate(block)
            trusted.append(pkcs12.PKCS12Certificate(certificate, f"root-{number}".encode()))
    encryption = BestAvailableEncryption(_TRUST_STORE_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(trusted, encryption)


def _cached(content: bytes, suffix: str) -> Path:
    """A file named after its content in the user's cache: it must outlive this process, which is replaced."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "busway"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = cache / f"trust-{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
    if not file.exists():
        _replace(file, content)
    return file


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(file)
