"""Attaches that wait: for a change of the namespace, or for their turn.

A change: a temporary node or a subscription is made for them, or one is looked for to be ended. Changes wait for one
another, and a store may hang. A client whose links wait may detach them, or go, and come again;
what it asked for is on its way nevertheless. So the bounds on links and connections do not bound it, and this does.

A turn: a selector must be read, one in each turn of the loop, however many come with one read of the socket. Who has
detached meanwhile is passed over, so no more of them wait than the connection may have links, and what one read
brings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, cast

from busway.event_loop import BackgroundWork
from busway.model.errors import ServerBusy

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.gateway.amqp.links.link_host import AttachedLink, LinkHost

#: As many as a connection may have links: who waits for answers does not meet it.
OF_ONE_MAX: Final = 1_024
OF_ALL_MAX: Final = 4_096


def accepted_late(link: Link) -> None:
    """Credit that came behind the attach was heard by nobody."""
    owner = cast("AttachedLink | None", link.owner)
    if owner is not None:
        owner.credit_arrived()


class WaitingAttaches:
    """Of all connections."""

    def __init__(
        self, background: BackgroundWork, of_one_max: int = OF_ONE_MAX, of_all_max: int = OF_ALL_MAX
    ) -> None:
        self._background = background
        self._of_one_max = of_one_max
        self._of_all_max = of_all_max
        self.count = 0
        #: One of them looks through all entities at a time.
        self.looking = asyncio.Lock()

    def of_one_client(self) -> WaitingOfOne:
        return WaitingOfOne(self, self._of_one_max)

    def is_full(self) -> bool:
        return self.count >= self._of_all_max

    def spawn(self, work: Coroutine[None, None, None], client: WaitingOfOne) -> None:
        self.count += 1
        client.count += 1
        self._background.spawn(work, lambda: self._ended(client))

    def _ended(self, client: WaitingOfOne) -> None:
        self.count -= 1
        client.count -= 1


class WaitingOfOne:
    """Of one connection; outlives it as long as something waits."""

    def __init__(self, all_of_them: WaitingAttaches, most: int) -> None:
        self._all = all_of_them
        self._most = most
        self.count = 0
        self.looking = all_of_them.looking

    def check(self) -> None:
        """Raises ServerBusy when no more may wait."""
        if self.count >= self._most:
            raise ServerBusy(
                f"{self.count} links of this connection wait for changes of the namespace already. Please try again"
                " when they are answered."
            )
        if self._all.is_full():
            raise ServerBusy(
                f"{self._all.count} links wait for changes of the namespace already. Please try again later."
            )

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Not work of the connection: what is made when that has gone must be let go."""
        self._all.spawn(work, self)


class SelectingAttaches:
    """Of one connection. `selects`: whether an attach has a selector that must be read. `attach` is called again for
    each when its turn has come."""

    def __init__(
        self, host: LinkHost, selects: Callable[[Link], bool], attach: Callable[[Link], None]
    ) -> None:
        self._host = host
        self._selects = selects
        self._attach = attach
        self._waiting: deque[Link] = deque()
        self._is_running = False
        self._turn: Link | None = None

    def must_wait(self, link: Link) -> bool:
        """Its turn has not come: it will be attached later."""
        if link is self._turn or not self._selects(link):
            return False
        self._waiting.append(link)
        if not self._is_running:
            self._is_running = True
            self._host.spawn(self._run())
        return True

    async def _run(self) -> None:
        try:
            while self._waiting:
                link = self._waiting.popleft()
                if link.is_live():
                    self._take(link)
                    await asyncio.sleep(0)  # others have their turn
        finally:
            self._is_running = False

    def _take(self, link: Link) -> None:
        self._turn = link
        try:
            self._attach(link)
        finally:
            self._turn = None
        accepted_late(link)
        self._host.output_waits()
