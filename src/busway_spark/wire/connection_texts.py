"""Connection strings of jobs that ran elsewhere: what cannot be used here is told with what to do instead."""

from __future__ import annotations

import re
from typing import Final

from busway.client.connection_string import BadConnectionString, ConnectionString

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
