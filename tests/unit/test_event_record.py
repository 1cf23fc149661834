"""Events: what is kept of a message, what the broker puts in."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import encode_value
from busway.amqp.sections import scan
from busway.amqp.types import Byte, Described, Int, Long, Short, Symbol, Timestamp, UInt, ULong
from busway.message.event_chunk import BODY_ELSEWHERE
from busway.message.event_record import Event, event_in, event_of, scanned_event
from tests.harness.event_records import record_of
from tests.harness.examples import examples_of
from tests.harness.real_transfers import mutated, whole_payloads

NUMBER, AT_MS = 12_345, 1_700_000_000_123
OWNED = {
    Symbol("x-opt-sequence-number"): Long(NUMBER),
    Symbol("x-opt-offset"): str(NUMBER),
    Symbol("x-opt-enqueued-time"): Timestamp(AT_MS),
}
KEY = Symbol("x-opt-partition-key")
PRODUCER = {
    Symbol("com.microsoft:producer-id"): Long(77),
    Symbol("com.microsoft:producer-epoch"): Short(2),
    Symbol("com.microsoft:producer-sequence-number"): Int(41),
}


def section(code: int, value: object) -> bytes:
    return encode_value(Described(ULong(code), value))


def annotated(entries: dict[Any, Any]) -> bytes:
    return section(0x72, entries)


HEADER = section(0x70, [True])
DELIVERY = section(0x71, {Symbol("hop"): 1})
PROPERTIES = section(0x73, ["id"])
APPLICATION = section(0x74, {"name": "value"})
BODY = section(0x75, b"content")
FOOTER = section(0x78, {Symbol("sum"): 1})


def annotations_of(record: bytes) -> dict[Any, Any]:
    found = scan(record)
    value, _ = decode_value(record, found.message_annotations_at, found.message_annotations_end)
    assert isinstance(value, dict)
    return value


def test_a_record_is_the_message_with_the_annotations_of_the_broker() -> None:
    """H-16: number, offset and time are put in; the header is dropped; the rest stays byte for byte."""
    kept = {Symbol("x-opt-own"): "value", KEY: "key"}
    payload = HEADER + DELIVERY + annotated(kept) + PROPERTIES + APPLICATION + BODY
    event = event_of(payload)
    record = record_of(event, NUMBER, AT_MS)
    assert annotations_of(record) == OWNED | kept
    found = scan(record)
    assert (found.header_at, found.message_annotations_start) == (-1, len(DELIVERY))
    assert record.startswith(DELIVERY)
    assert record[found.bare_at :] == PROPERTIES + APPLICATION + BODY
    assert event.partition_key == "key"


def test_a_bare_message_is_not_even_copied() -> None:
    payload = PROPERTIES + BODY
    event = event_of(payload)
    assert event.bare is payload
    assert annotations_of(record_of(event, NUMBER, AT_MS)) == OWNED


def test_nobody_but_the_broker_numbers_events() -> None:
    """H-16: annotations by the names that the broker owns are replaced, whatever is in them."""
    lies = dict.fromkeys(OWNED, "a lie") | {Symbol("x-opt-other"): [1, 2]}
    record = record_of(event_of(annotated(lies) + BODY), NUMBER, AT_MS)
    assert annotations_of(record) == OWNED | {Symbol("x-opt-other"): [1, 2]}


def test_what_a_producer_says_is_read_and_not_handed_on() -> None:
    """H-18: id, epoch and sequence number, in any width."""
    event = event_of(annotated(PRODUCER | {Symbol("own"): 1}) + BODY)
    assert (event.producer_id, event.producer_epoch, event.producer_number) == (77, 2, 41)
    assert annotations_of(record_of(event, NUMBER, AT_MS)) == OWNED | {Symbol("own"): 1}
    silent = event_of(annotated(dict.fromkeys(PRODUCER)) + BODY)
    assert (silent.producer_id, silent.producer_epoch, silent.producer_number) == (-1, -1, -1)
    assert annotations_of(record_of(silent, NUMBER, AT_MS)) == OWNED


@pytest.mark.parametrize("value", [Byte(-5), Short(-300), Int(5), Int(1 << 30), Long(-5), Long(1 << 40)])
def test_integers_of_a_producer_may_have_any_signed_width(value: int) -> None:
    """H-18: integers of a producer may have any signed width."""
    event = event_of(annotated({Symbol("com.microsoft:producer-id"): value}) + BODY)
    assert event.producer_id == value


@pytest.mark.parametrize("value", ["5", UInt(5), 1.5, True, [1], b"5"])
@pytest.mark.parametrize("name", PRODUCER)
def test_a_producer_that_says_no_integer_is_refused(name: Symbol, value: object) -> None:
    """H-18: a producer that says no integer is refused."""
    with pytest.raises(DecodeError, match="not a signed integer"):
        event_of(annotated({name: value}) + BODY)


@pytest.mark.parametrize("value", [5, b"\xff", ["list"], True])
def test_a_partition_key_that_is_no_text_is_refused(value: object) -> None:
    """H-10: a partition key that is no text is refused."""
    with pytest.raises(DecodeError, match="x-opt-partition-key"):
        event_of(annotated({KEY: value}) + BODY)


def test_a_partition_key_that_is_no_utf_8_is_refused() -> None:
    """H-10: a partition key that is no utf 8 is refused."""
    raw = b"\xa3\x13x-opt-partition-key\xa1\x01\xff"
    with pytest.raises(DecodeError, match="UTF-8"):
        event_of(b"\x00Sr\xc1" + bytes((len(raw) + 1, 2)) + raw + BODY)


def test_a_null_partition_key_is_none() -> None:
    """H-10: and another can be given."""
    event = event_of(annotated({KEY: None}) + BODY)
    assert event.partition_key is None
    event.set_partition_key("given")
    assert event.partition_key == "given"
    assert annotations_of(record_of(event, NUMBER, AT_MS)) == OWNED | {KEY: "given"}


@pytest.mark.parametrize("key", ["", "k", "é" * 127, "k" * 255, "k" * 256, "日本" * 10_000])
def test_a_key_of_any_length_can_be_given(key: str) -> None:
    """H-10, H-13: by the path or the envelope."""
    event = event_of(BODY)
    event.set_partition_key(key)
    record = record_of(event, NUMBER, AT_MS)
    assert annotations_of(record) == OWNED | {KEY: key}
    assert event_of(record).partition_key == key
    assert event.size_bytes() == len(BODY) + len(event.annotations)


@pytest.mark.parametrize("count", [0, 1, 8, 9, 10, 124, 125, 126, 300])
def test_annotations_of_any_number_fit(count: int) -> None:
    """H-16: a short map, a long one, and the border between."""
    kept = {Symbol(f"a{index}"): index for index in range(count)}
    record = record_of(event_of(annotated(kept) + BODY), NUMBER, AT_MS)
    assert annotations_of(record) == OWNED | kept


@given(st.integers(1, 300))
def test_annotations_of_any_length_fit(length: int) -> None:
    """H-16: the size of the map around 255 bytes, above all."""
    kept = {Symbol("a"): "x" * length}
    record = record_of(event_of(annotated(kept) + BODY), NUMBER, AT_MS)
    assert annotations_of(record) == OWNED | kept
    assert record.endswith(BODY)


@given(st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 50))
def test_any_number_and_time_stand_in_the_record(number: int, at_ms: int) -> None:
    """H-16: the offset is the number as text."""
    found = annotations_of(record_of(Event(BODY), number, at_ms))
    assert found == {
        Symbol("x-opt-sequence-number"): number,
        Symbol("x-opt-offset"): str(number),
        Symbol("x-opt-enqueued-time"): at_ms,
    }


# -- bodies
@pytest.mark.parametrize("content", [b"", b"c", b"c" * 255, b"c" * 256, b"c" * 70_000])
@pytest.mark.parametrize("front", [b"", PROPERTIES, HEADER + annotated({KEY: "k"}) + APPLICATION])
def test_a_body_of_one_data_section_is_found_without_decoding(front: bytes, content: bytes) -> None:
    """H-16: short and long, behind anything."""
    event = event_of(front + section(0x75, content))
    assert event.bare[event.body_at :] == content


@pytest.mark.parametrize(
    "back",
    [
        b"",
        BODY + FOOTER,
        BODY + BODY,
        section(0x76, [1]),
        section(0x77, "text"),
        section(0x77, b"binary"),
        FOOTER,
    ],
    ids=["none", "footer", "two", "sequence", "value", "binary value", "footer alone"],
)
def test_any_other_body_must_be_looked_for(back: bytes) -> None:
    """H-16: any other body must be looked for."""
    event = event_of(PROPERTIES + back)
    assert event.body_at == BODY_ELSEWHERE
    assert record_of(event, NUMBER, AT_MS).endswith(PROPERTIES + back)


def test_delivery_annotations_at_the_end_are_dropped_like_others() -> None:
    """H-16: one SDK writes them there."""
    event = event_of(PROPERTIES + BODY + DELIVERY)
    assert event.bare == PROPERTIES + BODY
    assert event.bare[event.body_at :] == b"content"


# -- in place
FIELDS = (
    "bare", "body_at", "annotations", "annotation_count", "delivery_annotations", "partition_key", "producer_id",
    "producer_epoch", "producer_number",
)  # fmt: skip


def fields_of(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in FIELDS}


def agree(payload: bytes, chance: random.Random) -> None:
    """Found in the midst of other bytes, the first time and later: what the long way makes of it."""
    before = bytes(chance.choices(b"\x00\x53\x70\xa0\xff", k=chance.randint(0, 5)))
    behind = bytes(chance.choices(b"\x00\x53\x75\xa0\x40", k=chance.randint(0, 9)))
    try:
        expected: object = fields_of(scanned_event(payload))
    except DecodeError as error:
        expected = str(error)
    for _ in range(2):
        try:
            found: object = fields_of(event_in(before + payload + behind, len(before), len(before + payload)))
        except DecodeError as error:
            found = str(error)
        assert found == expected


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_real_messages_are_the_same_events_wherever_they_lie(seed: int) -> None:
    """Attack: bytes changed anywhere, whatever was read before; the same event, or refused in the same words."""
    chance = random.Random(seed)
    payloads = [payload for payload in whole_payloads() if len(payload) < 2_000]
    for payload in payloads:
        agree(payload, chance)
    for _ in range(examples_of(1_500)):
        agree(mutated(chance, chance.choice(payloads)), chance)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        BODY,
        BODY + BODY,
        BODY + FOOTER,
        BODY + PROPERTIES,
        BODY + DELIVERY,
        HEADER + HEADER + BODY,
        HEADER + DELIVERY + annotated({KEY: "k"}) + PROPERTIES + BODY,
        HEADER + annotated({Symbol("a"): "x" * 200}) + BODY,
        annotated(PRODUCER) + BODY,
        annotated(PRODUCER | {Symbol("com.microsoft:producer-id"): Long(-5)}) + BODY,
        BODY + section(0x76, [1]),
        section(0x75, None),
        b"\x00\x53\x75\xb0\x00\x00\x00\x01b",
        HEADER + b"\x00\x53",
    ],
)
def test_what_is_nearly_usual_is_the_same_event_wherever_it_lies(payload: bytes) -> None:
    """H-16: also when another event with the same beginning came before."""
    for seed in range(20):
        agree(payload, random.Random(seed))


def test_an_event_that_is_changed_changes_none_that_comes_later() -> None:
    """H-10, H-13: what is remembered of one event is nobody's event."""
    payload = HEADER + annotated({Symbol("mine"): 1}) + BODY
    for _ in range(3):
        event = event_of(payload)
        assert fields_of(event) == fields_of(scanned_event(payload))
        event.set_partition_key("given")
        event.set_publisher("somebody")


