"""Requests and responses: the two links of a client on `$cbs` or on an entity's `$management` node.

Theory of operation. A client attaches a sender, on which we get requests, and a receiver, on which it gets the
answers, in any order, on one session or (rarely) on two. Requests are accepted as soon as they arrive and handled
as tasks, a bounded number at a time for each connection; the others wait in order. An answer goes to the response
link whose target address is the request's reply-to, else to a response link of the same node on the same session
(Python writes the node's own address as reply-to). Answers for which the client has given no credit wait on the
response link, so many and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import ACCEPTED, Rejected, TransactionalState
from busway.amqp.sections import AmqpMessage, decode_message, encode_message
from busway.broker.errors import ServerBusy
from busway.gateway.amqp.addresses import text_of
from busway.gateway.amqp.error_conditions import amqp_error, undecodable

if TYPE_CHECKING:
    from busway.amqp.link import IncomingDelivery, Link, OutgoingDelivery
    from busway.gateway.amqp.addresses import Node
    from busway.gateway.amqp.link_host import LinkHost

_log = logging.getLogger("busway.gateway.amqp")

#: What the service gives its `$cbs` and `$management` links.
REQUEST_CREDIT: Final = 100
MAX_MESSAGE_SIZE: Final = (1 << 64) - 1
#: What a request may really weigh: a full batch of scheduled messages with room to spare.
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
RUNNING_MAX: Final = 16
WAITING_MAX: Final = 1_000
#: Answers that wait for credit on one response link; above it the oldest is dropped.
UNSENT_MAX: Final = 100


class RequestNode(Protocol):
    """`CbsNode`, `ManagementNode`. Its answers carry the request's message id as their correlation id."""

    async def handle(self, request: AmqpMessage, txn_id: bytes | None = None, /) -> AmqpMessage:
        """`txn_id`: the transaction in which the request shall take place."""


class Request:
    """One request on its way."""

    __slots__ = ("link", "message", "txn_id")

    def __init__(self, link: RequestLink, message: AmqpMessage, state: object) -> None:
        self.link = link
        self.message = message
        self.txn_id = state.txn_id if isinstance(state, TransactionalState) else None


class RequestDesk:
    """All requests and response links of one connection."""

    def __init__(self, host: LinkHost) -> None:
        self._host = host
        self._waiting: deque[Request] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._responses: list[ResponseLink] = []

    # -- requests

    def take(self, request: Request) -> bool:
        """False when more requests wait than any client needs."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(request)
        self._start_some()
        return True

    def close(self) -> None:
        """The connection is over: nobody waits for the answers."""
        self._waiting.clear()
        for task in list(self._running):
            task.cancel()

    def _start_some(self) -> None:
        while self._waiting and len(self._running) < RUNNING_MAX:
            request = self._waiting.popleft()
            task = asyncio.get_running_loop().create_task(self._handle(request))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_some()

    async def _handle(self, request: Request) -> None:
        try:
            answer = await request.link.request_node.handle(request.message, request.txn_id)
        except Exception:  # nodes answer every error themselves; this is the net below them
            _log.exception("request failed: node=%s", request.link.node.path)
            return
        self._respond(request, answer)

    # -- responses

    def add_response_link(self, link: ResponseLink) -> None:
        self._responses.append(link)

    def remove_response_link(self, link: ResponseLink) -> None:
        self._responses.remove(link)

    def _respond(self, request: Request, answer: AmqpMessage) -> None:
        asked = request.message.properties
        link = self._response_link(request, None if asked is None else asked.reply_to)
        if link is None:
            _log.info("no response link: node=%s", request.link.node.path)
            return
        link.respond(encode_message(answer))

    def _response_link(self, request: Request, reply_to: object) -> ResponseLink | None:
        session = request.link.link.session
        address = reply_to.decode(errors="replace") if isinstance(reply_to, bytes) else reply_to
        same_session = [link for link in self._responses if link.link.session is session]
        if isinstance(address, str):
            for link in (*same_session, *self._responses):
                if link.target_text == address:
                    return link
        for link in (*same_session, *self._responses):
            if link.node.path.lower() == request.link.node.path.lower():
                return link
        return None


class RequestLink:
    """A client's sender on a request node."""

    def __init__(
        self,
        host: LinkHost,
        link: Link,
        node: Node,
        right: str | None,
        desk: RequestDesk,
        request_node: RequestNode,
        now: float,
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right = right
        self.used_at = now
        self.request_node = request_node
        self._desk = desk
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
        try:
            message = decode_message(delivery.payload)
        except DecodeError as problem:
            error = undecodable(problem, self.host.tracking, self.node.path)
            self._settle(delivery, Rejected(error))
            return
        request = Request(self, message, delivery.state)
        if self._desk.take(request):
            # The outcome of a request in a transaction is told in its terms; the answer says whether it was done.
            txn_id = request.txn_id
            self._settle(delivery, ACCEPTED if txn_id is None else TransactionalState(txn_id, ACCEPTED))
        else:
            self._settle(delivery, Rejected(amqp_error(ServerBusy(), self.host.tracking, self.node.path)))

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
        self, host: LinkHost, link: Link, node: Node, right: str | None, desk: RequestDesk, now: float
    ) -> None:
        self.host = host
        self.link = link
        self.node = node
        self.right = right
        self.used_at = now
        #: What the client writes as reply-to when it wants its answer here.
        self.target_text = text_of(link.target)
        self._desk = desk
        self._unsent: deque[bytes] = deque(maxlen=UNSENT_MAX)
        self._tags = 0

    def respond(self, payload: bytes) -> None:
        self._unsent.append(payload)
        self._send_some()

    def deliveries_arrived(self, deliveries: list[IncomingDelivery]) -> None: ...

    def outcomes_arrived(self, deliveries: list[OutgoingDelivery], state: object, settled: bool) -> None: ...

    def credit_arrived(self) -> None:
        self._send_some()
        if self.link.drain_requested():
            self.link.drained()
            self.host.output_waits()

    def room_grew(self) -> None:
        self._send_some()

    def is_idle(self) -> bool:
        return self.link.credit() == 0 and not self._unsent

    def gone(self) -> None:
        self._unsent.clear()
        self._desk.remove_response_link(self)

    def _send_some(self) -> None:
        while self._unsent and self.link.room() > 0:
            payload = self._unsent.popleft()
            self._tags += 1
            self.link.send((self._tags & 0xFFFFFFFF).to_bytes(4, "big"), payload, settled=True)
            self.host.output_waits(len(payload))
