"""Messages that come without an id get one, and nothing else of them changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, VALUE, AmqpMessage, decode_message, encode_message
from busway.amqp.types import Symbol, Timestamp, UInt
from busway.gateway.amqp.message_mapping import delivery_payload, message_of
from busway.message.bare import ensure_message_id
from busway.message.message import Message
from busway.model.descriptions import QueueDescription
from tests.harness.manual_clock import SeededEntropy
from tests.unit.gateway.amqp_peer import Room, in_room, payload

BODY = b"\x00Su\xa0\x05hello"
INVENTED = SeededEntropy().bytes(16).hex()
DESCRIPTORS = (b"\x00Ss", b"\x00\x80" + (0x73).to_bytes(8, "big"), b"\x00\xa3\x14amqp:properties:list")


def identified(bare: bytes) -> bytes:
    message = Message(b"", bare)
    ensure_message_id(message, SeededEntropy())
    assert message.message_id is None
    return message.bare


def section(form: str, descriptor: bytes, fields: list[bytes]) -> bytes:
    content = b"".join(fields)
    if form == "list0":
        return descriptor + b"\x45"
    if form == "list8":
        return descriptor + bytes((0xC0, len(content) + 1, len(fields))) + content
    size, count = (len(content) + 4).to_bytes(4, "big"), len(fields).to_bytes(4, "big")
    return descriptor + b"\xd0" + size + count + content


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("list0", []),
        ("list8", []),
        ("list32", []),
        ("list8", [b"\x40"]),
        ("list32", [b"\x40"]),
        ("list8", [b"\x40", b"\x40", b"\xa1\x02to"]),
        ("list32", [b"\x40", b"\x40", b"\xa1\x02to"]),
        ("list8", [b"\x40", b"\x40", b"\xa1\xdc" + b"t" * 220]),
    ],
)
def test_a_missing_id_is_put_into_whatever_properties_there_are(
    descriptor: bytes, form: str, fields: list[bytes]
) -> None:
    """M-1: no field, a null field, lists of every form, also one that becomes too long for its form."""
    bare = section(form, descriptor, fields) + BODY
    found = decode_message(identified(bare))
    before = decode_message(bare)
    assert found.properties is not None
    assert found.properties.message_id == INVENTED
    assert replace(found.properties, message_id=None) == (before.properties or Properties())
    assert identified(bare).endswith(BODY)


def test_a_message_without_properties_gets_some() -> None:
    """M-1: also one that has no body either."""
    assert identified(BODY) == b"\x00Ss\xc0\x23\x01\xa1\x20" + INVENTED.encode() + BODY
    assert decode_message(identified(b"")).properties == Properties(message_id=INVENTED)


@pytest.mark.parametrize("descriptor", DESCRIPTORS)
@pytest.mark.parametrize("form", ["list8", "list32"])
@pytest.mark.parametrize(
    "message_id", [b"\xa1\x01a", b"\xa1\x00", b"\x44", b"\xa0\x01\x00", b"\x98" + b"u" * 16]
)
def test_an_id_of_the_senders_own_stays(descriptor: bytes, form: str, message_id: bytes) -> None:
    """M-1, M-28: of any type, also an empty one; not a byte changes."""
    for bare in (section(form, descriptor, [message_id]), section(form, descriptor, [message_id]) + BODY):
        assert identified(bare) == bare


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
PROPERTIES = st.builds(
    Properties,
    message_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=128),
    user_id=st.none() | st.binary(max_size=200),
    to=TEXTS,
    subject=TEXTS,
    reply_to=TEXTS,
    correlation_id=TEXTS,
    content_type=st.none() | st.just(Symbol("text/plain")),
    absolute_expiry_time=st.none() | st.just(Timestamp(7)),
    group_id=st.none() | st.text("gs", max_size=128),
    group_sequence=st.none() | st.just(UInt(3)),
)


@given(
    properties=st.none() | PROPERTIES,
    application_properties=st.none()
    | st.dictionaries(st.text("abc", min_size=1), st.integers(0, 9), max_size=3),
    body=st.binary(max_size=20),
)
def test_the_message_is_the_same_except_for_its_id(
    properties: Properties | None, application_properties: dict[str, int] | None, body: bytes
) -> None:
    """M-1, M-28: the message is the same except for its id."""
    sent = encode_message(
        AmqpMessage(
            [body],
            DATA,
            properties=properties,
            application_properties=dict(application_properties or {}) or None,
        )
    )
    message = message_of(sent, True)
    ensure_message_id(message, SeededEntropy())
    before, after = decode_message(sent), decode_message(message.bare)
    assert after.properties is not None
    own_id = None if properties is None else properties.message_id
    assert after.properties.message_id == (INVENTED if own_id is None else own_id)
    assert message.message_id == own_id
    assert replace(after.properties, message_id=own_id) == (before.properties or Properties())
    assert (after.body, after.application_properties) == (before.body, before.application_properties)
    assert decode_message(delivery_payload(message, b"", 0)).properties == after.properties


def test_messages_sent_singly_and_in_batches_have_an_id_when_they_come() -> None:
    """M-1, S-20: each its own, the same at every delivery; a chosen one stays."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        own = payload(b"own", properties=Properties(message_id="mine"))
        await peer.sent(link, payload(b"bare"), own)
        await peer.sent(
            link, encode_message(AmqpMessage([payload(b"b1"), own], DATA)), message_format=0x80013700
        )
        queue = room.namespace.queue("q").outlet(False)
        ids = [_id_of(message) for message in await queue.peek(0, 10)]
        assert [ids[1], ids[3]] == ["mine", "mine"]
        assert len(set(ids)) == 3
        receiver = await peer.receiver("q")
        receiver.grant_credit(4)
        first = await peer.received(receiver, 4)
        assert [_id(one.payload) for one in first] == ids
        receiver.detach()
        await room.turns()
        await room.pass_time(61)
        again = await peer.receiver("q")
        again.grant_credit(4)
        assert [_id(one.payload) for one in await peer.received(again, 4)] == ids

    in_room(scenario, QueueDescription("q"))


