"""A commit in PostgreSQL has a known end: what time-outs, standbys, stopped clients and dead hosts make of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from busway.clock import Clock, Entropy
from busway.message.message import PLACE_ACTIVE
from busway.store.contract import StoreState
from busway.store.postgres import committer
from busway.store.postgres.database import PostgresDatabase
from busway.store.postgres.store import PostgresStore
from busway.store.postgres.url import parse
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.postgres_server import PostgresServer
from tests.store_contract.scenario import (
    STORES,
    Outcomes,
    World,
    active_numbers,
    add_fragment,
    let_commits_start,
    message,
    put,
)
from tests.store_contract.test_postgres_faults import soon


def waiting_for_standby(url: str, then: str = "pid") -> list[int]:
    """Backends that wait in COMMIT; `then` is done with each."""
    with psycopg.connect(url, autocommit=True) as connection:
        statement = f"SELECT pid, {then} FROM pg_stat_activity WHERE wait_event = 'SyncRep'"  # noqa: S608
        return [row[0] for row in connection.execute(statement.encode()).fetchall()]


def resends(store: Any) -> int:
    return int(store.database.figures.resends)


def test_no_time_out_hits_a_commit(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """S-1: a COMMIT that waits two seconds for its standby ends by itself, whatever time-outs the database has."""
    url = own_postgres.database()
    name = urlsplit(url).path.removeprefix("/")
    time_outs = {
        "statement_timeout": "300ms", "lock_timeout": "300ms", "idle_session_timeout": "300ms",
        "idle_in_transaction_session_timeout": "300ms", "transaction_timeout": "300ms",
    }  # fmt: skip
    with psycopg.connect(url, autocommit=True) as connection:
        for key, value in time_outs.items():
            if key != "transaction_timeout" or connection.info.server_version >= 170_000:
                connection.execute(f"ALTER DATABASE {name} SET {key} = '{value}'".encode())
    with own_postgres.standby() as standby:

        async def play(store: Any) -> None:
            fragment = add_fragment(store)
            await store.flush()
            standby.pause()
            put(store, fragment, message(1))
            await let_commits_start(store)
            await soon(lambda: waiting_for_standby(url) != [])
            await asyncio.sleep(2)
            assert len(waiting_for_standby(url)) == 1
            standby.resume()
            await store.flush()
            assert resends(store) == 0
            assert await active_numbers(store, fragment) == [1]

        World("postgres", tmp_path, url).run(play)
        assert "canceling" not in own_postgres.log_text()
        own_postgres.set("synchronous_standby_names", "''")


def test_a_backend_that_is_ended_in_its_wait_and_a_standby_that_takes_over(
    own_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-1: the old primary shows a commit that the standby does not have: nobody is told of it before the standby has
    it, and it is there once after the fail-over."""
    monkeypatch.setattr(committer, "PATIENCE_S", 30.0)
    url = own_postgres.database()
    with own_postgres.standby() as standby:
        hosts = f"127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}"
        world = World("postgres", tmp_path, url.replace(f"127.0.0.1:{own_postgres.port}", hosts))

        async def play(store: Any) -> None:
            fragment = add_fragment(store)
            put(store, fragment, message(1))
            await store.flush()
            standby.kill()
            told = Outcomes()
            put(store, fragment, message(2))
            store.batch().callbacks.append(told)
            await let_commits_start(store)
            await soon(lambda: waiting_for_standby(url, "pg_terminate_backend(pid)") != [])
            await soon(lambda: waiting_for_standby(url) != [])  # the look waits, too
            with psycopg.connect(url) as connection:
                shown = connection.execute("SELECT count(*) FROM busway.messages").fetchone()
            assert shown == (2,)  # it is visible there, and proves nothing
            assert told == []
            again = asyncio.create_task(asyncio.to_thread(fail_over, own_postgres, standby))
            await store.flush()
            await again
            assert told == [None]
            assert resends(store) == 1
            assert await active_numbers(store, fragment) == [1, 2]
            assert store.state is StoreState.OPEN

        world.run(play)


def fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    primary.kill()
    standby.start()
    standby.promote()
    standby.set("synchronous_standby_names", "''")


