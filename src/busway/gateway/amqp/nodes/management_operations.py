"""Management operations on messages and on what is locked.

An operation works on one entity or sub-queue, and on the links of the connection that asks (`ManagedEntity`).

Messages: peek, schedule, cancel, fetch by number, delete in batches. Whoever looks at many large messages may peek
without their bodies (R-60).

What is locked: messages, renewed and settled away from their link (R-18, R-30), and sessions, with their state
(X-9, X-15, X-17). Operations on rules are in `management_rules`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from busway.amqp.decode import DecodeError
from busway.amqp.encode import append_map, encode_value
from busway.amqp.errors import Condition
from busway.amqp.sections import scan
from busway.amqp.types import Int, Long, Symbol, Timestamp
from busway.gateway.amqp.message_mapping import ensure_message_id, fetched_payload, message_of, peeked_payload
from busway.gateway.amqp.nodes.request_and_answer import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    Answer,
    RequestBody,
    done,
    long_array,
    nothing,
    string_array,
    timestamp_array,
    uuid_of_token,
)
from busway.message.message import Message
from busway.model.errors import BadArgument, BrokerError, InvalidOperation, MessageTooLarge, SessionLockLost
from busway.model.settlement import Settlement, Verb

if TYPE_CHECKING:
    from busway.broker.fragment.outlet import Outlet
    from busway.broker.namespace.namespace import Namespace, Queue, Topic
    from busway.broker.transaction.transactions import Transaction
    from busway.clock import Entropy
    from busway.gateway.amqp.links.link_host import LinkLookup
    from busway.model.limits import Limits


class ManagedEntity:
    """Made for each request, because the entity behind an address may be another one the next time (E-86)."""

    __slots__ = (
        "_outlet",
        "_sender",
        "detects_duplicates",
        "entropy",
        "limits",
        "link_name",
        "links",
        "namespace",
        "path",
        "transaction",
    )

    def __init__(
        self,
        path: str,
        sender: Queue | Topic | None,
        outlet: Outlet | None,
        namespace: Namespace,
        links: LinkLookup,
        link_name: str | None,
        detects_duplicates: bool,
        entropy: Entropy,
    ) -> None:
        self.path = path
        self._sender = sender
        self._outlet = outlet
        self.namespace = namespace
        self.limits: Limits = namespace.limits
        self.links = links
        #: `associated-link-name` of the request.
        self.link_name = link_name
        self.detects_duplicates = detects_duplicates
        self.entropy = entropy
        #: In which the request shall take place.
        self.transaction: Transaction | None = None

    @property
    def outlet(self) -> Outlet:
        """What is received from; a topic is not (E-9)."""
        if self._outlet is None:
            raise InvalidOperation(
                f"The topic '{self.path}' has no messages of its own: ask one of its subscriptions."
            )
        return self._outlet

    def sendable(self) -> Queue | Topic:
        if self._sender is None:
            raise InvalidOperation(f"Nobody can send to '{self.path}': send to its queue or topic.")
        return self._sender

    def session_of_request(self, session_id: str | None) -> str | None:
        """The session a request is about: the one it names, else the one its link holds."""
        if session_id is not None or self.link_name is None:
            return session_id
        return self.links.session_of_link(self.link_name)

    def check_holds(self, session_id: str) -> None:
        """X-15, R-54: reading and writing a session's inside needs its lock, held by this client."""
        if not self.outlet.requires_session:
            raise InvalidOperation(f"The entity '{self.path}' does not require sessions.")
        if not self.is_holder(session_id):
            raise SessionLockLost

    def is_holder(self, session_id: str) -> bool:
        """Whether a link of this client holds the session."""
        return self.links.holds_session(self.path, session_id)


_RECEIVE_AND_DELETE: Final = 0
_PEEK_LOCK: Final = 1
#: What is built of an answer in one turn of the loop.
_BUILD_BYTES: Final = 1 << 20
_BUILD_MESSAGES: Final = 200
_OMITTED_KEY: Final = encode_value(Symbol("omitted-message-body-size"))
_SECTION: Final = b"\x00Sq"
_SMALL_MAP: Final = 0xC1


