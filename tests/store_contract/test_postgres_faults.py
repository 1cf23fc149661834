"""PostgreSQL goes away, comes back, and has several owners: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import pytest

from busway.clock import Clock, Entropy
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED
from busway.store.contract import CommitRefused, CommitUnknown, Move, StoreState, StoreUnavailable
from busway.store.postgres import committer
from busway.store.postgres.database import PostgresDatabase
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.manual_clock import ManualClock
from tests.harness.postgres_server import PostgresServer
from tests.store_contract.scenario import (
    STORES,
    Outcomes,
    World,
    active_numbers,
    add_fragment,
    delete,
    let_commits_start,
    message,
    numbers_of,
    put,
)

#: Bytes from one cut to the next: in each run of the tests at some, with BUSWAY_EVERY_BYTE=1 at every one.
CUT_STEP = 1 if os.environ.get("BUSWAY_EVERY_BYTE") else 13


def at_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))


def backends(url: str, last: str = "%") -> list[int]:
    """Of our sessions; of those whose last statement was like that."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'busway'"
            " AND query LIKE %s",
            (last,),
        ).fetchall()
    return [pid for (pid,) in rows]


async def soon(is_so: Callable[[], bool]) -> None:
    """Turns of the loop until it is so."""
    ends_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends_s, "it never came"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("towards_target", [True, False], ids=["to the server", "from the server"])
def test_a_commit_that_is_cut_at_any_byte_is_stored_once(postgres_world: World, towards_target: bool) -> None:
    """F1, F5: success or sent again, never an error, never twice."""

    async def play() -> None:
        real_port = urlsplit(postgres_world.url).port
        assert real_port is not None
        async with CuttingProxy(real_port) as proxy:
            world = World("postgres", Path(), at_port(postgres_world.url, proxy.port))
            store = world.store()
            await store.open()
            fragment = add_fragment(store)
            for number in (1, 2):  # the second time all statements are prepared
                put(store, fragment, message(number))
                delete(store, fragment, number - 1)
                passed = proxy.passed[towards_target]
                await store.flush()
            length = proxy.passed[towards_target] - passed
            assert length > 50
            number = 2
            for at in range(1, length + 1, CUT_STEP):
                number += 1
                proxy.cut_after(at, towards_target=towards_target)
                put(store, fragment, message(number))
                delete(store, fragment, number - 1)
                await store.flush()
                assert await active_numbers(store, fragment) == [number]
            assert proxy.cuts >= length // CUT_STEP
            await store.close()

    asyncio.run(play())


def test_a_backend_that_is_ended_costs_nothing(postgres_world: World) -> None:
    """F1: an administrator ends all sessions, between commits."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 6):
            put(store, fragment, message(number))
            await store.flush()
            with psycopg.connect(postgres_world.url, autocommit=True) as connection:
                for pid in backends(postgres_world.url):
                    connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert await active_numbers(store, fragment) == [1, 2, 3, 4, 5]

    postgres_world.run(play)


def kill_and_start(server: PostgresServer) -> None:
    server.kill()
    server.start()


def test_a_server_that_is_killed_and_comes_back_is_a_pause(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """F1: kill -9 under load, back within the patience: no error, all there, once."""
    world = World("postgres", tmp_path, own_postgres.database())

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        await store.flush()
        told = Outcomes()
        number = 0
        for _ in range(3):
            # In a thread that outlives it: a server ends with the thread that started it.
            again = asyncio.create_task(asyncio.to_thread(kill_and_start, own_postgres))
            while not again.done():
                number += 1
                put(store, fragment, message(number))
                store.batch().callbacks.append(told)
                await asyncio.sleep(0.001)
            await store.flush()
            assert await active_numbers_of(store, fragment) == list(range(1, number + 1))
        assert told.kinds() == [None] * number

    world.run(play)


async def active_numbers_of(store: Any, fragment: Any) -> list[int]:
    return numbers_of(await store.messages(fragment, PLACE_ACTIVE, 0, 1 << 20, 1 << 40))


def test_a_server_that_stays_away_fails_the_store_until_it_is_back(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5: after the patience the outcome is unknown; reopening loads what is there."""
    monkeypatch.setattr(committer, "PATIENCE_S", 0.3)
    world = World("postgres", tmp_path, own_postgres.database())

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        own_postgres.stop()
        put(store, fragment, message(2))
        with pytest.raises(CommitUnknown):
            await store.flush()
        assert store.state is StoreState.FAILED
        with pytest.raises(StoreUnavailable):
            store.batch()
        own_postgres.start()
        await store.reopen()
        put(store, fragment, message(3))
        await store.flush()
        assert await active_numbers(store, fragment) == [1, 3]

    world.run(play)


