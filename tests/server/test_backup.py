"""Backups of stores that work: one cut through all of them, whole or not there at all."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from busway.cli.app import run as run_verb
from busway.clock import Clock
from busway.data_directory import DataDirectory
from busway.message.message import PLACE_ACTIVE
from busway.model.errors import BadArgument, InvalidOperation
from busway.safekeeping import backup
from busway.safekeeping.backup import Backups
from busway.safekeeping.draft import BackupRefused, Draft
from busway.store.contract import FragmentKey
from busway.store.sqlite.snapshot import StoreSnapshot
from busway.store.sqlite.store import SqliteStore
from tests.harness.running_server import RunningServer
from tests.harness.shell import Shell
from tests.store_contract.scenario import add_fragment, delete, message, put

_LOTS = 1 << 40
_WAIT_S = 10.0


class TwoStores:
    """Open, with a fragment each."""

    def __init__(self, folder: Path) -> None:
        self.directory = DataDirectory(folder / "data")
        self.directory.stores.mkdir(parents=True)
        self.stores = [self._store(number) for number in (0, 1)]
        self.backups = Backups(self.stores, self.directory, Clock())
        self.fragments: list[FragmentKey] = []

    def _store(self, number: int) -> SqliteStore:
        path = self.directory.stores / f"store-{number}.db"
        return SqliteStore(f"store-{number}", path, Clock(), reserve_bytes=0, space_low_bytes=0)

    async def copied(self, target: Path) -> dict[str, Any]:
        await self.begin(target)
        return await self.ended()

    async def begin(self, target: Path) -> None:
        await self.backups.begin(str(target), Draft(target).make())

    async def ended(self) -> dict[str, Any]:
        await holds(lambda: self.backups.told()["state"] != "copying")
        return self.backups.told()


async def holds(what: Callable[[], bool]) -> None:
    """A turn of the loop after the other."""
    async with asyncio.timeout(_WAIT_S):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


@asynccontextmanager
async def two_stores(folder: Path) -> AsyncIterator[TwoStores]:
    world = TwoStores(folder)
    for store in world.stores:
        await store.open()
        world.fragments.append(add_fragment(store))
        await store.flush()
    try:
        yield world
    finally:
        async with asyncio.timeout(_WAIT_S):
            await world.backups.close()
            for store in world.stores:
                await store.close()


def numbers_in(target: Path, number: int, fragment: FragmentKey) -> set[int]:
    async def read() -> set[int]:
        store = SqliteStore(
            f"store-{number}", target / "stores" / f"store-{number}.db", Clock(), reserve_bytes=0
        )
        await store.open()
        try:
            assert store.lost_commits == 0
            page = await store.messages(fragment, PLACE_ACTIVE, 0, _LOTS, _LOTS)
            return {each.sequence_number for each in page.messages}
        finally:
            await store.close()

    return asyncio.run(read())


# -- the cut


class _Mover:
    """Moves numbers from the first store to the second for ever: put there, and once that is durable deleted here. A
    ledger in the first store tells which there were."""

    def __init__(self, world: TwoStores, ledger: FragmentKey) -> None:
        self._world = world
        self._ledger = ledger
        self.moved = 0
        self.is_over = False
        #: Told of each move.
        self.on_move: Callable[[], None] = lambda: None

    async def run(self) -> None:
        (first, second), (source, target) = self._world.stores, self._world.fragments
        while not self.is_over:
            number = self.moved + 1
            put(first, source, message(number))
            put(first, self._ledger, message(number))
            await first.flush()
            put(second, target, message(number))
            await second.flush()
            delete(first, source, number)
            await first.flush()
            self.moved = number
            self.on_move()


@pytest.mark.parametrize("slow", [0, 1], ids=["the first store is slow", "the second store is slow"])
def test_all_stores_are_of_one_moment(slow: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1: what moves between stores meanwhile is in one of the copies; what was told before is in them."""
    moves = threading.Semaphore(0)
    begin = StoreSnapshot.begin

    def late(snapshot: StoreSnapshot) -> None:
        """After five moves, if there can be any."""
        if snapshot.name == f"store-{slow}":
            for _ in range(5):
                if not moves.acquire(timeout=0.2):
                    break
        begin(snapshot)

    monkeypatch.setattr(StoreSnapshot, "begin", late)

    async def play() -> tuple[int, int, FragmentKey]:
        async with two_stores(tmp_path) as world:
            ledger = add_fragment(world.stores[0])
            mover = _Mover(world, ledger)
            mover.on_move = moves.release
            moving = asyncio.create_task(mover.run())
            await holds(lambda: mover.moved >= 20)
            while moves.acquire(blocking=False):
                pass
            before = mover.moved
            await world.begin(tmp_path / "copy")
            after = mover.moved
            assert (await world.ended())["state"] == "done"
            await holds(lambda: mover.moved >= after + 5)  # commits go on
            mover.is_over = True
            await moving
            keys.extend(world.fragments)
            return before, after, ledger

    keys: list[FragmentKey] = []
    before, after, ledger = asyncio.run(play())
    here, there = (numbers_in(tmp_path / "copy", number, keys[number]) for number in (0, 1))
    begun = numbers_in(tmp_path / "copy", 0, ledger)
    assert set(range(1, before + 1)) <= there
    assert there | here == begun, "nothing is lost between two stores, nor ahead of where it came from"
    assert len(here) <= 1, "one is moved at a time: others would be there twice"
    assert max(begun) <= after + 1


