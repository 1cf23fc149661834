"""The certificate authority that a bus's certificate is signed by, on whichever machine connects.

The option `caFile` names a file on the driver, or is the certificate itself as PEM text. Either way the text travels
with readers and writers, and a process that connects writes it to a private file of its own once: executors need no
copy of the file beforehand.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Final

_MARK: Final = "-----BEGIN "
_BYTES_MAX: Final = 1 << 20

#: Files that this process has written, by their content; its children write their own.
_files: dict[str, Path] = {}


def authority_text(given: str | None) -> str | None:
    """The PEM text of what the option says. Raises ValueError with a sentence that begins in lower case."""
    if given is None or not given.strip():
        return None
    text = given if _MARK in given else _read(Path(given))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("there is no certificate in PEM form in it.") from None
    return text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode("ascii", errors="replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"{str(path)[:260]!r} cannot be read where the query is planned: {reason}."
        ) from None


def authority_file(given: str | None) -> Path | None:
    """A file with it, on this machine: for what wants a path."""
    if given is None:
        return None
    if _MARK not in given:
        return Path(given)
    name = hashlib.sha256(given.encode()).hexdigest()
    path = _files.get(name)
    if path is None or not path.is_file():
        folder = Path(tempfile.mkdtemp(prefix="busway-authority-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = _files[name] = folder / "ca.pem"
        path.write_text(given)
    return path
