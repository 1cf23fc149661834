"""Batches of captured files are put in place once, whatever dies and when. Without Spark: what it calls is called."""

from __future__ import annotations

import errno
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from busway_spark.pipeline import capture_sink
from busway_spark.pipeline.capture_commit import BatchName, CaptureFailed, CaptureLedger, check_source
from busway_spark.pipeline.capture_root import CaptureRoot
from busway_spark.pipeline.captured import SCHEMA
from busway_spark.pipeline.job import JobFailed
from tests.spark.capture_rig import (
    NINE,
    Crash,
    CrashingRoot,
    batch,
    captured,
    data_files,
    event,
    events,
    numbers,
    numbers_in,
    writer,
)

QUERY = "11111111-2222-3333"
LATE = NINE + timedelta(minutes=59, seconds=55)


def put(root: Path, number: int, *tasks: pa.RecordBatch, query: str = QUERY) -> None:
    """A batch of these tasks, written and committed."""
    sink = writer(root)
    name = BatchName(query, number)
    sink.commit([sink.write_batch(name, iter([rows])) for rows in tasks], number)


def leftovers(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*") if path.suffix == ".tmp" or path.name == "moving.json"]


def test_a_batch_over_the_full_hour_makes_two_files(tmp_path: Path) -> None:
    """Capture: files are named by partition and first number, and any reader of Parquet finds every message."""
    put(tmp_path, 0, events(range(10), LATE), events(range(3), NINE, partition=1))
    assert data_files(tmp_path) == [
        "entity=clicks/date=2026-11-15/hour=09/partition=0/0-00000000000000000000.parquet",
        "entity=clicks/date=2026-11-15/hour=09/partition=1/1-00000000000000000000.parquet",
        "entity=clicks/date=2026-11-15/hour=10/partition=0/0-00000000000000000005.parquet",
    ]
    rows = captured(tmp_path)
    assert [row["body"] for row in rows] == [b"0-%d" % at for at in range(10)] + [
        b"1-%d" % at for at in range(3)
    ]
    assert rows[3]["enqueuedTime"] == LATE + timedelta(seconds=3)
    assert pq.read_schema(tmp_path / data_files(tmp_path)[0]) == SCHEMA
    assert leftovers(tmp_path) == []


def test_nobody_sees_what_is_not_committed(tmp_path: Path) -> None:
    """Capture: staged files are no data, and an aborted batch leaves none."""
    sink, name = writer(tmp_path), BatchName(QUERY, 0)
    message = sink.write_batch(name, iter([events(range(5))]))
    assert data_files(tmp_path) == []
    assert len(leftovers(tmp_path)) == 1
    sink.abort([message, None], 0)
    assert leftovers(tmp_path) == []


def test_a_repeated_batch_doubles_nothing(tmp_path: Path) -> None:
    """Capture: Spark died before it knew of the commit; the batch comes again, also cut otherwise."""
    put(tmp_path, 0, events(range(5)))
    put(tmp_path, 1, events(range(5, 9)), events(range(9, 12)))
    before = data_files(tmp_path)
    put(tmp_path, 1, events(range(5, 9)), events(range(9, 12)))
    put(tmp_path, 1, events(range(5, 7)), events(range(7, 12)))
    assert data_files(tmp_path) == before
    put(tmp_path, 2, events(range(12, 13)))
    assert numbers(tmp_path) == [(0, at) for at in range(13)]
    assert leftovers(tmp_path) == []


def test_a_repeated_batch_is_known_by_its_names_too(tmp_path: Path) -> None:
    """Capture: the note is lost, the same files are asked for again."""
    put(tmp_path, 0, events(range(5)))
    (tmp_path / "_capture/entity=clicks/committed.json").unlink()
    put(tmp_path, 0, events(range(5)))
    assert numbers(tmp_path) == [(0, at) for at in range(5)]


def test_other_messages_never_replace_a_file(tmp_path: Path) -> None:
    """Capture: a source that was made again counts anew; its messages do not overwrite those of the old one."""
    put(tmp_path, 0, events(range(5)))
    before = captured(tmp_path)
    with pytest.raises(CaptureFailed, match="made again"):
        put(tmp_path, 0, events(range(4), NINE + timedelta(minutes=1)), query="another")
    assert captured(tmp_path) == before


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_commit_that_dies_anywhere_is_finished_or_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: bool
) -> None:
    """Capture: kill -9 with each change of the disk; the next start and the repeated batch make it whole, once."""
    monkeypatch.setattr("tests.spark.capture_rig.CaptureRoot", CrashingRoot)
    whole = [(0, at) for at in range(20)]
    for step in range(1, 100):
        root = tmp_path / str(step)
        put(root, 0, events(range(10)))
        CrashingRoot.arm(step, dies_after=dies_after)
        try:
            put(root, 1, events(range(10, 15)), events(range(15, 20), LATE))
            died = False
        except Crash:
            died = True
        CrashingRoot.arm(1 << 30)
        assert set(numbers(root)) >= set(whole[:10])
        CaptureLedger(CaptureRoot(str(root)), "clicks").recover()
        assert numbers(root) in (whole[:10], whole), "all files of a batch or none"
        put(root, 1, events(range(10, 15)), events(range(15, 20), LATE))
        assert numbers(root) == whole
        assert leftovers(root) == []
        if not died:
            assert step > 6
            return
    pytest.fail("it never got through")


