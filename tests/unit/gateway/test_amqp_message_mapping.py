"""From payload to message and back: what is kept, what is added, what is refused."""

from uuid import UUID

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.encode import encode_value
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import DATA, SEQUENCE, VALUE, AmqpMessage, decode_message, encode_message, scan
from busway.amqp.types import Array, Described, Int, Long, Short, Symbol, Timestamp, UInt, ULong
from busway.gateway.amqp.message_mapping import delivery_payload, fetched_payload, message_of, peeked_payload
from busway.message.message import PLACE_DEFERRED, PLACE_SCHEDULED, Message
from busway.model.errors import ArgumentOutOfRange, BadArgument
from busway.model.limits import Limits

TOKEN = bytes(range(16))
ENQUEUED_MS = 1_700_000_000_123
LOCKED_MS = ENQUEUED_MS + 60_000


def stored(message: AmqpMessage, *, delivery_count: int = 0) -> Message:
    made = message_of(encode_message(message), False)
    made.sequence_number = 7
    made.enqueued_at_ms = ENQUEUED_MS
    made.delivery_count = delivery_count
    return made


def delivered(message: Message, token: bytes = TOKEN) -> AmqpMessage:
    return decode_message(delivery_payload(message, token, LOCKED_MS))


def test_an_ordinary_peek_lock_delivery_carries_exactly_what_the_service_sends() -> None:
    """M-27a, M-27b, M-14, M-16, M-18, M-19, M-20: nothing but our own annotations, the rest of the header null."""
    seen = delivered(stored(AmqpMessage([b"hi"], DATA)))
    assert seen.header == Header(delivery_count=0)
    assert seen.delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=TOKEN)}
    assert seen.message_annotations == {
        "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        "x-opt-sequence-number": Long(7),
        "x-opt-locked-until": Timestamp(LOCKED_MS),
    }
    assert {key: type(value) for key, value in seen.message_annotations.items()} == {
        "x-opt-enqueued-time": Timestamp,
        "x-opt-sequence-number": Long,
        "x-opt-locked-until": Timestamp,
    }
    assert all(isinstance(key, Symbol) for key in seen.message_annotations)


def test_receive_and_delete_shows_no_lock() -> None:
    """M-27b: no lock token, no locked-until, an empty section of delivery annotations."""
    seen = delivered(stored(AmqpMessage([b"hi"], DATA)), token=b"")
    assert seen.delivery_annotations == {}
    assert set(seen.message_annotations or {}) == {"x-opt-enqueued-time", "x-opt-sequence-number"}


@pytest.mark.parametrize("token", [TOKEN, b""])
def test_the_general_form_equals_the_short_one_where_both_apply(token: bytes) -> None:
    """M-27a: a first delivery and a second one differ in the delivery count only."""
    message = stored(AmqpMessage([b"hi"], DATA))
    first = delivered(message, token)
    message.delivery_count = 300
    second = delivered(message, token)
    assert second.header == Header(delivery_count=300)
    assert first.message_annotations == second.message_annotations
    assert first.delivery_annotations == second.delivery_annotations


def test_the_header_of_the_sender_comes_back() -> None:
    """M-27, M-11: durable, priority, first-acquirer and ttl as sent; the sender's delivery count is ours."""
    header = Header(durable=True, priority=9, ttl=60_000, first_acquirer=False, delivery_count=12)
    message = stored(AmqpMessage([b"x"], DATA, header=header))
    assert message.ttl_ms == 60_000
    assert delivered(message).header == Header(
        durable=True, priority=9, ttl=60_000, first_acquirer=False, delivery_count=0
    )


def test_a_ttl_of_zero_is_a_ttl() -> None:
    """M-11: 0 is not "absent"."""
    message = stored(AmqpMessage([b"x"], DATA, header=Header(ttl=0)))
    assert message.ttl_ms == 0
    assert delivered(message).header == Header(ttl=0, delivery_count=0)


def test_an_absent_ttl_does_not_become_one() -> None:
    """M-27a: the entity's default never leaks into header.ttl."""
    message = stored(AmqpMessage([b"x"], DATA, header=Header(durable=False)))
    assert message.ttl_ms == -1
    assert delivered(message).header == Header(durable=False, delivery_count=0)


