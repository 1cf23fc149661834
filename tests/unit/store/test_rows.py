"""Rows, checksums and runs of keys."""

from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.message.message import Message
from busway.store.contract import FragmentKey
from busway.store.rows import (
    CHECKSUM_PRIME,
    MessageTuple,
    key_bounds,
    message_of,
    message_rows,
    more_of,
    rewritten,
    runs,
    sealed,
    shared_bodies,
    unpack,
    unsealed,
)
from tests.store_contract.scenario import fields_of


def row_of(message: Message, fragment: int = 3) -> MessageTuple:
    [row] = message_rows([(FragmentKey(fragment), 0, message)]).active
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


@given(st.integers(0, 5), st.integers(0, 62))
def test_any_single_bit_of_any_column_is_noticed(column: int, bit: int) -> None:
    """F4: integers, texts and bytes alike."""
    row: list[Any] = list(row_of(full_message()))
    assert message_of(row_of(full_message()), 0) is not None
    value = row[column]
    if isinstance(value, int):
        row[column] = value ^ 1 << bit
    else:
        assert isinstance(value, bytes)
        data = bytearray(value)
        data[bit % len(data)] ^= 1 << bit % 8
        row[column] = bytes(data)
    assert message_of(as_row(row), 0) is None


@given(st.integers(0), st.integers(0, 7))
def test_any_single_bit_of_the_packed_fields_is_noticed(at: int, bit: int) -> None:
    """F4: each count, text, head and changed property."""
    row: list[Any] = list(row_of(full_message()))
    more = bytearray(row[4])
    more[at % len(more)] ^= 1 << bit
    row[4] = bytes(more)
    assert message_of(as_row(row), 0) is None


@pytest.mark.parametrize(("column", "value"), [*product(range(6), [None, 5, 5.5, "text", b"bytes", b""])])
def test_a_column_of_another_type_is_damage_not_an_error(column: int, value: object) -> None:
    """F4: a flipped bit in a row's header."""
    row: list[Any] = list(row_of(full_message()))
    row[column] = value
    assert message_of(as_row(row), 0) is None


def test_body_and_fields_cannot_take_each_others_place() -> None:
    row: list[Any] = list(row_of(full_message()))
    row[4], row[5] = row[5], row[4]
    assert message_of(as_row(row), 0) is None


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = Message(
        draw(st.binary(max_size=5)),
        draw(st.binary(max_size=20)),
        ttl_ms=draw(st.just(-1) | numbers),
        message_id=draw(texts),
        session_id=draw(texts),
        partition_key=draw(texts),
        scheduled_at_ms=draw(st.just(0) | numbers),
    )
    message.sequence_number = draw(st.integers(1, 1 << 39))
    message.enqueued_at_ms = draw(numbers)
    message.expires_at_ms = draw(numbers)
    message.delivery_count = draw(st.just(0) | numbers)
    message.changes = draw(st.none() | st.binary(max_size=5))
    return message


@given(messages())
def test_a_message_comes_back_as_it_was_stored(message: Message) -> None:
    back = message_of(row_of(message), 0)
    assert back is not None
    assert fields_of(back) == fields_of(message)


def test_a_plain_message_has_nothing_packed() -> None:
    assert more_of(Message(b"", b"body")) is None
    assert row_of(Message(b"", b"body"))[4] is None


@pytest.mark.parametrize(
    "more", [b"", b"\x01", b"\x01" + b"x" * 9, b"\x08\0\0\0\x05a", b"\x40\0\0\0\x01ab", b"\0x"]
)
def test_fields_of_another_length_are_told(more: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        unpack(Message(b"", b""), more)


@given(
    messages(),
    st.none() | numbers,
    st.none() | numbers,
    st.none() | numbers,
    st.none() | st.binary(max_size=5),
)
def test_a_row_written_anew_without_its_body_is_whole(
    message: Message,
    enqueued_at: int | None,
    expires_at: int | None,
    count: int | None,
    changes: bytes | None,
) -> None:
    """F4: what the checksum shifts by is what a fresh row would have."""
    row = row_of(message)
    key = 9 << 40 | 77
    made = rewritten(row[:5], key, enqueued_at, expires_at, count, changes)
    message.sequence_number = 77
    message.enqueued_at_ms = message.enqueued_at_ms if enqueued_at is None else enqueued_at
    message.expires_at_ms = message.expires_at_ms if expires_at is None else expires_at
    message.delivery_count = message.delivery_count if count is None else count
    message.changes = message.changes if changes is None else changes
    assert (*made[:4], made[6], message.bare) == row_of(message, 9)
    assert made[4:6] == (message.session_id, message.scheduled_at_ms)


@given(messages(), st.integers(1, CHECKSUM_PRIME - 1))
def test_a_wrong_checksum_stays_wrong(message: Message, difference: int) -> None:
    """F4: however often the row is written anew."""
    key, enqueued_at, expires_at, checksum, more, bare = row_of(message)
    front = (key, enqueued_at, expires_at, (checksum + difference) % CHECKSUM_PRIME, more)
    for count in (5, 6):
        made = rewritten(front, key, None, None, count, b"changes")
        front = (*made[:4], made[6])
        assert message_of((*front, bare), 0) is None


def test_rows_aside_carry_what_their_indexes_need() -> None:
    rows = message_rows([(FragmentKey(3), place, full_message()) for place in (1, 2)])
    assert (rows.active, len(rows.deferred), len(rows.scheduled)) == ([], 1, 1)
    assert rows.deferred[0][4:6] == rows.scheduled[0][4:6] == ("s", 9)


def test_only_identical_bodies_of_several_fragments_are_shared() -> None:
    body, twin, small = b"x" * 4096, bytes(bytearray(b"x" * 4096)), b"x" * 100

    def shared(*bodies: tuple[int, bytes]) -> list[int] | None:
        found = shared_bodies([(FragmentKey(key), 0, Message(b"", body)) for key, body in bodies])
        return None if found is None else [count for _, count in found.values()]

    assert shared((1, body), (2, body), (3, twin), (1, small), (2, small)) == [2]
    assert shared((1, body), (2, body), (1, twin), (2, twin), (3, twin)) == [2, 3]
    assert shared((1, body), (2, twin)) is None
    assert shared((1, body), (1, body)) is None
    assert shared((1, small), (2, small)) is None


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
