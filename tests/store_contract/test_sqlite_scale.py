"""Large numbers must not make small operations dear. Costs are counted in steps of SQLite's machine, so that a
busy computer does not matter."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import apsw
import pytest

from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import FragmentKey, Move
from busway.store.sqlite.reader import Reader
from busway.store.statements import PLACE_TABLES, statements_of
from tests.store_contract.log_scenario import append, chunk, retire
from tests.store_contract.scenario import (
    LOTS,
    World,
    add_fragment,
    delete,
    message,
    numbers_of,
    put,
    put_in_session,
)

#: Machine steps between two looks: fine enough to tell 300 from 3,000.
_GRAIN = 20


class Steps:
    """Counts the machine steps of a store's connections."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.counted = 0
        self._connections = [store._connection]
        readers: list[Reader] = [store._readers.take() for _ in range(store._read_thread_count)]
        for reader in readers:
            self._connections.append(reader._connection)
            store._readers.give_back(reader)
        for connection in self._connections:
            connection.set_progress_handler(self._count, _GRAIN)

    def _count(self) -> bool:
        self.counted += _GRAIN
        return False

    async def of(self, action: Callable[[], Awaitable[object] | None]) -> int:
        self.counted = 0
        result = action()
        if result is not None:
            await result
        await self._store.flush()
        return self.counted


async def _fill(store: Any, count: int, join: Callable[[range], None]) -> None:
    for start in range(1, count + 1, 5_000):
        join(range(start, min(start + 5_000, count + 1)))
        await store.flush()


def test_a_large_backlog_costs_a_page_what_a_small_one_does(sqlite_world: World) -> None:
    """F8: reads, puts and deletes with 20,000 rows beside and behind."""

    async def play(store: Any) -> None:
        small, large = add_fragment(store), add_fragment(store)
        put(store, small, *[message(number) for number in range(1, 101)])
        await _fill(store, 20_000, lambda n: put(store, large, *[message(i) for i in n]))
        steps = Steps(store)
        for name, action in {
            "page": lambda f: store.messages(f, PLACE_ACTIVE, 10, 20, LOTS),
            "peek": lambda f: store.peek(f, 10, 20, LOTS, None),
            "by number": lambda f: store.by_number(f, PLACE_ACTIVE, [3, 5]),
            "put": lambda f: put(store, f, message(100_000)),
            "delete": lambda f: delete(store, f, 50, 52),
        }.items():
            little = await steps.of(partial(action, small))
            much = await steps.of(partial(action, large))
            assert much <= little * 1.5 + 100, name

    sqlite_world.run(play)


def test_many_deferred_rows_do_not_burden_the_others(sqlite_world: World) -> None:
    """F8: 20,000 deferred messages of one session."""

    async def play(store: Any) -> None:
        small, large = add_fragment(store), add_fragment(store)
        for fragment in (small, large):
            put_in_session(store, fragment, "a", *range(100_001, 100_051))

        def join(numbers: range, fragment: FragmentKey = large) -> None:
            put(store, fragment, *[message(i, session_id="a") for i in numbers], place=PLACE_DEFERRED)

        await _fill(store, 20_000, join)
        join(range(1, 50), small)
        await store.flush()
        steps = Steps(store)
        for name, action in {
            "receive deferred": lambda f: store.by_number(f, PLACE_DEFERRED, [7]),
            "active page": lambda f: store.messages(f, PLACE_ACTIVE, 0, 20, LOTS),
            "peek in session": lambda f: store.peek(f, 1, 20, LOTS, "a"),
            "defer": lambda f: store.batch().moves.append(
                Move(f, PLACE_ACTIVE, 100_001, f, PLACE_DEFERRED, 100_001)
            ),
            "complete deferred": lambda f: delete(store, f, 9, place=PLACE_DEFERRED),
        }.items():
            little = await steps.of(partial(action, small))
            much = await steps.of(partial(action, large))
            assert much <= little * 1.5 + 100, name

    sqlite_world.run(play)


def test_an_endless_session_costs_what_a_short_one_does(sqlite_world: World) -> None:
    """F8, X-8: one session of 20,000 messages and 5,000 sessions of one."""

    async def play(store: Any) -> None:
        small, large = add_fragment(store), add_fragment(store)
        put_in_session(store, small, "a", *range(1, 51))
        put_in_session(store, small, "b", *range(51, 61))
        await _fill(store, 20_000, lambda n: put_in_session(store, large, "a", *n))
        for number in range(20_001, 25_001):
            put_in_session(store, large, f"s{number}", number)
        await store.flush()
        steps = Steps(store)
        for name, action in {
            "next sessions": lambda f: store.next_sessions(f, 0, 2),
            "session": lambda f: store.session(f, "a"),
            "session page": lambda f: store.session_messages(f, "a", 5, 20, LOTS),
            "complete the first": lambda f: delete(store, f, 1),
            "send": lambda f: put_in_session(store, f, "a", 100_000),
            "list": lambda f: store.sessions(f, None, 0, 2),
        }.items():
            little = await steps.of(partial(action, small))
            much = await steps.of(partial(action, large))
            assert much <= little * 1.5 + 200, name
        assert (await store.session(large, "a")).active == 20_000

    sqlite_world.run(play)


