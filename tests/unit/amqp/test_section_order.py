"""Sections in another order than the standard's: put in order, or refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from busway.amqp.decode import DecodeError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    BODY_SECTIONS_MAX,
    DATA,
    SEQUENCE,
    VALUE,
    AmqpMessage,
    OutOfOrder,
    decode_message,
    encode_message,
    in_order,
    scan,
    scan_in_order,
    split_batch,
)
from busway.amqp.types import Symbol
from busway.gateway.amqp.message_mapping import message_of
from busway.message.event_record import event_of

EMPTY = 0


def section(**parts: Any) -> bytes:
    return encode_message(AmqpMessage(parts.pop("body", None), parts.pop("kind", EMPTY), **parts))


SECTIONS = {
    "header": section(header=Header(durable=True)),
    "delivery annotations": section(delivery_annotations={Symbol("d"): 1}),
    "message annotations": section(message_annotations={Symbol("m"): 2}),
    "properties": section(properties=Properties(message_id="id")),
    "application properties": section(application_properties={"a": 3}),
    "body": section(body=[b"one", b"two"], kind=DATA),
    "footer": section(footer={Symbol("f"): 4}),
}
USUAL = b"".join(SECTIONS.values())
NULL_BODY = b"\x00\x53\x75\x40"
NULL_BODY_NAMED = b"\x00\xa3\x10amqp:data:binary\x40"


def test_any_order_is_the_same_message() -> None:
    """M-28: every order of all sections gives the bytes of the usual one."""
    for order in itertools.permutations(SECTIONS.values()):
        ordered, found = scan_in_order(b"".join(order))
        if ordered != USUAL:  # the one order that is read as it lies: delivery annotations last
            assert order[-1] == SECTIONS["delivery annotations"]
            continue
        assert found.body_kind == DATA
    assert scan_in_order(USUAL)[0] is USUAL


def test_a_footer_before_the_body_is_taken_and_stored_behind_it() -> None:
    """M-28: as rhea writes it; what is stored and delivered is in order."""
    body, footer = SECTIONS["body"], SECTIONS["footer"]
    payload = SECTIONS["properties"] + footer + body
    assert message_of(payload, False).bare == SECTIONS["properties"] + body + footer
    assert event_of(payload).bare == SECTIONS["properties"] + body + footer


def test_sections_of_a_body_keep_their_order_whatever_lies_between() -> None:
    """M-28: sections of a body keep their order whatever lies between."""
    first, second = section(body=[b"1"], kind=DATA), section(body=[b"2"], kind=DATA)
    ordered = in_order(first + SECTIONS["footer"] + second + SECTIONS["header"])
    assert decode_message(ordered).body == [b"1", b"2"]


def test_an_envelope_in_another_order_is_taken_apart() -> None:
    """S-20: an envelope in another order is taken apart."""
    inner = section(body=[b"x"], kind=DATA)
    envelope = SECTIONS["footer"] + section(body=[inner, inner], kind=DATA) + SECTIONS["header"]
    assert split_batch(envelope) == [inner, inner]


@pytest.mark.parametrize("twice", [name for name in SECTIONS if name != "body"])
def test_a_section_that_comes_twice_is_refused(twice: str) -> None:
    """Attack: in the usual place and elsewhere."""
    for payload in (
        USUAL.replace(SECTIONS[twice], SECTIONS[twice] * 2),
        SECTIONS[twice] + USUAL,
        USUAL + SECTIONS[twice],
    ):
        for read in (lambda data: message_of(data, False), event_of, lambda data: split_batch(data)):
            with pytest.raises(DecodeError):
                read(payload)


@pytest.mark.parametrize(
    "payload",
    [
        section(body="v", kind=VALUE) * 2,
        section(body="v", kind=VALUE) + SECTIONS["footer"] + section(body="v", kind=VALUE),
        SECTIONS["body"] + SECTIONS["footer"] + section(body="v", kind=VALUE),
        section(body=[[1]], kind=SEQUENCE) + section(body=[b"d"], kind=DATA),
        SECTIONS["footer"] + SECTIONS["body"] + b"\x00\x53\x79\x45",
        SECTIONS["footer"] + SECTIONS["body"][:-1],
        SECTIONS["footer"] + b"\x00\x53\x75" + SECTIONS["body"],
        SECTIONS["footer"] + SECTIONS["body"] + b"\x00",
        SECTIONS["footer"] + SECTIONS["body"] + b"no section",
        SECTIONS["footer"] + section(body=[b""], kind=DATA) * (BODY_SECTIONS_MAX + 1),
    ],
)
def test_only_the_order_is_forgiven(payload: bytes) -> None:
    """Attack: two bodies, unknown sections, sections cut off, nested or without end."""
    with pytest.raises(DecodeError):
        message_of(payload, False)
    with pytest.raises(DecodeError):
        event_of(payload)


def test_no_body_at_all_is_a_message_still() -> None:
    """M-28: in any order."""
    assert message_of(SECTIONS["footer"] + SECTIONS["properties"], False).bare == (
        SECTIONS["properties"] + SECTIONS["footer"]
    )


def test_what_is_in_order_is_not_looked_at_twice() -> None:
    """M-28: `scan` itself forgives nothing."""
    with pytest.raises(OutOfOrder):
        scan(SECTIONS["footer"] + SECTIONS["body"])


@pytest.mark.parametrize("null", [NULL_BODY, NULL_BODY_NAMED])
def test_a_data_section_may_hold_null(null: bytes) -> None:
    """M-28: JavaScript's client writes a null body so; it is kept as it came, and read back as null."""
    payload = SECTIONS["properties"] + null + SECTIONS["footer"]
    assert message_of(payload, False).bare == payload
    event = event_of(payload)
    assert event.bare == payload
    message = decode_message(payload)
    assert (message.body_kind, message.body) == (DATA, None)
    assert decode_message(encode_message(message)).body is None
    assert event_of(null).bare == null


@pytest.mark.parametrize(
    "payload",
    [
        NULL_BODY * 2,
        NULL_BODY + section(body=[b"x"], kind=DATA),
        section(body=[b"x"], kind=DATA) + NULL_BODY,
        SECTIONS["footer"] + NULL_BODY * 2,
        b"\x00\x53\x75\x43",
        b"\x00\x53\x75\xa1\x01x",
        b"\x00\x53\x76\x40",
        b"\x00\x53\x78\x40",
        b"\x00\x53\x73\x40",
    ],
)
def test_null_is_forgiven_where_it_is_the_whole_body(payload: bytes) -> None:
    """Attack: not beside other data sections, and no other section or type."""
    with pytest.raises(DecodeError):
        message_of(payload, False)
    with pytest.raises(DecodeError):
        event_of(payload)


def test_a_batch_of_nothing_is_refused() -> None:
    """S-20 Attack: an envelope's data section holds messages, not null."""
    with pytest.raises(DecodeError):
        split_batch(NULL_BODY)
