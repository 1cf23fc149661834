"""Messages that were put together: whatever becomes of one of them, the others stay as they are. A store may keep
them in one place (`sqlite` does); nobody above can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Change, FragmentKey, Move, StoreError
from busway.store.run_block import RUN_BODY_BYTES_MAX, RUN_BYTES_MAX
from busway.store.sqlite.message_runs import RUN_MESSAGES_MIN
from tests.store_contract.scenario import (
    LOTS,
    World,
    active_numbers,
    add_fragment,
    delete,
    fields_of,
    message,
    numbers_of,
    put,
    put_in_session,
)

FIRST, LAST = 11, 20
ALL = range(FIRST, LAST + 1)
#: Which message of the run is meant, and which others went before.
WHICH = pytest.mark.parametrize(
    ("number", "gone"),
    [(FIRST, []), (15, []), (LAST, []), (FIRST, [12]), (15, [14, 16]), (LAST, [11, 19]), (15, [*ALL])],
    ids=["first", "middle", "last", "first of a gap", "between gaps", "last of gaps", "alone"],
)
#: What happens between two commits.
BETWEEN = pytest.mark.parametrize("is_reopened", [False, True], ids=["", "reopened"])


async def run_of(store: Any, number: int, gone: list[int], is_reopened: bool) -> FragmentKey:
    fragment = add_fragment(store)
    put(store, fragment, message(5), message(7))
    put(
        store,
        fragment,
        *[
            message(each, b"body %d" % each, partition_key="k" if each % 3 else None, ttl_ms=each)
            for each in ALL
        ],
    )
    await store.flush()
    put(store, fragment, message(30))
    for each in gone:
        if each != number:
            delete(store, fragment, each)
            await store.flush()
    await between(store, is_reopened)
    return fragment


async def between(store: Any, is_reopened: bool) -> None:
    await store.flush()
    if is_reopened:
        await store.close()
        await store.open()


def left(number: int, gone: list[int]) -> list[int]:
    return [5, 7, *[each for each in ALL if each not in gone and each != number], 30]


@WHICH
@BETWEEN
def test_one_is_deleted(world: World, number: int, gone: list[int], is_reopened: bool) -> None:
    """Contract: it is gone at once and after a restart."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, number, gone, is_reopened)
        delete(store, fragment, number)
        assert await active_numbers(store, fragment) == left(number, gone)
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == left(number, gone)
        assert numbers_of(await store.by_number(fragment, PLACE_ACTIVE, ALL)) == left(number, gone)[2:-1]

    world.run(play)


@WHICH
@BETWEEN
def test_one_is_changed(world: World, number: int, gone: list[int], is_reopened: bool) -> None:
    """R-11: its count and properties; twice, and then it goes."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, number, gone, is_reopened)
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, number, 3, b"changed"))
        await between(store, is_reopened)
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, number, 4, None))
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == sorted([*left(number, gone), number])
        [found] = (await store.by_number(fragment, PLACE_ACTIVE, [number])).messages
        assert (found.delivery_count, found.changes, found.bare) == (4, b"changed", b"body %d" % number)
        assert found.ttl_ms == number
        delete(store, fragment, number)
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == left(number, gone)

    world.run(play)


@WHICH
@BETWEEN
@pytest.mark.parametrize("place", [PLACE_DEFERRED, PLACE_SCHEDULED, PLACE_ACTIVE])
def test_one_moves_away_and_back(
    world: World, number: int, gone: list[int], is_reopened: bool, place: int
) -> None:
    """R-14: to another place, or to the dead letters; with its body."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, number, gone, is_reopened)
        other = add_fragment(store)
        to = (other, 1) if place == PLACE_ACTIVE else (fragment, number)
        store.batch().moves.append(
            Move(fragment, PLACE_ACTIVE, number, to[0], place, to[1], changes=b"reason")
        )
        assert await active_numbers(store, fragment) == left(number, gone)
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == left(number, gone)
        [found] = (await store.by_number(to[0], place, [to[1]])).messages
        assert (found.bare, found.changes, found.ttl_ms) == (b"body %d" % number, b"reason", number)
        store.batch().moves.append(Move(to[0], place, to[1], fragment, PLACE_ACTIVE, number))
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == sorted([*left(number, gone), number])
        delete(store, fragment, *ALL)
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == [5, 7, 30]

    world.run(play)