def test_many_different_beginnings_are_not_all_remembered() -> None:
    """Attack: a beginning for each event; the oldest are forgotten and read anew."""
    for more in ({}, {Symbol("more"): 1}):
        for number in range(2_000):
            event = event_of(annotated({KEY: f"key-{number}", **more}) + BODY)
            assert event.partition_key == f"key-{number}"
        assert event_of(annotated({KEY: "key-0", **more}) + BODY).partition_key == "key-0"


def _keyed(entry: bytes, size: int | None = None, count: int = 2) -> bytes:
    """Annotations of that entry, told to be so long and so many."""
    return b"\x00Sr\xc1" + bytes((len(entry) + 1 if size is None else size, count)) + entry


_ENTRY = b"\xa3\x13x-opt-partition-key"


@pytest.mark.parametrize(
    "front",
    [
        *(
            _keyed(_ENTRY + bytes((form,)) + text)
            for form in b"\xa0\xa1"
            for text in (b"\x00", b"\x01k", b"\x02\xc3\xa9")
        ),
        _keyed(_ENTRY + b"\xa1\x01\xff"),
        _keyed(_ENTRY + b"\xa1\x02k"),
        _keyed(_ENTRY + b"\xa1\x00k"),
        _keyed(_ENTRY + b"\xa1\x01k", 3),
        _keyed(_ENTRY + b"\xa1\x01k", 60),
        _keyed(_ENTRY + b"\xa1\x01k", count=0),
        _keyed(_ENTRY + b"\xa1\x01k", count=4),
        _keyed(_ENTRY + b"\xb1\x00\x00\x00\x01k"),
        _keyed(_ENTRY + b"\xa1\x01k" + _ENTRY + b"\xa1\x01m", count=4),
        _keyed(b"\xa3\x13x-opt-partition-kez\xa1\x01k"),
        _keyed(b"\xa1\x13x-opt-partition-key\xa1\x01k"),
        _keyed(_ENTRY + b"\xa1\x01k").replace(b"Sr", b"Sq"),
        HEADER + _keyed(_ENTRY + b"\xa1\x01k"),
    ],
)
def test_a_key_alone_before_the_message_is_read_at_sight(front: bytes) -> None:
    """Attack: rows of which each has a key of its own, and what is nearly so, as the long way takes them."""
    for seed in range(5):
        for back in (b"", BODY, PROPERTIES + BODY):
            agree(front + back, random.Random(seed))