async def peek_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-60…R-66. More than the limit is asked for at times; the answer is simply shorter (L-15)."""
    first = max(0, body.integer("from-sequence-number", LONG_MIN, LONG_MAX))
    count = min(body.integer("message-count", 1, INT_MAX), entity.limits.peek_messages_max)
    omits_bodies = body.flag("omit-message-body")
    found = await entity.outlet.peek(first, count, body.optional_text("session-id"))
    if not found:
        return nothing()
    is_partitioned = entity.outlet.settings.is_partitioned
    payloads = [peeked_payload(message, is_partitioned) for message in found]
    if omits_bodies:
        payloads = [without_body(payload) for payload in payloads]
    return Answer({"messages": [{"message": payload} for payload in payloads]})


async def schedule_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """S-30: the time is an annotation inside each message."""
    queue = entity.sendable()
    messages = [_message(entity, item) for item in body.items("messages")]
    if entity.transaction is not None:
        return Answer({"sequence-numbers": long_array(entity.transaction.schedule(queue.inlet, messages))})
    return Answer({"sequence-numbers": long_array(await queue.schedule(messages))})


async def cancel_scheduled_message(entity: ManagedEntity, body: RequestBody) -> Answer:
    """S-33: one missing number fails the whole request."""
    numbers = body.numbers("sequence-numbers")
    if entity.transaction is not None:
        await entity.transaction.cancel(entity.sendable().inlet, numbers)
    else:
        await entity.sendable().cancel_scheduled(numbers)
    return done()


async def receive_by_sequence_number(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-51, R-52, R-54: deferred messages, all of them or none."""
    numbers = body.numbers("sequence-numbers")
    mode = _PEEK_LOCK
    if body.get("receiver-settle-mode") is not None:
        mode = body.integer("receiver-settle-mode", _RECEIVE_AND_DELETE, _PEEK_LOCK)
    session_id = _session_of_fetch(entity, body)
    found = await entity.outlet.receive_by_number(
        numbers, deletes=mode == _RECEIVE_AND_DELETE, session_id=session_id
    )
    if not found:
        return nothing()
    entries: list[object] = []
    built_bytes = 0
    for delivery in found:
        if built_bytes > _BUILD_BYTES or len(entries) % _BUILD_MESSAGES == _BUILD_MESSAGES - 1:
            built_bytes = 0
            await asyncio.sleep(0)  # others have their turn
        payload = fetched_payload(
            delivery.message, delivery.token, delivery.locked_until_ms, entity.outlet.settings.is_partitioned
        )
        built_bytes += len(payload)
        entry: dict[str, object] = {"message": payload}
        if delivery.token:
            entry["lock-token"] = uuid_of_token(delivery.token)
        entries.append(entry)
    return Answer({"messages": entries})


