"""Sending and receiving over HTTP, as the service's own REST API does it (S-5, S-21, R-23).

    POST    E/messages               one message, or a batch in JSON                             201
    POST    E/messages/head          the next message, locked; ?timeout= seconds to wait          201, or 204
    DELETE  E/messages/head          the next message, deleted                                    200, or 204
    DELETE  E/messages/ID/TOKEN      complete                                                     200
    PUT     E/messages/ID/TOKEN      unlock: available again, one failed delivery more            200
    POST    E/messages/ID/TOKEN      renew the lock                                               200

E is an entity as AMQP addresses have it (E-8): `orders`, `topic/subscriptions/name`, `orders/$DeadLetterQueue`. ID
is the message's id or its sequence number. Every route looks at the token first (Send, or Listen), then for the
entity, then at the rest of the request, so a stranger learns nothing. A lock that is unknown, or that is another
message's, is 404; an operation that the entity does not know, such as receiving without a session where sessions
are required, is 400 (ERR-6). Entities are found by address in `MessageEntities` (E-8, E-10), the one seam to the
namespace.

A message in hand belongs to the client once its answer has left this process; until then it goes back when the
client leaves: unlocked, or put back under its number, without a count. From then on the mode decides, as over
AMQP: a lock ends by itself, and a deleted message has been delivered (R-1).

The receiving side of `messages/head` is a receiver for one message (`OneReceive`; R-8, R-23). It stands in the
outlet's line like a link with one credit. The first of these ends it: a message, the end of its time, the client's
leaving, its eviction. When its time is over while a read or a deletion for it is under way, it waits for that a
little longer: the message is then as good as here. Once ended it takes nothing more: what comes too late goes back
to the outlet, unlocked or put back, without a count.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from busway.amqp.decode import DecodeError
from busway.broker.fragment.outlet import Attachment, Delivery, Outlet, Receiver
from busway.broker.namespace.namespace import Namespace, Queue, Topic
from busway.clock import Clock
from busway.gateway.http.call import Call
from busway.gateway.http.messages.http_message import (
    ReceivedMessage,
    batch_payloads,
    is_batch,
    message_id_of,
    received_message,
    single_payload,
)
from busway.gateway.http.messages.message_properties import (
    BROKER_PROPERTIES,
    described_lock,
    id_text,
    lock_token_text,
)
from busway.gateway.http.presence import ClientPresence, presence_of, spelled_headers
from busway.gateway.http.statuses import HttpRefusal
from busway.message.message import Message
from busway.model.authorization import path_segments
from busway.model.descriptions import LISTEN, SEND
from busway.model.entity_path import EntityAddress, check_path, not_found, shown
from busway.model.errors import (
    BadArgument,
    BrokerError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    ServerBusy,
)
from busway.model.limits import Limits
from busway.model.settlement import RunDone, Settlement, Verb


@dataclass(frozen=True)
class ReceivePoint:
    """Where messages are received: the entity that a receiver holds open, and what it receives from. `outlet` is
    None for the transfer dead-letter queue of an entity that nothing was ever sent via."""

    entity: Queue
    outlet: Outlet | None


class MessageEntities:
    """The entities that the message API works on, found by address (E-8, E-10): the one seam to the namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def sender(self, path: str) -> Queue | Topic:
        """Raises EntityNotFound, EntityDisabled, ServerBusy; InvalidOperation for what takes no messages (E-10)."""
        address = self._address(path)
        if address.dead_letter or address.transfer_dead_letter:
            raise InvalidOperation(f"Nobody can send to '{path}': messages enter it by dead-lettering only.")
        found = self._namespace.sender(address.path)
        check = _SendCheck()
        found.attach(check, sends=True)
        found.detach(check)
        return found

    def receive_point(self, path: str, *, with_sessions: bool = False) -> ReceivePoint:
        """Raises EntityNotFound, ServerBusy; InvalidOperation for topics (E-9), and for sessions, which messages over
        HTTP do not have (R-23)."""
        address = self._address(path)
        if address.transfer_dead_letter:
            return self._transfer_dead_letters(address.path)
        found = self._namespace.queue(address.path)
        outlet = found.outlet(address.dead_letter)
        if outlet.requires_session and not with_sessions:
            raise InvalidOperation(
                f"'{path}' requires sessions, which cannot be received over HTTP. It is not possible for an entity"
                " that requires sessions to create a non-sessionful message receiver."
            )
        return ReceivePoint(found, outlet)

    def _transfer_dead_letters(self, via_path: str) -> ReceivePoint:
        """D-22: empty where nothing was ever sent via the entity."""
        transfers = self._namespace.transfer_queues.of(via_path)
        if transfers is None:
            return ReceivePoint(self._namespace.queue(via_path), None)
        return ReceivePoint(transfers, transfers.outlet(True))

    def _address(self, path: str) -> EntityAddress:
        address = EntityAddress.parse(path)
        if address.management or not address.path:
            raise not_found(self._namespace.name, path)
        return address