def test_a_full_disk_is_told_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture: nothing of the batch stays, and the sentence says what to do."""

    class FullSink:
        def __init__(self, sink: Any) -> None:
            self._sink = sink
            self.closed = False

        def write(self, data: Any) -> int:
            if self._sink.tell() + len(data) > 2_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(self._sink.write(data))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sink, name)

    class FullDisk(CaptureRoot):
        @property
        def filesystem(self) -> Any:
            inner = pafs.LocalFileSystem()

            class Full:
                def open_output_stream(self, path: str) -> Any:
                    sink: Any = FullSink(inner.open_output_stream(path))
                    return pa.PythonFile(sink, "w")

                def __getattr__(self, name: str) -> Any:
                    return getattr(inner, name)

            return Full()

    monkeypatch.setattr("tests.spark.capture_rig.CaptureRoot", FullDisk)
    sink = writer(tmp_path)
    with pytest.raises(CaptureFailed, match="no room left"):
        sink.write_batch(BatchName(QUERY, 0), iter([events(range(2_000))]))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "cannot be written" in capture_sink._disk_sentence(CaptureRoot("x"), OSError(errno.EACCES, "no"))


def test_rows_that_go_back_in_time_make_more_files(tmp_path: Path) -> None:
    """Capture: whatever the order, numbers in a file rise and none is lost."""
    rows = [event(at, NINE + timedelta(hours=at % 12)) for at in range(60)]
    sink, name = writer(tmp_path), BatchName(QUERY, 0)
    lots = [batch(rows[at : at + 7]) for at in (21, 0, 7, 14, 28, 35, 42, 49, 56)]
    sink.commit([sink.write_batch(name, iter(lots))], 0)
    assert numbers(tmp_path) == [(0, at) for at in range(60)]
    for path in data_files(tmp_path):
        found = numbers_in(tmp_path / path)
        assert found == sorted(found)
        assert f"-{found[0]:020}.parquet" in path


def test_a_hub_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Capture: one directory holds one hub of a name."""
    root = CaptureRoot(str(tmp_path))
    check_source(root, "clicks", {"kind": "hub", "createdAt": 1})
    check_source(root, "clicks", {"kind": "hub", "createdAt": 1})
    with pytest.raises(JobFailed, match="made again"):
        check_source(root, "clicks", {"kind": "hub", "createdAt": 2})


def test_one_capture_of_an_entity_at_a_time(tmp_path: Path) -> None:
    """Capture: two would take each other's staged files for leftovers."""
    root = CaptureRoot(str(tmp_path))
    place = PurePosixPath("_capture/lock")
    with root.locked(place, "busy"), pytest.raises(JobFailed, match="busy"), root.locked(place, "busy"):
        pass
    with root.locked(place, "busy"):
        pass


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_note_is_told(tmp_path: Path, text: str) -> None:
    """Capture: nothing is guessed from it."""
    put(tmp_path, 0, events(range(2)))
    (tmp_path / "_capture/entity=clicks/committed.json").write_text(text)
    with pytest.raises(JobFailed, match=r"committed\.json is damaged"):
        put(tmp_path, 1, events(range(2, 3)))


def test_a_note_names_no_file_outside(tmp_path: Path) -> None:
    """Capture: moves end in captured files alone."""
    put(tmp_path, 0, events(range(2)))
    note = tmp_path / "_capture/entity=clicks/moving.json"
    note.write_text('{"query": "q", "batch": 9, "moves": [["a", "../../elsewhere"]]}')
    with pytest.raises(CaptureFailed, match="no captured file"):
        put(tmp_path, 1, events(range(2, 3)))


def test_a_uri_is_a_place_too(tmp_path: Path) -> None:
    """Capture: what Arrow understands."""
    sink = capture_sink.CaptureStreamWriter(CaptureRoot(f"file://{tmp_path}"), "clicks", "parquet", "snappy")
    name = BatchName(QUERY, 0)
    sink.commit([sink.write_batch(name, iter([events(range(3))]))], 0)
    assert numbers(tmp_path) == [(0, 0), (0, 1), (0, 2)]
    with pytest.raises(JobFailed, match="cannot be kept"):
        CaptureRoot("what://ever").exists(PurePosixPath("x"))
