"""Batches of captured files are put in place once, whatever dies and when. Without Spark, what it calls is called;
but on a disk that is really full the whole command runs."""

from __future__ import annotations

import errno
import random
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from busway.amqp.sections import AmqpMessage, encode_message
from busway.cli.app import run
from busway_spark.pipeline.capture import capture_sink
from busway_spark.pipeline.capture.capture_commit import (
    BatchName,
    CaptureFailed,
    CaptureLedger,
    check_source,
    store_sentence,
)
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import SCHEMA
from busway_spark.pipeline.job import JobFailed
from tests.chaos.disk_full import SmallDisk
from tests.harness.running_server import RunningServer
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
from tests.spark.hub_traffic import fill, publish

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
    assert "cannot be written" in store_sentence(CaptureRoot("x"), OSError(errno.EACCES, "no"))


DISK_MIB = 4
#: Of random bytes, which nothing compresses; both partitions together are more than a disk has room for.
EVENT_BYTES = 8_000
EVENTS = 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path, DISK_MIB)
    reason = disk.why_not()
    if reason is not None:
        pytest.skip(f"A disk that is really full cannot be had here: {reason}")
    yield disk
    # Java keeps a file open that it could not write to the end: the disk goes when it is let go of.
    subprocess.run(["umount", "--lazy", str(disk.path)], check=True)


def capture(server: RunningServer, hub: str, root: Path, *more: str) -> int:
    """The status that the command ends with."""
    place = ["--connection-string", server.connection_string, "--master", "local[2]"]
    return run(["pipeline", "capture", hub, "--to", str(root), "--batch", "40", *place, *more])


@pytest.mark.usefixtures("spark")
def test_a_disk_that_is_really_full_stops_a_capture_which_goes_on_when_there_is_room(
    server: RunningServer, hub: str, small_disk: SmallDisk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Capture: a sentence, no half file, positions as they were; then every event is in exactly one file."""
    root = small_disk.path / "lake"
    chance = random.Random(5)
    for partition in range(2):
        payload = [encode_message(AmqpMessage([chance.randbytes(EVENT_BYTES)], 0x75)) for _ in range(EVENTS)]
        publish(server.connection_string, hub, partition, payload)
    (small_disk.path / "ballast").write_bytes(bytes((DISK_MIB - 1) << 20))
    assert capture(server, hub, root) == 1
    assert f"There is no room left at {root}. Nothing is lost" in capsys.readouterr().err
    before, positions = captured_once(root), positions_in(root)
    assert 0 < len(before) < 2 * EVENTS
    small_disk.fill_up()
    assert capture(server, hub, root) == 1
    assert f"There is no room left at {root}. Nothing is lost" in capsys.readouterr().err
    assert (captured_once(root), positions_in(root)) == (before, positions)
    small_disk.make_room()
    assert capture(server, hub, root) == 0
    assert captured_once(root) == [(partition, at) for partition in range(2) for at in range(EVENTS)]
    assert leftovers(root) == []


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_on_a_disk_that_is_really_full_stops_a_capture_too(
    server: RunningServer, hub: str, small_disk: SmallDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Capture: before it begins, and before a batch is planned."""
    checkpoint = small_disk.path / "checkpoint"
    for count in (1, 2):
        fill(server.connection_string, hub, 1, first=count - 1)
        positions = positions_in(checkpoint)
        small_disk.fill_up()
        assert capture(server, hub, tmp_path / "lake", "--checkpoint", str(checkpoint)) == 1
        said = capsys.readouterr().err
        assert f"There is no room left at {checkpoint}" in said
        assert "Nothing is lost" in said
        assert "java" not in said
        assert positions_in(checkpoint) == positions
        small_disk.make_room()
        assert capture(server, hub, tmp_path / "lake", "--checkpoint", str(checkpoint)) == 0
        assert captured_once(tmp_path / "lake") == [(each, at) for each in range(2) for at in range(count)]


def captured_once(root: Path) -> list[tuple[int, int]]:
    """By any reader of Parquet, who would stumble over half a file."""
    found = numbers(root)
    assert len(set(found)) == len(found), "an event is in two files"
    return found


def positions_in(folder: Path) -> dict[str, bytes]:
    """What Spark has noted; what it has half written it does not look at."""
    found = [path for name in ("offsets", "commits") for path in folder.rglob(f"{name}/[0-9]*")]
    return {str(path): path.read_bytes() for path in found}


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
