"""Opening a store's file: making a new one, refusing what is not ours, bringing an older one up to date."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final

import apsw

from busway.store.contract import StoreError, StoreTooNew
from busway.store.sqlite.first_rows import teach
from busway.store.sqlite.queries import SCHEMA_VERSION, migrations, query, sql_file

log = logging.getLogger(__name__)

APPLICATION_ID: Final = 1115119993  # "Bway"
#: Readers wait this long for another connection that repairs the log after a crash.
_BUSY_TIMEOUT_MS: Final = 5_000
#: A reader is taken out of its queue by one thread and put back by the same, so SQLite need not lock it for every
#: column it hands over.
_READER_FLAGS: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX


def open_for_writing(path: Path, vfs: str | None) -> apsw.Connection:
    """The one writing connection, on a file with the current schema. Raises StoreError, StoreTooNew.

    The log is emptied into the file here: after a failed sync the system may show pages that never reached the
    disk, and only writing and syncing them again makes what this process sees durable.
    """
    connection: apsw.Connection | None = None
    try:
        _make_private(path)
        connection = apsw.Connection(str(path), vfs=vfs)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        is_new = _recognise(connection, path)
        if is_new:
            connection.execute(query("pragmas_of_a_new_file")).fetchall()
        connection.execute(query("pragmas_of_the_writer")).fetchall()
        _bring_up_to_date(connection, is_new)
        connection.execute(query("pragma_checkpoint_truncate")).fetchall()
        connection.set_busy_timeout(0)  # From here on statements run on the event loop: nothing may wait.
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        _close_quietly(connection)
        raise StoreError(f"The store's file {path} cannot be opened: {_reason(error)}.") from error
    except StoreError:
        _close_quietly(connection)
        raise
    return connection


def open_for_reading(path: Path, vfs: str | None) -> apsw.Connection:
    """One more connection, for reads off the loop."""
    connection = apsw.Connection(str(path), flags=_READER_FLAGS, vfs=vfs)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.execute(query("pragmas_of_a_reader")).fetchall()
    return connection


def _make_private(path: Path) -> None:
    """Only the owner may read messages; SQLite gives the log the same mode."""
    with contextlib.suppress(
        FileExistsError
    ):  # Closing a file that is open elsewhere here would drop its locks.
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _recognise(connection: apsw.Connection, path: Path) -> bool:
    """True for a new file; raises for a file that is not ours or too new for us."""
    tables = _number(connection, "read_table_count")
    application_id = _number(connection, "pragma_application_id")
    if tables == 0 and application_id in (0, APPLICATION_ID):
        return True
    if application_id != APPLICATION_ID:
        raise StoreError(f"The file {path} is a database of another program, not a store of Busway.")
    version = _number(connection, "pragma_schema_version")
    if version > SCHEMA_VERSION:
        raise StoreTooNew(
            f"The store's file {path} was written by a newer version of Busway (schema {version}, this version"
            f" knows {SCHEMA_VERSION}). Start that version, or use another data directory."
        )
    return False


def _bring_up_to_date(connection: apsw.Connection, is_new: bool) -> None:
    """One transaction, so a crash leaves either schema whole."""
    connection.execute(query("pragma_spill")).fetchall()
    connection.execute(query("begin"))
    try:
        if is_new:
            connection.execute(sql_file("schema.sql")).fetchall()
        else:
            apply_migrations(connection)
    except BaseException:
        with contextlib.suppress(apsw.Error):
            connection.execute(query("roll_back"))
        raise
    connection.execute(query("commit"))
    connection.execute(query("pragma_no_spill")).fetchall()


def apply_migrations(connection: apsw.Connection) -> None:
    """Runs every migration after the file's version. Each sets the version itself."""
    version = _number(connection, "pragma_schema_version")
    teach(connection)
    if version == SCHEMA_VERSION:  # nearly always: the files need not be read
        return
    for number, text in migrations():
        if number > version:
            log.info("Migrating a store to schema %d.", number)
            connection.execute(text).fetchall()


def _number(connection: apsw.Connection, name: str) -> int:
    row = connection.execute(query(name)).fetchone()
    return int(row[0]) if row is not None else 0


def _reason(error: Exception) -> str:
    if isinstance(error, (apsw.NotADBError, UnicodeDecodeError)):
        return "it is not a database, or its beginning is damaged"
    if isinstance(error, apsw.CorruptError):
        return "it is damaged"
    if isinstance(error, apsw.BusyError):
        return "another process uses it"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _close_quietly(connection: apsw.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(apsw.Error):
            connection.close(True)