@WHICH
def test_one_is_moved_changed_and_deleted_in_one_batch_with_the_put_of_others(
    world: World, number: int, gone: list[int]
) -> None:
    """Contract: puts, then moves, then changes, then deletes."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, number, gone, False)
        put(store, fragment, *[message(each) for each in range(41, 51)])
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, number, fragment, PLACE_ACTIVE, 51))
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 43, fragment, PLACE_DEFERRED, 43))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 51, 2, None))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 44, 2, None))
        delete(store, fragment, 44, 5)
        await store.flush()
        expected = [*left(number, gone)[1:], 41, 42, *range(45, 52)]
        assert await active_numbers(store, fragment) == expected
        assert numbers_of(await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)) == [43]

    world.run(play)


@WHICH
@BETWEEN
def test_pages_peeks_and_sizes_are_those_of_the_messages(
    world: World, number: int, gone: list[int], is_reopened: bool
) -> None:
    """Contract: with any limit and from any number on."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, number, gone, is_reopened)
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, number, 1, None))
        await between(store, is_reopened)
        expected = sorted([*left(number, gone), number])
        for after in range(4, 31):
            behind = [each for each in expected if each > after]
            for limit in (1, 3, 100):
                page = await store.messages(fragment, PLACE_ACTIVE, after, limit, LOTS)
                assert numbers_of(page) == behind[:limit]
                assert page.more == (len(behind) > limit)
                page = await store.peek(fragment, after + 1, limit, LOTS, None)
                assert (numbers_of(page), page.more) == (behind[:limit], len(behind) > limit)
            page = await store.messages(fragment, PLACE_ACTIVE, after, 100, 14)
            assert numbers_of(page) == behind[: len(page.messages)]
            assert len(page.messages) == min(2, len(behind))
        sizes = await store.sizes(fragment, PLACE_ACTIVE, range(1, 40))
        assert sorted(sizes) == expected
        assert all(size >= 4 for size in sizes.values())

    world.run(play)


@pytest.mark.parametrize(
    "back",
    [range(11, 15), range(13, 17), range(17, 21), range(11, 21)],
    ids=["first", "middle", "last", "all"],
)
@BETWEEN
def test_messages_that_were_deleted_are_put_back_under_their_numbers(
    world: World, back: range, is_reopened: bool
) -> None:
    """R-1: receive-and-delete, and the client went away; those around them can still be read, changed and deleted."""

    async def play(store: Any) -> None:
        fragment = await run_of(store, 0, [*back], is_reopened)
        put(store, fragment, *[message(each, b"again %d" % each) for each in back])
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == [5, 7, *ALL, 30]
        found = (await store.messages(fragment, PLACE_ACTIVE, 0, 100, 1 << 20)).messages
        assert [each.bare for each in found if each.sequence_number in back] == [
            b"again %d" % each for each in back
        ]
        others = [each for each in ALL if each not in back]
        for each in (*others[-1:], *others[:1], back[1], back[-1]):
            delete(store, fragment, each)
            await between(store, is_reopened)
        gone = {*others[-1:], *others[:1], back[1], back[-1]}
        assert await active_numbers(store, fragment) == [5, 7, *[n for n in ALL if n not in gone], 30]
        delete(store, fragment, *[n for n in ALL if n not in gone])
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == [5, 7, 30]

    world.run(play)


