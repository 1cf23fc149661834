"""Management operations on messages: peek, schedule, cancel, fetch by number, delete in batches.

Whoever looks at many large messages may peek without their bodies (R-60).
"""

from __future__ import annotations

import asyncio
from typing import Final

from busway.amqp.decode import DecodeError
from busway.amqp.encode import append_map, encode_value
from busway.amqp.sections import scan
from busway.amqp.types import Int, Long, Symbol
from busway.gateway.amqp.nodes.managed_entity import ManagedEntity
from busway.gateway.amqp.nodes.management_request import INT_MAX, LONG_MAX, LONG_MIN, RequestBody
from busway.gateway.amqp.nodes.node_response import Answer, done, long_array, nothing, uuid_of_token
from busway.gateway.amqp.wire.message_ids import ensure_message_id
from busway.gateway.amqp.wire.message_mapping import fetched_payload, message_of, peeked_payload
from busway.message.message import Message
from busway.model.errors import BadArgument, InvalidOperation, MessageTooLarge

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
