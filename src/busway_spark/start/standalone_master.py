"""Whether somebody answers where a standalone master is said to be.

Spark itself tries for a minute and a half and then speaks of a context that was stopped.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from busway_spark.start.no_session import NoSession

_SCHEME: Final = "spark://"
_PORT: Final = 7077
_CONNECT_TIMEOUT_S: Final = 10.0


class MasterUnreachable(NoSession):
    """None of the machines that the address names answers."""


def require_master(address: str) -> None:
    """Of `spark://HOST:PORT[,HOST:PORT…]`; one that answers is enough. Raises MasterUnreachable."""
    if not address.startswith(_SCHEME):
        return
    reasons = []
    for one in address.removeprefix(_SCHEME).split(","):
        reason = _refusal(one)
        if reason is None:
            return
        reasons.append(reason)
    raise MasterUnreachable(_sentence(address, reasons))


def _refusal(place: str) -> str | None:
    """Why it cannot be connected to; None when it can."""
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError as error:
        return str(error)
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _sentence(address: str, reasons: Sequence[str]) -> str:
    return f"No Spark master answers at {address}: {'; '.join(dict.fromkeys(reasons))}."
