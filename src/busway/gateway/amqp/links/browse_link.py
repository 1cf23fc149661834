"""Links that take no messages: on one a client looks at them, by JMS selectors perhaps, which say what messages it
wants; on the other there is never anything.

It is the queue browser of JMS (distribution mode `copy`). It shows what peek shows (R-60…R-66), by number, locks
nothing and counts nothing. Nobody wakes it: each flow of the client makes it read on from where it stands, page by
page, until the credit is used or the end is reached; a drain is answered then (R-9). So a browser that asks again
at the end sees what has come meanwhile.

Nothing is kept between two reads. What does not fit is read again when there is room, and the browsers of a
connection read one after the other, so that all of them hold one page, and one compiled selector. That is
evaluated over each page, a few messages in each turn of the loop; what it leaves out is passed by.

A selector (`Selector`) is a filter of a source, `apache.org:selector-filter`. Its language is close to that of
rules, which reads it here: user properties by their names, and those headers of JMS that are properties of the
message under another name. What the language does not know (BETWEEN, JMSPriority …) is refused with its place or
name; nothing is ever left out in silence.

`Q/$Transfer/$DeadLetterQueue` of a queue that nothing was ever sent via is there, and empty (E-8, D-22). It holds
messages whose transfer to another entity failed (`broker/forward/send_via.py`). Tools look into it all the same, so
a receiver can attach and wait there (`EmptyReceiveLink`).
"""

from __future__ import annotations

import asyncio
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from busway.amqp.performatives import SENDER_SETTLED
from busway.amqp.types import Char, Described, Symbol
from busway.broker.fragment.outlet import Attachment
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.links.receive_link import answer_to
from busway.gateway.amqp.message_mapping import peeked_payload
from busway.message.message_subject import MessageSubject
from busway.model.errors import BadArgument, BrokerError, NotImplementedByServer
from busway.rules.compiled_rule import compiled_filter
from busway.rules.expression import Expression, Property, nodes_of
from busway.rules.parse import parse_filter
from busway.rules.printed import printed
from busway.rules.rule import FilterError, RuleSyntaxError, SqlFilter, shown

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import Link
    from busway.amqp.performatives import Source
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.namespace.namespace import Queue
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost
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


_SELECTOR: Final = Symbol("apache.org:selector-filter:string")
_SELECTOR_CODE: Final = 0x0000_468C_0000_0004
_NO_LOCAL: Final = Symbol("apache.org:no-local-filter:list")
_NO_LOCAL_CODE: Final = 0x0000_468C_0000_0003
#: Headers of JMS → system properties.
_HEADERS: Final[dict[str, str]] = {
    "JMSMessageID": "MessageId",
    "JMSCorrelationID": "CorrelationId",
    "JMSType": "Label",
    "JMSReplyTo": "ReplyTo",
    "JMSDestination": "To",
    "JMSXGroupID": "SessionId",
}
#: An evaluation counts for so many characters beside those that it walks over.
_EVALUATION_CHARACTERS: Final = 500


class Selector:
    """`sql` is the same in the language of rules. A link keeps no more than that: compiled it is much larger,
    and a connection may have many browsers that wait."""

    __slots__ = ("sql",)

    def __init__(self, text: str) -> None:
        """Raises BadArgument with the place of a fault, and NotImplementedByServer."""
        try:
            self.sql = printed(_in_rule_words(parse_filter(text)))
            compiled_filter(SqlFilter(self.sql), _no_id)
        except RuleSyntaxError as fault:
            raise BadArgument(f"The selector cannot be read. {fault.sentence}") from None

    def compiled(self) -> CompiledSelector:
        return CompiledSelector(self.sql)


class CompiledSelector:
    """For one page."""

    __slots__ = ("_filter",)

    def __init__(self, sql: str) -> None:
        self._filter = compiled_filter(SqlFilter(sql), _no_id)

    def selects(self, message: Message) -> bool:
        try:
            return self._filter.matches(MessageSubject(message))
        except FilterError:
            return False  # what cannot be evaluated is not true

    def cost(self) -> int:
        """Of the last evaluation, in characters."""
        return _EVALUATION_CHARACTERS + self._filter.walked()


