"""Manifests tell what captured files hold, without opening them, and are never the only truth."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path, PurePosixPath
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import PARQUET
from busway_spark.pipeline.captured import manifests
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import COMMITTED, NOT_TOLD, CapturedFile, notes_of
from busway_spark.pipeline.captured.manifests import (
    FileSpan,
    RecordedFile,
    Records,
    fold,
    recorded_texts,
    rewrite,
    span_of,
    write_manifest,
)
from busway_spark.pipeline.job import HUB
from tests.cost.machine import slowness
from tests.harness.measured import check_within, measured
from tests.spark.capture_rig import NINE, data_files, events, recorded_spans, writer
from tests.spark.faulty_store import Calls, calls
from tests.spark.played_capture import PlayedBus, PlayedCapture
from tests.spark.test_capture_faults import HAPPENINGS, Fault, run_into

__all__ = ["calls"]
ENTITY = "clicks"


def put(root: Path, number: int, first: int) -> None:
    sink = writer(root, ENTITY)
    rows = events(range(first, first + 3), partition=number % 2)
    sink.commit([sink.write_batch(BatchName("q", number), iter([rows]))], number)


def by_footers(root: Path) -> Records:
    """What files say themselves."""
    place = CaptureRoot(str(root))
    paths = [PurePosixPath(path) for path in data_files(root)]
    return {path: RecordedFile(place.size(path), span_of(place, path)) for path in paths}


def made_up(count: int, entity: str = ENTITY) -> Records:
    """Records of files that nobody has written."""
    found: Records = {}
    for at in range(count):
        partition, number = at % 64, 50 * (at // 64)
        file = CapturedFile(entity, NINE + timedelta(hours=at // 6400), partition, number)
        found[file.path] = RecordedFile(4096 + at % 7, FileSpan(50, number, number + 49, at, at + 1))
    return found


def manifest_files(root: Path) -> list[Path]:
    return sorted((root / notes_of(ENTITY) / "manifests").glob("*"))


def test_what_is_recorded_of_captured_files_is_what_their_footers_say(tmp_path: Path) -> None:
    """Manifests: every file of every batch is known, with its size, rows, numbers and times."""
    for number in range(5):
        put(tmp_path, number, 10 * number)
    assert len(by_footers(tmp_path)) == 5
    assert recorded_spans(CaptureRoot(str(tmp_path)), ENTITY) == by_footers(tmp_path)


def test_many_batches_leave_few_manifests_and_a_short_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests: records move out of the note into files, and these into larger ones."""
    monkeypatch.setattr(manifests, "NOTED_MAX", 3)
    monkeypatch.setattr(manifests, "_FOLD", 2)
    for number in range(40):
        put(tmp_path, number, 10 * number)
    assert len(recorded_spans(CaptureRoot(str(tmp_path)), ENTITY)) == 40
    assert recorded_spans(CaptureRoot(str(tmp_path)), ENTITY) == by_footers(tmp_path)
    assert 1 <= len(manifest_files(tmp_path)) <= 5
    note = json.loads((tmp_path / notes_of(ENTITY) / COMMITTED).read_text())
    assert len(note["files"]) <= 3


def test_notes_of_earlier_versions_know_no_files(tmp_path: Path) -> None:
    """Manifests: a capture of an earlier version goes on, and what it captured before is opened as ever."""
    put(tmp_path, 0, 0)
    path = tmp_path / notes_of(ENTITY) / COMMITTED
    path.write_text(json.dumps({"query": "q", "batch": 0}))
    assert recorded_spans(CaptureRoot(str(tmp_path)), ENTITY) == {}
    put(tmp_path, 1, 10)
    assert [
        each.span.first_number for each in recorded_spans(CaptureRoot(str(tmp_path)), ENTITY).values()
    ] == [10]


@pytest.mark.parametrize("damage", [b"", b"PAR1 and no more", b"\0" * 5000])
def test_a_damaged_manifest_is_as_good_as_none(tmp_path: Path, damage: bytes) -> None:
    """Manifests: its files are opened, the others are known, and the next rewriting removes it."""
    root = CaptureRoot(str(tmp_path))
    write_manifest(root, ENTITY, made_up(3))
    (tmp_path / notes_of(ENTITY) / "manifests" / "0-damaged.parquet").write_bytes(damage)
    assert recorded_spans(root, ENTITY) == made_up(3)
    rewrite(root, ENTITY, set(), {})
    assert recorded_spans(root, ENTITY) == made_up(3)
    assert len(manifest_files(tmp_path)) == 1