class _SendCheck(Attachment):
    """Asks whether sending is allowed, and is gone before anything can happen to it."""

    def evict(self, error: BrokerError) -> None: ...


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


#: L-5: over HTTP no message is larger, whatever the entity allows.
MESSAGE_BYTES_MAX: Final = 1024 * 1024
WAIT_S_DEFAULT: Final = 60
#: A longer wish is granted in part: the client asks again, as it does after every 204.
WAIT_S_MAX: Final = 300
#: Receives under way, over all entities.
WAITING_MAX: Final = 5_000

_SECONDS: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,7})?")
_TOKEN: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
#: Of a lock, as generously as an address is taken for one.
_ANY_TOKEN: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_SUBSCRIPTIONS: Final = "subscriptions"
#: ERR-6, ERR-42.
_INVALID_OPERATION: Final = 40301
_VERBS: Final = {"DELETE": Verb.COMPLETE, "PUT": Verb.ABANDON}


class WireCodec(Protocol):
    """Between payloads in AMQP's form and the broker's messages; the AMQP side has one."""

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message: ...
    def payload(self, message: Message, token: bytes, locked_until_ms: int) -> bytes: ...


def is_lock(_: object, __: str, message_id: str, token: str) -> bool:
    """A topic whose name ends in `messages` has subscriptions: a message's id may be `subscriptions`, but its token
    is a UUID."""
    return message_id.lower() != _SUBSCRIPTIONS or _ANY_TOKEN.fullmatch(token.lower()) is not None


