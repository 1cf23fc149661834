"""A store's file: making a new one, refusing what is not ours, updating an older one, keeping it in shape.

The migration to schema 2 reads rows as schema 1 had them: their checksum proven, their columns packed. It casts
every column to the type it should have, because a damaged row must come through: it gets a checksum that no row
has, and stays damaged.

What keeps a file in shape between commits is checkpoints, and giving free pages back (`FileUpkeep`). Both run in the
commit thread after a commit was reported, so they hold up the next commit a little and the event loop not at all.
Pages are given back in slices, also while there is no other work.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Final
from zlib import crc32

import apsw

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import COUNTER_BITS, FragmentKey, StoreError, StoreTooNew
from busway.store.rows import CHECKSUM_PRIME, NEVER_RIGHT, NUMBER_MASK, message_rows, more_of, unsealed
from busway.store.statements import migrations, sql_file, statements_of

query = statements_of(__package__).query


def teach(connection: apsw.Connection) -> None:
    """Gives a connection the functions that the migration calls."""
    connection.create_scalar_function("row_1_more", _more, 8, deterministic=True)
    connection.create_scalar_function("row_1_checksum", _checksum, 13, deterministic=True)


def _more(*fields: apsw.SQLiteValue) -> bytes | None:
    try:
        return more_of(_message(b"", *fields))
    except (TypeError, ValueError):
        return None


def _checksum(*values: apsw.SQLiteValue) -> int:
    """The checksum by the rules of schema 2, if it was right by those of schema 1."""
    try:
        return _proven(*values)
    except (TypeError, ValueError):
        return NEVER_RIGHT


def _proven(
    checksum: apsw.SQLiteValue,
    key: apsw.SQLiteValue,
    enqueued_at_ms: apsw.SQLiteValue,
    expires_at_ms: apsw.SQLiteValue,
    bare: apsw.SQLiteValue,
    *fields: apsw.SQLiteValue,
) -> int:
    if not (isinstance(key, int) and isinstance(enqueued_at_ms, int) and isinstance(expires_at_ms, int)):
        raise TypeError("a number is missing")
    if not isinstance(bare, bytes):
        raise TypeError("the body is missing")
    message = _message(bare, *fields)
    check = crc32(bare, crc32(message.head, len(message.head)))
    for mark, text in ((b"s", message.session_id), (b"p", message.partition_key), (b"m", message.message_id)):
        if text is not None:
            check = crc32(mark + text.encode(), check)
    check += key + enqueued_at_ms + expires_at_ms
    check += message.delivery_count + message.ttl_ms + message.scheduled_at_ms
    if check % CHECKSUM_PRIME != checksum:
        return NEVER_RIGHT
    message.sequence_number = key & NUMBER_MASK
    message.enqueued_at_ms = enqueued_at_ms
    message.expires_at_ms = expires_at_ms
    rows = message_rows([(FragmentKey(key >> COUNTER_BITS), PLACE_ACTIVE, message)])
    return rows.active[0][3]


def _message(bare: bytes, *fields: apsw.SQLiteValue) -> Message:
    """TypeError or ValueError when a field is not what it should be."""
    delivery_count, ttl_ms, scheduled_at_ms, session_id, partition_key, message_id, head, changes = fields
    if not (isinstance(delivery_count, int) and isinstance(ttl_ms, int) and isinstance(scheduled_at_ms, int)):
        raise TypeError("a number is missing")
    if not isinstance(head, bytes):
        raise TypeError("the head is missing")
    message = Message(
        head,
        bare,
        ttl_ms=ttl_ms,
        message_id=_text(message_id),
        session_id=_text(session_id),
        partition_key=_text(partition_key),
        scheduled_at_ms=scheduled_at_ms,
    )
    message.delivery_count = delivery_count
    if isinstance(changes, bytes):
        message.changes = unsealed(changes)
    return message


def _text(value: apsw.SQLiteValue) -> str | None:
    return value.decode() if isinstance(value, bytes) else None


log = logging.getLogger(__name__)

#: The schema this code reads and writes: the number of the last migration.
SCHEMA_VERSION: Final = 5
APPLICATION_ID: Final = 1115119993  # "Bway"
#: Readers wait this long for another connection that repairs the log after a crash.
_BUSY_TIMEOUT_MS: Final = 5_000
#: The plan of a statement does not depend on the values bound to it. Else SQLite prepares many of them anew each time
#: that they come with others, which costs several times what running them does.
_PLANS_STAY: Final = (apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
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
        connection.config(*_PLANS_STAY)
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
    connection.config(*_PLANS_STAY)
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
            connection.execute(sql_file(__package__, "schema.sql")).fetchall()
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
    for number, text in migrations(__package__):
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


#: How often free pages are counted, and a failed checkpoint is tried again.
_LOOK_INTERVAL_S: Final = 1.0
#: Pause between slices while there are commits; without other work they follow each other.
_SLICE_INTERVAL_S: Final = 0.1


class FileUpkeep:
    """Of one writing connection. `run` belongs to the commit thread."""

    def __init__(
        self, connection: apsw.Connection, clock: Clock, *, checkpoint_bytes: int, vacuum_bytes: int
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._page_bytes = int(connection.pragma("page_size") or 0)
        self._checkpoint_pages = max(1, checkpoint_bytes // self._page_bytes)
        #: With little space left the log is emptied early, so that it is written anew instead of growing.
        self._checkpoint_pages_low = max(1, self._checkpoint_pages // 16)
        self._vacuum_pages = max(1, vacuum_bytes // self._page_bytes)
        self._log_pages = 0
        self._looked_at = clock.monotonic()
        self._retry_at = 0.0
        self._slice_at = 0.0
        #: More free pages are worth giving back.
        self.has_slices = False
        #: A snapshot keeps the log from starting over: checkpoints would be in vain.
        self.is_log_kept = False
        connection.set_wal_hook(self._note_log_pages)

    def _note_log_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def is_due(self, is_space_low: bool) -> bool:
        """Whether to pause between two commits for a round."""
        now = self._clock.monotonic()
        if now < self._retry_at:
            return False
        if self._is_log_long(is_space_low) or now - self._looked_at >= _LOOK_INTERVAL_S:
            return True
        return self.has_slices and now >= self._slice_at

    def _is_log_long(self, is_space_low: bool) -> bool:
        if self.is_log_kept:
            return False
        return self._log_pages > (self._checkpoint_pages_low if is_space_low else self._checkpoint_pages)

    def run(self, is_space_low: bool) -> bool:
        """One round; True when it made a checkpoint. An error is logged and the round tried again later."""
        try:
            return self._run(is_space_low)
        except apsw.Error as error:
            self._retry_at = self._clock.monotonic() + _LOOK_INTERVAL_S
            self.has_slices = False
            log.warning("Upkeep of a store failed and will be tried again: %s.", error)
            return False

    def _run(self, is_space_low: bool) -> bool:
        self._looked_at = self._clock.monotonic()
        had_slices = self.has_slices
        self._give_pages_back(is_space_low)
        if self._is_log_long(is_space_low) or (had_slices and not self.has_slices):
            self._connection.execute(query("pragma_checkpoint")).fetchall()
            self._log_pages = 0
            return True
        return False

    def _give_pages_back(self, is_space_low: bool) -> None:
        free = self._number("pragma_free_pages")
        # Half the file must be free before anything moves, so that a queue that breathes does not churn; but
        # with little space left on the disk every page counts.
        if not self.has_slices and free >= self._vacuum_pages:
            self.has_slices = is_space_low or free * 2 >= self._number("pragma_pages")
        if self.has_slices:
            self._connection.execute(query("pragma_vacuum_slice")).fetchall()
            self.has_slices = self._number("pragma_free_pages") > 0
            self._slice_at = self._clock.monotonic() + _SLICE_INTERVAL_S

    def _number(self, name: str) -> int:
        row = self._connection.execute(query(name)).fetchone()
        return 0 if row is None else int(row[0])