def test_rewriting_leaves_out_what_is_gone_and_adds_what_is_new(tmp_path: Path) -> None:
    """Manifests: files that `compact` has replaced are not carried on for ever."""
    root = CaptureRoot(str(tmp_path))
    records = made_up(10)
    for path, record in records.items():
        write_manifest(root, ENTITY, {path: record})
    gone = set(list(records)[:4])
    merged = CapturedFile(ENTITY, NINE, 3, 0, 99).path
    new = {merged: RecordedFile(9, FileSpan(100, 0, 99, 1, 2))}
    rewrite(root, ENTITY, gone, new)
    assert recorded_spans(root, ENTITY) == {
        **{path: record for path, record in records.items() if path not in gone},
        **new,
    }
    assert len(manifest_files(tmp_path)) == 1


def test_two_that_fold_at_the_same_time_lose_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests: one folds while the other has listed and not read yet."""
    monkeypatch.setattr(manifests, "_FOLD", 2)
    root = CaptureRoot(str(tmp_path))
    records = made_up(6)
    for path, record in records.items():
        write_manifest(root, ENTITY, {path: record})
    reading = manifests._read
    others = [True]

    def overtaken(root: CaptureRoot, path: PurePosixPath) -> object:
        if others:
            others.clear()
            fold(root, ENTITY)
        return reading(root, path)

    monkeypatch.setattr(manifests, "_read", overtaken)
    assert recorded_spans(root, ENTITY) == records
    others.append(True)
    fold(root, ENTITY)
    assert recorded_spans(root, ENTITY) == records


def test_a_fault_at_any_call_while_records_move_leaves_nothing_wrong(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests: an error or a kill at one call in five; captured is once, and what is recorded is true."""
    monkeypatch.setattr(manifests, "NOTED_MAX", 1)
    monkeypatch.setattr(manifests, "_FOLD", 2)
    good = PlayedCapture(tmp_path / "good", PARQUET, PlayedBus(HUB))
    good.run()
    count = len(calls.names)
    for call in range(2, count + 1, 5):
        run = PlayedCapture(tmp_path / str(call), PARQUET, PlayedBus(HUB))
        what, comes_after = HAPPENINGS[call % len(HAPPENINGS)]
        run_into(run, calls, Fault(call, what, comes_after))
        run.check()
        run.run()
        run.check_all()
        there = by_footers(run.folder)
        recorded = recorded_spans(CaptureRoot(str(run.folder)), run.bus.entity.name)
        assert {path: each for path, each in recorded.items() if path in there} == there


def planned_in(root: Path, count: int) -> float:
    """CPU seconds to know the made-up files of 64 partitions, a hundred an hour of each, by eight manifests."""
    place = CaptureRoot(str(root))
    for rows in np.array_split(np.arange(count), 8):
        partition, number = rows % 64, 50 * (rows // 64)
        hour = int(NINE.timestamp()) // 3600 + rows // 6400
        columns = (hour, partition, np.full_like(rows, NOT_TOLD), 4096 + rows % 7, np.full_like(rows, 50))
        columns += (number, number + 49, rows, rows + 1)
        table = pa.Table.from_arrays([pa.array(each) for each in columns], schema=manifests._SCHEMA)
        manifests._write(place, ENTITY, table, 3)
    started = time.thread_time()
    found = recorded_texts(place, ENTITY)
    took = time.thread_time() - started
    assert len(found) == count
    ((path, record),) = made_up(1).items()
    assert found[str(path)] == record
    return took


@measured
def test_a_hundred_thousand_files_are_known_within_a_second(tmp_path: Path) -> None:
    """Manifests: a plan over many files opens none of them."""
    check_within(planned_in(tmp_path / uuid4().hex, 100_000), 1.0 * slowness())


@pytest.mark.long
@measured
def test_a_million_files_are_known_within_ten_seconds(tmp_path: Path) -> None:
    """Manifests: the same at the size that counts."""
    check_within(planned_in(tmp_path / uuid4().hex, 1_000_000), 10.0 * slowness())