def test_annotations_of_the_sender_come_back_and_those_of_the_broker_cannot_be_forged() -> None:
    """M-28, M-29, M-14: what the broker owns is dropped when a client sends it."""
    message = stored(
        AmqpMessage(
            [b"x"],
            DATA,
            delivery_annotations={"x-opt-lock-token": UUID(int=1), "mine": "yes"},
            message_annotations={
                "x-opt-sequence-number": Long(99),
                "x-opt-enqueued-time": Timestamp(1),
                "first": ["a", "b"],
                "x-opt-locked-until": Timestamp(2),
                "x-opt-enqueue-sequence-number": Long(3),
                "x-opt-message-state": Int(1),
                "x-opt-partition-id": Short(4),
                "x-opt-deadletter-source": "elsewhere",
                "last": {"a": Described(Symbol("d"), 1)},
            },
        )
    )
    seen = delivered(message)
    assert seen.delivery_annotations == {"mine": "yes", "x-opt-lock-token": UUID(bytes_le=TOKEN)}
    assert seen.message_annotations == {
        "first": ["a", "b"],
        "last": {"a": Described(Symbol("d"), 1)},
        "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        "x-opt-sequence-number": Long(7),
        "x-opt-locked-until": Timestamp(LOCKED_MS),
    }
    without_lock = delivered(message, token=b"")
    assert without_lock.delivery_annotations == {"mine": "yes"}


def test_many_annotations_come_back_too() -> None:
    """M-28: beyond what a map8 can hold."""
    annotations = {f"annotation-{index}": "v" * 20 for index in range(200)}
    seen = delivered(stored(AmqpMessage([b"x"], DATA, message_annotations=annotations)))
    assert len(seen.message_annotations or {}) == 203
    assert (seen.message_annotations or {})["annotation-199"] == "v" * 20


def test_keys_and_times_are_read_and_stay_on_the_message() -> None:
    """M-2, M-3, M-12: session id, partition key and scheduled time are read, and come back as sent."""
    message = stored(
        AmqpMessage(
            [b"x"],
            DATA,
            properties=Properties(message_id="m", group_id="s-1", reply_to_group_id="r"),
            message_annotations={
                "x-opt-partition-key": "s-1",
                "x-opt-via-partition-key": "v",
                "x-opt-scheduled-enqueue-time": Timestamp(1_800_000_000_000),
            },
        )
    )
    assert (message.session_id, message.partition_key, message.scheduled_at_ms) == (
        "s-1",
        "s-1",
        1_800_000_000_000,
    )
    assert message.message_id is None
    seen = delivered(message)
    annotations = seen.message_annotations or {}
    assert annotations["x-opt-partition-key"] == "s-1"
    assert annotations["x-opt-via-partition-key"] == "v"
    assert annotations["x-opt-scheduled-enqueue-time"] == Timestamp(1_800_000_000_000)
    assert seen.properties == Properties(message_id="m", group_id="s-1", reply_to_group_id="r")


def test_an_empty_session_id_is_a_session_id() -> None:
    """S-7: only null is none."""
    assert stored(AmqpMessage([b""], DATA, properties=Properties(group_id=""))).session_id == ""
    assert stored(AmqpMessage([b""], DATA, properties=Properties(message_id="m"))).session_id is None


def test_a_null_key_is_none() -> None:
    """M-3: an annotation that is present and null sets nothing."""
    message = stored(
        AmqpMessage(
            [b"x"],
            DATA,
            message_annotations={"x-opt-partition-key": None, "x-opt-scheduled-enqueue-time": None},
        )
    )
    assert message.partition_key is None
    assert message.scheduled_at_ms == 0


def test_a_scheduled_time_before_1970_is_past() -> None:
    """S-32: a scheduled time before 1970 is past."""
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(-5)}
    assert stored(AmqpMessage([b"x"], DATA, message_annotations=annotations)).scheduled_at_ms == 0


