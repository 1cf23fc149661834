"""Requests and responses: the two links of a client on `$cbs` or on an entity's `$management` node.

Theory of operation. A client attaches a sender, on which we get requests, and a receiver, on which it gets the
answers, in any order, on one session or (rarely) on two. Requests are handled as tasks, a bounded number at a time
for each connection; the others wait in order. A request is read when its turn comes, and accepted then: what waits
are the bytes that came in, which count as input that is not stored (`LinkHost.hold_input`). An answer goes to the
response link whose target address is the request's reply-to, else to a response link of the same node on the same
session (Python writes the node's own address as reply-to). Answers for which the client has given no credit wait on
the response link, so many and so many bytes and no more.

The output brake counts here as for deliveries: while the client takes nothing, answers wait, no further request is
begun, and of those that may be answered at length one is worked on at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.decode import DecodeError
from busway.amqp.deliveries import shortened_state
from busway.amqp.performatives import ACCEPTED, Rejected, TransactionalState
from busway.amqp.sections import AmqpMessage, decode_message, encode_message
from busway.event_loop import Steps, shown
from busway.gateway.amqp.error_conditions import amqp_error, undecodable
from busway.gateway.amqp.links.addresses import text_of
from busway.model.errors import ServerBusy

if TYPE_CHECKING:
    from busway.amqp.deliveries import IncomingDelivery, OutgoingDelivery
    from busway.amqp.link import Link
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.links.link_host import LinkHost

_log = logging.getLogger("busway.gateway.amqp")

#: What the service gives its `$cbs` and `$management` links.
REQUEST_CREDIT: Final = 100
MAX_MESSAGE_SIZE: Final = (1 << 64) - 1
#: What a request may really weigh: a full batch of scheduled messages with room to spare.
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
#: A put-token request with the longest token there is.
TOKEN_REQUEST_BYTES_MAX: Final = 32 * 1024
RUNNING_MAX: Final = 16
WAITING_MAX: Final = 1_000
#: Bytes of requests that are worked on at a time; a larger one is worked on alone.
RUNNING_BYTES_MAX: Final = 4 * 1024 * 1024
#: Answers that wait for credit on one response link; above it the oldest is dropped.
UNSENT_MAX: Final = 100
#: Of all response links together. One answer may be larger than that; none that may be long is begun while it waits.
UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
#: The same for a connection that has not shown a token yet.
STRANGER_WAITING_MAX: Final = 16
STRANGER_WAITING_BYTES_MAX: Final = TOKEN_REQUEST_BYTES_MAX
STRANGER_UNSENT_BYTES_MAX: Final = 16 * 1024


class RequestNode(Protocol):
    """`CbsNode`, `ManagementNode`. Its answers carry the request's message id as their correlation id."""

    async def handle(self, request: AmqpMessage, txn_id: bytes | None = None, /) -> AmqpMessage:
        """`txn_id`: the transaction in which the request takes place."""

    def answers_at_length(self, request: AmqpMessage, /) -> bool:
        """Whether the answer may be of many megabytes."""


class Request:
    """One request on its way, as it came in."""

    __slots__ = ("delivery", "link", "verb")

    def __init__(self, link: RequestLink, delivery: IncomingDelivery) -> None:
        self.link = link
        self.delivery = delivery
        #: What is asked for; known when its turn has come.
        self.verb: object = None

    def told(self) -> str:
        return (
            f"a request {shown(self.verb or '')} at {shown(self.link.node.path)}, from {self.link.host.peer}"
        )


def _transaction_of(delivery: IncomingDelivery) -> bytes | None:
    return delivery.state.txn_id if isinstance(delivery.state, TransactionalState) else None


