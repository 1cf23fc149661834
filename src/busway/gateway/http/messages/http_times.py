"""Instants in the texts of HTTP: RFC 1123 (`Wed, 02 Jul 2014 01:32:27 GMT`), and ISO 8601 when read."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from typing import Final

from busway.broker.errors import BadArgument

_CHARACTERS_MAX: Final = 64
_RFC_1123: Final = re.compile(
    r"[A-Za-z]{3}, [0-9]{1,2} [A-Za-z]{3} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (?:GMT|UTC|[+-][0-9]{4})"
)
_ISO: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}\S*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
#: The last whole second of the year 9999.
_LATEST_S: Final = 253_402_300_799


def instant_ms(text: str, what: str) -> int:
    """Milliseconds since 1970, negative before it; a time without a zone is UTC. `what` names it in the error."""
    stripped = text.strip()
    moment = _moment(stripped) if len(stripped) <= _CHARACTERS_MAX else None
    if moment is None:
        raise BadArgument(
            f"{what}: {stripped[:_CHARACTERS_MAX]!r} is not a time such as 'Wed, 02 Jul 2014 01:32:27 GMT' or"
            " '2014-07-02T01:32:27Z'."
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def _moment(text: str) -> datetime | None:
    try:
        if _ISO.fullmatch(text) is not None:
            return datetime.fromisoformat(text)
        if _RFC_1123.fullmatch(text) is not None:
            return parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return None


def http_date(at_ms: int) -> str:
    """RFC 1123, in whole seconds; what lies outside the years 1970 to 9999 is moved to their border."""
    return formatdate(min(max(at_ms // 1000, 0), _LATEST_S), usegmt=True)
