"""Bombs: a few bytes that declare very much. Each is refused, quickly, and only with DecodeError."""

from __future__ import annotations

import struct
import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest

from busway.amqp.decode import DecodeError, ElementBudget, decode_value, skip_value
from busway.amqp.encode import append_list, append_map, encode_value
from busway.amqp.types import Array, Described, Symbol, UInt

DEPTH_MAX = 64
COUNT_MAX = 65_536


def _nested(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = None
    for _ in range(depth):
        value = wrap(value)
    return value


def _nested_bytes(depth: int, before: bytes) -> bytes:
    """Compounds of one element, the outermost first, each in its 32-bit form."""
    raw = b"\x40"
    for _ in range(depth):
        body = struct.pack(">I", 1) + before + raw
        raw = b"\xd0" + struct.pack(">I", len(body)) + body
    return raw


def _array32(count: int, constructor: bytes) -> bytes:
    body = struct.pack(">I", count) + constructor
    return b"\xf0" + struct.pack(">I", len(body)) + body


def test_nesting_has_a_limit_of_64() -> None:
    """Attack: lists may be nested 64 deep and no deeper."""
    deep, _ = decode_value(_nested_bytes(DEPTH_MAX, b""))
    assert isinstance(deep, list)
    with pytest.raises(DecodeError, match="deeper"):
        decode_value(_nested_bytes(DEPTH_MAX + 1, b""))


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00" * 60_000,
        b"\x00\x44" * 30_000 + b"\x40",
        _nested_bytes(5_000, b""),
        b"\xf0\x00\x00\xff\xff\x00\x00\x00\x01" + b"\x00\x44" * 30_000,
        b"\xf0\x00\x00\xff\xf0\x00\x00\x00\x01" * 7_000,
        b"\xc0\xff\x01" * 20_000,
    ],
    ids=["descriptors", "described", "lists", "array of described", "arrays", "declared lists"],
)
def test_deep_nesting_never_exhausts_the_stack(raw: bytes) -> None:
    """Attack: no RecursionError, whatever is nested in what."""
    limit = sys.getrecursionlimit()
    for read in (lambda: decode_value(raw), lambda: skip_value(raw, 0, len(raw))):
        try:
            read()
        except DecodeError:
            continue
    assert sys.getrecursionlimit() == limit


def test_a_described_descriptor_counts_as_nesting() -> None:
    """Attack: descriptors may be described, 64 deep."""
    fits = _nested(DEPTH_MAX, lambda inner: Described(inner, None))
    raw = encode_value(fits)
    assert decode_value(raw)[1] == len(raw)
    with pytest.raises(DecodeError, match="deeper"):
        decode_value(b"\x00" * (DEPTH_MAX + 1) + b"\x44" + b"\x40" * (DEPTH_MAX + 1))


@pytest.mark.parametrize("constructor", [b"\x40", b"\x41", b"\x42", b"\x43", b"\x44", b"\x45"])
def test_an_array_of_nothing_is_limited_by_its_count(constructor: bytes) -> None:
    """Attack: 2**24 zero-width elements out of ten bytes are refused before anything is allocated."""
    tracemalloc.start()
    try:
        for count in (COUNT_MAX + 1, 1 << 24, 0xFFFF_FFFF):
            with pytest.raises(DecodeError):
                decode_value(_array32(count, constructor))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_small_bombs_are_one() -> None:
    """Attack: the sum of the elements of a frame is limited, not only each count."""
    small = _array32(1_000, b"\x45")
    body = bytearray()
    append_list(body, small * 65, 65)
    assert decode_value(bytes(body))[1] == len(body)
    body = bytearray()
    append_list(body, small * 66, 66)
    with pytest.raises(DecodeError, match="too many"):
        decode_value(bytes(body))


def test_a_budget_spans_the_values_of_a_frame() -> None:
    """Attack: values that are decoded one after the other share what is left."""
    budget = ElementBudget(elements_max=3)
    assert decode_value(b"\x40", budget=budget) == (None, 1)
    assert decode_value(b"\xc0\x02\x01\x40", budget=budget) == ([None], 4)
    with pytest.raises(DecodeError, match="too many"):
        decode_value(b"\x40", budget=budget)


def test_a_list_cannot_declare_more_elements_than_bytes() -> None:
    """Attack: a count is compared with what is there."""
    with pytest.raises(DecodeError, match="declares"):
        decode_value(b"\xd0" + struct.pack(">II", 6, 3) + b"\x40\x40")


def test_a_full_frame_of_nulls_is_refused_only_beyond_the_budget() -> None:
    """Attack: 65,535 nulls in a list fit the budget, one more does not."""
    fits = bytearray()
    append_list(fits, b"\x40" * 65_535, 65_535)
    decoded, _ = decode_value(bytes(fits))
    assert isinstance(decoded, list)
    assert len(decoded) == 65_535
    beyond = bytearray()
    append_list(beyond, b"\x40" * 65_536, 65_536)
    with pytest.raises(DecodeError):
        decode_value(bytes(beyond))


def test_keys_with_chosen_hashes_are_limited() -> None:
    """Attack: uuids with one and the same hash cannot make a map quadratic."""
    modulus = (1 << 61) - 1
    entries = b"".join(
        b"\x98" + (7 + number * modulus).to_bytes(16, "big") + b"\x40" for number in range(20_000)
    )
    raw = bytearray()
    append_map(raw, entries, 40_000)
    started = time.thread_time()
    with pytest.raises(DecodeError, match="no texts"):
        decode_value(bytes(raw))
    assert time.thread_time() - started < 2


def test_text_keys_are_not_limited_beyond_the_budget() -> None:
    """Attack: an honest map with thousands of entries is fine."""
    honest: dict[object, object] = {Symbol(f"key-{number}"): UInt(number) for number in range(20_000)}
    decoded, _ = decode_value(encode_value(honest))
    assert decoded == honest


def test_an_honest_array_of_a_thousand_numbers_is_fine() -> None:
    """`cancel-scheduled-message` and others carry arrays of sequence numbers."""
    numbers = Array([number << 30 for number in range(4_000)], 0x81)
    decoded, _ = decode_value(encode_value(numbers))
    assert decoded == numbers