class ConnectionRequests:
    """All requests and response links of one connection."""

    def __init__(self, host: LinkHost) -> None:
        self._host = host
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._running_bytes = 0
        #: Of all response links.
        self.unsent_bytes = 0
        self._responses: list[ResponseLink] = []
        #: Held by a request that may be answered at length.
        self._at_length = asyncio.Lock()
        #: Told when the client has taken what was written.
        self._room: asyncio.Event = asyncio.Event()

    # -- requests

    def take(self, request: Request) -> bool:
        """False when more requests wait than any client needs."""
        size = len(request.delivery.payload)
        is_stranger = self._host.is_stranger
        if len(self._waiting) >= (STRANGER_WAITING_MAX if is_stranger else WAITING_MAX):
            return False
        if is_stranger and self._waiting_bytes + size > STRANGER_WAITING_BYTES_MAX:
            return False
        self._host.hold_input(size)
        self._waiting_bytes += size
        self._waiting.append(request)
        self.start_some()
        return True

    def close(self) -> None:
        """The connection is over: nobody waits for the answers."""
        self._waiting.clear()
        for task in list(self._running):
            task.cancel()

    def room_grew(self) -> None:
        """The client has taken some of what was written."""
        self._room.set()
        self.start_some()

    def start_some(self) -> None:
        running_max = 1 if self._host.is_stranger else RUNNING_MAX
        while self._waiting and len(self._running) < running_max:
            size = len(self._waiting[0].delivery.payload)
            if self._running and self._running_bytes + size > RUNNING_BYTES_MAX:
                return
            if self._host.output_room_bytes() <= 0:
                self._host.when_output_drains(self)
                return
            request = self._waiting.popleft()
            self._waiting_bytes -= size
            self._running_bytes += size
            named = Steps(self._handle(request), request.told)
            task = asyncio.get_running_loop().create_task(named)
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.start_some()

    async def _handle(self, request: Request) -> None:
        try:
            await self._answer(request)
        except Exception:  # nodes answer every error themselves; this is the net below them
            _log.exception("request failed: node=%s", request.link.node.path)
        finally:
            self._running_bytes -= len(request.delivery.payload)
            self._host.release_input(len(request.delivery.payload))

    async def _answer(self, request: Request) -> None:
        link = request.link
        message = link.read(request.delivery)
        if message is None:
            return
        txn_id = _transaction_of(request.delivery)
        request.verb = (message.application_properties or {}).get("operation")
        node = link.request_node
        if not node.answers_at_length(message):
            self._respond(link, message, await node.handle(message, txn_id))
            return
        async with self._at_length:
            while self._host.output_room_bytes() <= 0 or self.unsent_bytes > UNSENT_BYTES_MAX:
                self._room.clear()
                self._host.when_output_drains(self)
                await self._room.wait()
            self._respond(link, message, await node.handle(message, txn_id))

    # -- responses

    def add_response_link(self, link: ResponseLink) -> None:
        self._responses.append(link)

    def remove_response_link(self, link: ResponseLink) -> None:
        self._responses.remove(link)
        self.room_grew()

    def drop_some(self, newest: ResponseLink) -> None:
        """The client does not want its answers: some may wait for it, those of `newest` before others."""
        bytes_max = STRANGER_UNSENT_BYTES_MAX if self._host.is_stranger else UNSENT_BYTES_MAX
        while self.unsent_bytes > bytes_max:
            stuck = [link for link in self._responses if link.may_drop(link is not newest)]
            if not stuck:
                return
            max(stuck, key=ResponseLink.unsent).drop_oldest()

    def _respond(self, asked_on: RequestLink, request: AmqpMessage, answer: AmqpMessage) -> None:
        asked = request.properties
        link = self._response_link(asked_on, None if asked is None else asked.reply_to)
        if link is None:
            level = logging.DEBUG if self._host.is_stranger else logging.INFO
            _log.log(level, "no response link: node=%s", shown(asked_on.node.path))
            return
        link.respond(encode_message(answer))

    def _response_link(self, asked_on: RequestLink, reply_to: object) -> ResponseLink | None:
        session = asked_on.link.session
        address = reply_to.decode(errors="replace") if isinstance(reply_to, bytes) else reply_to
        same_session = [link for link in self._responses if link.link.session is session]
        if isinstance(address, str):
            for link in (*same_session, *self._responses):
                if link.target_text == address:
                    return link
        for link in (*same_session, *self._responses):
            if link.node.path.lower() == asked_on.node.path.lower():
                return link
        return None


