"""The feed with a real writer process: nobody waits, every row has a fate."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

from busway.broker.fragment.journal import SEND
from busway.clock import Clock
from busway.journal import feed as feed_module
from busway.journal.feed import Feed, JournalUnavailable, WriterProcess, check
from busway.journal.writer import NICENESS, WriterSettings
from tests.unit.journal.frames import stored

Scenario = Callable[[Feed], Awaitable[None]]


def fed(folder: Path, scenario: Scenario, **options: int) -> Feed:
    feed = Feed(WriterSettings(str(folder), file_s=0.05), Clock(), **options)

    async def run() -> None:
        feed.start()
        await scenario(feed)
        await feed.stop()

    folder.mkdir(exist_ok=True)
    asyncio.run(run())
    return feed


def tell(feed: Feed, first: int, count: int) -> None:
    feed.recorder.messages(SEND, "orders", 0, [stored(number) for number in range(first, first + count)])
    feed.recorder.seal()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.005)


def numbers(folder: Path) -> list[int]:
    table = ds.dataset(folder, partitioning="hive").to_table(columns=["sequenceNumber"])
    found: list[Any] = table["sequenceNumber"].to_pylist()
    return sorted(found)


def test_everything_is_written_when_it_stops(tmp_path: Path) -> None:
    """Journal: a clean stop loses nothing, not even what the recorder still held; no process stays."""
    pids: list[int] = []

    async def scenario(feed: Feed) -> None:
        assert feed.writer is not None
        pids.append(feed.writer.pid)
        for first in range(1, 1_000, 100):
            tell(feed, first, 100)
        feed.recorder.messages(SEND, "orders", 0, [stored(1_001)])

    feed = fed(tmp_path, scenario)
    assert (feed.rows, feed.rows_left_out) == (1_001, 0)
    assert numbers(tmp_path) == list(range(1, 1_002))
    assert not psutil.pid_exists(pids[0])


def test_the_writer_is_polite_and_deaf(tmp_path: Path) -> None:
    """Journal: nicer than the server; what a terminal sends to the group is the server's to answer."""

    async def scenario(feed: Feed) -> None:
        writer = feed.writer
        assert writer is not None
        await until(lambda: psutil.Process(writer.pid).nice() == NICENESS)
        tell(feed, 1, 10)
        await until(lambda: feed.rows == 10)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(writer.pid, number)
        tell(feed, 11, 10)
        await until(lambda: feed.rows == 20)
        assert feed.writer is writer

    fed(tmp_path, scenario)


def test_a_killed_writer_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Journal: what it had taken is left out and counted; the rest waits for the next one."""
    monkeypatch.setattr(feed_module, "_RESTART_S", 0.01)

    async def scenario(feed: Feed) -> None:
        tell(feed, 1, 10)
        await until(lambda: feed.rows == 10)
        killed = feed.writer
        assert killed is not None
        os.kill(killed.pid, signal.SIGSTOP)
        tell(feed, 11, 10)
        os.kill(killed.pid, signal.SIGKILL)
        await until(lambda: feed.writer is not killed)
        tell(feed, 21, 10)
        await until(lambda: feed.rows == 20)

    with caplog.at_level(logging.WARNING):
        feed = fed(tmp_path, scenario)
    assert feed.rows_left_out == 10
    assert numbers(tmp_path) == [*range(1, 11), *range(21, 31)]
    said = [record.getMessage() for record in caplog.records]
    assert any("leaves rows out: the writer has ended" in line for line in said)
    assert said[-1] == "the journal is being written again; 10 rows were left out"


def test_a_writer_that_falls_behind_costs_rows_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Journal: the line has a bound; what finds it full is left out, and all is told once."""

    async def scenario(feed: Feed) -> None:
        writer = feed.writer
        assert writer is not None
        tell(feed, 1, 10)
        await until(lambda: feed.rows == 10)
        os.kill(writer.pid, signal.SIGSTOP)
        for first in range(11, 20_011, 10):
            tell(feed, first, 10)
        assert feed.rows_left_out > 0
        assert feed.rows == 10
        os.kill(writer.pid, signal.SIGCONT)

    with caplog.at_level(logging.WARNING):
        feed = fed(tmp_path, scenario, line_bytes_max=50_000)
    assert feed.rows + feed.rows_left_out == 20_010
    assert len(numbers(tmp_path)) == feed.rows
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the journal leaves rows out: the writer does not keep up",
        f"the journal is being written again; {feed.rows_left_out} rows were left out",
    ]


def test_a_writer_that_cannot_start_is_tried_again_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Journal: the server goes on; when it stops what waited is counted."""
    monkeypatch.setattr(feed_module, "_RESTART_S", 0.001)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))

    async def scenario(feed: Feed) -> None:
        tell(feed, 1, 10)
        await until(lambda: len(caplog.records) >= 4)

    with caplog.at_level(logging.WARNING):
        feed = fed(tmp_path / "journal", scenario)
    assert (feed.rows, feed.rows_left_out) == (0, 10)
    pauses = [float(record.getMessage().split()[-2]) for record in caplog.records[:4]]
    assert pauses == [0.001, 0.002, 0.004, 0.008]


def test_a_stuck_writer_does_not_keep_the_server_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal: it has all rows and the end of its input, so it finishes its file by itself."""
    monkeypatch.setattr(feed_module, "_STOP_S", 0.05)
    stuck: list[WriterProcess] = []

    async def scenario(feed: Feed) -> None:
        assert feed.writer is not None
        stuck.append(feed.writer)
        os.kill(feed.writer.pid, signal.SIGSTOP)
        tell(feed, 1, 10)

    feed = fed(tmp_path, scenario)
    assert (feed.rows, feed.rows_left_out) == (0, 0)
    os.kill(stuck[0].pid, signal.SIGCONT)
    asyncio.run(until(stuck[0].is_gone))
    assert numbers(tmp_path) == list(range(1, 11))


def test_the_folder_is_made_or_refused_in_one_sentence(tmp_path: Path) -> None:
    """Journal: before the server starts."""
    check(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnavailable, match=r"--journal: nothing can be written to .*file"):
        check(tmp_path / "file")


def test_without_pyarrow_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal: it is an extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(JournalUnavailable, match=r"pip install 'busway\[arrow\]'"):
        check(tmp_path)
