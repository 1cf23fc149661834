"""Blocks of messages: what is encoded comes back, any slice of it alone, and a flipped bit costs its own message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.message.message import Message
from busway.store.contract import COUNTER_BITS, FragmentKey
from busway.store.rows import RawPage
from busway.store.run_block import (
    RUN_BODY_BYTES_MAX,
    RUN_BYTES_MAX,
    RUN_MESSAGES_MAX,
    RunDamaged,
    RunHead,
    RunMarks,
    encoded,
    gathered,
    head_bytes,
    marks_checksum,
    marks_of,
    take_slice,
)
from tests.store_contract.scenario import LOTS, fields_of, message

FRAGMENT = FragmentKey(3)
KEY = FRAGMENT << COUNTER_BITS | 11

bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


def messages_of(found: list[bytes], choices: list[int]) -> list[Message]:
    made = []
    for index, body in enumerate(found):
        choice = choices[index % len(choices)] if choices else 0
        each = message(
            11 + index,
            body,
            enqueued_at_ms=1_000 + choice % 2,
            head=b"h" * (choice % 3),
            partition_key=f"key {choice % 4}" if choice % 5 == 0 else None,
            ttl_ms=choice % 7 - 1,
        )
        each.expires_at_ms += choice // 2 % 2
        made.append(each)
    return made


def decoded(data: bytes, start: int, stop: int) -> list[Message | None]:
    head = RunHead(data[: head_bytes(data)], KEY)
    part = head.slice(
        start, stop, data[head.bytes + head.body_start(start) : head.bytes + head.body_start(stop)]
    )
    if part.is_damaged:
        part = head.slice(0, head.count, data[head.bytes :])
    return [part.message(index) for index in range(start, stop)]


@settings(max_examples=200, deadline=None)
@given(bodies, st.lists(st.integers(0, 1000), max_size=30), st.data())
def test_any_slice_of_a_block_gives_its_messages_back(
    found: list[bytes], choices: list[int], data: st.DataObject
) -> None:
    """F2: all fields, with one time or several, with and without what few messages have."""
    messages = messages_of(found, choices)
    block = encoded(KEY, messages)
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    got = decoded(block, start, stop)
    assert [each and fields_of(each) for each in got] == [fields_of(each) for each in messages[start:stop]]


@pytest.mark.parametrize("choices", [[0], [5, 1, 2, 10], [1, 2, 3]])
def test_a_flipped_bit_costs_its_own_message_only(choices: list[int]) -> None:
    """F4: in a body, a sum or what few messages have; in the head it costs all."""
    messages = messages_of([b"body %d" % index for index in range(8)], choices)
    block = encoded(KEY, messages)
    originals = [fields_of(each) for each in messages]
    whole = 0
    for position in range(len(block)):
        flipped = bytearray(block)
        flipped[position] ^= 1 << position % 8
        for start, stop in ((0, 8), (0, 4), (3, 6), (7, 8)):
            try:
                got = decoded(bytes(flipped), start, stop)
            except RunDamaged:
                continue
            wrong = [index for index, each in enumerate(got) if each is None]
            for index, each in enumerate(got):
                assert each is None or fields_of(each) == originals[start + index]
            if position >= head_bytes(block):
                assert len(wrong) <= 1
            whole += not wrong
    assert whole > 0


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_a_block_that_is_cut_short_is_damaged(length: int) -> None:
    """F4: no error but the one that readers expect."""
    block = encoded(KEY, messages_of([b"a", b"b"], [0]))
    with pytest.raises(RunDamaged):
        RunHead(block[:length], KEY)


def test_a_block_under_another_key_is_damaged() -> None:
    """F4: its numbers are part of what is proved."""
    block = encoded(KEY, messages_of([b"a", b"b"], [0]))
    with pytest.raises(RunDamaged):
        RunHead(block, KEY + 1)


def page_of(limit: int, bytes_max: int, marks: RunMarks, count: int = 10) -> RawPage:
    block = encoded(KEY, messages_of([b"x" * 10] * count, [0]))
    head = RunHead(block, KEY)
    page = RawPage(limit, bytes_max, lambda _: None)
    start, is_taken = 0, True
    while is_taken and (start := marks.next_left(start, count)) < count:
        rows, room = page.room()
        stop = head.stop_for(start, rows + 1, room)
        bodies = block[head.bytes + head.body_start(start) : head.bytes + head.body_start(stop)]
        is_taken = take_slice(page, head.slice(start, stop, bodies), start, stop, marks)
        start = stop
    return page


@pytest.mark.parametrize(
    ("limit", "bytes_max", "numbers", "more"),
    [
        (100, LOTS, range(11, 21), False),
        (10, LOTS, range(11, 21), False),
        (9, LOTS, range(11, 20), True),
        (100, 35, range(11, 14), True),
        (100, 1, range(11, 12), True),
        (100, 100, range(11, 21), False),
    ],
)
def test_a_page_takes_what_fits(limit: int, bytes_max: int, numbers: range, more: bool) -> None:
    """Contract: at least one, then as many as both bounds allow."""
    page = page_of(limit, bytes_max, RunMarks())
    assert ([each.sequence_number for each in page.messages], page.more) == (list(numbers), more)


# -- marks


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(1, 40)), max_size=12))
def test_marks_are_the_set_of_what_was_marked(count: int, ranges: list[tuple[int, int]]) -> None:
    """F2: in order or not, once or again, over storing."""
    marks, model = RunMarks(), set[int]()
    for first, length in ranges:
        start, stop = min(first, count - 1), min(first + length, count)
        asked = set(range(start, stop))
        if asked:
            assert marks.mark(start, stop) == model.isdisjoint(asked)
        model |= asked
        gone, dead = marks.stored()
        marks = marks_of(KEY, gone, dead, marks_checksum(KEY, gone, dead))
        assert {index for index in range(count) if marks.is_gone(index)} == model
        assert marks.is_all(count) == (len(model) == count)
        left = [index for index in range(count) if index not in model]
        for index in range(count):
            assert marks.next_left(index, count) == min([at for at in left if at >= index], default=count)


def test_a_flipped_bit_of_marks_is_flipped_back() -> None:
    """F4: a message that is left is never hidden, one that is gone does not come again."""
    marks = RunMarks()
    for start, stop in ((0, 3), (5, 6), (30, 70)):
        marks.mark(start, stop)
    gone, dead = marks.stored()
    assert dead is not None
    checksum = marks_checksum(KEY, gone, dead)
    damages: list[tuple[int, bytes, int]] = [(gone ^ 1 << bit, dead, checksum) for bit in range(62)]
    damages += [(gone, dead, checksum ^ 1 << bit) for bit in range(32)]
    for bit in range(8 * len(dead)):
        flipped = bytearray(dead)
        flipped[bit // 8] ^= 1 << bit % 8
        damages.append((gone, bytes(flipped), checksum))
    for damage in damages:
        assert marks_of(KEY, *damage).stored() == (gone, dead)


def test_marks_beyond_repair_hide_nothing() -> None:
    """F4: messages that come again do less harm than messages that are lost."""
    assert marks_of(KEY, 77, b"\xff\xff", 1).stored() == (0, None)


# -- which puts become runs


def runs_of(
    puts: list[tuple[FragmentKey, int, Message]], **changes: Any
) -> tuple[list[list[int]], list[int]]:
    values: dict[str, Any] = {
        "payload_of": None,
        "with_sessions": set(),
        "messages_min": 2,
        "last_numbers": {},
        **changes,
    }
    found = gathered(puts, **values)
    return (
        [[each.sequence_number for each in messages] for _, messages in found.runs],
        [each.sequence_number for _, _, each in found.alone],
    )


def puts_of(*numbers: int, fragment: int = 3, place: int = 0) -> list[tuple[FragmentKey, int, Message]]:
    return [(FragmentKey(fragment), place, message(number)) for number in numbers]


def test_consecutive_numbers_of_a_fragment_become_a_run() -> None:
    """F8: also when other fragments come between; a gap begins another one, what is alone stays alone."""
    puts = [
        *puts_of(1, 2),
        *puts_of(7, fragment=4),
        *puts_of(3, 5, 6),
        *puts_of(8, 9, fragment=4),
        *puts_of(9),
    ]
    assert runs_of(puts) == ([[1, 2, 3], [5, 6], [7, 8, 9]], [9])


def test_what_is_not_plain_stays_a_row() -> None:
    """F8: other places, sessions, shared and large bodies."""
    shared = puts_of(1, 2)
    assert runs_of(shared, payload_of={id(each.bare): 1 for _, _, each in shared}) == ([], [1, 2])
    assert runs_of(puts_of(1, 2, place=1)) == ([], [1, 2])
    assert runs_of(puts_of(1, 2), with_sessions={FragmentKey(3)}) == ([], [1, 2])
    large = [(FRAGMENT, 0, message(number, bytes(RUN_BODY_BYTES_MAX + 1))) for number in (1, 2)]
    assert runs_of(large) == ([], [1, 2])
    assert runs_of(puts_of(1, 2, 3), messages_min=4) == ([], [1, 2, 3])


def test_a_run_is_bounded() -> None:
    """F8: by bytes and by messages."""
    size = RUN_BODY_BYTES_MAX
    each = RUN_BYTES_MAX // size
    large = [(FRAGMENT, 0, message(number, bytes(size))) for number in range(1, 2 * each + 1)]
    assert [len(run) for run in runs_of(large)[0]] == [each, each]
    many = puts_of(*range(1, RUN_MESSAGES_MAX + 3))
    assert [len(run) for run in runs_of(many)[0]] == [RUN_MESSAGES_MAX, 2]


def test_a_number_that_is_not_higher_than_the_last_is_looked_at() -> None:
    """F2: a batch with one number twice must fail, as it does with rows."""
    found = gathered(puts_of(1, 2, 3, 3), None, set(), 2, {})
    assert found.late == [FRAGMENT << COUNTER_BITS | 3]
    assert gathered(puts_of(3), None, set(), 2, {FRAGMENT: 3}).late == [FRAGMENT << COUNTER_BITS | 3]
