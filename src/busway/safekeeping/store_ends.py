"""Stores by their addresses, at both ends of a copy: `sqlite:PATH`, a folder of such files, `postgresql://…`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from busway.clock import Clock, Entropy
from busway.data_directory import DataDirectory
from busway.safekeeping.bus_copy import StoreEnd
from busway.safekeeping.stopped_copy import DirectoryInUse, StoreFile, held_file, store_files
from busway.safekeeping.store_copy import CopyRefused
from busway.store.contract import Store
from busway.store.postgres.url import is_postgres, parse
from busway.store.sqlite.file_rows import FileRows
from busway.store.sqlite.store import SqliteStore
from busway.store.stored_rows import NoRows, StoredRows

if TYPE_CHECKING:
    from busway.store.postgres.database import PostgresDatabase

#: Sessions of a process that was killed are gone after a moment.
_PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.1


class FileEnd:
    """A file."""

    def __init__(self, name: str, path: Path, clock: Clock) -> None:
        self.name = name
        self.shown = f"The store's file {path}"
        self._path = path
        self._clock = clock

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held_file(self._path))
            except DirectoryInUse as error:
                raise CopyRefused(f"{error}: stop that server first. Nothing was copied.") from error
            yield

    def rows(self, *, is_open: bool = False) -> StoredRows:
        if not self._path.exists():
            return NoRows(self.name)
        return FileRows(self.name, self._path, is_open=is_open)

    def begin(self) -> None:
        """What remembers a file lies beside it."""
        self._path.with_suffix(".high-water").unlink(missing_ok=True)

    def store(self) -> Store:
        return SqliteStore(self.name, self._path, self._clock)


class DatabaseEnd:
    """One of the stores of a database."""

    def __init__(self, database: PostgresDatabase, number: int, clock: Clock) -> None:
        self.name = database.url.store_name(number)
        self.shown = f"The database at {database.url.shown}"
        self._database = database
        self._number = number
        self._clock = clock

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A server that begins later is noticed at the end."""
        if self._number == 0:
            self._check_idle()
        yield

    def _check_idle(self) -> None:
        from busway.store.postgres.database_rows import DatabaseRows

        ends_s = self._clock.monotonic() + _PATIENCE_S
        rows = DatabaseRows(self._database.url, self._number)
        try:
            while rows.is_busy():
                if self._clock.monotonic() >= ends_s:
                    raise CopyRefused(
                        f"{self.shown} is in use by a server, or by another copy: stop it first. Nothing was copied."
                    )
                time.sleep(_PAUSE_S)
        finally:
            rows.close()

    def rows(self, *, is_open: bool = False) -> StoredRows:
        from busway.store.postgres.database_rows import DatabaseRows

        del is_open
        return DatabaseRows(self._database.url, self._number)

    def begin(self) -> None:
        from busway.store.postgres.database_rows import begin_behind

        begin_behind(self._database.url, self._number, self._clock.wall_ms())

    def store(self) -> Store:
        from busway.store.postgres.store import PostgresStore

        return PostgresStore(self._database, self._number, self._clock)


def ends_of_directory(directory: DataDirectory, clock: Clock) -> list[StoreEnd]:
    """The stores that a data directory knows. Raises CopyRefused."""
    return [_file_end(file, clock) for file in store_files(directory)]


def ends_of(addresses: Sequence[str], clock: Clock, entropy: Entropy, stores: int = 0) -> list[StoreEnd]:
    """In their order. `stores`: how many files a folder comes to hold; else those that lie there. Raises CopyRefused,
    StoreError."""
    ends: list[StoreEnd] = []
    files = 0
    for address in addresses:
        scheme, _, rest = address.partition(":")
        path = Path(rest.removeprefix("//"))
        if is_postgres(address):
            ends += _ends_of_database(address, clock, entropy)
        elif scheme != "sqlite" or not rest:
            raise CopyRefused(
                "An address of stores is sqlite:PATH, of a file or of a folder, or postgresql://HOST/DATABASE."
            )
        elif path.is_dir() or rest.endswith("/"):
            count = stores or len(list(path.glob("store-*.db")))
            ends += [FileEnd(f"store-{files + at}", path / f"store-{at}.db", clock) for at in range(count)]
            files += count
        else:
            ends.append(FileEnd(f"store-{files}", path, clock))
            files += 1
    return ends


def _file_end(file: StoreFile, clock: Clock) -> StoreEnd:
    if file.is_missing:
        raise CopyRefused(f"The store {file.name} is missing: {file.path} is not there. Nothing was copied.")
    return FileEnd(file.name, file.path, clock)


def _ends_of_database(address: str, clock: Clock, entropy: Entropy) -> list[StoreEnd]:
    try:
        from busway.store.postgres.database import PostgresDatabase
    except ImportError as error:
        raise CopyRefused(
            f"Stores in PostgreSQL need psycopg: pip install 'busway[postgres]' ({error})."
        ) from error
    database = PostgresDatabase(parse(address), clock, entropy)
    return [DatabaseEnd(database, number, clock) for number in range(database.url.stores)]
