"""Encoded messages: found, read and written without touching what is opaque."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.decode import DecodeError
from busway.amqp.encode import EncodeError, encode_value
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    BODY_SECTIONS_MAX,
    DATA,
    SEQUENCE,
    VALUE,
    AmqpMessage,
    Sections,
    decode_message,
    encode_message,
    is_simple_value,
    scan,
    scan_header,
    scan_properties,
    split_batch,
)
from busway.amqp.types import Array, Described, Long, Symbol, UInt, ULong
from tests.harness.examples import examples_of
from tests.unit.amqp.amqp_values import integers, primitives, same, texts, values

NAMES = ("header", "delivery_annotations", "message_annotations", "properties", "application_properties")

HEADER = bytes.fromhex("005370 c0 06 05 40 40 40 40 43")
DELIVERY = bytes.fromhex("005371 c1 05 02 a30161 41")
ANNOTATIONS = bytes.fromhex("005372 c1 05 02 a30162 42")
PROPERTIES = bytes.fromhex("005373 c0 04 01 a10169")
APPLICATION = bytes.fromhex("005374 c1 05 02 a10170 41")
BODY = bytes.fromhex("005375 a0 02 6869")
FOOTER = bytes.fromhex("005378 c1 01 00")
WHOLE = [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, BODY, FOOTER]

LONG_FORM = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x78: "amqp:footer:map",
}


def places(found: Sections) -> dict[str, tuple[int, int, int]]:
    names = (*NAMES, "body", "footer")
    return {
        name: (getattr(found, f"{name}_start"), getattr(found, f"{name}_at"), getattr(found, f"{name}_end"))
        for name in names
    }


def test_all_sections_are_found() -> None:
    """M-28: where each section begins, where its value begins and where it ends."""
    payload = b"".join(WHOLE)
    found = scan(payload)
    at = 0
    for name, section in zip((*NAMES, "body", "footer"), WHOLE, strict=True):
        assert places(found)[name] == (at, at + 3, at + len(section))
        at += len(section)
    assert found.body_kind == DATA
    assert found.bare_at == len(HEADER + DELIVERY + ANNOTATIONS)


@given(st.lists(st.booleans(), min_size=7, max_size=7))
def test_any_section_may_be_missing(present: list[bool]) -> None:
    """M-28: absent sections are -1, and the bare message begins behind the last annotation."""
    sections = [section if here else b"" for section, here in zip(WHOLE, present, strict=True)]
    found = scan(b"".join(sections))
    for name, section in zip((*NAMES, "body", "footer"), sections, strict=True):
        start, at, end = places(found)[name]
        assert (
            (end - start == len(section) and at == start + 3) if section else (start, at, end) == (-1, -1, -1)
        )
    assert found.bare_at == sum(map(len, sections[:3]))
    assert found.body_kind == (DATA if present[5] else 0)


def test_an_empty_payload_is_a_message_without_sections() -> None:
    """Some requests have no body at all."""
    found = scan(b"")
    assert found.body_kind == 0
    assert found.bare_at == 0


def test_symbolic_and_wide_descriptors_are_understood() -> None:
    """Clients send short codes; other forms of the same descriptors mean the same."""
    for form in (
        lambda code: encode_value(Symbol(LONG_FORM[code])),
        lambda code: b"\x80" + code.to_bytes(8, "big"),
    ):
        payload = b"".join(b"\x00" + form(section[2]) + section[3:] for section in WHOLE)
        found = scan(payload)
        for name, section in zip((*NAMES, "body", "footer"), WHOLE, strict=True):
            _, at, end = places(found)[name]
            assert payload[at:end] == section[3:]
        assert decode_message(payload).application_properties == {"p": True}


@pytest.mark.parametrize("first", range(7))
@pytest.mark.parametrize("second", range(7))
def test_sections_out_of_order_are_refused(first: int, second: int) -> None:
    """M-28: the order of the standard, each section once; only data sections may repeat, and only delivery
    annotations may also stand at the very end (M-29: the Python SDK writes them there)."""
    payload = WHOLE[first] + WHOLE[second]
    if first < second or first == second == 5 or (first >= 5 and second == 1):
        scan(payload)
    else:
        with pytest.raises(DecodeError):
            scan(payload)


SEQUENCE_BODY = bytes.fromhex("005376 45")
VALUE_BODY = bytes.fromhex("005377 40")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (BODY + BODY + BODY, DATA),
        (SEQUENCE_BODY, SEQUENCE),
        (SEQUENCE_BODY + SEQUENCE_BODY, SEQUENCE),
        (VALUE_BODY, VALUE),
        (BODY + FOOTER, DATA),
    ],
)
def test_the_body_is_data_or_sequences_or_one_value(payload: bytes, kind: int) -> None:
    """M-28: body types are kept as sent."""
    found = scan(payload)
    assert found.body_kind == kind
    assert (found.body_start, found.body_at) == (0, 3)
    assert found.body_end == len(payload) - (len(FOOTER) if payload.endswith(FOOTER) else 0)


@pytest.mark.parametrize(
    "payload",
    [
        BODY + SEQUENCE_BODY,
        BODY + VALUE_BODY,
        SEQUENCE_BODY + BODY,
        SEQUENCE_BODY + VALUE_BODY,
        VALUE_BODY + VALUE_BODY,
        FOOTER + BODY,
        b"x",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x75",
        bytes.fromhex("005375 a0 05 61"),
        bytes.fromhex("005375 b0 ffffffff 61"),
        bytes.fromhex("005379 40"),
        bytes.fromhex("00536f 40"),
        bytes.fromhex("005314 c0 01 00"),
        bytes.fromhex("0080 0000000100000075 a000"),
        bytes.fromhex("00a10161 40"),
        bytes.fromhex("005275 a000"),
        bytes.fromhex("0000a30161 40 a000"),
        BODY + b"\x00",
        BODY + b"trailing",
    ],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    """M-28: mixed bodies, unknown sections, cut-off sections, other bytes."""
    with pytest.raises(DecodeError):
        scan(payload)


@pytest.mark.parametrize(
    ("code", "good"), [(0x70, "lists"), (0x73, "lists"), (0x76, "lists"), (0x75, "binaries")]
)
def test_a_section_of_another_type_is_refused(code: int, good: str) -> None:
    """M-28: lists, maps and binaries where the standard has them."""
    forms: dict[str, list[Any]] = {
        "lists": [[], [1]],
        "maps": [{}, {"a": 1}],
        "binaries": [b"", b"x" * 300, None],  # a null body, as JavaScript writes it
        "others": ["a", 5],
    }
    for name, samples in forms.items():
        for value in samples:
            payload = bytes((0, 0x53, code)) + encode_value(value)
            if name == good:
                scan(payload)
            else:
                with pytest.raises(DecodeError):
                    scan(payload)


@pytest.mark.parametrize("code", [0x71, 0x72, 0x74, 0x78])
def test_annotations_are_maps(code: int) -> None:
    """M-28: and nothing else."""
    for value in ({}, {"a": 1}, {"a": "x" * 300}):
        scan(bytes((0, 0x53, code)) + encode_value(value))
    wrongs: list[object] = [None, [], b"", "a", Array([], 0x40)]
    for wrong in wrongs:
        with pytest.raises(DecodeError):
            scan(bytes((0, 0x53, code)) + encode_value(wrong))


def test_a_body_has_a_limited_number_of_sections() -> None:
    """S-20: a batch of empty messages cannot multiply its size."""
    section = bytes.fromhex("005375a000")
    assert len(split_batch(section * BODY_SECTIONS_MAX)) == BODY_SECTIONS_MAX
    with pytest.raises(DecodeError, match="too many"):
        scan(section * (BODY_SECTIONS_MAX + 1))


# ---- readers


def test_header_fields_are_read() -> None:
    """AMQP 3.2.1: ttl, delivery count and the rest, None where the sender set nothing."""
    header = Header(True, 9, 60_000, False, 3)
    payload = encode_message(AmqpMessage(header=header))
    assert scan_header(payload, scan(payload)) == header
    assert scan_header(b"\x00\x53\x70\x45", scan(b"\x00\x53\x70\x45")) == Header()
    assert scan_header(BODY, scan(BODY)) is None


ALL_PROPERTIES = Properties(
    UUID(int=5),
    b"me",
    "to",
    "subject",
    "reply",
    7,
    "text/plain",
    "gzip",
    1000,
    2000,
    "group",
    5,
    "reply group",
)


def test_properties_are_read_by_name() -> None:
    """AMQP 3.2.4: each with its AMQP type."""
    payload = encode_message(AmqpMessage(properties=ALL_PROPERTIES))
    found = scan(payload)
    assert scan_properties(payload, found) == ALL_PROPERTIES


def test_absent_properties_are_none() -> None:
    """AMQP 3.2.4: null, cut off or without the section; an empty group id is one."""
    for payload in (b"\x00\x53\x73\x45", encode_message(AmqpMessage(properties=Properties()))):
        assert scan_properties(payload, scan(payload)) == Properties()
    payload = encode_message(AmqpMessage(properties=Properties(group_id="")))
    assert scan_properties(payload, scan(payload)) == Properties(group_id="")
    assert scan_properties(BODY, scan(BODY)) is None


def test_properties_that_end_too_early_are_refused() -> None:
    """M-28: a count that the bytes do not hold."""
    payload = bytes.fromhex("005373 c0 03 0b 40 40")
    with pytest.raises(DecodeError):
        scan_properties(payload, scan(payload))
    payload = bytes.fromhex("005373 c0 05 03 a1 09 40 40")
    with pytest.raises(DecodeError):
        scan_properties(payload, scan(payload))


@given(primitives)
def test_simple_values_are_allowed_as_application_properties(value: Any) -> None:
    """M-31: every primitive type and null."""
    raw = encode_value(value)
    assert is_simple_value(raw, 0, len(raw))


@pytest.mark.parametrize("name", ["uri", "timespan", "datetime-offset"])
def test_described_dotnet_values_are_allowed(name: str) -> None:
    """M-32: com.microsoft:uri, :timespan and :datetime-offset."""
    raw = encode_value(Described(Symbol(f"com.microsoft:{name}"), Long(5)))
    assert is_simple_value(raw, 0, len(raw))
    compound = encode_value(Described(Symbol(f"com.microsoft:{name}"), [1]))
    assert not is_simple_value(compound, 0, len(compound))


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1],
        {},
        {"a": 1},
        Array([], 0x40),
        Described(Symbol("x"), 1),
        Described(ULong(0x70), 1),
        Described("a", 1),
    ],
)
def test_compound_and_strange_values_are_not(value: Any) -> None:
    """M-34: lists, maps, arrays and unknown described types."""
    raw = encode_value(value)
    assert not is_simple_value(raw, 0, len(raw))


# ---- batches


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=20), st.booleans())
def test_a_batch_is_split_into_its_messages(messages: list[bytes], enveloped: bool) -> None:
    """S-20: one data section for each message; the envelope itself is ignored."""
    envelope = AmqpMessage(messages, DATA)
    if enveloped:
        envelope.properties = Properties(message_id="first", group_id="g")
        envelope.message_annotations = {"x-opt-partition-key": "k"}
        envelope.application_properties = {"a": 1}
    assert split_batch(encode_message(envelope)) == messages


@pytest.mark.parametrize("payload", [b"", HEADER, VALUE_BODY, SEQUENCE_BODY, PROPERTIES + FOOTER])
def test_a_batch_without_messages_is_refused(payload: bytes) -> None:
    """S-20: an empty batch, and a body of another kind."""
    with pytest.raises(DecodeError):
        split_batch(payload)


# ---- whole messages

maps = st.none() | st.dictionaries(texts, primitives, max_size=4)
bodies = st.one_of(
    st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=3), st.just(DATA)),
    st.tuples(st.lists(st.lists(integers, max_size=4), min_size=1, max_size=3), st.just(SEQUENCE)),
    st.tuples(values, st.just(VALUE)),
    st.tuples(st.none(), st.just(0)),
)
symbol_maps = st.none() | st.dictionaries(st.text("abc-", max_size=10).map(Symbol), primitives, max_size=4)


@given(
    bodies,
    maps,
    symbol_maps,
    symbol_maps,
    symbol_maps,
    st.none() | st.just(ALL_PROPERTIES),
    st.none() | st.just(Header(ttl=5)),
)
@settings(max_examples=examples_of(150), deadline=None)
def test_whole_messages_round_trip(
    body: tuple[Any, int],
    application_properties: Any,
    message_annotations: Any,
    delivery_annotations: Any,
    footer: Any,
    properties: Properties | None,
    header: Header | None,
) -> None:
    """M-28, M-31: every section, every body kind, types kept."""
    message = AmqpMessage(
        *body,
        properties=properties,
        application_properties=application_properties,
        message_annotations=message_annotations,
        delivery_annotations=delivery_annotations,
        header=header,
        footer=footer,
    )
    payload = encode_message(message)
    decoded = decode_message(payload)
    assert decoded.body_kind == message.body_kind
    assert same(decoded.body, message.body)
    for name in ("application_properties", "message_annotations", "delivery_annotations", "footer"):
        assert same(getattr(decoded, name), getattr(message, name))
    assert decoded.properties == properties
    assert decoded.header == header
    assert encode_message(decoded) == payload


def test_annotation_keys_are_written_as_symbols() -> None:
    """`x-opt-…` keys are symbols; names of application properties are strings."""
    payload = encode_message(AmqpMessage(message_annotations={"a": 1}, application_properties={"b": 2}))
    decoded = decode_message(payload)
    assert decoded.message_annotations is not None
    assert decoded.application_properties is not None
    assert [type(key) for key in decoded.message_annotations] == [Symbol]
    assert [type(key) for key in decoded.application_properties] == [str]


def test_one_budget_holds_for_the_whole_message() -> None:
    """Attack: sections that are each just allowed are too much together."""
    bomb = encode_value([UInt(0)] * 40_000)
    payload = b"\x00\x53\x76" + bomb
    decode_message(payload)
    with pytest.raises(DecodeError, match="too many"):
        decode_message(payload * 2)


def test_a_body_that_cannot_be_encoded_raises() -> None:
    """AMQP 3.2: our own mistakes are EncodeErrors."""
    with pytest.raises(EncodeError):
        encode_message(AmqpMessage(object()))
