"""How long a send to a partitioned entity or an event hub may wait for the store it was given to (P-32).

A send that no fragment has begun to store goes to another one at once; one whose commit hangs cannot, because nobody
knows whether it is stored (P-31). So that the client still has time for a second try, its link is dropped without an
outcome, and what it sends again goes to another store. One alarm watches all runs of a link: what it finds open at
two looks in a row has waited for too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from busway.gateway.amqp.links.link_host import Alarm, LinkHost

#: Clients wait for more than this, 60 seconds by default.
ATTEMPT_S_MAX: Final = 15.0
_LOOK_S: Final = ATTEMPT_S_MAX / 2


class SendWatch:
    """Of one link."""

    __slots__ = ("_alarm", "_host", "_open", "_overdue", "_seen")

    def __init__(self, host: LinkHost, overdue: Callable[[], None]) -> None:
        self._host = host
        self._overdue = overdue
        #: Runs that wait for their outcome.
        self._open: set[object] = set()
        #: Those of them that the last look has seen.
        self._seen: set[object] = set()
        self._alarm: Alarm | None = None

    def begun(self, run: object) -> None:
        self._open.add(run)
        if self._alarm is None:
            self._alarm = self._host.call_later(_LOOK_S, self._look)

    def ended(self, run: object) -> None:
        self._open.discard(run)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._open.clear()

    def _look(self) -> None:
        self._alarm = None
        if not self._seen.isdisjoint(self._open):
            self._overdue()
            return
        self._seen = set(self._open)
        if self._open:
            self._alarm = self._host.call_later(_LOOK_S, self._look)
