"""The four files of `DATA/tls`, and what is wrong with them: known to who looks at them and to who makes them."""

from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

RENEWAL_BEFORE_END: Final = timedelta(days=30)


class CertificateError(Exception):
    """Certificates cannot be made or used; the text is one sentence for the user."""


class TlsFiles(NamedTuple):
    """Where the certificates of one data directory lie."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
