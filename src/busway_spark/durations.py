"""Durations in options of both formats."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?", re.IGNORECASE)


def seconds_of(text: str) -> float | None:
    """ISO 8601 as azure-event-hubs-spark has it (PT60S), or whole seconds; None for anything else."""
    match = _DURATION.fullmatch(text)
    if match is not None and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
