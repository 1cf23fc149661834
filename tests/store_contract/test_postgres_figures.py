"""What is measured of a database: commits, its clock, rows that wait for vacuum, and who keeps them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from busway.clock import Clock
from busway.model.flow import LATENCY_STEPS_S
from busway.store.postgres import figures
from busway.store.postgres.figures import COMMIT_STEPS_S, DatabaseFigures, Looked, look
from tests.store_contract.scenario import World, add_fragment, delete, message, put
from tests.store_contract.test_postgres_faults import backends, soon


class WrongClock(Clock):
    """Of a machine that is so far ahead."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_ms = int(ahead_s * 1000)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def looked_at(store: Any, clock: Clock | None = None) -> Looked:
    """As the database does every minute."""
    seen: Looked = store.database.readers.run(lambda cursor: look(cursor, clock or Clock()))
    store.database.figures.note(seen)
    return seen


def test_commits_are_counted_with_their_times(postgres_world: World) -> None:
    """O-8: in steps that Prometheus reads as a histogram; those that were sent again are counted."""
    assert COMMIT_STEPS_S == LATENCY_STEPS_S

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        for number in range(1, 4):
            put(store, fragment, message(number))
            await store.flush()
        measured = store.database.figures
        before = sum(measured.commit_steps)
        assert before >= 3
        assert 0 < measured.commit_s < 30
        assert measured.resends == 0
        with psycopg.connect(postgres_world.url, autocommit=True) as connection:
            for pid in backends(postgres_world.url):
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        put(store, fragment, message(4))
        await store.flush()
        assert (measured.resends, sum(measured.commit_steps)) == (1, before + 1)

    postgres_world.run(play)


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_a_clock_that_is_wrong_is_told_once(
    postgres_world: World, caplog: pytest.LogCaptureFixture, ahead_s: float
) -> None:
    """Times: an hour between the clocks of server and database breaks nothing; from half a second on it is told."""

    async def play(store: Any) -> None:
        wrong = WrongClock(ahead_s)
        with caplog.at_level(logging.WARNING):
            assert abs(looked_at(store).skew_s) < 0.5
            assert "clock" not in caplog.text
            for _ in range(2):
                assert abs(looked_at(store, wrong).skew_s + ahead_s) < 1
            assert caplog.text.count("The clock of the database") == 1
            assert f"3600.0 s {'behind' if ahead_s > 0 else 'ahead of'}" in caplog.text
            looked_at(store)
            looked_at(store, wrong)
        assert caplog.text.count("The clock of the database") == 2

    postgres_world.run(play)


def test_dead_rows_are_counted_and_who_keeps_them_is_named(
    postgres_world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-8: an old snapshot held open, and vacuum switched off; told once, until they are gone."""
    monkeypatch.setattr(figures, "DEAD_ROWS_MAX", 200)

    async def play(store: Any) -> None:
        fragment = add_fragment(store)
        with psycopg.connect(postgres_world.url, application_name="report") as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM busway.messages")
            put(store, fragment, *[message(number) for number in range(1, 501)])
            await store.flush()
            delete(store, fragment, *range(1, 501))
            await store.flush()
            with psycopg.connect(postgres_world.url, autocommit=True) as connection:
                connection.execute("ALTER TABLE busway.messages SET (autovacuum_enabled = false)")
            with caplog.at_level(logging.WARNING):
                await soon(lambda: looked_at(store).dead_rows["messages"] >= 500)
                await soon(lambda: looked_at(store).oldest_s > 1)
                looked_at(store)
        assert caplog.text.count("dead rows in busway.messages") == 1
        found = looked_at(store)
        assert any("autovacuum, which is off for busway.messages" in each for each in found.holders)

    postgres_world.run(play)


def test_the_cause_is_in_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    """O-8: by what the server said; what this user may not see is said, too."""
    measured = DatabaseFigures("east")
    with caplog.at_level(logging.WARNING):
        measured.note(Looked({"messages": 600_000, "counters": 5}, 0.0, 0.0, ["an old report"], 700.0))
        measured.note(Looked({"messages": 5}, 0.0, 0.0, [], 0.0))
        measured.note(Looked({"messages": 600_000}, 0.0, 0.0, [], 0.0))
    first, second = [record.getMessage() for record in caplog.records]
    assert "600000 dead rows in busway.messages" in first
    assert "They are kept by an old report." in first
    assert "GRANT pg_read_all_stats" in second


def test_the_holder_of_an_old_snapshot_is_named(postgres_world: World) -> None:
    """O-8: process, application and user of the session, and how long its transaction is open."""

    async def play(store: Any) -> None:
        with psycopg.connect(postgres_world.url, application_name="report") as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM busway.messages")

            def is_named() -> bool:
                return any("application 'report'" in each for each in looked_at(store).holders)

            await soon(is_named)
            assert looked_at(store).oldest_s > 0

    postgres_world.run(play)


def test_it_looks_by_itself_and_stops_with_the_database(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-8: soon after the start, then every minute, on a connection for reads."""
    monkeypatch.setattr("busway.store.postgres.database.LOOK_FIRST_S", 0.01)
    monkeypatch.setattr("busway.store.postgres.database.LOOK_S", 0.01)

    async def play() -> None:
        store = postgres_world.store()
        await store.open()
        measured = store.database.figures
        await soon(lambda: measured.looked is not None)
        assert "messages" in measured.looked.dead_rows
        await store.close()
        measured.looked = None
        await asyncio.sleep(0.1)
        assert measured.looked is None

    asyncio.run(play())
