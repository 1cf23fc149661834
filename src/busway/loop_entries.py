"""Where the event loop enters our code: how long each visit takes, and what it was.

Whoever is called by the loop looks at the clock before and after, and speaks up only when its visit was longer than
`longest_s`, the longest since the stall meter looked last and never less than ENTRY_S: so an ordinary visit costs two
looks at a clock and a comparison, and what ran is put into words for the few that were long. Words, no objects:
nothing is kept alive by having been slow. While no meter is on (`signals.stall_meter`) nobody is ever long enough.

A visit may lie inside another: a timer in a tick, a collection anywhere. The inner one's name stays as long as it
makes up half of the outer one.

A coroutine is entered once for each of its steps: see `Steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, TypeVar

#: Shorter visits are nobody's concern.
ENTRY_S: Final = 0.01
_NEVER_S: Final = float("inf")
#: Of a name that a peer may have chosen.
_NAME_CHARACTERS_MAX: Final = 120

Result = TypeVar("Result")


class LoopEntries:
    """The longest visit since the last look."""

    __slots__ = ("began_s", "longest_s", "now", "what")

    def __init__(self) -> None:
        self.now: Callable[[], float] = perf_counter
        #: When the visit began whose length is `longest_s`; meaningless while `what` is "".
        self.began_s = 0.0
        self.longest_s = _NEVER_S
        self.what = ""

    def begin(self) -> None:
        """From now on long visits are noted."""
        self.longest_s = ENTRY_S
        self.what = ""

    def stop(self) -> None:
        self.longest_s = _NEVER_S
        self.what = ""

    def note(self, began_s: float, what: str) -> None:
        """A visit that began then ends now, and is longer than all others."""
        lasted_s = self.now() - began_s
        lies_outside = not self.what or self.began_s < began_s
        if lies_outside or lasted_s > 2 * self.longest_s:
            self.what = what
        self.began_s = began_s
        self.longest_s = lasted_s


#: Of the process: it has one event loop.
LOOP: Final = LoopEntries()


def shown(name: object) -> str:
    """A name as a log may hold it: short, in quotes, without control characters."""
    text = str(name)
    if len(text) > _NAME_CHARACTERS_MAX:
        text = text[:_NAME_CHARACTERS_MAX] + "…"
    return ascii(text) if not text.isprintable() else f"'{text}'"


def name_of(work: object) -> str:
    """Of a coroutine or a function."""
    return str(getattr(work, "__qualname__", type(work).__name__))


class Steps(Coroutine[Any, Any, Result]):
    """A coroutine whose every step is a visit of the loop. To be awaited, or made a task, in place of it."""

    __slots__ = ("_what", "_work")

    def __init__(self, work: Coroutine[Any, Any, Result], what: Callable[[], str]) -> None:
        self._work = work
        self._what = what

    def send(self, value: Any) -> Any:
        began_s = LOOP.now()
        try:
            return self._work.send(value)
        finally:
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, self._what())

    def throw(self, *error: Any) -> Any:
        began_s = LOOP.now()
        try:
            return self._work.throw(*error)
        finally:
            if LOOP.now() - began_s > LOOP.longest_s:
                LOOP.note(began_s, self._what())

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.send(None)
