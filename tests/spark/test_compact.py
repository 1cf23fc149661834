"""Compaction: the same messages in fewer files, whatever dies and when, and whoever reads or captures meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

import pytest

from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.captured import swap
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import listed_files
from busway_spark.pipeline.compaction import (
    CompactOptions,
    CompactResult,
    Merging,
    SparkMerging,
    compact,
    merge_here,
)
from busway_spark.pipeline.job import JobFailed, JobProgress
from tests.spark.capture_rig import (
    NINE,
    Crash,
    CrashingRoot,
    captured,
    data_files,
    events,
    numbers,
    numbers_in,
    writer,
)

NOON = NINE + timedelta(hours=3)


def put(root: Path, number: int, *lots: Iterator[int] | range | list[int], at: datetime = NINE) -> None:
    sink, name = writer(root), BatchName("query", number)
    sink.commit([sink.write_batch(name, iter([events(lot, at)])) for lot in lots], number)


def filled(root: Path) -> Path:
    """Eight files of ten messages each in one folder, two in the next hour."""
    for number in range(8):
        put(root, number, range(10 * number, 10 * number + 10))
    put(root, 8, range(80, 90), range(90, 100), at=NINE + timedelta(hours=1))
    return root


def run(
    root: Path, *, now: datetime = NOON, target_bytes: int = 1 << 20, way: Merging = merge_here
) -> CompactResult:
    return compact(CompactOptions(str(root), target_bytes=target_bytes), JobProgress(), now, way)


def strays(root: Path) -> list[str]:
    return [str(path) for path in (root / "_capture/compaction").rglob("*") if path.name != "lock"]


@pytest.fixture(params=["here", "spark"])
def way(request: pytest.FixtureRequest) -> Merging:
    """Merged by this process, or by tasks of Spark."""
    if request.param == "here":
        return merge_here
    request.getfixturevalue("spark")
    return SparkMerging("local[2]", {})


@pytest.fixture(params=["exchange", "moves"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With folders that change names in one step, and where that cannot be."""
    if request.param == "moves":

        def refuse(one: str, other: str) -> None:
            raise OSError(f"{one} and {other} cannot change names")

        monkeypatch.setattr(swap, "_exchange_names", refuse)
    return str(request.param)


def test_small_files_become_one(tmp_path: Path, protocol: str, way: Merging) -> None:
    """Compact: every message is there once with equal contents, in its order, in one file for each hour."""
    before = captured(filled(tmp_path))
    result = run(tmp_path, way=way)
    assert captured(tmp_path) == before
    assert data_files(tmp_path) == [
        "entity=clicks/date=2026-11-15/hour=09/partition=0/0-00000000000000000000-00000000000000000079.parquet",
        "entity=clicks/date=2026-11-15/hour=10/partition=0/0-00000000000000000080-00000000000000000099.parquet",
    ]
    assert numbers_in(tmp_path / data_files(tmp_path)[0]) == list(range(80))
    assert (result.folders, result.files_before, result.files_after) == (2, 10, 2)
    assert strays(tmp_path) == []
    assert run(tmp_path, way=way).folders == 0, "what is done is not done again"
    put(tmp_path, 9, range(100, 110))
    run(tmp_path, way=way)
    assert len(data_files(tmp_path)) == 2
    assert numbers(tmp_path) == [(0, at) for at in range(110)]
    assert protocol


