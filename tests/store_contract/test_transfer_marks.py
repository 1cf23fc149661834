"""Marks of rows that came from other stores: a repeated transfer meets its first try."""

import asyncio
from typing import Any

import pytest

from busway.store.contract import CommitBatch, CommitRefused, FragmentKey, TransferMark
from tests.store_contract.scenario import World, active_numbers, add_fragment, let_commits_start, message, put


def mark(number: int, store: str = "second", fragment: int = 7) -> TransferMark:
    return TransferMark(store, FragmentKey(fragment), number)


def test_marks_are_kept_with_their_puts_over_a_restart(world: World) -> None:
    async def write(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1), message(2))
        store.batch().transfer_marks.extend([mark(20), mark(3)])

    async def read(store: Any) -> None:
        assert await active_numbers(store, FragmentKey(1)) == [1, 2]
        assert await store.transfer_marks() == [mark(3), mark(20)]

    world.run(write)
    world.run(read)


def test_marks_are_listed_in_order_and_by_their_store(world: World) -> None:
    async def play(store: Any) -> None:
        marks = [mark(2, "c"), mark(1, "b", 9), mark(1, "b", 8), mark(5, "ä"), mark(3, "c")]
        store.batch().transfer_marks.extend(marks)
        await store.flush()
        ordered = [mark(1, "b", 8), mark(1, "b", 9), mark(2, "c"), mark(3, "c"), mark(5, "ä")]
        assert await store.transfer_marks() == ordered
        assert await store.transfer_marks("b") == ordered[:2]
        assert await store.transfer_marks("unknown") == []

    world.run(play)


def test_a_mark_can_be_removed_and_one_that_is_not_there_too(world: World) -> None:
    async def play(store: Any) -> None:
        store.batch().transfer_marks.extend([mark(1), mark(2), mark(2)])
        await store.flush()
        store.batch().transfer_marks.append(mark(2))
        store.batch().transfer_marks_removed.extend([mark(1), mark(9), mark(1, "other")])
        await store.flush()
        assert await store.transfer_marks() == [mark(2)]
        store.batch().transfer_marks.append(mark(3))
        store.batch().transfer_marks_removed.append(mark(3))
        await store.flush()
        assert await store.transfer_marks() == [mark(2)]

    world.run(play)


def test_a_mark_that_a_joined_batch_removes_is_not_shown(world: World) -> None:
    """Contract: neither while the batch gathers nor while it is in flight, nor if it joined during the read."""

    async def play(store: Any) -> None:
        store.batch().transfer_marks.extend([mark(1), mark(2), mark(3), mark(4)])
        await store.flush()
        store.hold_commits()
        store.batch().transfer_marks_removed.append(mark(1))
        await let_commits_start(store)
        store.batch().transfer_marks_removed.append(mark(2))
        assert await store.transfer_marks() == [mark(3), mark(4)]
        store.hold_reads()
        read = asyncio.create_task(store.transfer_marks("second"))
        await store.read_rows_taken()
        store.batch().transfer_marks_removed.append(mark(3))
        store.release_reads()
        assert await read == [mark(4)]
        store.release_commits()
        await store.flush()
        assert await store.transfer_marks() == [mark(4)]

    world.run(play)


def test_a_refused_batch_leaves_no_mark(world: World) -> None:
    """Contract: all or nothing."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        store.batch().transfer_marks.append(mark(1))
        await store.flush()
        put(store, fragment, message(1))
        store.batch().transfer_marks.append(mark(2))
        store.batch().transfer_marks_removed.append(mark(1))
        with pytest.raises(CommitRefused):
            await store.flush()
        await store.reopen()
        assert await store.transfer_marks() == [mark(1)]

    world.run(play)


def test_marks_alone_make_a_batch_worth_a_commit() -> None:
    batch = CommitBatch()
    assert batch.is_empty()
    batch.transfer_marks.append(mark(1))
    assert not batch.is_empty()
    batch = CommitBatch()
    batch.transfer_marks_removed.append(mark(1))
    assert not batch.is_empty()


def test_marks_are_equal_when_all_their_parts_are() -> None:
    assert len({mark(1), mark(1), mark(2), mark(1, "other"), mark(1, fragment=8)}) == 4
    assert mark(1) != ("second", 7, 1)
    assert repr(mark(1)) == "TransferMark('second', 7, 1)"
