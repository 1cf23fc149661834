"""A receiver for one message: the receiving side of `messages/head` (R-8, R-23).

Theory of operation. It stands in the outlet's line like a link with one credit. The first of these ends it: a
message, the end of its time, the client's leaving, its eviction. When its time is over while a read or a deletion for
it is under way, it waits for that a little longer: the message is then as good as here. Once ended it takes nothing
more: what comes too late goes back to the outlet, unlocked or put back, without a count.
"""

import asyncio
from typing import Final

from busway.broker.fragment.outlet import Delivery, Outlet, Receiver
from busway.model.errors import BrokerError

#: How long a store may take to finish what it began before the time was over.
_GRACE_S: Final = 2.0


class OneReceive(Receiver):
    """`outlet` None: there is never anything to receive, only time to pass."""

    def __init__(self, outlet: Outlet | None, deletes: bool) -> None:
        self.deletes = deletes
        self._outlet = outlet
        self._is_due = False
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Delivery | None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def delivery(self, wait_s: float) -> Delivery | None:
        """The message; None when there was none in time, or nobody to have it. Raises what it was evicted with.
        It must be in the outlet's line already. Whoever is cancelled in here calls `give_back`."""
        outlet = self._outlet
        if outlet is not None:
            outlet.wake(self)
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._fall_due)
        else:
            self._fall_due()
        try:
            return await self._outcome
        finally:
            self._stop_timer()

    def give_up(self) -> None:
        """The client has gone."""
        self._end(None)

    def give_back(self) -> None:
        """What it was given goes back to the outlet: nobody will have it from here."""
        outcome = self._outcome
        if not outcome.done():
            outcome.cancel()
        if outcome.cancelled() or outcome.exception() is not None:
            return
        delivery = outcome.result()
        if delivery is not None and self._outlet is not None:
            self._outlet.undeliver([delivery])

    # -- from the outlet

    def room(self) -> int:
        return 0 if self._outcome.done() else 1

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        if self._outcome.done():
            return deliveries
        self._outcome.set_result(deliveries[0])
        return deliveries[1:]

    def caught_up(self) -> None:
        if self._is_due:
            self._end(None)

    def evict(self, error: BrokerError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)

    # -- time

    def _fall_due(self) -> None:
        self._is_due = True
        if self._outlet is not None and self._outlet.is_fetching(self):
            self._timer = self._loop.call_later(_GRACE_S, self._end, None)
        else:
            self._end(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, delivery: Delivery | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result(delivery)