def test_a_store_that_hangs_ends_the_backup_and_not_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: commits wait for a snapshot for a bounded time only."""
    goes = threading.Event()
    begin = StoreSnapshot.begin
    monkeypatch.setattr(backup, "CUT_S", 0.05)
    monkeypatch.setattr(StoreSnapshot, "begin", lambda snapshot: (goes.wait(_WAIT_S), begin(snapshot))[1])

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            with pytest.raises(InvalidOperation, match="its disk hangs"):
                await world.begin(tmp_path / "copy")
            put(world.stores[0], world.fragments[0], message(1))
            await world.stores[0].flush()
            goes.set()
            await world.backups.close()

    asyncio.run(play())
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "copy.unfinished").exists()


def test_the_log_is_emptied_when_the_snapshot_goes(tmp_path: Path) -> None:
    """F3: what a long backup has let the log gather is brought into the file, and the log starts over."""

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            store = world.stores[0]
            snapshot = store.snapshot()
            await asyncio.to_thread(snapshot.open)
            await asyncio.to_thread(snapshot.begin)
            for number in range(1, 60):
                put(store, world.fragments[0], message(number, bytes(500_000)))
                await store.flush()
            log = Path(f"{snapshot.path}-wal")
            grown = await asyncio.to_thread(os.path.getsize, log)
            assert grown > 59 * 500_000
            assert snapshot.log_growth_bytes() > 50 * 500_000
            await asyncio.to_thread(snapshot.close)
            put(store, world.fragments[0], message(60, bytes(500_000)))
            await store.flush()
            assert await asyncio.to_thread(os.path.getsize, log) <= grown, "it starts over"

    asyncio.run(play())


# -- whole or not at all


def test_everything_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2: each file as it is at the end, each folder, then the name, then the folder that the name is in."""
    #: The inode of a file with its size, or of a folder with its names; None when the backup gets its name.
    events: list[tuple[int, object] | None] = []
    fsync, rename = os.fsync, Path.rename

    def note_sync(descriptor: int) -> None:
        events.append(_seen(os.fstat(descriptor), descriptor))
        fsync(descriptor)

    def note_rename(path: Path, target: Path) -> Path:
        if target.name == "copy":
            events.append(None)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    target = tmp_path / "copy"

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            world.directory.tls.mkdir()
            (world.directory.tls / "ca.pem").write_text("ours")
            put(world.stores[0], world.fragments[0], message(1, bytes(100_000)))
            await world.stores[0].flush()
            events.clear()
            assert (await world.copied(target))["state"] == "done"

    asyncio.run(play())
    named = events.index(None)
    found = [target, *target.rglob("*")]
    assert len(found) >= 8
    for path in found:
        assert _seen(path.stat(), path) in events[:named], path
    assert _seen(tmp_path.stat(), tmp_path) in events[named:]


def _seen(found: os.stat_result, place: int | Path) -> tuple[int, object]:
    names = sorted(os.listdir(place)) if stat.S_ISDIR(found.st_mode) else None
    return found.st_ino, found.st_size if names is None else names


