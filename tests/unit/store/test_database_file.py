"""Opening files: new, foreign, damaged, too new, private."""

import asyncio
import os
from pathlib import Path

import apsw
import pytest

from busway.clock import Clock
from busway.store.contract import StoreError, StoreState, StoreTooNew
from busway.store.sqlite.database_file import open_for_writing
from busway.store.sqlite.store import SqliteStore


def pragma(path: Path, name: str) -> object:
    connection = open_for_writing(path, None)
    try:
        return connection.pragma(name)
    finally:
        connection.close()


def test_a_new_file_has_the_settings_the_store_relies_on(tmp_path: Path) -> None:
    """F3: synchronous=FULL (2) is what keeps acknowledged messages over a power cut."""
    path = tmp_path / "a.db"
    assert pragma(path, "synchronous") == 2
    assert pragma(path, "journal_mode") == "wal"
    assert pragma(path, "page_size") == 16384
    assert pragma(path, "auto_vacuum") == 2
    assert pragma(path, "cache_spill") == 0
    assert pragma(path, "wal_autocheckpoint") == 0


def modes(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in directory.iterdir()}


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    async def play() -> None:
        store = SqliteStore("a", tmp_path / "a.db", Clock(), reserve_bytes=1 << 20)
        await store.open()
        store.batch().catalogue["key"] = "text"
        await store.flush()
        names = modes(tmp_path)
        assert set(names.values()) == {0o600}
        assert {"a.db", "a.db-wal", "a.reserve"} <= set(names)
        await store.close()

    before = os.umask(0)
    try:
        asyncio.run(play())
    finally:
        os.umask(before)


def test_an_open_file_mode_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch(0o644)
    open_for_writing(path, None).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content", [b"no database at all, just text" * 50, b"SQLite format 3\0" + b"\xff" * 500]
)
def test_a_file_that_is_no_database_is_named_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    """F4: a damaged beginning."""
    path = tmp_path / "a.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"a\.db cannot be opened: it is (not a database|damaged)") as caught:
        open_for_writing(path, None)
    assert str(caught.value).count("\n") == 0
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE contacts (name)")
    other.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_for_writing(path, None)
    assert path.read_bytes() == content


def test_a_directory_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        open_for_writing(tmp_path / "missing" / "a.db", None)


def test_a_newer_schema_is_refused_with_advice(tmp_path: Path) -> None:
    """F2: an older version would damage what it does not know."""
    path = tmp_path / "a.db"
    connection = open_for_writing(path, None)
    connection.execute("PRAGMA user_version = 999")
    connection.close()

    async def play() -> None:
        store = SqliteStore("a", path, Clock())
        with pytest.raises(StoreTooNew, match=r"newer version of Busway \(schema 999"):
            await store.open()
        assert store.state is StoreState.CLOSED
        await store.close()

    asyncio.run(play())
