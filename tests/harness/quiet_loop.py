"""Whether anything can still happen in an event loop whose world is in memory and whose time is an argument."""

from __future__ import annotations

import asyncio

#: Some turns take less; a timer that rings later is none of theirs.
_SOON_S = 0.02


def is_quiet() -> bool:
    """Nobody but the caller wants a turn, and no timer of the loop rings at once: turns that follow change nothing.
    Only for worlds without threads and sockets, which come back when they like."""
    loop = asyncio.get_running_loop()
    if loop._ready:  # type: ignore[attr-defined]
        return False
    timers = loop._scheduled  # type: ignore[attr-defined]
    return not timers or timers[0].when() > loop.time() + _SOON_S