class RequestLink:
    """A client's sender on a request node."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: LinkNode,
        right: str | None,
        requests: ConnectionRequests,
        request_node: RequestNode,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right = right
        self.used_at = now
        self.request_node = request_node
        self._requests = requests
        self._credit = 0

    def start(self) -> None:
        self._top_up()

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None:
        self._credit -= len(deliveries)
        for delivery in deliveries:
            self._take(delivery)
        self._top_up()

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None: ...

    def credit_arrived(self) -> None: ...

    def room_grew(self) -> None: ...

    def is_idle(self) -> bool:
        return False

    def gone(self) -> None: ...

    def _take(self, delivery: IncomingDelivery) -> None:
        if delivery.state is not None:
            delivery.state = shortened_state(delivery.state)
        if not self._requests.take(Request(self, delivery)):
            self._settle(delivery, Rejected(amqp_error(ServerBusy(), self.host.tracking, self.node.path)))

    def read(self, delivery: IncomingDelivery) -> AmqpMessage | None:
        """Its turn has come: accepted, or None and rejected when it cannot be read."""
        try:
            message = decode_message(delivery.payload)
        except DecodeError as problem:
            self._settle(delivery, Rejected(undecodable(problem, self.host.tracking, self.node.path)))
            message = None
        else:
            # The outcome of a request in a transaction is told in its terms; the answer says whether it was done.
            txn_id = _transaction_of(delivery)
            self._settle(delivery, ACCEPTED if txn_id is None else TransactionalState(txn_id, ACCEPTED))
        self.host.output_waits()
        return message

    def _settle(self, delivery: IncomingDelivery, outcome: object) -> None:
        if not delivery.settled:
            self.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)

    def _top_up(self) -> None:
        if self._credit < REQUEST_CREDIT // 2:
            self._credit = REQUEST_CREDIT
            self.link.grant_credit(REQUEST_CREDIT)


class ResponseLink:
    """A client's receiver on a request node. Answers are settled when they are sent: nothing hangs on them."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: LinkNode,
        right: str | None,
        requests: ConnectionRequests,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right = right
        self.used_at = now
        #: What the client writes as reply-to when it wants its answer here.
        self.target_text = text_of(link.target)
        self._requests = requests
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._tags = 0

    def respond(self, payload: bytes) -> None:
        self._unsent.append(payload)
        self._unsent_bytes += len(payload)
        self._requests.unsent_bytes += len(payload)
        self._send_some()
        if self._unsent and self.link.room() <= 0:
            while len(self._unsent) > UNSENT_MAX:
                self.drop_oldest()
            self._requests.drop_some(self)

    def unsent(self) -> int:
        """Bytes of answers that wait here."""
        return self._unsent_bytes

    def may_drop(self, also_the_last: bool) -> bool:
        """Whether answers wait here for credit; the newest of all stays in any case."""
        return len(self._unsent) > (0 if also_the_last else 1) and self.link.room() <= 0

    def drop_oldest(self) -> None:
        self._forget(self._unsent.popleft())

    def _forget(self, payload: bytes) -> None:
        self._unsent_bytes -= len(payload)
        self._requests.unsent_bytes -= len(payload)

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None: ...

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None: ...

    def credit_arrived(self) -> None:
        self._send_some()

    def room_grew(self) -> None:
        self._send_some()

    def is_idle(self) -> bool:
        return self.link.credit() == 0 and not self._unsent

    def gone(self) -> None:
        while self._unsent:
            self.drop_oldest()
        self._requests.remove_response_link(self)

    def _send_some(self) -> None:
        while self._unsent and self.link.room() > 0:
            if self.host.output_room_bytes() <= 0:
                self.host.when_output_drains(self)
                return
            payload = self._unsent.popleft()
            self._forget(payload)
            self._tags += 1
            self.link.send((self._tags & 0xFFFFFFFF).to_bytes(4, "big"), payload, settled=True)
            self.host.output_waits(len(payload))
            if not self._unsent:
                self._requests.room_grew()
        if self.link.drain_requested():
            self.link.drained()
            self.host.output_waits()
