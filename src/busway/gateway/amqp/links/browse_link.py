"""A link on which a client looks at messages and takes none: the queue browser of JMS (distribution mode `copy`).

It shows what peek shows (R-60…R-66), by number, locks nothing and counts nothing. Nobody wakes it: each flow of the
client makes it read on from where it stands, page by page, until the credit is used or the end is reached; a drain is
answered then (R-9). So a browser that asks again at the end sees what has come meanwhile.

Nothing is kept between two reads. What does not fit is read again when there is room, and the browsers of a
connection read one after the other, so that all of them hold one page, and one compiled selector. That is evaluated
over each page, a few messages in each turn of the loop; what it leaves out is passed by.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.amqp.performatives import SENDER_SETTLED
from busway.broker.fragment.outlet import Attachment
from busway.gateway.amqp.wire.error_conditions import amqp_error
from busway.gateway.amqp.wire.message_mapping import peeked_payload
from busway.gateway.amqp.wire.outcomes import answer_to
from busway.model.errors import BrokerError

if TYPE_CHECKING:
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.amqp.performatives import Source
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.namespace.namespace import Queue
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost
    from busway.gateway.amqp.links.selector import Selector
    from busway.message.message import Message

_COPY: Final = "copy"
_FRAME_BYTES: Final = 64
#: What a selector may cost before others have their turn.
_TURN_CHARACTERS: Final = 50_000


def is_browser(source: Source | None) -> bool:
    """Durable subscriptions ask for copies, too: theirs are their own."""
    return source is not None and source.distribution_mode == _COPY and not source.durable


class BrowseLink(Attachment):
    """The sending end of a client's browser."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: LinkNode,
        queue: Queue,
        outlet: Outlet,
        selector: Selector | None,
        turn: asyncio.Lock,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = "Listen"
        self.used_at = now
        self._queue = queue
        self._outlet = outlet
        self._selector = selector
        #: Of the connection: one browser reads at a time.
        self._turn = turn
        self._is_settled = link.snd_settle_mode == SENDER_SETTLED
        self._from_number = 0
        self._tags = 0
        self._is_gone = False
        self._is_reading = False
        #: The client has asked again since the present read began.
        self._asked_again = False

    # -- from the queue

    def evict(self, error: BrokerError) -> None:
        if not self._is_gone:
            self.host.end_link(self, amqp_error(error, self.host.tracking, self.node.path))

    # -- from the connection

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Whatever the client thinks of a copy: it is heard, and nothing comes of it."""
        if not settled:
            self.link.answer(deliveries, answer_to(state))
        self.room_grew()

    def credit_arrived(self) -> None:
        if self.link.credit() > 0:
            self._read_on()
        else:
            self.link.drained()

    def room_grew(self) -> None:
        if not self._is_gone and self.link.credit() > 0 and not self._is_reading:
            self._read_on()

    def is_idle(self) -> bool:
        return self.link.credit() == 0 and not self._is_reading

    def gone(self) -> None:
        self._is_gone = True
        self._queue.detach(self)

    # -- reading

    def _read_on(self) -> None:
        if self._is_reading:
            self._asked_again = True
            return
        self._is_reading = True
        self.host.spawn(self._read())

    async def _read(self) -> None:
        try:
            goes_on = True
            while goes_on:
                async with self._turn:
                    goes_on = await self._read_page()
                self._asked_again = self._asked_again and not goes_on
        except BrokerError as error:
            self.evict(error)
        finally:
            self._is_reading = False
        if self._is_gone:
            return
        if self._asked_again:
            self._asked_again = False
            self.room_grew()

    async def _read_page(self) -> bool:
        """False when there is nothing to read on for."""
        room = 0 if self._is_gone else self.link.room()
        if room > 0 and self.host.output_room_bytes() == 0:
            room = 0
            self.host.when_output_drains(self)
        if room == 0:
            if self.link.credit() == 0:
                self._answer_drain()
            return False
        # A selector passes most by: it is given whole pages.
        limit = self.host.limits.peek_messages_max
        count = limit if self._selector is not None else min(room, limit)
        page = await self._outlet.peek(self._from_number, count)
        if not page:
            if not self._asked_again:
                self._answer_drain()
            return False
        await self._show(page)
        return True

    async def _show(self, page: list[Message]) -> None:
        """As many as fit; what is behind them is read again."""
        selector = None if self._selector is None else self._selector.compiled()
        cost = 0
        for message in page:
            if selector is not None:
                is_selected = selector.selects(message)
                cost += selector.cost()
                if cost > _TURN_CHARACTERS:
                    cost = 0
                    await asyncio.sleep(0)  # others have their turn
                if not is_selected:
                    self._from_number = message.sequence_number + 1
                    continue
            if self._is_gone or self.link.room() <= 0 or self.host.output_room_bytes() == 0:
                return
            self._send(message)

    def _send(self, message: Message) -> None:
        payload = peeked_payload(message, self._outlet.settings.is_partitioned)
        self._tags += 1
        self._from_number = message.sequence_number + 1
        self.link.send(self._tags.to_bytes(8, "big"), payload, settled=self._is_settled)
        self.host.output_waits(len(payload) + _FRAME_BYTES)

    def _answer_drain(self) -> None:
        if not self._is_gone and self.link.drain_requested():
            self.link.drained()
            self.host.output_waits()