def test_a_client_that_stopped_in_the_middle_of_its_commit_holds_a_store_for_a_second(
    postgres_world: World,
) -> None:
    """The fence: the first half of a pipeline has arrived and the rest does not. The server's time-out for idle
    transactions does not see that; whoever takes the store ends the session."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, message(1))
        await store.flush()
        with HalfSent(postgres_world.url, store.epoch):
            heir = postgres_world.store()
            began = time.monotonic()
            await heir.open()
            assert time.monotonic() - began < 3
            put(heir, fragment, message(2))
            await heir.flush()
            assert await active_numbers(heir, fragment) == [1, 2]
            await heir.close()

    postgres_world.run(play)


class HalfSent:
    """A session that was sent BEGIN and the fence, and waits for more."""

    def __init__(self, url: str, epoch: int) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        pgconn.send_query_params(b"BEGIN", [])
        fence = f"SELECT FROM busway.stores WHERE store = 0 AND epoch = {int(epoch)} FOR SHARE"
        pgconn.send_query_params(fence.encode(), [])
        pgconn.send_flush_request()
        while pgconn.flush():
            pass
        with psycopg.connect(url, autocommit=True) as other:
            statement = "SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock' AND pid = %s"
            ends_s = time.monotonic() + 30
            while other.execute(statement, (pgconn.backend_pid,)).fetchone() == (0,):
                assert time.monotonic() < ends_s

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@contextlib.contextmanager
def dead_host(port: int) -> Iterator[None]:
    """A port that answers nothing, as that of a machine that is gone: its line of connections is full."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(listening.getsockname())
        yield
        for client in waiting:
            client.close()


def test_a_host_that_is_gone_does_not_hold_up_the_way_to_the_other(postgres_world: World) -> None:
    """S-1: the address names two hosts, and the one in use is gone without a word: the other is asked first."""

    async def play() -> None:
        port = urlsplit(postgres_world.url).port
        assert port is not None
        async with CuttingProxy(port) as proxy:
            gone = proxy.port
            hosts = f"127.0.0.1:{gone},127.0.0.1:{port}"
            url = f"{postgres_world.url.replace(f'127.0.0.1:{port}', hosts)}?stores={STORES}"
            store = PostgresStore(PostgresDatabase(parse(url), Clock(), Entropy()), 0, Clock())
            await store.open()
            fragment = add_fragment(store)
            await store.flush()
        with dead_host(gone):
            put(store, fragment, message(1))
            began = time.monotonic()
            await store.flush()
            assert time.monotonic() - began < 1.5
            await store.close()

    asyncio.run(play())


def test_a_database_opens_at_most_four_connections(postgres_world: World) -> None:
    """Contract: one commits, two read, one looks at the server; whatever is asked at once."""

    async def play() -> None:
        database = PostgresDatabase(parse(f"{postgres_world.url}?stores={STORES}"), Clock(), Entropy())
        stores = [PostgresStore(database, number, Clock()) for number in range(STORES)]
        most = 0

        async def count() -> None:
            nonlocal most
            with psycopg.connect(postgres_world.url, autocommit=True) as connection:
                while True:
                    found = connection.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'busway'"
                        " AND datname = current_database()"
                    ).fetchone()
                    most = max(most, 0 if found is None else found[0])
                    await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        for store in stores:
            await store.open()
        keys = [add_fragment(store) for store in stores]
        for number in range(1, 20):
            for store, key in zip(stores, keys, strict=True):
                put(store, key, message(number))
            reads = [
                store.messages(key, PLACE_ACTIVE, 0, 100, 1 << 20)
                for store, key in zip(stores, keys, strict=True)
            ]
            await asyncio.gather(*reads, *[store.flush() for store in stores])
        counting.cancel()
        assert 2 <= most <= 4
        for store in stores:
            await store.close()

    asyncio.run(play())