def test_invented_ids_find_no_duplicates() -> None:
    """S-40, M-1: two messages without an id are two messages, and the empty id is an id."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        empty = payload(b"e", properties=Properties(message_id=""))
        await peer.sent(link, payload(b"a"), payload(b"a"), empty, empty)
        found = await room.namespace.queue("q").outlet(False).peek(0, 10)
        assert len(found) == 3
        assert len({_id_of(message) for message in found}) == 3

    in_room(scenario, QueueDescription("q", requires_duplicate_detection=True))


def test_a_scheduled_message_has_its_id_from_the_start() -> None:
    """M-1, S-30: what peek shows is what comes in time."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = await peer.request_links("q/$management")
        due = Timestamp(room.clock.wall_ms() + 30_000)
        inner = payload(b"later", message_annotations={Symbol("x-opt-scheduled-enqueue-time"): due})
        request = AmqpMessage(
            {"messages": [{"message-id": "1", "message": inner}]},
            VALUE,
            properties=Properties(message_id="r", reply_to="answers"),
            application_properties={"operation": "com.microsoft:schedule-message"},
        )
        answer = await peer.request(links, request)
        assert (answer.application_properties or {})["statusCode"] == 200
        queue = room.namespace.queue("q").outlet(False)
        [waiting] = await queue.peek(0, 10)
        await room.pass_time(31)
        [message] = await queue.peek(0, 10)
        assert message.state != waiting.state
        assert len(_id_of(message)) == 32
        assert _id_of(message) == _id_of(waiting)

    in_room(scenario, QueueDescription("q"))


def _id_of(message: Message) -> str:
    return _id(message.bare)


def _id(encoded: bytes) -> str:
    properties = decode_message(encoded).properties
    assert properties is not None
    return str(properties.message_id)