@BETWEEN
def test_ranges_over_several_runs_and_rows_are_deleted(world: World, is_reopened: bool) -> None:
    """Contract: a batch delete asks for what is there and for what is not."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        for start in (1, 20, 40, 60):
            put(store, fragment, *[message(each) for each in range(start, start + 10)])
            put(store, other, *[message(each) for each in range(start, start + 10)])
            await store.flush()
        put(store, fragment, message(15), message(55))
        await between(store, is_reopened)
        delete(store, fragment, *range(5, 64), 99)
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == [1, 2, 3, 4, 64, 65, 66, 67, 68, 69]
        assert len(await active_numbers(store, other)) == 40
        delete(store, fragment, *range(1, 100))
        await between(store, is_reopened)
        assert await active_numbers(store, fragment) == []
        assert len(await active_numbers(store, other)) == 40

    world.run(play)


def test_expiry_entries_and_sessions_of_messages_that_were_put_together(world: World) -> None:
    """Contract: they go with their messages."""

    async def play(store: Any) -> None:
        fragment, with_sessions = add_fragment(store), add_fragment(store)
        put(store, fragment, *[message(each) for each in ALL])
        store.batch().expiry_entries.extend([(fragment, 100 + each, each) for each in ALL])
        put_in_session(store, with_sessions, "a", *ALL)
        await store.flush()
        delete(store, fragment, *range(FIRST, 19))
        delete(store, with_sessions, *range(FIRST, 19))
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, 19, fragment, PLACE_DEFERRED, 19))
        await store.flush()
        assert await store.expired_entries(1000, 100) == [(fragment, 20, 120)]
        page = await store.session_messages(with_sessions, "a", 0, 10, LOTS)
        assert numbers_of(page) == [19, 20]

    world.run(play)


def test_a_dropped_fragment_leaves_nothing_behind(world: World) -> None:
    """F8: in slices, however large the runs are; others keep theirs."""

    async def play(store: Any) -> None:
        fragment, other = add_fragment(store), add_fragment(store)
        for start in range(1, 2_000, 200):
            for key in (fragment, other):
                put(store, key, *[message(each, b"x" * 500) for each in range(start, start + 200)])
            await store.flush()
        delete(store, fragment, 3, 7, 500)
        await store.flush()
        store.batch().fragments_dropped.append(fragment)
        await store.flush()
        assert await active_numbers(store, fragment) == []
        slices = 1
        while await store.sweep_dropped(10):
            slices += 1
        assert slices > 3 or world.kind == "memory"
        assert len((await store.messages(other, PLACE_ACTIVE, 0, 10_000, LOTS)).messages) == 2_000
        if world.kind == "sqlite":
            assert counts(world) == (10, 0)

    world.run(play)


def counts(world: World) -> tuple[int, int]:
    """Runs, and marks of runs."""
    with apsw.Connection(str(world.directory / "first.db"), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        [(runs, marks)] = connection.execute(
            "SELECT (SELECT count(*) FROM message_runs), (SELECT count(*) FROM run_marks)"
        ).fetchall()
    return int(str(runs)), int(str(marks))


def row_count(world: World) -> int:
    with apsw.Connection(str(world.directory / "first.db"), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        [(rows,)] = connection.execute("SELECT count(*) FROM messages").fetchall()
    return int(str(rows))


def test_a_run_goes_with_its_last_message(sqlite_world: World) -> None:
    """F8: in order, from behind, from the middle; nothing is left of it."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for order in (ALL, reversed(ALL), [15, 14, 16, 13, 17, 12, 18, 11, 19, 20]):
            put(store, fragment, *[message(each) for each in ALL])
            await store.flush()
            assert counts(sqlite_world) == (1, 0)
            assert row_count(sqlite_world) == 0
            going = list(order)
            for number in going:
                delete(store, fragment, number)
                await store.flush()
                assert counts(sqlite_world) == ((1, 1) if number != going[-1] else (0, 0))

    sqlite_world.run(play)


