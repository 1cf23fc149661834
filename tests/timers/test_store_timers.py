"""Waits in the threads of a SQLite store: each of them ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from busway.clock import Clock
from busway.message.message import PLACE_ACTIVE
from busway.store.commit_cycle import report_some
from busway.store.contract import CommitCallback, StoreError
from busway.store.sqlite import database_file, reader_pool
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock
from tests.store_contract.scenario import add_fragment

#: Another process, because a process has no locks against itself.
_LOCKER = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_read_that_waits_for_its_turn_ends_when_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: left waiting it would keep the process from ending."""
    monkeypatch.setattr(reader_pool, "_LOOK_AGAIN_S", 0.02)
    monkeypatch.setattr(reader_pool, "_READERS_WAIT_S", 0.02)
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def run() -> None:
        await store.open()
        fragment = add_fragment(store)
        await store.flush()
        taken = [store._readers.take() for _ in range(2)]  # all are busy
        waiting = asyncio.ensure_future(store.messages(fragment, PLACE_ACTIVE, 0, 10, 1 << 20))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.wait_for(store.close(), 10)
        with pytest.raises(StoreError):
            await asyncio.wait_for(waiting, 10)
        for reader in taken:
            reader.close()

    asyncio.run(run())
    assert not [thread for thread in threading.enumerate() if "busway-a" in thread.name]


def test_closing_does_not_wait_for_a_read_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: ten seconds for each reader that is still out, then its connection is left alone."""
    monkeypatch.setattr(reader_pool, "_READERS_WAIT_S", 0.05)
    store = SqliteStore("a", tmp_path / "a.db", Clock())

    async def run() -> None:
        await store.open()
        taken = store._readers.take()
        begun = time.monotonic()
        await store.close()
        assert time.monotonic() - begun >= 0.05
        taken.close()

    asyncio.run(run())


def test_a_file_that_another_program_has_locked_is_waited_for_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting: five seconds, off the loop; afterwards statements run on the loop and do not wait at all."""
    path = tmp_path / "a.db"
    assert database_file._BUSY_TIMEOUT_MS == 5_000
    monkeypatch.setattr(database_file, "_BUSY_TIMEOUT_MS", 200)

    other = subprocess.Popen(
        [sys.executable, "-c", _LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()

    async def run() -> None:
        store = SqliteStore("a", path, Clock())
        begun = time.monotonic()
        with pytest.raises(StoreError):
            await store.open()
        assert 0.2 <= time.monotonic() - begun < 5
        other.communicate(timeout=20)
        await store.open()
        await store.close()

    asyncio.run(run())


def test_those_who_wait_for_a_commit_are_told_for_a_turn_at_a_time() -> None:
    """Waiting: a batch with thousands of callbacks leaves the loop to others after ten milliseconds."""
    clock, told = ManualClock(), list[int]()

    def slow(_error: StoreError | None) -> None:
        told.append(len(told))
        clock.advance(0.001)

    loop = asyncio.new_event_loop()
    callbacks: list[CommitCallback] = [slow] * 100
    at = report_some(loop, callbacks, 0, clock)
    assert at == len(told) < 100
    while at < len(callbacks):
        at = report_some(loop, callbacks, at, clock)
    assert len(told) == 100
    loop.close()
