"""A store's file belongs to one server, whatever name it is called by."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.model.limits import Limits
from busway.store.contract import StoreError, StoreInUse, StoreState
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore


def store_at(path: Path, name: str = "a") -> SqliteStore:
    return SqliteStore(name, path, Clock(), reserve_bytes=0, space_low_bytes=0)


def the_same_name(path: Path) -> Path:
    return path


def a_relative_path(path: Path) -> Path:
    return Path(os.path.relpath(path))


def a_way_round(path: Path) -> Path:
    return path.parent / "deeper" / ".." / path.name


def a_symbolic_link(path: Path) -> Path:
    link = path.parent / "deeper" / "link.db"
    link.symlink_to(path)
    return link


def a_link_to_its_folder(path: Path) -> Path:
    link = path.parent / "folder"
    link.symlink_to(path.parent, target_is_directory=True)
    return link / path.name


def a_hard_link(path: Path) -> Path:
    link = path.parent / "deeper" / "other.db"
    link.hardlink_to(path)
    return link


NAMES = [
    the_same_name,
    a_relative_path,
    a_way_round,
    a_symbolic_link,
    a_link_to_its_folder,
    a_hard_link,
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_in_use_is_not_opened_again(tmp_path: Path, name: Callable[[Path], Path]) -> None:
    """Found by review: two servers with the same store handed out the same messages."""
    (tmp_path / "deeper").mkdir()
    path = tmp_path / "a.db"

    async def scene() -> None:
        first = store_at(path)
        await first.open()
        try:
            second = store_at(name(path), "b")
            with pytest.raises(StoreInUse):
                await second.open()
            assert second.state is StoreState.CLOSED
            await second.close()
            with pytest.raises(StoreInUse):  # the refused one let nothing go that is not its own
                await store_at(path).open()
            await first.flush()
        finally:
            await first.close()

    asyncio.run(scene())


def test_the_sentence_says_who_has_the_file(tmp_path: Path) -> None:
    """Command-line contract: in this process it can only have been given twice."""
    path = tmp_path / "a.db"

    async def scene() -> None:
        first = store_at(path)
        await first.open()
        with pytest.raises(StoreInUse, match=r"a\.db is given twice: each store needs a file of its own\."):
            await store_at(path, "b").open()
        (tmp_path / "a.db.lock").write_text("4711")
        with pytest.raises(StoreInUse, match=r"a\.db is in use by process 4711: stop that server"):
            await store_at(path, "b").open()
        await first.close()

    asyncio.run(scene())


def test_a_file_with_a_second_name_is_refused_by_either(tmp_path: Path) -> None:
    """Found by review: SQLite keeps its log beside the name it is given, so two names are two logs of one file."""
    path = tmp_path / "a.db"

    async def scene() -> None:
        first = store_at(path)
        await first.open()
        await first.close()
        other = tmp_path / "other.db"
        other.hardlink_to(path)
        for name in (path, other):
            with pytest.raises(StoreInUse, match="has 2 names"):
                await store_at(name).open()
        other.unlink()
        await first.open()
        await first.close()

    asyncio.run(scene())


def test_a_link_that_leads_to_no_file_yet_makes_one(tmp_path: Path) -> None:
    """F3: a store may be put elsewhere by a link before its first start."""
    (tmp_path / "disk").mkdir()
    link = tmp_path / "a.db"
    link.symlink_to(tmp_path / "disk" / "real.db")

    async def scene() -> None:
        store = store_at(link)
        await store.open()
        assert (tmp_path / "disk" / "real.db").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "disk" / "real.db.lock").exists()
        await store.close()

    asyncio.run(scene())


def test_a_store_that_is_closed_or_cannot_be_opened_lets_go(tmp_path: Path) -> None:
    """F3: the next one may have it at once."""
    path = tmp_path / "a.db"

    async def scene() -> None:
        for _ in range(2):
            store = store_at(path)
            await store.open()
            await store.close()
        path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
        for _ in range(2):
            with pytest.raises(StoreError, match="not a database"):
                await store_at(path).open()

    asyncio.run(scene())


def test_a_store_that_failed_keeps_its_file_while_it_is_opened_again(tmp_path: Path) -> None:
    """F5: between the two nobody may write what its owner does not know of."""
    path = tmp_path / "a.db"

    async def scene() -> None:
        first = store_at(path)
        await first.open()
        first.state = StoreState.FAILED
        with pytest.raises(StoreInUse):
            await store_at(path, "b").open()
        await first.reopen()
        with pytest.raises(StoreInUse):
            await store_at(path, "b").open()
        await first.disable()
        second = store_at(path, "b")
        await second.open()
        with pytest.raises(StoreInUse):
            await first.reopen()
        await second.close()
        await first.reopen()
        await first.close()

    asyncio.run(scene())


def test_the_lock_is_for_the_owner_only_and_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A-3: like everything else beside a store."""
    path = tmp_path / "a.db"
    target = tmp_path / "elsewhere"
    target.write_text("untouched")
    (tmp_path / "a.db.lock").symlink_to(target)

    async def scene() -> None:
        with pytest.raises(StoreError, match="lock"):
            await store_at(path).open()
        assert target.read_text() == "untouched"
        (tmp_path / "a.db.lock").unlink()
        store = store_at(path)
        await store.open()
        assert (tmp_path / "a.db.lock").stat().st_mode & 0o777 == 0o600
        await store.close()

    asyncio.run(scene())


def test_a_namespace_does_not_start_with_a_store_that_somebody_else_has(tmp_path: Path) -> None:
    """Found by review: one that cannot be opened keeps the others from nothing, but one in use is a wrong start."""
    path = tmp_path / "b.db"

    async def scene() -> None:
        home = MemoryStore("a")
        mine = [home, store_at(path, "b")]
        namespace = Namespace("bus", mine, ManualClock(), SeededEntropy(), Limits())
        await namespace.open()
        await namespace.close()
        holder = store_at(path, "b")
        await holder.open()
        again = Namespace("bus", [home, store_at(path, "b")], ManualClock(), SeededEntropy(), Limits())
        with pytest.raises(StoreInUse):
            await again.open()
        await holder.close()

    asyncio.run(scene())