def test_who_opens_a_store_second_has_it(postgres_world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The fence: the first one's commits are refused, it says so, and nothing of them is there."""

    async def play(first: Any) -> None:
        fragment = add_fragment(first)
        put(first, fragment, message(1))
        await first.flush()
        second = postgres_world.store()
        await second.open()
        put(first, fragment, message(2))
        with caplog.at_level(logging.ERROR), pytest.raises(CommitRefused, match="Another server"):
            await first.flush()
        assert first.state is StoreState.TAKEN
        assert "has taken over the store" in caplog.text
        put(second, fragment, message(2, b"of the second"))
        await second.flush()
        assert await active_numbers(second, fragment) == [1, 2]
        await second.close()

    postgres_world.run(play)


def test_the_answer_of_a_store_that_was_taken_is_not_taken_for_success(postgres_world: World) -> None:
    """The fence: a lost answer, and somebody else has opened the store meanwhile: the look finds another owner."""

    async def play() -> None:
        real_port = urlsplit(postgres_world.url).port
        assert real_port is not None
        async with CuttingProxy(real_port) as proxy:
            first = World("postgres", Path(), at_port(postgres_world.url, proxy.port)).store()
            await first.open()
            fragment = add_fragment(first)
            await first.flush()
            second = postgres_world.store()
            await second.open()
            put(second, fragment, message(1))
            await second.flush()
            proxy.cut_after(1, towards_target=True)
            put(first, fragment, message(1, b"of the first"))
            with pytest.raises(CommitRefused, match="Another server"):
                await first.flush()
            await first.close()
            page = await second.messages(fragment, PLACE_ACTIVE, 0, 10, 1 << 20)
            assert [each.bare for each in page.messages] == [b"body"]
            await second.close()

    asyncio.run(play())


def test_a_batch_in_the_socket_of_a_stopped_backend_comes_too_late(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence: opening again raises the epoch, so a batch that was given up is refused when its backend goes on."""
    monkeypatch.setattr(committer, "PATIENCE_S", 0.5)

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        [stopped] = [psutil.Process(pid) for pid in backends(postgres_world.url, "COMMIT")]
        stopped.suspend()
        put(store, fragment, message(2, b"given up"))
        with pytest.raises(CommitUnknown):
            await store.flush()
        await store.reopen()
        put(store, fragment, message(3))
        await store.flush()
        stopped.resume()
        await soon(lambda: stopped.pid not in backends(postgres_world.url))
        assert await active_numbers(store, fragment) == [1, 3]

    postgres_world.run(play)


def test_what_one_store_cannot_write_fails_no_other(postgres_world: World) -> None:
    """One commit for all stores of a database: each has its own outcome."""

    async def play() -> None:
        database = PostgresDatabase(parse(f"{postgres_world.url}?stores={STORES}"), Clock(), Entropy())
        good, bad = PostgresStore(database, 0, Clock()), PostgresStore(database, 1, Clock())
        await good.open()
        await bad.open()
        keys = [add_fragment(store) for store in (good, bad)]
        for store, key in zip((good, bad), keys, strict=True):
            put(store, key, message(1))
            await store.flush()
        told = Outcomes()
        put(good, keys[0], message(2))
        put(bad, keys[1], message(1, b"twice"))
        good.batch().callbacks.append(told)
        with pytest.raises(CommitRefused):
            await bad.flush()
        await good.flush()
        assert told == [None]
        assert (good.state, bad.state) == (StoreState.OPEN, StoreState.FAILED)
        await bad.reopen()
        assert await active_numbers(bad, keys[1]) == [1]
        assert await active_numbers(good, keys[0]) == [1, 2]
        await good.close()
        await bad.close()

    asyncio.run(play())


def test_a_commit_that_warns_is_proved_before_it_is_told(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """Synchronous standby: a wait that is cancelled ends COMMIT with a warning; nobody is told before it is there."""
    url = own_postgres.database()
    world = World("postgres", tmp_path, url)
    with own_postgres.standby() as standby:

        async def play(store: Any) -> None:
            fragment = add_fragment(store)
            await store.flush()
            told = Outcomes()
            standby.pause()
            put(store, fragment, message(1))
            store.batch().callbacks.append(told)
            await let_commits_start(store)

            def waits_cancelled() -> int:
                with psycopg.connect(url, autocommit=True) as connection:
                    return len(
                        connection.execute(
                            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                        ).fetchall()
                    )

            await soon(lambda: waits_cancelled() > 0)
            await soon(lambda: waits_cancelled() > 0)  # the look waits, too
            assert told == []
            standby.resume()
            await store.flush()
            assert told == [None]
            assert await active_numbers(store, fragment) == [1]

        world.run(play)
        own_postgres.set("synchronous_standby_names", "''")


def test_moves_and_changes_survive_a_cut(postgres_world: World) -> None:
    """F1: they take two round trips inside of one transaction; cut at some bytes of both."""

    async def play() -> None:
        real_port = urlsplit(postgres_world.url).port
        assert real_port is not None
        async with CuttingProxy(real_port) as proxy:
            store = World("postgres", Path(), at_port(postgres_world.url, proxy.port)).store()
            await store.open()
            fragment = add_fragment(store)
            put(store, fragment, *[message(number) for number in range(1, 60)])
            await store.flush()
            for number in range(1, 60):
                proxy.cut_after(number * 37, towards_target=True)
                store.batch().moves.append(
                    Move(fragment, PLACE_ACTIVE, number, fragment, PLACE_DEFERRED, number, delivery_count=3)
                )
                await store.flush()
            page = await store.messages(fragment, PLACE_DEFERRED, 0, 100, 1 << 20)
            assert numbers_of(page) == list(range(1, 60))
            assert {each.delivery_count for each in page.messages} == {3}
            assert await active_numbers(store, fragment) == []
            await store.close()

    asyncio.run(play())


def test_a_lock_that_is_held_for_a_moment_is_waited_for(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """A statement that a lock keeps waiting is ended by the server, and the commit is sent again."""
    url = own_postgres.database()
    world = World("postgres", tmp_path, url)

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        await store.flush()
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM busway.stores FOR UPDATE")
            put(store, fragment, message(1))
            await let_commits_start(store)
            await soon(lambda: "due to lock timeout" in own_postgres.log_text())
        await store.flush()
        assert await active_numbers(store, fragment) == [1]

    world.run(play)


def test_a_server_without_room_gets_no_payload_for_a_while(postgres_world: World) -> None:
    """Disk full: the batch is refused, certainly, and new messages are for five seconds; deletions go on."""

    async def play() -> None:
        clock = ManualClock()
        store = PostgresStore(
            PostgresDatabase(parse(f"{postgres_world.url}?stores={STORES}"), Clock(), Entropy()), 0, clock
        )
        await store.open()
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        with psycopg.connect(postgres_world.url, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION busway.no_room() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$"
            )
            connection.execute(
                "CREATE TRIGGER no_room BEFORE INSERT ON busway.messages EXECUTE FUNCTION busway.no_room()"
            )
        assert store.accepts_payload()
        put(store, fragment, message(2))
        with pytest.raises(CommitRefused, match="no space left"):
            await store.flush()
        await store.reopen()
        assert not store.accepts_payload()
        delete(store, fragment, 1)
        await store.flush()
        clock.advance(6)
        assert store.accepts_payload()
        assert await active_numbers(store, fragment) == []
        await store.close()

    asyncio.run(play())
