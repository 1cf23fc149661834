"""Connection strings: by name where the job must not hold the key, and refused with advice where one cannot be used.

Theory of operation. `connection 'prod'` stands instead of a connection string, for those who must not hold the key,
or whose language has no place for it, such as SQL. The name is looked up where queries are planned, on the driver or
on the server of Spark Connect or Thrift: first in the environment, BUSWAY_CONNECTION_PROD, then in the file that
BUSWAY_CONNECTIONS names:

    [prod]
    connectionString = "Endpoint=sb://…"
    caFile = "/etc/busway/ca.pem"

What was found travels on as if it had been given; no sentence ever repeats it. A job that ran elsewhere may bring a
connection string that cannot be used here: it is told what to do instead.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from busway.client.connection_string import BadConnectionString, ConnectionString

CONNECTION: Final = "connection"
FILE_VARIABLE: Final = "BUSWAY_CONNECTIONS"
VARIABLE_PREFIX: Final = "BUSWAY_CONNECTION_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_BYTES_MAX: Final = 1 << 20
_KEYS: Final = ("connectionString", "caFile")
#: What azure-event-hubs-spark makes of a connection string: AES, as base64.
_ENCRYPTED: Final = re.compile(r"[A-Za-z0-9+/\s]{40,}={0,2}\s*")
_ENTRA: Final = re.compile(r"(?i)(^|;)\s*authentication\s*=")
ENTRA_REFUSED: Final = (
    "signing in by Microsoft Entra ID is not supported; give a connectionString with SharedAccessKeyName and"
    " SharedAccessKey, or with a SharedAccessSignature."
)
ENCRYPTED_REFUSED: Final = (
    "it looks like one that EventHubsUtils.encrypt has encrypted, which only azure-event-hubs-spark can read. Leave"
    " that call out and give it as it is: Spark's redaction hides it, and `connection` with a name needs no key at"
    " all in the job."
)


@dataclass(frozen=True)
class NamedConnection:
    connection_string: str = field(repr=False)
    ca_file: str | None = None


def find_connection(name: str) -> NamedConnection:
    """Raises ValueError with a sentence that begins in lower case."""
    if _NAME.fullmatch(name) is None:
        raise ValueError("a name has letters, digits, '.', '_' and '-', at most 64 of them.")
    variable = VARIABLE_PREFIX + re.sub(r"[.-]", "_", name).upper()
    text = os.environ.get(variable)
    if text:
        return NamedConnection(text)
    path = os.environ.get(FILE_VARIABLE)
    known = {} if not path else _read(Path(path))
    entry = known.get(name)
    if not isinstance(entry, dict):
        others = f" It knows {', '.join(sorted(known)[:20])}." if known else ""
        raise ValueError(
            f"{name!r} is known neither by the environment variable {variable} nor in the file that"
            f" {FILE_VARIABLE} names, where the query is planned.{others}"
        )
    return _of_entry(name, entry)


def _of_entry(name: str, entry: dict[str, object]) -> NamedConnection:
    string, ca_file = (entry.get(key) for key in _KEYS)
    if not isinstance(string, str) or not isinstance(ca_file, str | None) or not set(entry) <= set(_KEYS):
        raise ValueError(
            f"the entry {name!r} of the file that {FILE_VARIABLE} names must have connectionString, may have caFile,"
            " both texts, and nothing else."
        )
    return NamedConnection(string, ca_file)


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"the file that {FILE_VARIABLE} names cannot be read where the query is planned: {reason}."
        ) from None
    if len(text) > _FILE_BYTES_MAX:
        raise ValueError(f"the file that {FILE_VARIABLE} names is larger than {_FILE_BYTES_MAX} bytes.")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError):
        # The parser's own words may repeat a line, and with it a key.
        raise ValueError(f"the file that {FILE_VARIABLE} names is no TOML.") from None


def over_websocket(text: str) -> str:
    """The connection string of the same bus, with AMQP by WebSockets."""
    parts = [part for part in text.split(";") if not part.strip().lower().startswith("transporttype=")]
    return ";".join([*filter(str.strip, parts), "TransportType=AmqpWebSockets"])


def parsed(text: str) -> ConnectionString:
    """Raises ValueError with a sentence that never holds a secret."""
    if _ENCRYPTED.fullmatch(text):
        raise ValueError(ENCRYPTED_REFUSED)
    if _ENTRA.search(text):
        raise ValueError(ENTRA_REFUSED)
    try:
        return ConnectionString.parse(text)
    except BadConnectionString as error:
        raise ValueError(str(error)) from None
