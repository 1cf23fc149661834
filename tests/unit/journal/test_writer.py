"""The writer: when files are full, and what a disk that refuses costs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from busway.broker.fragment.journal import SEND
from busway.journal import writer as writer_module
from busway.journal.frame import Frame
from busway.journal.parquet_file import SCHEMA
from busway.journal.writer import Writer, WriterSettings, run
from tests.chaos.disk_full import SmallDisk
from tests.harness.manual_clock import SeededEntropy
from tests.unit.journal.frames import Recorded, stored


class Bench:
    def __init__(self, folder: Path, **settings: int) -> None:
        self.recorded = Recorded()
        self.clock = self.recorded.clock
        self.folder = folder
        self.next = 1
        self.writer = Writer(WriterSettings(str(folder), **settings), self.clock, SeededEntropy())

    def frame(self, rows: int = 10) -> bytes:
        messages = [
            stored(number, os.urandom(self.next % 7)) for number in range(self.next, self.next + rows)
        ]
        self.next += rows
        self.recorded.recorder.messages(SEND, "orders", 0, messages)
        self.recorded.recorder.seal()
        return self.recorded.frames.pop()

    def take(self, rows: int = 10) -> None:
        self.writer.take(Frame(self.frame(rows)))

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.parquet"))

    def numbers(self) -> list[int]:
        found: list[Any] = [
            row for path in self.files() for row in pq.read_table(path)["sequenceNumber"].to_pylist()
        ]
        return sorted(found)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def told(capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_a_file_is_finished_after_its_time(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    """Journal: counted from its first row; then whoever reads finds all of it."""
    bench.take()
    assert bench.writer.due == bench.clock.monotonic() + 60
    bench.clock.advance(30)
    bench.take()
    bench.writer.roll()
    assert told(capfd) == [{"written": 20}]
    assert bench.numbers() == list(range(1, 21))
    assert pq.read_schema(bench.files()[0]).remove_metadata() == SCHEMA
    assert bench.writer.due is None
    bench.writer.roll()
    assert len(bench.files()) == 1


def test_another_hour_is_another_file(bench: Bench) -> None:
    """Journal: folders are named by the hour of their rows."""
    bench.take()
    bench.clock.advance(3_600)
    bench.take()
    bench.writer.roll()
    assert [path.parent.name for path in bench.files()] == ["hour=22", "hour=23"]


def test_a_large_file_is_finished_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Journal: at its size, whole groups at a time."""
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 100)
    bench = Bench(tmp_path, file_bytes=1)
    for _ in range(25):
        bench.take()
    bench.writer.roll()
    assert told(capfd) == [{"written": 100}, {"written": 100}, {"written": 50}]
    assert bench.numbers() == list(range(1, 251))


def test_rows_of_several_groups_lie_in_one_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journal: with what readers skip by."""
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 20)
    for _ in range(5):
        bench.take()
    bench.writer.roll()
    [path] = bench.files()
    metadata = pq.read_metadata(path)
    assert (metadata.num_rows, metadata.num_row_groups) == (50, 3)
    statistics = metadata.row_group(1).column(4).statistics
    assert statistics is not None
    assert (statistics.min, statistics.max) == (21, 40)


def test_old_files_are_removed_when_asked(tmp_path: Path) -> None:
    """Journal: at the start and with each new hour; without a number nothing ever goes."""
    keeping, forgetting = Bench(tmp_path / "a"), Bench(tmp_path / "b", keep_days=1)
    for bench in (keeping, forgetting):
        for _ in range(4):
            bench.take()
            bench.clock.advance(12 * 3_600)
        bench.writer.roll()
    assert len(keeping.files()) == 4
    assert len(forgetting.files()) == 3
    forgetting.clock.advance(30 * 24 * 3_600)
    forgetting.writer.tidy()
    assert forgetting.files() == []


def test_a_folder_that_refuses_costs_rows_and_heals(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    """Journal: what was gathered is left out and counted, and so is what comes in the next seconds."""
    stone = bench.folder / "date=2023-11-14"
    stone.write_text("in the way")
    bench.take()
    bench.writer.roll()
    bench.take(5)
    [first, second] = told(capfd)
    assert (first["left_out"], second["left_out"]) == (10, 5)
    assert "Exists" in str(first["why"]) or "Not a directory" in str(first["why"])
    stone.unlink()
    bench.clock.advance(5)
    bench.take()
    bench.writer.roll()
    assert told(capfd) == [{"written": 10}]
    assert bench.numbers() == list(range(16, 26))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path, 1)
    reason = disk.why_not()
    if reason is not None:
        pytest.skip(reason)
    yield disk
    disk.unmount()


def test_a_full_disk_costs_the_open_file(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Journal: no half of it stays, and the next one is written when there is room."""
    monkeypatch.setattr(writer_module, "GROUP_ROWS", 10)
    bench = Bench(small_disk.path)
    bench.take()
    assert len(bench.files()) == 1
    small_disk.fill_up()
    for _ in range(300):
        bench.take()
    bench.writer.roll()
    lost = [fact for fact in told(capfd) if "left_out" in fact]
    assert sum(int(str(fact["left_out"])) for fact in lost) == 3_010
    assert "No space left" in str(lost[0]["why"])
    assert bench.files() == []
    small_disk.make_room()
    bench.clock.advance(5)
    bench.take()
    bench.writer.roll()
    assert told(capfd) == [{"written": 10}]
    assert len(bench.numbers()) == 10


def test_the_end_of_the_input_finishes_the_file(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    """Journal: also in the middle of a frame, which is lost with whoever sent it."""
    source, sink = os.pipe()
    frames = bench.frame() + bench.frame()
    os.write(sink, frames[:-1])
    os.close(sink)
    run(bench.writer, bench.clock, source)
    os.close(source)
    assert told(capfd) == [{"written": 10}]
    assert bench.numbers() == list(range(1, 11))