def test_the_server_cuts_a_page_at_its_bytes(postgres_world: World) -> None:
    """Contract: rows that nobody has room for do not travel: of fifty megabytes one comes."""

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        put(store, fragment, *[message(number, bytes(1 << 20)) for number in range(1, 51)])
        await store.flush()
        before = sent_bytes(store)
        page = await store.messages(fragment, PLACE_ACTIVE, 0, 1_000, 1 << 20)
        assert 1 <= len(page.messages) <= 2
        assert page.more
        assert sent_bytes(store) - before < 4 << 20

    postgres_world.run(play)


def sent_bytes(store: Any) -> int:
    """What the kernel has received on the connections that read (TCP_INFO, tcpi_bytes_received)."""
    total = 0
    for connection in store.database.readers._open:
        with socket.socket(fileno=socket.dup(connection.fileno())) as twin:
            info = twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
            total += int.from_bytes(info[128:136], "little")
    return total


def test_a_joint_commit_that_is_cut_is_stored_once_in_each_store(postgres_world: World) -> None:
    """F1: four stores in one transaction, cut in both directions at bytes all over it: success for each, once."""

    async def play() -> None:
        port = urlsplit(postgres_world.url).port
        assert port is not None
        async with CuttingProxy(port) as proxy:
            url = postgres_world.url.replace(f":{port}/", f":{proxy.port}/")
            database = PostgresDatabase(parse(f"{url}?stores={STORES}"), Clock(), Entropy())
            stores = [PostgresStore(database, number, Clock()) for number in range(STORES)]
            for store in stores:
                await store.open()
            keys = [add_fragment(store) for store in stores]
            await asyncio.gather(*[store.flush() for store in stores])
            rounds = 0
            for towards_target in (True, False):
                for at in range(1, 900, 113):
                    rounds += 1
                    proxy.cut_after(at, towards_target=towards_target)
                    for store, key in zip(stores, keys, strict=True):
                        put(store, key, message(rounds))
                    await asyncio.gather(*[store.flush() for store in stores])
            assert proxy.cuts >= rounds // 2
            for store, key in zip(stores, keys, strict=True):
                assert store.state is StoreState.OPEN
                assert await active_numbers(store, key) == list(range(1, rounds + 1))
                await store.close()

    asyncio.run(play())


async def is_a_pause(store: Any, url: str, begin: str, end: str) -> None:
    """A commit whose connection is lost while a statement of an administrator is in force waits until it is not."""
    fragment = add_fragment(store)
    put(store, fragment, message(1))
    await store.flush()
    told = Outcomes()
    with psycopg.connect(
        url, autocommit=True, options="-c default_transaction_read_only=off"
    ) as administrator:
        administrator.execute(begin.encode())
        end_sessions_but(administrator)
        put(store, fragment, message(2))
        store.batch().callbacks.append(told)
        await asyncio.sleep(1.0)
        assert told == []
        administrator.execute(end.encode())
        await store.flush()
    assert told == [None]
    assert await active_numbers(store, fragment) == [1, 2]


def end_sessions_but(administrator: psycopg.Connection[Any]) -> None:
    administrator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def test_too_many_connections_are_a_pause(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """F1: 53300: the look gets no connection for a second."""
    url = own_postgres.database()
    own_postgres.do("CREATE ROLE bus LOGIN", urlsplit(url).path[1:])
    own_postgres.do(f"ALTER DATABASE {urlsplit(url).path[1:]} OWNER TO bus")
    world = World("postgres", tmp_path, url.replace("busway@", "bus@"))

    async def play(store: Any) -> None:
        await is_a_pause(
            store, url, "ALTER ROLE bus CONNECTION LIMIT 0", "ALTER ROLE bus CONNECTION LIMIT -1"
        )

    world.run(play)


def test_a_database_that_is_read_only_for_a_second_is_a_pause(postgres_world: World) -> None:
    """F1: 25006, as on a primary that is about to become a standby."""
    name = urlsplit(postgres_world.url).path.removeprefix("/")

    async def play(store: Any) -> None:
        setting = f"ALTER DATABASE {name}"
        begin, end = "SET default_transaction_read_only = on", "RESET default_transaction_read_only"
        await is_a_pause(store, postgres_world.url, f"{setting} {begin}", f"{setting} {end}")

    postgres_world.run(play)
