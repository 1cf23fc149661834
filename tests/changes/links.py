"""What clients make by attaching, and end: temporary queues, and the subscriptions of JMS. Only in process: an
administrator by HTTP has no links."""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Attachment
from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import Description, NewEntity
from busway.model.errors import (
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidOperation,
    ServerBusy,
)
from busway.rules.rule import Rule

#: How long a client that unsubscribes needs to close its link.
_STANDS_S: Final = 0.02
_LOOK_S: Final = 0.001
_LOOKS_MAX: Final = 2_000


class Link(Attachment):
    def evict(self, error: BrokerError) -> None:
        """The next step says what it wants of the entity."""


class Links:
    """The links of all clients, by the path of what they hold."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._holders: dict[str, Link] = {}

    async def hold(self, description: Description, rules: tuple[Rule, ...] = ()) -> None:
        """A client has it made and holds it."""
        path = description.path
        try:
            await self.namespace.create([NewEntity(description, rules)])
        except EntityAlreadyExists:
            if path in self._holders:
                return
        queue, link = self.namespace.queue(path), Link()
        queue.attach(link, sends=False)
        queue.hold(link, lambda: self.namespace.release(path))
        self._holders[path] = link

    async def let_go(self, path: str) -> None:
        """Its client goes, and so it goes soon."""
        link = self._holders.pop(path, None)
        if link is not None:
            self.namespace.queue(path).detach(link)
        for _ in range(_LOOKS_MAX):
            if not self.namespace.exists(path):
                return
            await asyncio.sleep(_LOOK_S)
        raise ServerBusy(f"{path} is still there.")

    async def unsubscribe(self, path: str) -> None:
        """Not while somebody receives; and nobody comes to receive as long as it stands for the end."""
        try:
            queue = self.namespace.queue(path)
        except EntityNotFound:
            return
        if queue.is_received_from():
            raise InvalidOperation("Somebody receives.")
        await self._end(path, queue)

    async def _end(self, path: str, queue: Queue) -> None:
        link = Link()
        queue.end_by(link)
        try:
            await asyncio.sleep(_STANDS_S)
            await self.namespace.end(path, link)
        finally:
            queue.detach(link)