# -- damage
WHOLE = (
    HEADER
    + DELIVERY
    + annotated({KEY: "key", Symbol("a"): [1, {"b": 2}], **PRODUCER})
    + PROPERTIES
    + APPLICATION
    + BODY
)


def use(payload: bytes) -> None:
    """Whatever comes in: an event whose record is a message with the same content, or DecodeError."""
    event = event_of(payload)
    record = record_of(event, NUMBER, AT_MS)
    found = scan(record)
    assert record[found.bare_at : found.bare_end] == event.bare
    again = event_of(record)
    assert (again.bare, again.annotations, again.annotation_count) == (
        event.bare,
        event.annotations,
        event.annotation_count,
    )
    assert (again.partition_key, again.body_at) == (event.partition_key, event.body_at)
    assert record_of(again, NUMBER, AT_MS) == record
    if event.body_at != BODY_ELSEWHERE:
        assert 0 <= event.body_at <= len(event.bare)


def test_a_whole_message_is_used_as_it_is() -> None:
    use(WHOLE)


def test_a_message_cut_at_any_byte_is_refused_or_a_shorter_one() -> None:
    """H-16: only between two sections it can be cut."""
    ends = {0}
    for part in (HEADER, DELIVERY, WHOLE[len(HEADER + DELIVERY) : -len(PROPERTIES + APPLICATION + BODY)]):
        ends.add(max(ends) + len(part))
    for part in (PROPERTIES, APPLICATION):
        ends.add(max(ends) + len(part))
    for length in range(len(WHOLE)):
        if length in ends:
            use(WHOLE[:length])
        else:
            with pytest.raises(DecodeError):
                event_of(WHOLE[:length])


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=5))
def test_changed_bytes_are_refused_or_do_no_harm(changes: list[tuple[int, int]]) -> None:
    """H-16: no other error than DecodeError."""
    payload = bytearray(WHOLE)
    for position, value in changes:
        payload[position] = value
    with contextlib.suppress(DecodeError):
        use(bytes(payload))


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x00Sr", b"\x00Sr\xc1", b"\x00Su", b"\x00Su\xb0"]))
def test_arbitrary_bytes_are_refused_or_do_no_harm(data: bytes, front: bytes) -> None:
    """H-16: no other error than DecodeError."""
    with contextlib.suppress(DecodeError):
        use(front + data)
