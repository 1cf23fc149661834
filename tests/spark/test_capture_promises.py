"""What a capture has promised and not yet noted: who goes on with it, and who leaves it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from busway_spark.pipeline.capture.capture_commit import BatchName, CaptureFailed
from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET, FilesWritten, ledger_of
from busway_spark.pipeline.capture.captured_writer import Extent
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.job import JobFailed
from tests.spark.capture_rig import data_files, events, numbers, writer

LAYOUTS = pytest.mark.parametrize("layout", [PARQUET, DELTA])
NOTES = Path("_capture/entity=clicks")
FIRST, SECOND = BatchName("query", 0), BatchName("query", 1)


def written(root: Path, name: BatchName, layout: str = PARQUET, entity: str = "clicks") -> list[FilesWritten]:
    """By two tasks, not committed. Ten messages a batch."""
    start = 10 * name.batch
    lots = (range(start, start + 5), range(start + 5, start + 10))
    return [writer(root, entity, layout).write_batch(name, iter([events(lot)])) for lot in lots]


def commit(root: Path, messages: list[FilesWritten], layout: str = PARQUET, entity: str = "clicks") -> None:
    writer(root, entity, layout).commit([*messages], messages[0].name.batch)


def recover(root: Path, layout: str = PARQUET) -> None:
    ledger_of(CaptureRoot(str(root)), "clicks", layout).recover()


def rows(root: Path, layout: str) -> list[int]:
    if layout == PARQUET:
        return [number for _, number in numbers(root)]
    found: list[int] = DeltaTable(str(root)).to_pyarrow_table().column("sequenceNumber").to_pylist()
    return sorted(found)


def promise(root: Path, messages: list[FilesWritten], *, has_sizes: bool) -> Path:
    """As a commit writes it that dies right then. Sizes are new."""
    files = [file for message in messages for file in message.files]
    name = messages[0].name
    note: dict[str, object] = {
        "query": name.query,
        "batch": name.batch,
        "moves": [[file.staged, file.final] for file in files],
    }
    if has_sizes:
        note["bytes"] = {file.final: file.bytes for file in files}
    path = root / NOTES / "moving.json"
    path.write_text(json.dumps(note))
    return path


@LAYOUTS
def test_abort_leaves_what_a_commit_may_have_promised(tmp_path: Path, layout: str) -> None:
    """Capture: when every task has answered, `commit` was called; else nobody can have promised anything."""
    messages = written(tmp_path, FIRST, layout)
    paths = [tmp_path / file.staged for message in messages for file in message.files]
    writer(tmp_path, layout=layout).abort([*messages], 0)
    assert all(path.exists() for path in paths)
    writer(tmp_path, layout=layout).abort([*messages, None], 0)
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize("has_sizes", [False, True])
def test_a_promise_is_kept_by_the_next_start(tmp_path: Path, has_sizes: bool) -> None:
    """Capture: also one of an earlier version, and also when `abort` is called with a task missing."""
    messages = written(tmp_path, FIRST)
    note = promise(tmp_path, messages, has_sizes=has_sizes)
    writer(tmp_path).abort([*messages, None], 0)
    recover(tmp_path)
    assert rows(tmp_path, PARQUET) == list(range(10))
    assert not note.exists()
    commit(tmp_path, written(tmp_path, FIRST))
    assert rows(tmp_path, PARQUET) == list(range(10))


@pytest.mark.parametrize("has_sizes", [False, True])
def test_a_promise_whose_files_are_gone_is_taken_back_and_the_batch_comes_again(
    tmp_path: Path, has_sizes: bool
) -> None:
    """Capture: as an earlier version left it, whose `abort` deleted what was promised. Nothing is noted as done, and
    what is in place already is neither doubled nor deleted."""
    messages = written(tmp_path, FIRST)
    note = promise(tmp_path, messages, has_sizes=has_sizes)
    moved, gone = (message.files[0] for message in messages)
    (tmp_path / moved.final).parent.mkdir(parents=True)
    (tmp_path / moved.staged).rename(tmp_path / moved.final)
    (tmp_path / gone.staged).unlink()
    recover(tmp_path)
    assert not note.exists()
    assert data_files(tmp_path) == []
    kept = tmp_path / NOTES / "taken-back/query-0" / Path(moved.final).name
    assert kept.stat().st_size == moved.bytes
    commit(tmp_path, written(tmp_path, FIRST))
    assert rows(tmp_path, PARQUET) == list(range(10))


def test_a_file_that_somebody_has_changed_is_told_and_stays(tmp_path: Path) -> None:
    """Capture: a name proves nothing without its size."""
    messages = written(tmp_path, FIRST)
    note = promise(tmp_path, messages, has_sizes=True)
    file = messages[0].files[0]
    (tmp_path / file.final).parent.mkdir(parents=True)
    (tmp_path / file.final).write_bytes(b"other")
    (tmp_path / file.staged).unlink()
    with pytest.raises(CaptureFailed, match="somebody has changed it"):
        recover(tmp_path)
    assert (tmp_path / file.final).read_bytes() == b"other"
    assert note.exists()


@LAYOUTS
def test_a_file_that_is_not_there_is_no_captured_file(tmp_path: Path, layout: str) -> None:
    """Capture: a task has seen another disk than the driver, or somebody has deleted what it wrote."""
    commit(tmp_path, written(tmp_path, FIRST, layout), layout)
    messages = written(tmp_path, SECOND, layout)
    (tmp_path / messages[1].files[0].staged).unlink()
    with pytest.raises(CaptureFailed, match="must share that place"):
        commit(tmp_path, messages, layout)
    assert rows(tmp_path, layout) == list(range(10))
    recover(tmp_path, layout)
    commit(tmp_path, written(tmp_path, SECOND, layout), layout)
    assert rows(tmp_path, layout) == list(range(20))


@LAYOUTS
def test_rows_that_were_left_out_need_the_note_that_said_so(tmp_path: Path, layout: str) -> None:
    """Capture: the tasks found the batch captured, and the commit does not."""
    message = FilesWritten(SECOND, left_out={0: Extent(5, 10, 14)})
    with pytest.raises(CaptureFailed, match="start the capture again"):
        commit(tmp_path, [message, *written(tmp_path, SECOND, layout)], layout)


@LAYOUTS
def test_a_batch_before_the_last_one_is_refused(tmp_path: Path, layout: str) -> None:
    """Capture: the checkpoint went back, and the batch may hold other rows now; leaving them out would lose them."""
    for name in (FIRST, SECOND):
        commit(tmp_path, written(tmp_path, name, layout), layout)
    with pytest.raises(CaptureFailed, match="checkpoint is older than what is captured: batch 0"):
        written(tmp_path, FIRST, layout)
    assert rows(tmp_path, layout) == list(range(20))


@LAYOUTS
@pytest.mark.parametrize(
    "repeated",
    [events(range(5, 16)), events(range(4)), events(range(3), partition=1), events([5, 6, 7, 8, 9, 9])],
    ids=["longer", "earlier", "elsewhere", "more"],
)
def test_a_last_batch_that_comes_again_with_other_rows_is_refused(
    tmp_path: Path, layout: str, repeated: pa.RecordBatch
) -> None:
    """Capture: Spark's note of the batch was lost in a power failure and it was planned anew; what it has more now
    would be lost. Fewer rows are none that could be."""
    sink = writer(tmp_path, layout=layout)
    sink.commit([sink.write_batch(FIRST, iter([events(range(5, 10))]))], 0)
    sink.commit([sink.write_batch(FIRST, iter([events(range(6, 9))]))], 0)
    with pytest.raises(CaptureFailed, match="comes again with other messages"):
        sink.commit([sink.write_batch(FIRST, iter([repeated]))], 0)
    assert rows(tmp_path, layout) == list(range(5, 10))


@pytest.mark.parametrize("staged", ["a", "_capture/entity=clicks/staging/../source.json", "/etc/hosts"])
def test_a_promise_moves_nothing_but_staged_files(tmp_path: Path, staged: str) -> None:
    """Attack: a note that was written by others."""
    commit(tmp_path, written(tmp_path, FIRST))
    moves = [[staged, data_files(tmp_path)[0]]]
    (tmp_path / NOTES / "moving.json").write_text(json.dumps({"query": "q", "batch": 9, "moves": moves}))
    with pytest.raises(CaptureFailed, match="no staged file"):
        recover(tmp_path)


@pytest.mark.parametrize("moves", [[["a"]], 7, [[1, 2]]])
def test_a_damaged_promise_is_told(tmp_path: Path, moves: object) -> None:
    """Capture: nothing is guessed from it."""
    commit(tmp_path, written(tmp_path, FIRST))
    (tmp_path / NOTES / "moving.json").write_text(json.dumps({"query": "q", "batch": 9, "moves": moves}))
    with pytest.raises(CaptureFailed, match=r"moving\.json is damaged"):
        recover(tmp_path)


@pytest.mark.parametrize("path", ["entity=other/x.parquet", "entity=clicks/../x", "_capture/x", "/etc/hosts"])
def test_a_promise_for_a_table_deletes_nothing_but_its_entity(tmp_path: Path, path: str) -> None:
    """Attack: a note that was written by others."""
    commit(tmp_path, written(tmp_path, FIRST, DELTA), DELTA)
    note = tmp_path / NOTES / "adding.json"
    note.write_text(json.dumps({"query": "q", "batch": 9, "files": [path]}))
    with pytest.raises(JobFailed, match="damaged"):
        recover(tmp_path, DELTA)


@pytest.mark.parametrize("entity", ["clicks", "a/b c%ä"])
def test_a_table_keeps_its_files_when_they_are_committed_again(tmp_path: Path, entity: str) -> None:
    """Capture: the log writes names in another way than the disk does; what it names is never deleted."""
    messages = written(tmp_path, FIRST, DELTA, entity)
    commit(tmp_path, messages, DELTA, entity)
    commit(tmp_path, messages, DELTA, entity)
    assert rows(tmp_path, DELTA) == list(range(10))


def test_files_of_a_version_that_was_never_written_are_removed(tmp_path: Path) -> None:
    """Capture: not before the log has said no for good, which costs it an empty version."""
    commit(tmp_path, written(tmp_path, FIRST, DELTA), DELTA)
    files = [file.staged for message in written(tmp_path, SECOND, DELTA) for file in message.files]
    note = tmp_path / NOTES / "adding.json"
    note.write_text(json.dumps({"query": "query", "batch": 1, "files": files}))
    before = DeltaTable(str(tmp_path)).version()
    recover(tmp_path, DELTA)
    assert DeltaTable(str(tmp_path)).version() == before + 1
    assert not any((tmp_path / file).exists() for file in files)
    assert not note.exists()
    commit(tmp_path, written(tmp_path, SECOND, DELTA), DELTA)
    assert rows(tmp_path, DELTA) == list(range(20))
