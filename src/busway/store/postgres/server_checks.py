"""Whether a PostgreSQL server can keep what a store promises, and what each of its sessions is told.

`connect` opens a session and tells it what counts; `check` looks at the server and the database once for each
opening, before anything is written. What does not fit is refused with one sentence that names the remedy. No sentence
repeats a password: libpq's messages name hosts, users and files only, and what the address holds is struck out.

Two things are looked at in a roundabout way. A pooler hands sessions on between transactions, so prepared statements
and settings vanish. It shows by its made-up process number; then we hold the server's session in a transaction of a
second connection and ask the first one whether it is still what it was. And the same database given twice,
by two names of one host perhaps: each database notes the name of its stores, and two addresses have two names.
"""

from __future__ import annotations

import re
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from busway.store.contract import StoreError, StoreInUse, StoreTooNew
from busway.store.postgres.sqlstates import Meaning, meaning_of
from busway.store.postgres.url import PostgresUrl
from busway.store.statements import statements_of

#: Of the tables that this version reads and writes.
FORMAT: Final = 3
#: The oldest version that may use these tables: earlier ones would take stores whoever has them.
READABLE_FROM: Final = 3
VERSION_MIN: Final = 140_000
_VERSION_WITH_TRANSACTION_TIMEOUT: Final = 170_000
_SENTENCE_CHARACTERS_MAX: Final = 400

Connection = psycopg.Connection[Any]


query = statements_of(__package__, "server_checks.sql").query


def connect(url: PostgresUrl, left: tuple[str, int] | None = None) -> Connection:
    """A session that was told what counts. Transactions are begun and ended by whoever has it. `left`: host and port
    that are asked last. Raises StoreError."""
    try:
        connection = psycopg.connect(url.conninfo(left), autocommit=True)
    except psycopg.Error as error:
        raise StoreError(sentence_of(error, url)) from None  # a traceback of libpq's tells nothing more
    try:
        begin_session(connection)
    except psycopg.Error as error:
        connection.close()
        raise StoreError(sentence_of(error, url)) from error
    return connection


def begin_session(connection: Connection) -> None:
    """Also for one that was opened otherwise, outside of any transaction."""
    if connection.info.server_version < VERSION_MIN:
        return  # `check` says so; it would not know all of the settings
    connection.execute(query("session"))
    if connection.info.server_version >= _VERSION_WITH_TRANSACTION_TIMEOUT:
        connection.execute(query("session_17"))


def check(connection: Connection, url: PostgresUrl) -> None:
    """Raises StoreError, StoreTooNew or StoreInUse with a sentence. The session is told what counts."""
    try:
        if connection.info.server_version < VERSION_MIN:
            raise StoreError(
                f"The PostgreSQL server at {url.shown} has version {connection.info.server_version // 10_000}: Busway"
                f" needs {VERSION_MIN // 10_000} or later."
            )
        begin_session(connection)
        facts = connection.cursor(row_factory=dict_row).execute(query("server")).fetchone()
        assert facts is not None
        _check_server(facts, url)
        _check_rights(facts, url)
        if facts["backend"] != connection.info.backend_pid:
            _check_pooler(connection, url)
        _check_record(connection, url)
    except psycopg.Error as error:
        raise StoreError(sentence_of(error, url)) from error


def sentence_of(error: psycopg.Error, url: PostgresUrl) -> str:
    """What libpq or the server said, for people."""
    said = url.without_secrets(error.diag.message_primary or _reason(str(error)))
    said = said[:_SENTENCE_CHARACTERS_MAX].rstrip(".")
    remedy = " Who may connect, and how, stands in its pg_hba.conf." if "pg_hba" in said else ""
    if meaning_of(error.sqlstate) is Meaning.LATER and error.sqlstate != "53300":
        remedy = remedy or " See user, password and database in the address, or where libpq looks for them."
    return f"The database at {url.shown} cannot be used: {said}.{remedy}"


def _reason(text: str) -> str:
    """Of a connection that did not come about; several when there were several addresses."""
    lines = [line for line in text.splitlines() if not line.startswith((" ", "\t"))]  # those are guesses
    reasons = [line.rpartition("failed: ")[2] for line in lines if "failed: " in line] or lines[-1:]
    plain = [re.sub(r"^(?:FATAL|ERROR): +", "", reason).strip() for reason in reasons]
    return "; ".join(dict.fromkeys(plain)) or "the connection was closed"


def _check_server(facts: dict[str, Any], url: PostgresUrl) -> None:
    database = f"The database at {url.shown}"
    if facts["is_standby"]:
        raise StoreError(
            f"{database} is a standby, which takes no writes: give the address of the primary, or of all"
            " (postgresql://HOST1,HOST2/DATABASE)."
        )
    if facts["is_read_only"]:
        raise StoreError(f"{database} is read-only: default_transaction_read_only must be off.")
    for setting in ("fsync", "full_page_writes"):
        if not facts[setting]:
            raise StoreError(
                f"{database} may lose what it has acknowledged when its machine stops: {setting} is off there, and"
                " must be on."
            )
    if facts["encoding"] != "UTF8":
        raise StoreError(
            f"{database} has the encoding {facts['encoding']}: make one with CREATE DATABASE … ENCODING 'UTF8'"
            " TEMPLATE template0."
        )


def _check_rights(facts: dict[str, Any], url: PostgresUrl) -> None:
    role, database = _identifier(facts["role"]), _identifier(facts["database"])
    missing = ""
    if not facts["is_used"] and not facts["may_create"]:
        missing = f"GRANT CREATE ON DATABASE {database} TO {role}"
    elif not facts["may_use"]:
        missing = f"GRANT USAGE, CREATE ON SCHEMA busway TO {role}"
    elif not facts["may_write"]:
        missing = f"GRANT ALL ON ALL TABLES IN SCHEMA busway TO {role}"
    elif not facts["may_count"]:
        missing = f"GRANT ALL ON ALL SEQUENCES IN SCHEMA busway TO {role}"
    if missing:
        raise StoreError(f"The user {role} has too few rights in the database at {url.shown}: {missing};")


def _check_pooler(connection: Connection, url: PostgresUrl) -> None:
    connection.pgconn.prepare(b"busway_probe", query("is_ours").encode())
    with psycopg.connect(url.conninfo()) as other:  # in a transaction: a session of the server's is its own
        other.execute(query("is_ours"))
        result = connection.pgconn.exec_prepared(b"busway_probe", [])
        is_kept = result.status == psycopg.pq.ExecStatus.TUPLES_OK and result.get_value(0, 0) == b"ours"
    if not is_kept:
        raise StoreError(
            f"Between here and the database at {url.shown} is a pooler that hands sessions on between transactions:"
            " prepared statements and settings vanish. Connect to the server itself, or have the pooler keep sessions"
            " (PgBouncer: pool_mode = session)."
        )


def _check_record(connection: Connection, url: PostgresUrl) -> None:
    has_record = connection.execute(query("has_record")).fetchone()
    record = connection.execute(query("record")).fetchone() if has_record and has_record[0] else None
    if record is None:
        return
    format, readable_from, name = record
    if readable_from > FORMAT:
        raise StoreTooNew(
            f"The database at {url.shown} was written by a newer version of Busway (format {format}, readable from"
            f" {readable_from}; this one has {FORMAT}): use that version."
        )
    if name != url.name:
        raise StoreInUse(
            f"The database at {url.shown} holds the stores {name}-0, {name}-1, …, not {url.name}-0: its address wants"
            f" name={name}. Another namespace, or another --store of this one, needs a database of its own."
        )


def _identifier(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'