class Messages:
    """The routes of messages."""

    def __init__(self, namespace: Namespace, clock: Clock, codec: WireCodec) -> None:
        self._limits = namespace.limits
        self._entities = MessageEntities(namespace)
        self._clock = clock
        self._codec = codec
        self._waiting: set[OneReceive] = set()
        self._is_closing = False

    def close(self) -> None:
        """The server stops: whoever waits is told so."""
        self._is_closing = True
        for receive in list(self._waiting):
            receive.evict(_stopping())

    def _require(self, call: Call, entity: str, right: str) -> None:
        """A-5, A-9. A token may be for the entity, for what lies above, or for no more than this address."""
        if path_segments(entity) is None:
            # No token can be for such a path; everybody is told what is wrong with it (E-6).
            check_path(EntityAddress.parse(entity).path, self._limits.path_characters_max)
        is_clean = path_segments(call.path) is not None  # an id may hold any letter
        asked_for = call.path if is_clean else f"{entity}/messages"
        call.require_for(entity, asked_for, right)

    # -- sending

    async def send(self, call: Call, entity: str) -> Response:
        self._require(call, entity, SEND)
        with refused_as_bad_request():
            await self._send(call, entity)
        return Response(status_code=201)

    async def _send(self, call: Call, path: str) -> None:
        settings = self._entities.sender(path).settings
        bytes_max = min(settings.message_bytes_max, MESSAGE_BYTES_MAX)
        content_type = _content_type(call.request)
        body = await call.body(bytes_max, MessageTooLarge)
        payloads = await self._payloads(call.request, body, content_type, bytes_max)
        # That took its time: the entity may be another one, or gone.
        entity = self._entities.sender(path)
        wants_message_id = entity.settings.detects_duplicates
        messages = [self._message(payload, wants_message_id) for payload in payloads]
        await settled(lambda done: entity.send_atomically(messages, done))

    async def _payloads(
        self, request: Request, body: bytes, content_type: str | None, bytes_max: int
    ) -> list[bytes]:
        now_ms = self._clock.wall_ms()
        if is_batch(content_type):
            return await batch_payloads(body, now_ms, _BatchSize(bytes_max).add)
        return [single_payload(body, spelled_headers(request), content_type, now_ms)]

    def _message(self, payload: bytes, wants_message_id: bool) -> Message:
        try:
            return self._codec.message(payload, wants_message_id, self._limits)
        except DecodeError as error:
            raise BadArgument(f"The message cannot be stored: {error}.") from error

    # -- receiving

    async def receive(self, call: Call, entity: str) -> Response:
        self._require(call, entity, LISTEN)
        with refused_as_bad_request():
            return await self._receive(call, entity)

    async def _receive(self, call: Call, entity: str) -> Response:
        self._entities.receive_point(entity)
        wait_s = _wait_s(call.request)
        await call.body()
        if self._is_closing:
            raise _stopping()
        if len(self._waiting) >= WAITING_MAX:
            raise ServerBusy(f"{WAITING_MAX} requests wait for messages already. Please try again later.")
        presence = presence_of(call.request)
        point = self._entities.receive_point(entity)
        receive = OneReceive(point.outlet, deletes=call.method == "DELETE")
        try:
            delivery = await self._delivery(receive, point, presence, wait_s)
            if delivery is None or point.outlet is None:
                return Response(status_code=204)
            self._require(call, entity, LISTEN)  # the wait was long enough for a token to end
            return MessageResponse(
                200 if receive.deletes else 201,
                self._received(call, entity, delivery),
                presence,
                point.outlet,
                delivery,
            )
        except BaseException:
            receive.give_back()
            raise

    async def _delivery(
        self, receive: OneReceive, point: ReceivePoint, presence: ClientPresence, wait_s: float
    ) -> Delivery | None:
        """Stands in line, and leaves it whatever happens."""
        point.entity.attach(receive, sends=False)
        self._waiting.add(receive)
        try:
            if point.outlet is not None:
                point.outlet.add_receiver(receive)
            presence.watch(receive.give_up)
            return await receive.delivery(wait_s)
        finally:
            presence.unwatch(receive.give_up)
            self._waiting.discard(receive)
            if point.outlet is not None:
                point.outlet.remove_receiver(receive)
            point.entity.detach(receive)

    def _received(self, call: Call, entity: str, delivery: Delivery) -> ReceivedMessage:
        payload = self._codec.payload(delivery.message, delivery.token, delivery.locked_until_ms)
        received = received_message(delivery, payload)
        if delivery.token:
            lock = f"{delivery.message.sequence_number}/{lock_token_text(delivery.token)}"
            received.headers.append(("Location", f"{call.root}/{entity}/messages/{lock}"))
        return received

    # -- locks

    async def settle(self, call: Call, entity: str, id: str, token: str) -> Response:
        settlement = Settlement(_VERBS[call.method])
        self._require(call, entity, LISTEN)
        with refused_as_bad_request(), _lost_as_missing(id, token):
            outlet, lock = await self._locked(call, entity, id, token)
            await settled(lambda done: outlet.settle([lock], settlement, done))
        return Response(status_code=200)

    async def renew(self, call: Call, entity: str, id: str, token: str) -> Response:
        """R-30: the answer tells the lock's new end."""
        self._require(call, entity, LISTEN)
        with refused_as_bad_request(), _lost_as_missing(id, token):
            outlet, lock = await self._locked(call, entity, id, token)
            (locked_until_ms,) = await outlet.renew([lock])
        return Response(headers={BROKER_PROPERTIES: json.dumps(described_lock(lock, locked_until_ms))})

    async def _locked(self, call: Call, entity: str, message_id: str, text: str) -> tuple[Outlet, bytes]:
        """Where the message lies, and its lock. Raises MessageLockLost."""
        await call.body()
        outlet = self._entities.receive_point(entity).outlet
        token = lock_of(text)
        if outlet is None or token is None or not await self._is_locked(outlet, token, message_id):
            raise MessageLockLost
        return outlet, token

    async def _is_locked(self, outlet: Outlet, token: bytes, message_id: str) -> bool:
        """The token is a live lock, of the message with this number or id."""
        number = outlet.locked_number(token)
        if number is None:
            return False
        if str(number) == message_id:
            return True
        for message in await outlet.peek(number, 1):
            if message.sequence_number == number:
                return id_text(message_id_of(self._codec.payload(message, b"", 0))) == message_id
        return False


