"""Chaos: the books of a database of stores, each of their checks broken once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from busway.message.message import PLACE_DEFERRED, PLACE_SCHEDULED
from busway.store.contract import Counters
from tests.chaos.database_books import CHECKS, wrong_books
from tests.harness.postgres_server import PostgresServer
from tests.store_contract.scenario import World, add_fragment, message, put, put_in_session

#: By check: what makes a database break it.
_PLANTED = {
    "every store has one last commit": "INSERT INTO busway.commits VALUES (0, 99, '')",
    "every fragment has one row of counters": "DELETE FROM busway.counters",
    "counters tell what is there": "DELETE FROM busway.deferred",
    "no row is above the last number or below the head": "UPDATE busway.counters SET head = 2",
    "every row belongs to a fragment": "UPDATE busway.scheduled SET key = key + (77::bigint << 40)",
    "the session index names active rows": "DELETE FROM busway.messages",
    "sessions know their first row": "UPDATE busway.sessions SET first_key = first_key + 1",
    "expiry entries belong to rows": "INSERT INTO busway.expiry_entries VALUES (12345, 0, 1)",
}


async def _filled(store: Any) -> None:
    fragment, counters = add_fragment(store), Counters()
    put_in_session(store, fragment, "s", 1, 2)
    put(store, fragment, message(3), place=PLACE_DEFERRED)
    put(store, fragment, message(4), place=PLACE_SCHEDULED)
    counters.last_counter, counters.active, counters.deferred, counters.scheduled = 4, 2, 1, 1
    store.batch().counters[fragment] = counters
    await store.flush()


@pytest.fixture(scope="module")
def right_database(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = postgres.database()
    World("postgres", tmp_path_factory.getbasetemp(), url).run(_filled)
    yield url
    postgres.drop(url)


def test_a_database_that_a_store_wrote_is_right(right_database: str) -> None:
    """Chaos: no check finds anything where nothing is wrong."""
    assert wrong_books(right_database) == []


@pytest.mark.parametrize("rule", CHECKS)
def test_what_is_planted_is_found(rule: str, right_database: str, postgres: PostgresServer) -> None:
    """Chaos: a check that finds nothing wrong would find nothing at all."""
    name = Path(right_database).name
    url = postgres.database(f"TEMPLATE {name}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_PLANTED[rule].encode())
    assert [sentence for sentence in wrong_books(url) if sentence.startswith(f"{rule}: ")]
    postgres.drop(url)


def test_every_check_has_its_planted_violation() -> None:
    """Chaos: a check without one is not proved."""
    assert set(_PLANTED) == set(CHECKS)
