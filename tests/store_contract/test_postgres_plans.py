"""PostgreSQL finds rows by their keys, whatever it believes of its tables.

A statement is planned once for as long as a session lives, often while its tables are empty. A plan that walks over
a whole table is the best one then, and the death of the server when a million messages, or a million dead versions
under an old snapshot, have come since. So every statement is planned here where it is worst: on tables that vacuum
has seen empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from busway.store.postgres.reader import _Session
from busway.store.postgres.writing_connection import PLANS_S, Statement, WritingConnection
from busway.store.statements import PLACE_TABLES, statements_of
from tests.harness.manual_clock import ManualClock
from tests.harness.postgres_server import PostgresServer

QUERIES = statements_of("busway.store.postgres")
#: Tables with a row for each message, session, id, chunk or commit that there is or was.
GROWING = {
    *PLACE_TABLES,
    "payloads",
    "payload_references",
    "session_messages",
    "sessions",
    "session_states",
    "expiry_entries",
    "duplicate_ids",
    "transfer_marks",
    "log_chunks",
    "log_producers",
    "fragments",
    "counters",
    "commits",
}
#: An index of nothing but what is looked for.
PARTIAL = {"payloads_over"}
SESSION = "session_plans"
#: Statements that look at everything once, when a store is opened or copied.
WHOLE = {
    "read_sharing",
    "read_last_payload",
    "read_fragments",
    "copy_rows",
    "copy_sharing_rows",
    "copy_duplicate_ids",
    "copy_logs",
}
#: What else a row must be like, besides having the key that was looked for: it is as good as always so.
FILTERS = {
    "payloads_drop": "copies = 0",
    "chunks_delete": "given.first_number = first_number",
    "producers_purge": "used_at < given.before",
    "sessions_go_on": "key <> ALL ($1)",
    "read_sessions_by_state": "set_at > $5",
    "read_some_fragments": "key = ANY ($2)",
    "read_transfer_marks": "($2 IS NULL) OR (source_store = $2)",
}
LEADING = """
SELECT pg_class.relname, pg_attribute.attname FROM pg_index INNER JOIN pg_class ON pg_class.oid = indexrelid
INNER JOIN pg_attribute ON attrelid = indexrelid AND attnum = 1 WHERE relnamespace = 'busway'::regnamespace"""
#: Bodies of functions, as statements of their own.
IN_FUNCTIONS = re.compile(r"^    (?:PERFORM|DELETE|UPDATE|INSERT|SELECT)\b.*?;$", re.MULTILINE | re.DOTALL)


def _statements() -> Iterator[tuple[str, str]]:
    for name, text in QUERIES.texts.items():
        if name in WHOLE or not re.match(r"(SELECT|WITH|INSERT|UPDATE|DELETE)\b", text) or name == SESSION:
            continue
        if "{source}" in text:
            for source in PLACE_TABLES:
                yield f"{name} {source}", QUERIES.query(name, source=source, target="scheduled")
        elif "{place}" in text:
            for place in _places(name):
                yield f"{name} {place}", QUERIES.query(name, place=place)
        else:
            yield name, text


def _places(name: str) -> tuple[str, ...]:
    if name in {"put_aside", "renumber_aside"}:
        return PLACE_TABLES[1:]
    if name == "sweep_by_key":
        return (*PLACE_TABLES, "expiry_entries", "session_messages")
    if name == "sweep_by_fragment":
        return ("sessions", "session_states", "duplicate_ids")
    return ("log_chunks", "log_producers") if name == "sweep_by_log" else PLACE_TABLES


STATEMENTS = dict(_statements())


@pytest.fixture(scope="module")
def empty(postgres: PostgresServer, made_database: str) -> Iterator[psycopg.Connection[Any]]:
    """A session as those that commit have, where vacuum has seen that nothing is in the tables."""
    url = postgres.database(f"TEMPLATE {made_database}")
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute(QUERIES.query(SESSION).encode())
        yield connection
    postgres.drop(url)


def _plan(connection: psycopg.Connection[Any], text: str) -> Any:
    """The one that is made without knowing the values."""
    count = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
    text = re.sub(r"LIMIT \$3 \+ \$4", "LIMIT $3::bigint + $4::bigint", text)  # the client says their types
    connection.execute(f"PREPARE asked AS {text}".encode())
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    row = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked{values}".encode()).fetchone()
    connection.execute("DEALLOCATE asked")
    assert row is not None
    return row[0][0]["Plan"]


def _leading(connection: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(connection.execute(LEADING).fetchall())


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def walks(plan: Any, leading: dict[str, str], filtered: str = "") -> list[str]:
    """What in it goes through more of a table than it needs. `leading`: the first column of each index."""
    found = []
    for node in _nodes(plan):
        kind, table = node["Node Type"], node.get("Relation Name")
        if table not in GROWING or kind in {"ModifyTable", "Tid Scan", "Bitmap Heap Scan"}:
            continue
        index, condition = str(node.get("Index Name")), str(node.get("Index Cond"))
        is_first = re.search(rf"\b{leading.get(index)}\b", condition) is not None or index in PARTIAL
        if "Index" in kind and is_first and node.get("Filter", "()")[1:-1] == filtered:
            continue
        if "Index" in kind and is_first and "Filter" not in node:
            continue
        found.append(f"{kind} of {table} by {index}, {condition}, filter {node.get('Filter')}")
    found += [
        f"all of {node['Index Name']}"
        for node in _nodes(plan)
        if node["Node Type"] == "Bitmap Index Scan" and not node.get("Index Cond")
    ]
    return found


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_walks_over_a_table(name: str, empty: psycopg.Connection[Any]) -> None:
    """House style: rows are found by their keys, one look-up each."""
    assert walks(_plan(empty, STATEMENTS[name]), _leading(empty), FILTERS.get(name, "")) == []


def test_neither_does_the_fence(empty: psycopg.Connection[Any]) -> None:
    """House style: as it is in the database, its arguments as values."""
    row = empty.execute("SELECT prosrc FROM pg_proc WHERE proname = 'fence'").fetchone()
    assert row is not None
    statements = IN_FUNCTIONS.findall(row[0])
    assert len(statements) == 3
    kinds = {
        "given_stores": "int[]",
        "given_epochs": "bigint[]",
        "given_numbers": "bigint[]",
        "given_batches": "bytea[]",
    }
    for text in statements:
        text = re.sub(r"^ *PERFORM", "SELECT", text).rstrip(";")
        used = [argument for argument in kinds if argument in text]
        for at, argument in enumerate(used, 1):
            text = text.replace(argument, f"${at}::{kinds[argument]}")
        assert walks(_plan(empty, text), _leading(empty)) == []


def test_a_plan_that_walks_is_seen(empty: psycopg.Connection[Any]) -> None:
    """House style: the checks above can fail."""
    for text in (
        "SELECT * FROM busway.messages WHERE enqueued_at = $1::bigint",
        "SELECT * FROM busway.messages WHERE key > 5 AND enqueued_at = $1::bigint",
    ):
        assert walks(_plan(empty, text), _leading(empty))
    other = "SELECT * FROM busway.duplicate_ids WHERE accepted_at < $1::bigint AND fragment > 0"
    assert walks(_plan(empty, other), {**_leading(empty), "duplicate_age": "nothing"})


def test_plans_of_a_writer_are_made_anew_after_a_while(
    empty: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory and time: a plan that was good for small tables is not kept for large ones."""
    clock = ManualClock()
    with psycopg.connect(empty.info.dsn, autocommit=True) as connection:
        writer = WritingConnection(connection, clock)
        sent: list[str] = []
        exchange = writer._exchange

        def note(statements: Sequence[Statement], ends_s: float) -> Any:
            sent.extend(text for text, _ in statements)
            return exchange(statements, ends_s)

        monkeypatch.setattr(writer, "_exchange", note)
        begin, look, commit = QUERIES.query("begin"), QUERIES.query("count_stores"), QUERIES.query("commit")
        for _ in range(2):
            results = writer.run([(begin, ()), (look, ()), (commit, ())], clock.monotonic() + 60)
            assert [result.command_status for result in results] == [b"BEGIN", b"SELECT 1", b"COMMIT"]
            clock.advance(PLANS_S)
        assert sent == [begin, look, commit, QUERIES.query("plan_again"), begin, look, commit]


def test_plans_of_a_reader_are_made_anew_after_a_while(empty: psycopg.Connection[Any]) -> None:
    """Memory and time: the same for reads."""
    clock = ManualClock()
    with psycopg.connect(empty.info.dsn, autocommit=True) as connection:
        session = _Session(psycopg.RawCursor(connection), clock)
        session.cursor.execute("SELECT 1")
        session.plan_again()
        assert session.cursor.statusmessage == "SELECT 1"
        clock.advance(PLANS_S)
        session.plan_again()
        assert session.cursor.statusmessage == "DISCARD PLANS"
        session.cursor.execute("SELECT 1")
        session.plan_again()
        assert session.cursor.statusmessage == "SELECT 1"
