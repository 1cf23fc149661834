"""Attaches with a selector, which must be read: one in each turn of the loop, however many come with one read.

Who has detached meanwhile is passed over, so no more of them wait than the connection may have links, and what one
read of the socket brings.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.gateway.amqp.links.browse_link import is_browser
from busway.gateway.amqp.links.selector import has_selector
from busway.gateway.amqp.links.topic_subscriptions import is_subscriber
from busway.gateway.amqp.links.waiting_attaches import accepted_late

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.gateway.amqp.connection import AmqpConnection


class SelectingAttaches:
    """Of one connection. `attach` is called again for each when its turn has come."""

    def __init__(self, connection: AmqpConnection, attach: Callable[[Link], None]) -> None:
        self._connection = connection
        self._attach = attach
        self._waiting: deque[Link] = deque()
        self._is_running = False
        self._turn: Link | None = None

    def must_wait(self, link: Link) -> bool:
        """Its turn has not come: it will be attached later."""
        source = link.source
        if not link.is_sender or link is self._turn or not has_selector(source):
            return False
        if not (is_browser(source) or is_subscriber(source)):
            return False
        self._waiting.append(link)
        if not self._is_running:
            self._is_running = True
            self._connection.spawn(self._run())
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
        self._connection.output_waits()