def test_few_messages_are_rows(sqlite_world: World) -> None:
    """F8: a run costs as much as a few of them."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(each) for each in range(1, RUN_MESSAGES_MIN)])
        await store.flush()
        assert (counts(sqlite_world), row_count(sqlite_world)) == ((0, 0), RUN_MESSAGES_MIN - 1)
        put(store, fragment, *[message(each) for each in range(31, 31 + RUN_MESSAGES_MIN)])
        await store.flush()
        assert (counts(sqlite_world), row_count(sqlite_world)) == ((1, 0), RUN_MESSAGES_MIN - 1)

    sqlite_world.run(play, run_messages_min=RUN_MESSAGES_MIN)


@pytest.mark.parametrize("size", [1, 100, 5_000, RUN_BODY_BYTES_MAX, RUN_BODY_BYTES_MAX + 1])
def test_bodies_of_any_size_come_back(world: World, size: int) -> None:
    """F2: more than one block, and larger than a block takes."""
    count = min(2 * RUN_BYTES_MAX // size + 3, 5_000)

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        sent = [message(each, (b"%d." % each * size)[:size]) for each in range(1, count + 1)]
        put(store, fragment, *sent)
        await store.flush()
        got: list[Any] = []
        while page := (await store.messages(fragment, PLACE_ACTIVE, len(got), 700, 1 << 20)).messages:
            got += page
        assert [fields_of(each) for each in got] == [fields_of(each) for each in sent]

    world.run(play)


# -- damage


Damage = Callable[[apsw.Connection, int], None]


def data_of(connection: apsw.Connection) -> bytearray:
    [(data,)] = connection.execute("SELECT data FROM message_runs").fetchall()
    assert isinstance(data, bytes)
    return bytearray(data)


@pytest.mark.parametrize("moved", [False, True])
def test_a_damaged_body_costs_its_own_message(sqlite_world: World, moved: bool) -> None:
    """F4: it is reported wherever it is read, also after it moved; its neighbours are whole."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(each, b"body %d" % each) for each in ALL])
        await store.flush()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        data = data_of(other)
        data[data.index(b"body 15") + 5] ^= 4
        other.execute("UPDATE message_runs SET data = ?", (bytes(data),))
        other.close()
        place = PLACE_ACTIVE
        if moved:
            place = PLACE_DEFERRED
            store.batch().moves.extend(
                Move(fragment, PLACE_ACTIVE, each, fragment, PLACE_DEFERRED, each) for each in ALL
            )
            await store.flush()
        whole = [each for each in ALL if each != 15]
        for page in (
            await store.messages(fragment, place, 0, 100, LOTS),
            await store.messages(fragment, place, 14, 100, LOTS),
            await store.peek(fragment, FIRST, 100, LOTS, None),
            await store.by_number(fragment, place, ALL),
        ):
            assert page.damaged == [15]
            assert numbers_of(page) == [each for each in whole if each >= page.messages[0].sequence_number]
        delete(store, fragment, 15, place=place)
        await store.flush()
        assert (await store.messages(fragment, place, 0, 100, LOTS)).damaged == []

    sqlite_world.run(play)


@pytest.mark.parametrize(
    "damage",
    [
        "data = x''",
        "data = zeroblob(20)",
        "data = zeroblob(length(data))",
        "data = substr(data, 1, 60)",
        "data = substr(data, 2)",
        "data = CAST(x'ff' || data AS BLOB)",
        "data = zeroblob(20), last = 1 << 60",
        "data = zeroblob(20), last = -1",
        "data = CAST(x'42775201ffffffffffffffffffffffffffffffff' || substr(data, 20) AS BLOB)",
    ],
)
def test_a_damaged_head_costs_the_messages_of_its_run(sqlite_world: World, damage: str) -> None:
    """F4: each is reported; others are whole, and the store goes on."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(each) for each in ALL])
        await store.flush()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute(f"UPDATE message_runs SET {damage}")  # noqa: S608
        other.close()
        put(store, fragment, *[message(each) for each in range(31, 41)])
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10_000, LOTS)
        assert numbers_of(page) == list(range(31, 41))
        if "last" in damage:
            assert page.damaged[0] == FIRST
        else:
            assert page.damaged == list(ALL)
            assert (await store.by_number(fragment, PLACE_ACTIVE, ALL)).damaged == list(ALL)
        store.batch().moves.append(Move(fragment, PLACE_ACTIVE, FIRST, fragment, PLACE_DEFERRED, FIRST))
        await store.flush()
        assert (await store.messages(fragment, PLACE_DEFERRED, 0, 10, LOTS)).damaged == [FIRST]
        delete(store, fragment, *range(1, 41))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 10_000, LOTS)
        assert (numbers_of(page), [each for each in page.damaged if each in ALL]) == ([], [])

    sqlite_world.run(play)


@pytest.mark.parametrize("lost", ["begins", "ends"])
def test_a_lost_page_of_a_large_run_costs_the_messages_behind_it(sqlite_world: World, lost: str) -> None:
    """F4: they are reported; those before it, and other runs, are whole."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for start in (1, 1001):
            put(
                store,
                fragment,
                *[message(n, b"<%d>" % n + b"x" * 900 + b"<%d>" % n) for n in range(start, start + 100)],
            )
            await store.flush()
        await store.close()
        path = sqlite_world.directory / "first.db"
        data = bytearray(path.read_bytes())
        page = (data.index(b"<50>") if lost == "begins" else data.index(b"x<50>")) // 16384 * 16384
        data[page : page + 16384] = bytes(16384)
        path.write_bytes(data)
        await store.open()
        found = await store.messages(fragment, PLACE_ACTIVE, 0, 1000, LOTS)
        numbers = numbers_of(found)
        assert 30 <= len([n for n in numbers if n < 50]) < 50
        assert [n for n in numbers if n > 100] == list(range(1001, 1101))
        assert 50 in found.damaged
        assert sorted([*numbers, *found.damaged]) == [*range(1, 101), *range(1001, 1101)]
        assert (await store.by_number(fragment, PLACE_ACTIVE, [2, 50, 1002])).damaged == [50]

    sqlite_world.run(play)


