"""Events as they lie in a log."""

from __future__ import annotations

from busway.message.event_record import Event, FrontWriter


def record_of(event: Event, number: int, at_ms: int) -> bytes:
    """The event under its number, in one piece."""
    return FrontWriter().front(event, number, at_ms) + event.bare