def test_a_target_size_makes_several_files(tmp_path: Path, way: Merging) -> None:
    """Compact: as many files together as fit; what is large enough stays."""
    filled(tmp_path)
    size = max((tmp_path / path).stat().st_size for path in data_files(tmp_path))
    run(tmp_path, target_bytes=3 * size, way=way)
    assert numbers(tmp_path) == [(0, at) for at in range(100)]
    assert len(data_files(tmp_path)) == 4
    assert run(tmp_path, target_bytes=size // 2).folders == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """Compact: --dry-run tells the same figures."""
    before = data_files(filled(tmp_path))
    told: list[str] = []
    options = CompactOptions(str(tmp_path), dry_run=True)
    result = compact(options, JobProgress(lambda sentence, _: told.append(sentence)), NOON)
    assert (result.files_before, result.files_after) == (10, 2)
    assert data_files(tmp_path) == before
    assert "8 files would become 1" in told[0]


def test_hours_that_are_not_over_are_left_alone(tmp_path: Path) -> None:
    """Compact: a capture still writes there."""
    filled(tmp_path)
    assert run(tmp_path, now=NINE + timedelta(hours=1, minutes=5)).folders == 0
    assert run(tmp_path, now=NINE + timedelta(hours=1, minutes=15)).folders == 1
    assert run(tmp_path, now=NINE + timedelta(hours=2, minutes=15)).folders == 1


def test_files_that_a_capture_is_moving_are_left_alone(tmp_path: Path) -> None:
    """Compact: where moving is copying, a file in place may be put in place once more."""
    before = data_files(filled(tmp_path))
    gone = "_capture/entity=clicks/staging/query-9/gone"
    note = {"query": "query", "batch": 9, "moves": [[gone, path] for path in before[:9]]}
    (tmp_path / "_capture/entity=clicks/moving.json").write_text(json.dumps(note))
    assert run(tmp_path).folders == 0
    put(tmp_path, 10, range(100, 101))
    assert run(tmp_path).folders == 2


def test_a_repeated_batch_after_compaction_doubles_nothing(tmp_path: Path) -> None:
    """Capture and compact: the note of the capture outlives the names of its files."""
    filled(tmp_path)
    run(tmp_path)
    put(tmp_path, 8, range(80, 90), range(90, 100), at=NINE + timedelta(hours=1))
    assert numbers(tmp_path) == [(0, at) for at in range(100)]


def test_files_that_overlap_are_sorted(tmp_path: Path, way: Merging) -> None:
    """Compact: sessions are captured out of their order; numbers in a merged file rise."""
    put(tmp_path, 0, [1, 4, 9], [2, 3, 20])
    put(tmp_path, 1, [5, 6], [10, 11])
    before = captured(tmp_path)
    run(tmp_path, way=way)
    assert captured(tmp_path) == before
    (path,) = data_files(tmp_path)
    found = numbers_in(tmp_path / path)
    assert found == [1, 2, 3, 4, 5, 6, 9, 10, 11, 20]


def test_a_message_in_two_files_is_told(tmp_path: Path, way: Merging) -> None:
    """Compact: what should not be is not hidden by merging it; the sentence is the same wherever it is found."""
    put(tmp_path, 0, [1, 2, 3])
    put(tmp_path, 1, [2, 4])
    before = data_files(tmp_path)
    with pytest.raises(JobFailed, match=r"^A message is in two files that belong to .*changed\.$"):
        run(tmp_path, way=way)
    assert data_files(tmp_path) == before
    assert strays(tmp_path) == []
    assert [row for _, row in numbers(tmp_path)] == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_compaction_that_dies_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, dies_after: bool
) -> None:
    """Compact: kill -9 with each change of the disk. A stranger misses nothing, and sees nothing twice where folders
    change in one step; our readers see each message once; the next run finishes."""
    monkeypatch.setattr("busway_spark.pipeline.compaction.CaptureRoot", CrashingRoot)
    exchange = swap._exchange_names
    if protocol == "exchange":
        monkeypatch.setattr(
            swap,
            "_exchange_names",
            lambda one, other: CrashingRoot.step(lambda: exchange(one, other)),
        )
    whole = [(0, at) for at in range(30)]
    for step in range(1, 100):
        root = tmp_path / str(step)
        CrashingRoot.arm(1 << 30)
        for number in range(3):
            put(root, number, range(10 * number, 10 * number + 10))
        CrashingRoot.arm(step, dies_after=dies_after)
        try:
            run(root)
            died = False
        except Crash:
            died = True
        CrashingRoot.arm(1 << 30)
        found = numbers(root)
        assert set(found) == set(whole)
        assert protocol == "moves" or found == whole
        assert ours(root) == whole
        run(root)
        assert numbers(root) == whole
        assert len(data_files(root)) == 1
        assert strays(root) == []
        if not died:
            assert step > 6
            return
    pytest.fail("it never got through")