def test_a_scheduled_time_that_no_client_can_read_is_refused() -> None:
    """M-12: later than the year 9999."""
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(253_402_300_800_000)}
    with pytest.raises(ArgumentOutOfRange, match="9999"):
        stored(AmqpMessage([b"x"], DATA, message_annotations=annotations))


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (ULong(0), "0"),
        (ULong(200), "200"),
        (ULong(1 << 40), str(1 << 40)),
        (b"\x01\xff", "01ff"),
    ],
)
def test_message_ids_of_every_type_are_compared_by_text(message_id: object, text: str) -> None:
    """M-1: string, uuid, ulong, binary."""
    payload = encode_message(AmqpMessage([b"x"], DATA, properties=Properties(message_id=message_id)))
    assert message_of(payload, True).message_id == text
    assert message_of(payload, False).message_id is None


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        (Properties(message_id="m" * 129), "MessageId"),
        (Properties(message_id=b"m" * 129), "MessageId"),
        (Properties(group_id="g" * 129), "SessionId"),
        (Properties(message_id="m", reply_to_group_id="r" * 129), "ReplyToSessionId"),
    ],
)
def test_ids_longer_than_128_characters_are_refused(properties: Properties, name: str) -> None:
    """L-8: whether or not the entity needs the id."""
    with pytest.raises(BadArgument, match=name):
        message_of(encode_message(AmqpMessage([b"x"], DATA, properties=properties)), False)


@pytest.mark.parametrize("key", ["x-opt-partition-key", "x-opt-via-partition-key"])
def test_long_partition_keys_are_refused(key: str) -> None:
    """L-8, M-3, M-4: long partition keys are refused."""
    payload = encode_message(AmqpMessage([b"x"], DATA, message_annotations={key: "k" * 129}))
    with pytest.raises(BadArgument, match="PartitionKey"):
        message_of(payload, False)


def test_128_characters_are_enough_in_any_script() -> None:
    """L-8: characters count, not bytes."""
    properties = Properties(message_id="ж" * 128, group_id="日" * 128)
    message = message_of(encode_message(AmqpMessage([b"x"], DATA, properties=properties)), True)
    assert message.message_id == "ж" * 128
    assert message.session_id == "日" * 128


def test_one_application_property_has_a_limit() -> None:
    """L-6: 32 KB."""
    payload = encode_message(AmqpMessage([b"x"], DATA, application_properties={"big": "b" * 33_000}))
    with pytest.raises(BadArgument, match="32768"):
        message_of(payload, False)


def test_all_properties_together_have_a_limit() -> None:
    """L-7: 64 KB before the body; a large body is no property."""
    properties = {f"p{index}": "v" * 10_000 for index in range(7)}
    with pytest.raises(BadArgument, match="65536"):
        message_of(encode_message(AmqpMessage([b"x"], DATA, application_properties=properties)), False)
    assert message_of(encode_message(AmqpMessage([b"x" * 200_000], DATA)), False).size() > 200_000


def test_limits_are_settings() -> None:
    """L-22: tests and operators lower them."""
    payload = encode_message(AmqpMessage([b"x"], DATA, properties=Properties(group_id="12345")))
    with pytest.raises(BadArgument, match="SessionId has 5 characters; at most 4"):
        message_of(payload, False, Limits(key_characters_max=4))


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], [], Array([Int(1)])])
def test_application_properties_are_simple(value: object) -> None:
    """M-34: no maps, lists or arrays."""
    payload = encode_message(AmqpMessage([b"x"], DATA, application_properties={"p": value}))
    with pytest.raises(BadArgument, match="map, a list or an array"):
        message_of(payload, False)


def test_described_application_properties_are_kept_as_they_came() -> None:
    """M-31, M-32: Uri, TimeSpan, DateTimeOffset, and null."""
    properties = {
        "uri": Described(Symbol("com.microsoft:uri"), "http://x"),
        "span": Described(Symbol("com.microsoft:timespan"), Long(5)),
        "none": None,
        "number": UInt(5),
    }
    seen = delivered(stored(AmqpMessage([b"x"], DATA, application_properties=properties)))
    assert seen.application_properties == properties


