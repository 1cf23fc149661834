"""Points in time as people type them."""

from datetime import UTC, datetime

from busway.cli.failures import WrongCall
from busway.model.durations import parse_duration
from busway.model.errors import BadArgument


def parse_instant_ms(text: str, option: str, now_ms: int) -> int:
    """`2030-01-01T08:00:00Z` (UTC when no offset is given) or a duration from now such as `PT10M`."""
    if text[:1] in ("P", "p"):
        return now_ms + parse_duration_ms(text, option)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise WrongCall(
            f"{option}: '{text}' is neither a time like 2030-01-01T08:00:00Z nor a duration like PT10M."
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round(instant.timestamp() * 1000)


def parse_duration_ms(text: str, option: str) -> int:
    try:
        return parse_duration(text.upper(), option)
    except BadArgument as error:
        raise WrongCall(str(error)) from error


def format_instant(instant_ms: int) -> str:
    """ISO 8601 in UTC, or the number itself where no date can be written."""
    try:
        instant = datetime.fromtimestamp(instant_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(instant_ms)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