def test_a_backup_is_readable_for_its_owner_alone(tmp_path: Path) -> None:
    """A-3: the keys of the bus are in it."""

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            world.directory.tls.mkdir()
            (world.directory.tls / "ca.key").write_text("secret")
            (world.directory.tls / "ca.key").chmod(0o644)
            assert (await world.copied(tmp_path / "copy"))["state"] == "done"

    asyncio.run(play())
    for path in [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "copy" / "tls" / "ca.key").read_text() == "secret"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: a sentence, and the bus goes on."""

    def full(_: StoreSnapshot, target: Path) -> Any:
        target.write_bytes(b"half")
        yield 4
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(StoreSnapshot, "copy_to", full)

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            told = await world.copied(tmp_path / "copy")
            assert told["state"] == "failed"
            assert "No space left" in told["error"]
            put(world.stores[0], world.fragments[0], message(1))
            await world.stores[0].flush()

    asyncio.run(play())
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("bound", ["LOG_BYTES_MAX", "SPARE_BYTES"])
def test_a_backup_that_would_burden_the_bus_ends(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5: the log that it keeps from starting over, and the space beside a store, are bounded."""
    monkeypatch.setattr(backup, bound, -1 if bound == "LOG_BYTES_MAX" else 1 << 60)

    async def play() -> dict[str, Any]:
        async with two_stores(tmp_path) as world:
            return await world.copied(tmp_path / "copy")

    told = asyncio.run(play())
    assert told["state"] == "failed"
    assert ("has grown by more than" if bound == "LOG_BYTES_MAX" else "are free in") in told["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_store_out_of_service_is_named(tmp_path: Path) -> None:
    """F4: a backup without one of the stores would look whole."""

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            await world.stores[1].disable()
            with pytest.raises(InvalidOperation, match="The store store-1 is disabled"):
                await world.begin(tmp_path / "copy")

    asyncio.run(play())
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_one_backup_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backup: the second is refused, and the first goes on."""
    goes = threading.Event()
    copy_to = StoreSnapshot.copy_to
    monkeypatch.setattr(
        StoreSnapshot, "copy_to", lambda snapshot, target: (goes.wait(_WAIT_S), copy_to(snapshot, target))[1]
    )

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            await world.begin(tmp_path / "copy")
            with pytest.raises(InvalidOperation, match="is under way"):
                await world.begin(tmp_path / "other")
            with pytest.raises(BackupRefused, match="is under way"):
                Draft(tmp_path / "copy").make()
            goes.set()
            assert (await world.ended())["state"] == "done"

    asyncio.run(play())


def test_a_backup_that_is_stopped_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backup: also at the end of the server."""
    goes = threading.Event()
    copy_to = StoreSnapshot.copy_to
    monkeypatch.setattr(
        StoreSnapshot, "copy_to", lambda snapshot, target: (goes.wait(_WAIT_S), copy_to(snapshot, target))[1]
    )

    async def play() -> dict[str, Any]:
        async with two_stores(tmp_path) as world:
            await world.begin(tmp_path / "copy")
            world.backups.stop()
            goes.set()
            return await world.ended()

    assert "was stopped" in asyncio.run(play())["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# -- where a server may write


def test_the_server_writes_only_where_the_caller_could(tmp_path: Path) -> None:
    """A-9: the right to Manage a bus is none to write files: a note in the folder proves the other one."""

    async def play() -> None:
        async with two_stores(tmp_path) as world:
            with pytest.raises(InvalidOperation, match="cannot be written"):
                await world.backups.begin(str(tmp_path / "copy"), "00" * 32)
            made = Draft(tmp_path / "copy")
            made.make()
            with pytest.raises(InvalidOperation, match="finds no folder"):
                await world.backups.begin(str(tmp_path / "copy"), "00" * 32)
            for strange in ("copy", "/a/../b", "/", "/a\0b"):
                with pytest.raises(BadArgument):
                    await world.backups.begin(strange, "")

    asyncio.run(play())


def test_a_backup_takes_the_place_of_nothing(tmp_path: Path) -> None:
    """Backup: an empty folder is nothing; files, links and what came meanwhile stay."""
    (tmp_path / "empty").mkdir()
    ready = Draft(tmp_path / "empty")
    ready.take(ready.make())
    ready.finish()
    assert (tmp_path / "empty").is_dir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("full", "full/file", "link"):
        with pytest.raises(BackupRefused, match="is there already"):
            Draft(tmp_path / name).make()
    with pytest.raises(BackupRefused, match="There is no folder"):
        Draft(tmp_path / "nowhere" / "copy").make()
    late = Draft(tmp_path / "late")
    late.take(late.make())
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "file").touch()
    with pytest.raises(BackupRefused, match="is there already"):
        late.finish()


def test_what_a_killed_backup_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """F1: a lock tells whether somebody writes; what is not ours is left alone."""
    program = (
        "from busway.safekeeping.draft import Draft; import os, sys, pathlib, signal;"
        " d = Draft(pathlib.Path(sys.argv[1])); d.take(d.make());"
        " (d.path / 'half').touch(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "copy")], check=False)
    assert killed.returncode == -9
    assert (tmp_path / "copy.unfinished" / "half").exists()
    again = Draft(tmp_path / "copy")
    again.take(again.make())
    again.finish()
    assert list((tmp_path / "copy").iterdir()) == []
    (tmp_path / "mine.unfinished").mkdir()
    with pytest.raises(BackupRefused, match="is in the way"):
        Draft(tmp_path / "mine").make()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """A-9: what somebody laid where the folder should be."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copy.unfinished").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackupRefused):
        Draft(tmp_path / "copy").make()
    assert (tmp_path / "elsewhere").is_dir()


# -- the verb


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("BUSWAY_DATA", raising=False)
    return Shell(capsys)


def test_a_running_bus_is_copied_and_the_copy_is_served(tmp_path: Path, shell: Shell) -> None:
    """Command-line contract: restoring is serving the copy."""
    with RunningServer(tmp_path / "live") as server:
        data = ("--data", str(server.data))
        shell("queue", "create", "orders", *data)
        shell("send", "orders", "--body", "hello", "--count", "40", *data)
        copy = tmp_path / "copy"
        told = shell.json("backup", str(copy), *data)
        assert (told["stores"], told["to"]) == (4, str(copy))
        shell("purge", "orders", "--yes", *data)
        assert "is there already" in shell("backup", str(copy), *data, code=1)
        assert f"{copy} is whole." in shell("check", "--data", str(copy))
        assert json.loads((copy / "backup.json").read_text())["stores"][0]["name"] == "store-0"
        stale = shell("backup", str(tmp_path / "no" / "copy"), *data, code=1)
        assert "There is no folder" in stale
    restored = RunningServer(tmp_path / "restored")
    restored.folder.mkdir()
    copy.rename(restored.data)
    with restored:
        assert len(shell.json("receive", "orders", "--count", "40", "--data", str(restored.data))) == 40
    assert (restored.data / "root.key").read_text() == (server.data / "root.key").read_text()
    assert (restored.data / "tls" / "ca.pem").read_bytes() == (server.data / "tls" / "ca.pem").read_bytes()


def test_a_killed_bus_is_copied_with_its_logs(tmp_path: Path, shell: Shell) -> None:
    """F1: nobody serves it, so the files are copied; the copy goes on as after a crash."""
    server = RunningServer(tmp_path / "live").start()
    shell("queue", "create", "orders", "--data", str(server.data))
    shell("send", "orders", "--body", "hello", "--count", "40", "--data", str(server.data))
    server.kill()
    copy = tmp_path / "copy"
    assert "is a backup of 4 stores" in shell("backup", str(copy), "--data", str(server.data))
    assert any((copy / "stores").glob("*-wal"))
    assert f"{copy} is whole." in shell("check", "--data", str(copy))
    restored = RunningServer(tmp_path / "restored")
    restored.folder.mkdir()
    copy.rename(restored.data)
    with restored:
        assert len(shell.json("receive", "orders", "--count", "40", "--data", str(restored.data))) == 40


def test_stores_that_lie_elsewhere_are_found_and_come_along(tmp_path: Path, shell: Shell) -> None:
    """Backup: named, or by the catalogue in one of those that lie in the directory; the copy has all."""
    urls = [f"sqlite:{tmp_path / f'{name}.sqlite'}" for name in ("red", "blue")]
    given = [option for url in urls for option in ("--store", url)]
    with RunningServer(tmp_path / "live", *given) as server:
        data = ("--data", str(server.data))
        shell("queue", "create", "orders", *data)
        shell("send", "orders", "--body", "hello", "--count", "40", *data)
        shell("backup", str(tmp_path / "running"), *data)
        assert "red.sqlite is in use by" in shell("check", "--data", str(tmp_path), *given, code=2)
    shell("backup", str(tmp_path / "stopped"), *data, *given)
    for looked_at in (("--data", str(tmp_path / name)) for name in ("running", "stopped")):
        assert [each["messages"] for each in shell.json("check", *looked_at)["stores"]] == [40, 0]
    assert shell.json("check", *data, *given)["whole"]


def test_where_no_bus_is_nothing_is_copied(tmp_path: Path, shell: Shell) -> None:
    """Command-line contract."""
    assert "There is no bus" in shell("backup", str(tmp_path / "copy"), "--data", str(tmp_path / "x"), code=1)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_killed_meanwhile_leaves_nothing_that_looks_whole(
    tmp_path: Path, shell: Shell
) -> None:
    """F1: the verb says that the server is gone; the folder has no name yet."""
    server = RunningServer(tmp_path / "live").start()
    data = ("--data", str(server.data))
    shell("queue", "create", "orders", *data)
    shell("send", "orders", "--body", "x" * 200_000, "--count", "100", *data)
    copy = tmp_path / "copy"
    is_copying = copy.with_name("copy.unfinished") / "stores"

    def kill_when_it_copies() -> None:
        while not is_copying.exists() and not copy.exists():
            pass
        server.kill()

    killing = threading.Thread(target=kill_when_it_copies)
    killing.start()
    code = run_verb(["backup", str(copy), *data])
    killing.join()
    assert (code == 0) == copy.exists()
    if code == 0:
        assert f"{copy} is whole." in shell("check", "--data", str(copy))
    assert not copy.with_name("copy.unfinished").exists()