class MessageResponse(Response):
    """The answer with a message, which goes back to its outlet unless the answer leaves whole. Header names keep
    their spelling, which is that of the properties (M-30)."""

    def __init__(
        self,
        status: int,
        received: ReceivedMessage,
        presence: ClientPresence,
        outlet: Outlet,
        delivery: Delivery,
    ) -> None:
        super().__init__(received.body, status)
        self.raw_headers += [(name.encode("ascii"), text.encode("ascii")) for name, text in received.headers]
        self._presence = presence
        self._outlet = outlet
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        presence, answers, has_left = self._presence, self._presence.answers, False
        try:
            await super().__call__(scope, receive, send)
            has_left = presence.answers > answers and await presence.flush()
        finally:
            if not has_left:
                self._outlet.undeliver([self._delivery])


class _BatchSize:
    """S-22: the limit applies to the whole batch, and is met before the rest of it is taken apart."""

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = self._bytes_max = bytes_max

    def add(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise MessageTooLarge(f"The batch is larger than the {self._bytes_max} bytes that are allowed.")


async def settled(start: Callable[[RunDone], None]) -> None:
    """Waits for a run of one outcome. Raises what it was refused with."""
    ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not ended.done():  # the request may have been cancelled meanwhile
            ended.set_result(refused)

    start(report)
    for _, error in await ended:
        raise error


def _content_type(request: Request) -> str | None:
    found = request.headers.getlist("content-type")
    if len(found) > 1:
        raise BadArgument("The header Content-Type comes twice.")
    return found[0] if found and found[0] else None


def _wait_s(request: Request) -> float:
    found = request.query_params.getlist("timeout")
    if not found:
        return WAIT_S_DEFAULT
    if len(found) > 1 or _SECONDS.fullmatch(found[0]) is None:
        raise BadArgument(f"timeout: {found[-1][:32]!r} is not a number of seconds.")
    return min(float(found[0]), WAIT_S_MAX)


def lock_of(text: str) -> bytes | None:
    return None if _TOKEN.fullmatch(text) is None else UUID(text).bytes_le


@contextmanager
def refused_as_bad_request() -> Iterator[None]:
    """ERR-6: what the entity does not know."""
    try:
        yield
    except InvalidOperation as error:
        raise HttpRefusal(400, f"SubCode={_INVALID_OPERATION}. {error.sentence}") from error


@contextmanager
def _lost_as_missing(message_id: str, token: str) -> Iterator[None]:
    """A lock that is not there, or is there no longer."""
    try:
        yield
    except MessageLockLost as error:
        raise MessageNotFound(
            f"No message {shown(message_id)} is locked with the token {shown(token)}:"
            " either the lock expired, or the message has already been removed from the queue."
        ) from error


def _stopping() -> ServerBusy:
    return ServerBusy("The server is stopping. Please try again later.")