def has_selector(source: Source | None) -> bool:
    """Without looking closer."""
    if source is None or not source.filter:
        return False
    kinds = [
        value.descriptor if isinstance(value, Described) else name for name, value in source.filter.items()
    ]
    return _SELECTOR in kinds or _SELECTOR_CODE in kinds


def selector_of(source: Source | None) -> Selector | None:
    """The selector of a receiver, if it has one. Raises BadArgument, NotImplementedByServer."""
    text = _text_of(source)
    return None if text is None else Selector(text)


def _text_of(source: Source | None) -> str | None:
    if source is None or not source.filter:
        return None
    found: str | None = None
    for name, value in source.filter.items():
        kind: object = value.descriptor if isinstance(value, Described) else name
        if kind in (_NO_LOCAL, _NO_LOCAL_CODE):
            raise NotImplementedByServer(
                "A receiver cannot leave out what its own connection has sent (a no-local filter): "
                "give the messages a property and select by it."
            )
        if kind not in (_SELECTOR, _SELECTOR_CODE):
            continue
        text: object = value.value if isinstance(value, Described) else value
        if not isinstance(text, str) or isinstance(text, Symbol | Char):
            raise BadArgument("The selector must be a string.")
        if found is not None:
            raise BadArgument("A receiver has one selector at most.")
        found = text
    return found


def check_unselected(source: Source | None, path: str) -> None:
    """A receiver that takes messages would have to pass by those that do not fit, however many, each time anew: rules
    decide once, when a message comes."""
    if _text_of(source) is not None:
        raise NotImplementedByServer(
            f"A receiver of '{path}' cannot have a selector. Send to a topic and receive from a subscription with an"
            " SQL rule that says the same; a queue browser can have a selector."
        )


def _in_rule_words(expression: Expression) -> Expression:
    for node in nodes_of(expression):
        if not isinstance(node, Property) or node.is_system or node.name in _HEADERS:
            continue
        if node.name.startswith("JMS"):
            raise NotImplementedByServer(
                f"A selector cannot use {shown(node.name)}; of the headers of JMS it can use"
                f" {', '.join(_HEADERS)}."
            )
    return cast("Expression", _renamed(expression))


def _renamed(part: Any) -> Any:
    """The parser bounds the depth."""
    if isinstance(part, Property):
        known = None if part.is_system else _HEADERS.get(part.name)
        return part if known is None else Property(known, is_system=True)
    if isinstance(part, tuple):
        return tuple(_renamed(one) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: _renamed(getattr(part, field.name)) for field in fields(part)})
    return part


def _no_id() -> UUID:
    """A selector that asks for another id each time means nothing by it."""
    return UUID(int=0)


class EmptyReceiveLink(Attachment):
    """The sending end of a receiver for whom there is never anything. It goes with its queues, which know it
    already."""

    def __init__(
        self, host: LinkHost, link: Link, node: LinkNode, right: str, queues: list[Queue], now: float
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right: str | None = right
        self.used_at = now
        self._queues = queues
        self._is_gone = False

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        """The engine refuses transfers on a link that only sends."""

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None:
        """Nothing was delivered, so there is nothing to settle."""

    def credit_arrived(self) -> None:
        """R-9: a drain is answered; there is nothing to send."""
        self.link.drained()

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return self.link.credit() == 0

    def evict(self, error: BrokerError) -> None:
        if not self._is_gone:
            self.host.end_link(self, self._error_of(error))

    def gone(self) -> None:
        self._is_gone = True
        for queue in self._queues:
            queue.detach(self)

    def _error_of(self, error: BrokerError) -> AmqpError:
        return amqp_error(error, self.host.tracking, self.node.path)
