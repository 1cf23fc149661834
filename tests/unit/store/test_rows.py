"""Rows, checksums and runs of keys."""

from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.message import Message
from busway.store.contract import FragmentKey
from busway.store.sqlite.rows import (
    MessageTuple,
    key_bounds,
    message_of,
    message_tuples,
    runs,
    sealed,
    unsealed,
)


def row_of(message: Message) -> MessageTuple:
    (row,), _, _ = message_tuples([(FragmentKey(3), 0, message)])
    return row


def as_row(values: list[Any]) -> MessageTuple:
    """Whatever damage made of a row, as SQLite would hand it over."""
    row: Any = tuple(values)
    checked: MessageTuple = row
    return checked


def full_message() -> Message:
    message = Message(
        b"head", b"bare" * 10, ttl_ms=1, message_id="m", session_id="s", partition_key="p", scheduled_at_ms=9
    )
    message.sequence_number = 77
    message.enqueued_at_ms = 1_700_000_000_000
    message.changes = b"changes"
    return message


@given(st.integers(0, 12), st.integers(0, 62))
def test_any_single_bit_of_any_column_is_noticed(column: int, bit: int) -> None:
    """F4: integers, texts and bytes alike."""
    row: list[Any] = list(row_of(full_message()))
    assert message_of(row_of(full_message()), 0) is not None
    value = row[column]
    if isinstance(value, int):
        row[column] = value ^ 1 << bit
    elif isinstance(value, str):
        row[column] = chr(ord(value) ^ 1 << bit % 7)
    else:
        assert isinstance(value, bytes)
        data = bytearray(value)
        data[bit % len(data)] ^= 1 << bit % 8
        row[column] = bytes(data)
    assert message_of(as_row(row), 0) is None


@pytest.mark.parametrize(
    ("column", "value"),
    # Absent changes are allowed, so their absence proves nothing.
    [pair for pair in product(range(13), [None, 5, 5.5, "text", b"bytes", b""]) if pair != (11, None)],
)
def test_a_column_of_another_type_is_damage_not_an_error(column: int, value: object) -> None:
    """F4: a flipped bit in a row's header."""
    row: list[Any] = list(row_of(full_message()))
    row[column] = value
    assert message_of(as_row(row), 0) is None


def test_bytes_cannot_wander_between_head_and_body() -> None:
    row: list[Any] = list(row_of(full_message()))
    row[10], row[12] = b"headb", row[12][1:]
    assert message_of(as_row(row), 0) is None


@given(st.sets(st.integers(0, 60)))
def test_runs_name_exactly_the_keys(keys: set[int]) -> None:
    ranges = runs(list(keys))
    assert {key for first, last in ranges for key in range(first, last + 1)} == keys
    assert all(second[0] > first[1] + 1 for first, second in pairwise(ranges))


def test_runs_ignore_repetitions() -> None:
    assert runs([5, 4, 4, 5]) == [(4, 5)]


def test_the_largest_fragment_fits_an_integer_of_the_database() -> None:
    low, high = key_bounds(FragmentKey((1 << 23) - 1))
    assert high == (1 << 63) - 1
    assert low < high


@given(st.binary(max_size=50))
def test_sealed_bytes_prove_themselves(data: bytes) -> None:
    assert unsealed(sealed(data)) == data
    with pytest.raises(ValueError, match="changed"):
        unsealed(sealed(data) + b"x")