def ours(root: Path) -> list[tuple[int, int]]:
    place = CaptureRoot(str(root))
    rows = [
        (each.file.partition, number)
        for each in listed_files(place)
        for number in numbers_in(root / each.path)
    ]
    return sorted(rows)


def test_a_swap_that_fails_keeps_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact: what is left over is removed after a failure, but not what a note speaks of; and where that is gone
    nonetheless, old files stay."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    filled(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("busway_spark.pipeline.compaction.carry_out", fail)
        with pytest.raises(JobFailed, match="No space left"):
            run(tmp_path)
    (note,) = (tmp_path / "_capture/compaction").glob("*.json")
    staging = note.with_suffix("")
    staging.rename(tmp_path / ".away")
    with pytest.raises(JobFailed, match=rf"is gone, so entity=clicks/.* Remove {note} to go on\.$"):
        run(tmp_path)
    assert numbers(tmp_path) == [(0, at) for at in range(100)]
    (tmp_path / ".away").rename(staging)
    assert run(tmp_path).folders == 1, "the other was finished first"
    assert numbers(tmp_path) == [(0, at) for at in range(100)]
    assert strays(tmp_path) == []


def test_a_stop_keeps_what_is_done(tmp_path: Path, way: Merging) -> None:
    """Compact: heeded between folders; those under way are finished, and the next call does the rest."""
    for hour in range(8):
        put(tmp_path, hour, range(2), range(2, 4), at=NINE - timedelta(hours=hour))
    progress = JobProgress(lambda *_: progress.stop())
    result = compact(CompactOptions(str(tmp_path)), progress, NOON, way)
    assert not result.is_done
    assert 1 <= result.folders <= 4
    assert len(data_files(tmp_path)) == 16 - result.folders
    assert strays(tmp_path) == []
    rest = run(tmp_path, way=way)
    assert (rest.folders, rest.is_done) == (8 - result.folders, True)
    assert [numbers_in(tmp_path / path) for path in data_files(tmp_path)] == [[0, 1, 2, 3]] * 8


def test_a_file_captured_at_the_moment_of_the_change_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compact: it fell into the old folder, and is moved to the new one."""
    filled(tmp_path)
    exchange = swap._exchange_names

    def late(one: str, other: str) -> None:
        if "hour=09" in other:
            put(tmp_path, 9, range(100, 105))
        exchange(one, other)

    monkeypatch.setattr(swap, "_exchange_names", late)
    run(tmp_path)
    assert numbers(tmp_path) == [(0, at) for at in range(105)]
    assert len(data_files(tmp_path)) == 3


def test_a_reader_that_listed_before_fails_rather_than_mixes(tmp_path: Path) -> None:
    """Compact: no name of an old file holds anything else afterwards."""
    before = data_files(filled(tmp_path))
    run(tmp_path)
    assert [path for path in before if (tmp_path / path).exists()] == []


def test_strange_places_are_refused(tmp_path: Path, way: Merging) -> None:
    """Compact: a Delta table, a damaged note, files of somebody else."""
    filled(tmp_path / "lake")
    note = tmp_path / "lake/_capture/compaction/x.json"
    note.parent.mkdir(parents=True)
    note.write_text('{"folder": "..", "merged": ["a"], "replaced": []}')
    with pytest.raises(JobFailed, match="damaged"):
        run(tmp_path / "lake", way=way)
    (tmp_path / "delta/_delta_log").mkdir(parents=True)
    (tmp_path / "delta/_delta_log/0.json").write_text("{}")
    with pytest.raises(JobFailed, match="Delta table"):
        run(tmp_path / "delta", way=way)
    folder = tmp_path / "other/entity=a/date=2026-11-15/hour=09/partition=0"
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"0-{number:020}.parquet").write_text("no Parquet")
    with pytest.raises(JobFailed, match="no file of captured messages"):
        run(tmp_path / "other", way=way)
    assert PurePosixPath(swap.COMPACTION).parts[0] == "_capture"