@pytest.mark.parametrize(
    ("body", "kind"),
    [([b"a", b"b"], DATA), ([["x", 1], [None]], SEQUENCE), ({"deep": [[[1]]]}, VALUE), (None, 0)],
)
def test_bodies_of_every_kind_stay_as_sent(body: object, kind: int) -> None:
    """M-28, M-26: the bare message is the same bytes."""
    sent = encode_message(
        AmqpMessage(
            body,
            kind,
            properties=Properties(message_id="m", user_id=b"u", content_encoding="gzip", creation_time=5),
            footer={"f": "o"},
        )
    )
    message = message_of(sent, False)
    assert message.bare == sent
    assert delivery_payload(message, TOKEN, 5).endswith(sent)


def test_changed_properties_are_laid_over_those_of_the_sender() -> None:
    """R-11, R-14, R-21, M-17: changed ones win, new ones come, null is stored; the other bytes stay as they were."""
    message = stored(
        AmqpMessage(
            [b"body"],
            DATA,
            properties=Properties(message_id="m"),
            application_properties={"keep": UInt(5), "change": "old"},
            footer={"f": 1},
        )
    )
    message.changes = encode_value({"change": Int(9), "DeadLetterReason": "why", "gone": None})
    payload = delivery_payload(message, TOKEN, LOCKED_MS)
    seen = decode_message(payload)
    assert seen.application_properties == {
        "keep": UInt(5),
        "change": Int(9),
        "DeadLetterReason": "why",
        "gone": None,
    }
    assert type((seen.application_properties or {})["keep"]) is UInt
    assert seen.properties == Properties(message_id="m")
    assert (seen.body, seen.footer) == ([b"body"], {"f": 1})
    cut = scan(message.bare)
    assert message.bare[cut.body_start :] in payload


@pytest.mark.parametrize("properties", [Properties(message_id="m"), None])
def test_changes_come_to_a_message_without_application_properties(properties: Properties | None) -> None:
    """D-6, M-22: the section is made where it belongs."""
    message = stored(AmqpMessage([b"body"], DATA, properties=properties))
    message.changes = encode_value({f"p{index}": "v" * 50 for index in range(20)})
    seen = delivered(message)
    assert len(seen.application_properties or {}) == 20
    assert (seen.properties, seen.body) == (properties, [b"body"])


@pytest.mark.parametrize("state", [0, PLACE_DEFERRED, PLACE_SCHEDULED])
def test_a_peeked_message_always_shows_its_state_and_never_a_lock(state: int) -> None:
    """M-23, M-27b, R-62: a peeked message always shows its state and never a lock."""
    message = stored(AmqpMessage([b"x"], DATA))
    message.state = state
    seen = decode_message(peeked_payload(message))
    assert seen.delivery_annotations is None
    assert seen.message_annotations == {
        "x-opt-enqueued-time": Timestamp(ENQUEUED_MS),
        "x-opt-sequence-number": Long(7),
        "x-opt-message-state": Int(state),
    }
    assert type((seen.message_annotations or {})["x-opt-message-state"]) is Int


@pytest.mark.parametrize("token", [TOKEN, b""])
@pytest.mark.parametrize("count", [0, 1])
def test_a_message_that_was_scheduled_is_delivered_with_that_state(token: bytes, count: int) -> None:
    """M-23: at first and again, in both receive modes; a peek tells that it is active now."""
    sent = AmqpMessage(
        [b"x"],
        DATA,
        message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(ENQUEUED_MS - 5)},
    )
    message = stored(sent, delivery_count=count)
    for _ in range(2):  # the second one out of what was kept of the first
        annotations = delivered(message, token).message_annotations or {}
        assert annotations["x-opt-message-state"] == Int(2)
        assert annotations["x-opt-scheduled-enqueue-time"] == Timestamp(ENQUEUED_MS - 5)
        assert annotations["x-opt-sequence-number"] == Long(7)
    assert (decode_message(peeked_payload(message)).message_annotations or {})["x-opt-message-state"] == Int(
        0
    )
    fetched = decode_message(fetched_payload(message, TOKEN, LOCKED_MS)).message_annotations or {}
    assert fetched["x-opt-message-state"] == Int(message.state)