def test_zeros_in_place_of_runs_are_noticed(sqlite_world: World) -> None:
    """F4, found by damaging files: columns were missing, and a run under the key 0 was passed over without a word."""
    sent = range(1, 301)

    async def fill(store: Any) -> None:
        fragment = add_fragment(store)
        for start in range(1, 301, 30):
            put(store, fragment, *[message(n, b"%d" % n * 60) for n in range(start, start + 30)])
            delete(store, fragment, start - 10, start - 7)
            await store.flush()

    sqlite_world.run(fill)
    path = sqlite_world.directory / "first.db"
    whole = path.read_bytes()
    left = {n for n in sent if n % 30 not in (21, 24) or n > 290}
    outcomes = set()

    async def look(start: int) -> None:
        data = bytearray(whole)
        data[start : start + 1024] = bytes(1024)
        path.write_bytes(data)
        store = sqlite_world.store()
        try:
            await store.open()
            page = await store.messages(FragmentKey(1), PLACE_ACTIVE, 0, 1000, LOTS)
        except StoreError:
            outcomes.add("refused")
            return
        finally:
            await store.close()
        missing = left - set(numbers_of(page))
        assert not missing or page.damaged, start
        assert all(each.bare == b"%d" % each.sequence_number * 60 for each in page.messages)
        outcomes.add("damaged" if page.damaged else "whole")

    for start in range(0, len(whole) - 1024, 1024):
        asyncio.run(look(start))
    assert outcomes == {"refused", "damaged", "whole"}


@pytest.mark.parametrize(
    "damage", ["last = last + 1", "last = last - 3", "last = key", "last = last | 1 << 33", "checksum = 7"]
)
def test_wrong_numbers_beside_a_block_do_no_harm(sqlite_world: World, damage: str) -> None:
    """F4: the block knows better."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(each) for each in ALL])
        await store.flush()
        await store.close()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute(f"UPDATE message_runs SET {damage}")  # noqa: S608
        other.close()
        await store.open()
        put(store, fragment, message(30))
        await store.flush()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 100, LOTS)
        assert (numbers_of(page), page.damaged) == ([*ALL, 30], [])
        delete(store, fragment, *ALL)
        await store.close()
        await store.open()
        assert await active_numbers(store, fragment) == [30]

    sqlite_world.run(play)


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        ("gone = gone | 8", [14, 15, 17, 18, 19, 20]),
        ("gone = gone - 1", [14, 15, 17, 18, 19, 20]),
        ("dead = x'0c'", [14, 15, 17, 18, 19, 20]),
        ("checksum = checksum + 1", [14, 15, 17, 18, 19, 20]),
        ("gone = 10, dead = x'ffffff'", [*ALL]),
        ("gone = -5, dead = NULL", [*ALL]),
    ],
)
def test_wrong_marks_never_hide_a_message(sqlite_world: World, damage: str, shown: list[int]) -> None:
    """F4: one flipped bit is flipped back, and after worse messages come again. The store goes on with them."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(each) for each in ALL])
        await store.flush()
        delete(store, fragment, 11, 12, 13)
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 16, 5, None))
        await store.close()
        other = apsw.Connection(str(sqlite_world.directory / "first.db"))
        other.execute(f"UPDATE run_marks SET {damage}")  # noqa: S608
        other.close()
        await store.open()
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 100, LOTS)
        assert (numbers_of(page), page.damaged) == (sorted({*shown, 16}), [])
        assert [each.delivery_count for each in page.messages if each.sequence_number == 16] == [5]
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 16, 6, None))
        store.batch().changes.append(Change(fragment, PLACE_ACTIVE, 17, 6, None))
        await store.flush()
        page = await store.peek(fragment, 1, 100, LOTS, None)
        assert numbers_of(page) == sorted({*shown, 16})
        assert [each.delivery_count for each in page.messages if each.sequence_number in (16, 17)] == [6, 6]
        delete(store, fragment, *ALL)
        await store.close()
        await store.open()
        assert await active_numbers(store, fragment) == []
        assert counts(sqlite_world) == (0, 0)

    sqlite_world.run(play)
