"""Values: the bytes of the standard, round trips, and what is refused."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.decode import DecodeError, decode_value, skip_value
from busway.amqp.encode import EncodeError, append_list, encode_value
from busway.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.harness.examples import examples_of
from tests.unit.amqp.amqp_values import same, values

_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")

#: Section 1.6 of the standard: value, its smallest form.
SMALLEST: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("50 00", UByte(0)),
    ("50 ff", UByte(255)),
    ("60 0000", UShort(0)),
    ("60 ffff", UShort(65535)),
    ("43", UInt(0)),
    ("52 01", UInt(1)),
    ("52 ff", UInt(255)),
    ("70 00000100", UInt(256)),
    ("70 ffffffff", UInt(0xFFFF_FFFF)),
    ("44", ULong(0)),
    ("53 ff", ULong(255)),
    ("80 0000000000000100", ULong(256)),
    ("80 ffffffffffffffff", ULong(2**64 - 1)),
    ("51 80", Byte(-128)),
    ("51 7f", Byte(127)),
    ("61 8000", Short(-32768)),
    ("54 00", Int(0)),
    ("54 80", Int(-128)),
    ("71 00000080", Int(128)),
    ("71 80000000", Int(-(2**31))),
    ("55 7f", Long(127)),
    ("55 ff", Long(-1)),
    ("81 ffffffffffffff7f", Long(-129)),
    ("81 7fffffffffffffff", Long(2**63 - 1)),
    ("72 3fc00000", Float(1.5)),
    ("72 7f800000", Float("inf")),
    ("82 3ff8000000000000", 1.5),
    ("74 01020304", Decimal(b"\1\2\3\4")),
    ("84 0102030405060708", Decimal(bytes(range(1, 9)))),
    ("94 000102030405060708090a0b0c0d0e0f", Decimal(bytes(range(16)))),
    ("73 00000041", Char("A")),
    ("73 0001f600", Char("\U0001f600")),
    ("83 00000000000003e8", Timestamp(1000)),
    ("83 ffffffffffffffff", Timestamp(-1)),
    ("98 00112233445566778899aabbccddeeff", _UUID),
    ("a0 00", b""),
    ("a0 02 0102", b"\1\2"),
    ("b0 00000100" + "ab" * 256, b"\xab" * 256),
    ("a1 00", ""),
    ("a1 03 e29883", "\u2603"),
    ("b1 00000100" + "61" * 256, "a" * 256),
    ("a3 03 616263", Symbol("abc")),
    ("b3 00000100" + "61" * 256, Symbol("a" * 256)),
    ("45", []),
    ("c0 03 02 40 41", [None, True]),
    ("c1 01 00", {}),
    ("c1 06 02 a3 01 61 52 05", {Symbol("a"): UInt(5)}),
    ("e0 02 00 40", Array([], 0x40)),
    ("e0 06 02 a3 01 61 01 62", Array([Symbol("a"), Symbol("b")], 0xA3)),
    ("e0 0a 02 71 00000001 00000002", Array([Int(1), Int(2)], 0x71)),
    ("e0 02 03 41", Array([True, True, True], 0x41)),
    ("00 a3 03 55524c a1 01 78", Described(Symbol("URL"), "x")),
    ("00 80 0000013700000004 45", Described(ULong(0x13700000004), [])),
]

#: Other forms that a peer may choose.
OTHER_FORMS: list[tuple[str, Any]] = [
    ("56 01", True),
    ("56 00", False),
    ("52 00", UInt(0)),
    ("70 00000001", UInt(1)),
    ("53 00", ULong(0)),
    ("80 0000000000000001", ULong(1)),
    ("71 ffffffff", Int(-1)),
    ("81 0000000000000001", Long(1)),
    ("b0 00000001 61", b"a"),
    ("b1 00000001 61", "a"),
    ("b3 00000001 61", Symbol("a")),
    ("c0 01 00", []),
    ("d0 00000005 00000001 40", [None]),
    ("d1 00000004 00000000", {}),
    ("f0 00000007 00000002 50 01 02", Array([UByte(1), UByte(2)], 0x50)),
    # An array of described values, as in section 1.5 of the standard.
    ("e0 0a 02 00 a3 01 75 a1 01 61 01 62", Array(["a", "b"], 0xA1, (Symbol("u"),))),
]


@pytest.mark.parametrize(("encoded", "value"), SMALLEST)
def test_each_type_has_the_bytes_of_the_standard(encoded: str, value: Any) -> None:
    """AMQP 1.6: every primitive and compound type in its smallest form, in both directions."""
    raw = bytes.fromhex(encoded)
    assert encode_value(value) == raw
    decoded, after = decode_value(raw)
    assert same(decoded, value)
    assert after == len(raw)


@pytest.mark.parametrize(("encoded", "value"), OTHER_FORMS)
def test_other_forms_of_a_value_are_understood(encoded: str, value: Any) -> None:
    """AMQP 1.6: a peer need not choose the smallest form."""
    raw = bytes.fromhex(encoded)
    decoded, after = decode_value(raw)
    assert same(decoded, value)
    assert after == len(raw)


def test_plain_python_values_have_natural_types() -> None:
    """M-31: int is long, float is double, str is string."""
    assert encode_value(5) == bytes.fromhex("5505")
    assert encode_value(300) == bytes.fromhex("81000000000000012c")
    assert encode_value(1.5)[0] == 0x82
    assert encode_value("a") == bytes.fromhex("a10161")


def test_subclasses_follow_their_ancestor() -> None:
    """AMQP 1.6: an enumeration is an integer, a subclass of str a string."""

    class Colour(IntEnum):
        RED = 3

    class Name(str):
        pass

    assert encode_value(Colour.RED) == bytes.fromhex("5503")
    assert encode_value(Name("a")) == bytes.fromhex("a10161")


@given(values)
@settings(max_examples=examples_of(400), deadline=None)
def test_every_value_round_trips_with_its_type(value: Any) -> None:
    """M-28, M-31: what is encoded comes back equal, with the same AMQP types; skipping finds the same end."""
    raw = encode_value(value)
    decoded, after = decode_value(raw)
    assert same(decoded, value)
    assert after == len(raw)
    assert skip_value(raw, 0, len(raw)) == len(raw)
    assert encode_value(decoded) == raw


@given(values, st.binary(max_size=5), st.binary(max_size=5))
@settings(max_examples=examples_of(100), deadline=None)
def test_a_value_is_found_between_other_bytes(value: Any, before: bytes, behind: bytes) -> None:
    """AMQP 1.6: offsets are those of the whole buffer."""
    raw = encode_value(value)
    data = before + raw + behind
    end = len(before) + len(raw)
    decoded, after = decode_value(data, len(before))
    assert same(decoded, value)
    assert after == end
    assert skip_value(data, len(before), len(data)) == end


@given(values)
@settings(max_examples=examples_of(100), deadline=None)
def test_a_value_cut_off_anywhere_is_refused(value: Any) -> None:
    """AMQP 1.6: no prefix of a value is a value, and the end given counts, not that of the buffer."""
    raw = encode_value(value)
    for end in range(0, len(raw), max(1, len(raw) // 40)):
        with pytest.raises(DecodeError):
            decode_value(raw, 0, end)
        with pytest.raises(DecodeError):
            skip_value(raw, 0, end)


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "01",
        "46",
        "57",
        "62",
        "75",
        "85",
        "99",
        "a2 01 61",
        "b2 00000001 61",
        "c2 01 00",
        "d2 00000004 00000000",
        "e1 02 00 40",
        "f1 00000005 00000000 40",
        "ff",
        "56 02",
        "73 0000d800",
        "73 0000dfff",
        "73 00110000",
        "a1 02 c328",
        "a1 03 eda080",
        "a3 01 80",
        "b3 00000002 c3a4",
        "a0 05 61",
        "b0 ffffffff 61",
        "c0 00",
        "c0 02 02 40 40",
        "c0 03 01 40 40",
        "c0 05 02 40 40",
        "d0 00000001 00000000",
        "d0 ffffffff 00000001 40",
        "d0 00000005 ffffffff 40",
        "c1 02 01 40",
        "e0 01 00",
        "e0 02 00 57",
        "e0 02 01 00",
        "e0 03 01 71 00",
        "00",
        "00 40",
        "00 a3 01 61",
    ],
)
def test_malformed_bytes_are_refused(encoded: str) -> None:
    """AMQP 1.6: unknown constructors, wrong sizes, wrong counts, wrong texts."""
    with pytest.raises(DecodeError):
        decode_value(bytes.fromhex(encoded))


@pytest.mark.parametrize("key", ["45", "c0 02 01 40", "c1 01 00", "e0 02 00 40", "00 44 40"])
def test_a_compound_or_described_value_is_no_key(key: str) -> None:
    """AMQP 1.6.23: such keys have no hash, so the map is refused."""
    body = bytes.fromhex(key) + b"\x40"
    raw = bytearray()
    append_list(raw, body, 2)
    raw[0] = 0xC1
    with pytest.raises(DecodeError):
        decode_value(bytes(raw))


@pytest.mark.parametrize(
    "twin", ["a30161 40 a30161 41", "a30161 40 a10161 41", "5201 40 5301 40", "41 40 5501 40"]
)
def test_a_key_that_stands_twice_is_refused(twin: str) -> None:
    """AMQP 1.6.23: two identical keys are invalid; keys that Python cannot tell apart count as identical."""
    body = bytes.fromhex(twin)
    with pytest.raises(DecodeError, match="twice"):
        decode_value(bytes((0xC1, len(body) + 1, 4)) + body)


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UInt(-1),
        UInt(2**32),
        ULong(2**64),
        Byte(128),
        Int(2**31),
        2**63,
        -(2**63) - 1,
        Timestamp(2**63),
        Symbol("\u00e4"),
        "\ud800",
        Char("ab"),
        Char("\ud800"),
        Decimal(b"123"),
        Float(1e300),
        object(),
        {1, 2},
        Array([1, "a"]),
        Array([True], 0x71),
        Array([UInt(256)], 0x52),
        Array([UInt(1)], 0x43),
        Array([False], 0x41),
        Array(["a" * 256], 0xA1),
        Array([object()], 0x98),
        Array([None], 0x57),
        Array([b"123"], 0x74),
        Array([Described(1, 2)]),
        Array([1], 0x56),
    ],
)
def test_what_does_not_fit_its_type_is_not_encoded(value: Any) -> None:
    """AMQP 1.6: our own mistakes are EncodeErrors, never wrong bytes."""
    with pytest.raises(EncodeError):
        encode_value(value)


def test_a_cyclic_value_is_not_encoded() -> None:
    """AMQP 1.6: nesting is limited when writing as well."""
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(EncodeError):
        encode_value(cyclic)


@pytest.mark.parametrize(
    ("items", "constructor"),
    [
        ([UUID(int=1)], "98"),
        ([Long(1), Long(300)], "81"),
        ([1, 300], "81"),
        ([Timestamp(1)], "83"),
        ([Symbol("a")], "a3"),
        ([Symbol("a"), Symbol("b" * 256)], "b3"),
        (["a", "b"], "a1"),
        (["a", "\u2603" * 90], "b1"),
        ([b"a"], "a0"),
        ([True, False], "56"),
        ([None], "40"),
        ([1.5], "82"),
        ([Float(1.5)], "72"),
        ([Decimal(b"12345678")], "84"),
        ([[1]], "d0"),
        ([{}], "d1"),
        ([Array([1])], "f0"),
        ([], "40"),
    ],
)
def test_an_array_without_a_constructor_finds_one_for_all_items(
    items: list[object], constructor: str
) -> None:
    """`renew-lock`, `schedule-message` and others need real arrays of uuid, long, timestamp."""
    raw = encode_value(Array(items))
    body_at = 3 if raw[0] == 0xE0 else 9
    assert raw[body_at : body_at + 1].hex() == constructor
    decoded, after = decode_value(raw)
    assert isinstance(decoded, Array)
    assert decoded.items == items
    assert after == len(raw)


def test_large_compounds_take_the_wide_form() -> None:
    """AMQP 1.6.22: 255 bytes and 255 elements are the limit of list8."""
    assert encode_value([None] * 254)[0] == 0xC0
    assert encode_value([None] * 255)[0] == 0xD0
    assert encode_value([b"x" * 250])[0] == 0xC0
    assert encode_value([b"x" * 253])[0] == 0xD0
    many = encode_value(Array([None] * 256))
    assert many == b"\xf0" + struct.pack(">II", 5, 256) + b"\x40"


def test_a_range_outside_of_the_buffer_is_refused() -> None:
    """AMQP 1.6: a caller's wrong offsets cannot read elsewhere."""
    for offset, end in ((-1, 1), (0, 2), (2, 1)):
        with pytest.raises(DecodeError):
            decode_value(b"\x40", offset, end)