def test_a_message_fetched_by_number_shows_lock_and_state() -> None:
    """M-23, M-27b, R-51: state 1 beside the lock token, which one SDK reads only there."""
    message = stored(AmqpMessage([b"x"], DATA))
    message.state = PLACE_DEFERRED
    seen = decode_message(fetched_payload(message, TOKEN, LOCKED_MS))
    assert seen.delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=TOKEN)}
    assert (seen.message_annotations or {})["x-opt-message-state"] == Int(1)
    assert (seen.message_annotations or {})["x-opt-locked-until"] == Timestamp(LOCKED_MS)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"nonsense",
        b"\x00Sp\xc0\x02\x01\x54\x05",  # durable is an int
        b"\x00Sp\xc0\x04\x03@@\x41",  # ttl is a boolean
        b"\x00Sp\xc0\x03\x02@\x41",  # priority is a boolean
        b"\x00Sr\xc1\x04\x02\xa3\x01a",  # a key without a value
        b"\x00Sr\xc1\x05\x01\xa3\x01a\x40",  # an odd number of items
        b"\x00Sr\xc1\x06\x02\xa3\x01a\x40\x40",  # longer than its entries
        b"\x00Ss\xc0\x03\x05\xa1\x01",  # a properties list that is cut off
        b"\x00Ss\xc0\x03\x01\x70\x00",  # message-id is cut off
        b"\x00Ss\xc0\x0e\x0b@@@@@@@@@@\xa1\x01\xff",  # group-id is no UTF-8
        b"\x00St\xc1\x05\x02\xa1\x01a\xff",  # an unknown type code
    ],
)
def test_what_is_no_message_is_not_taken_for_one(payload: bytes) -> None:
    """S-2: damaged sections raise DecodeError and nothing else."""
    with pytest.raises(DecodeError):
        message_of(payload, True)


def test_cut_or_changed_bytes_never_raise_anything_else() -> None:
    """S-2: every prefix and every flipped byte of a rich message either fits or is refused."""
    payload = encode_message(
        AmqpMessage(
            [b"x"],
            DATA,
            header=Header(durable=True, ttl=5),
            delivery_annotations={"a": 1},
            message_annotations={"x-opt-partition-key": "k", "x-opt-scheduled-enqueue-time": Timestamp(5)},
            properties=Properties(message_id="m", group_id="g"),
            application_properties={"a": 1, "u": Described(Symbol("com.microsoft:uri"), "x")},
        )
    )
    for index in range(len(payload)):
        for damaged in (
            payload[:index],
            payload[:index] + bytes((payload[index] ^ 0x55,)) + payload[index + 1 :],
        ):
            try:
                message = message_of(damaged, True)
            except (DecodeError, BadArgument, ArgumentOutOfRange):
                continue
            delivery_payload(message, TOKEN, 5)
            peeked_payload(message)


def test_delivery_annotations_behind_the_footer_come_back_and_leave_the_bare_message_alone() -> None:
    """M-29: azure-servicebus for Python writes them last; they are kept, and the bare message ends before them."""
    bare = b"\x00\x53\x75\xa0\x01x\x00\x53\x78\xc1\x01\x00"
    last = b"\x00\x53\x71\xc1\x07\x02\xa3\x01k\xa1\x01v"
    message = message_of(bare + last, False)
    assert message.bare == bare
    decoded = decode_message(delivery_payload(message, b"t" * 16, 1))
    assert decoded.delivery_annotations is not None
    assert decoded.delivery_annotations["k"] == "v"


def test_what_is_remembered_of_one_message_does_not_leak_into_the_next() -> None:
    """M-3, M-11, M-28: fronts are remembered by their bytes; equal bytes mean equal, other bytes other values."""
    for key, ttl in ((b"a", 1), (b"b", 2), (b"a", 1), (b"b", 1)):
        front = (
            b"\x00\x53\x70\xc0\x05\x03\x40\x40\x52"
            + bytes([ttl])
            + b"\x00\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01"
            + key
        )
        message = message_of(front + b"\x00\x53\x75\xa0\x01x", False)
        assert (message.partition_key, message.ttl_ms) == (key.decode(), ttl)