async def batch_delete_messages(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-80…R-84: messages enqueued before a time, oldest first, locked ones skipped; those of a session that somebody
    else holds are locked (X-13)."""
    count = body.integer("message-count", 1, entity.limits.batch_delete_messages_max)
    before_ms = body.instant_ms("enqueued-time-utc")
    deleted = await entity.outlet.delete_messages(
        count, before_ms, body.optional_text("session-id"), entity.is_holder
    )
    if deleted == 0:
        return nothing()
    return Answer({"message-count": Int(deleted)})


def _message(entity: ManagedEntity, item: object) -> Message:
    payload = item.get("message") if isinstance(item, dict) else None
    if not isinstance(payload, bytes):
        raise BadArgument("Each item of 'messages' must be a map with a binary 'message'.")
    if len(payload) > entity.limits.message_bytes_max:
        raise MessageTooLarge(
            f"The message has {len(payload)} bytes; at most {entity.limits.message_bytes_max} are allowed."
        )
    try:
        message = message_of(payload, entity.detects_duplicates, entity.limits)
    except DecodeError as error:
        raise BadArgument(f"A 'message' of 'messages' is not an encoded AMQP message: {error}.") from error
    ensure_message_id(message, entity.entropy)
    return message


def _session_of_fetch(entity: ManagedEntity, body: RequestBody) -> str | None:
    session_id = entity.session_of_request(body.optional_text("session-id"))
    if not entity.outlet.requires_session:
        return None
    if session_id is None:
        raise InvalidOperation(
            f"The entity '{entity.path}' requires sessions: deferred messages are received with 'session-id'."
        )
    entity.check_holds(session_id)
    return session_id


def without_body(payload: bytes) -> bytes:
    """How many bytes the body's sections had is told in the delivery annotations, as the service does. `payload` is a
    message of our writing."""
    found = scan(payload)
    if found.body_kind == 0:
        return payload
    size = found.body_end - found.body_start
    count, entries = 0, b""
    start, end = found.header_end, found.header_end
    if found.delivery_annotations_at >= 0:
        start, end = found.delivery_annotations_start, found.delivery_annotations_end
        count, entries = _entries(payload, found.delivery_annotations_at, end)
    start, end = max(start, 0), max(end, 0)
    out = bytearray(payload[:start])
    out += _SECTION
    append_map(out, entries + _OMITTED_KEY + encode_value(Long(size)), count + 2)
    out += payload[end : found.body_start]
    out += payload[found.body_end :]
    return bytes(out)


def _entries(payload: bytes, at: int, end: int) -> tuple[int, bytes]:
    """Of an encoded map: how many keys and values, and their bytes as they are."""
    if payload[at] == _SMALL_MAP:
        return payload[at + 2], payload[at + 3 : end]
    return int.from_bytes(payload[at + 5 : at + 9], "big"), payload[at + 9 : end]


#: `defered` is how the clients spell it (R-18).
_VERBS: Final = {
    "completed": Verb.COMPLETE,
    "abandoned": Verb.ABANDON,
    "released": Verb.RELEASE,
    "defered": Verb.DEFER,
    "deferred": Verb.DEFER,
    "suspended": Verb.DEAD_LETTER,
}
#: The first millisecond of the year 9999: from here on a date means "whatever the date" (X-17).
_ANY_DATE_MS: Final = 253_370_764_800_000
#: Sessions in one answer; clients ask again with `skip`.
_PAGE_MAX: Final = 1_000


async def renew_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    """R-30; all of them or none."""
    tokens = body.lock_tokens("lock-tokens")
    return Answer({"expirations": timestamp_array(await entity.outlet.renew(tokens))})


async def update_disposition(entity: ManagedEntity, body: RequestBody) -> Answer:
    """Settles in one run; the first refusal is the answer, what succeeded beside it stays settled."""
    tokens = body.lock_tokens("lock-tokens")
    settlement = _settlement(body)
    session_id = entity.session_of_request(body.optional_text("session-id"))
    if entity.transaction is not None:
        return _answer_to(entity.transaction.settle(entity.outlet, tokens, settlement, session_id))
    settled: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not settled.done():  # the asking connection may be gone meanwhile
            settled.set_result(refused)

    entity.outlet.settle(tokens, settlement, report, session_id)
    return _answer_to(await settled)


def _answer_to(refused: list[tuple[int, BrokerError]]) -> Answer:
    if refused:
        raise refused[0][1]
    return done()


def _settlement(body: RequestBody) -> Settlement:
    status = body.text("disposition-status")
    verb = _VERBS.get(status.lower())
    if verb is None:
        raise BadArgument(
            f"The value of 'disposition-status' must be one of {', '.join(_VERBS)}; it is '{status[:40]}'."
        )
    is_dead_letter = verb is Verb.DEAD_LETTER
    return Settlement(
        verb,
        properties=body.optional_map("properties-to-modify"),
        dead_letter_reason=body.optional_text("deadletter-reason") if is_dead_letter else None,
        dead_letter_description=body.optional_text("deadletter-description") if is_dead_letter else None,
    )


async def renew_session_lock(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"expiration": Timestamp(await entity.outlet.renew_session(session_id))})


async def get_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    entity.check_holds(session_id)
    return Answer({"session-state": await entity.outlet.session_state(session_id)})


async def set_session_state(entity: ManagedEntity, body: RequestBody) -> Answer:
    session_id = body.text("session-id")
    state = body.optional_binary("session-state")
    entity.check_holds(session_id)
    await entity.outlet.set_session_state(session_id, state)
    return done()


async def get_message_sessions(entity: ManagedEntity, body: RequestBody) -> Answer:
    """X-17: with a date from the year 9999 on, sessions with messages or state; else by the state's date."""
    updated_after_ms = body.instant_ms("last-updated-time")
    skip = body.integer("skip", 0, INT_MAX)
    top = min(body.integer("top", 1, INT_MAX), _PAGE_MAX)
    if not entity.outlet.requires_session:
        raise BadArgument(f"The entity '{entity.path}' does not require sessions: it has none to list.")
    after_ms = None if updated_after_ms >= _ANY_DATE_MS else updated_after_ms
    found = await entity.outlet.list_sessions(after_ms, skip, top)
    if not found:
        return nothing(Condition.SESSION_NOT_FOUND)
    return Answer({"skip": Int(skip + len(found)), "sessions-ids": string_array(found)})