def test_a_long_log_costs_what_a_short_one_does(sqlite_world: World) -> None:
    """F8: 20,000 chunks."""

    async def play(store: Any) -> None:
        small, large = add_fragment(store), add_fragment(store)
        await _fill(store, 20_000, lambda numbers: append(store, large, *[chunk(n) for n in numbers]))
        append(store, small, *[chunk(number) for number in range(1, 50)])
        await store.flush()
        steps = Steps(store)
        for name, action in {
            "page": lambda f: store.chunks(f, 20, 1_000),
            "heads": lambda f: store.chunk_heads(f, 20, 10),
            "time": lambda f: store.first_number_since(f, 1_205),
            "append": lambda f: append(store, f, chunk(100_000)),
            "retire": lambda f: retire(store, f, 1, 2),
        }.items():
            little = await steps.of(partial(action, small))
            much = await steps.of(partial(action, large))
            assert much <= little * 1.5 + 100, name

    sqlite_world.run(play)


def test_idle_fragments_cost_nothing(sqlite_world: World) -> None:
    """F8: 10,000 fragments; the next send, read and opening do not look at them."""

    async def play(store: Any) -> None:
        small = add_fragment(store)
        put(store, small, message(1))
        await store.flush()
        steps = Steps(store)
        little = await steps.of(lambda: store.messages(small, PLACE_ACTIVE, 0, 10, LOTS))
        keys = [add_fragment(store, f"queue-{index}") for index in range(10_000)]
        await store.flush()
        assert await steps.of(lambda: store.messages(small, PLACE_ACTIVE, 0, 10, LOTS)) <= little + 100
        assert await steps.of(lambda: put(store, keys[5_000], message(1))) < 1_000
        assert await steps.of(lambda: store.fragments([keys[7_000]])) < 1_000
        assert numbers_of(await store.messages(keys[5_000], PLACE_ACTIVE, 0, 10, LOTS)) == [1]
        await store.reopen()
        assert len(await store.fragments()) == 10_001

    sqlite_world.run(play)


def _bindings(statement: str) -> tuple[int, ...]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return (1,) * max(numbered, default=statement.count("?"))


def _plans(connection: apsw.Connection, text: str) -> list[str]:
    return [
        str(row[3])
        for table in PLACE_TABLES
        for statement in text.replace("{place}", table).split(";")
        for row in connection.execute("EXPLAIN QUERY PLAN " + statement, _bindings(statement))
    ]


def test_no_statement_sorts_or_scans(sqlite_world: World) -> None:
    """F8: the plan of every statement uses an index or the key; only lists of everything may scan."""
    families = (
        "read_",
        "peek_",
        "delete_",
        "change",
        "session_",
        "expiry_",
        "duplicate_",
        "sweep_",
        "payload",
        "transfer_",
        "warm_",
        "chunk_",
        "producer",
    )
    lists = {
        "read_fragments",
        "read_fragment_indexes",
        "read_dropped",
        "read_sharing",
        "read_transfer_marks",
        "read_catalogue",
        "read_table_count",
    }
    sqlite_world.run(lambda store: store.flush())
    connection = apsw.Connection(str(sqlite_world.directory / "first.db"))
    for name, text in statements_of("busway.store.sqlite").texts.items():
        if name.startswith(families) and name not in lists:
            for detail in _plans(connection, text):
                assert "TEMP B-TREE" not in detail, name
                assert not detail.startswith("SCAN") or detail.endswith(
                    ("found", "CONSTANT ROW", "(subquery-1)", "(subquery-2)")
                ), (
                    name,
                    detail,
                )
    connection.close()


@pytest.mark.parametrize("read_count", [20])
def test_many_reads_at_once_are_all_answered(sqlite_world: World, read_count: int) -> None:
    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number) for number in range(1, 101)])
        await store.flush()
        pages = await asyncio.gather(
            *[store.messages(fragment, PLACE_ACTIVE, after, 5, LOTS) for after in range(read_count)]
        )
        assert [numbers_of(page)[0] for page in pages] == list(range(1, read_count + 1))

    sqlite_world.run(play)
