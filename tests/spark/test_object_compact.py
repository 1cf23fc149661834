"""Compaction of captured files in a store of objects: whatever request fails, each message is there once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import PARQUET, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import History, listed_files
from busway_spark.pipeline.captured.manifests import recorded_texts, span_of
from busway_spark.pipeline.captured.swap import COMPACTION
from busway_spark.pipeline.compaction import CompactOptions, CompactResult, compact
from busway_spark.pipeline.job import JobFailed, JobProgress
from tests.spark.capture_rig import NINE, events
from tests.spark.s3_server import BUCKET, HAPPENINGS, Happening, S3Server, s3, s3_server

__all__ = ["s3", "s3_server"]
NUMBERS = list(range(12))


def filled(name: str) -> CaptureRoot:
    """Four small files of one hour."""
    root = CaptureRoot(f"s3://{BUCKET}/{name}")
    sink = CaptureStreamWriter(root, "clicks", PARQUET, ZSTD)
    for at in range(4):
        rows = events(range(3 * at, 3 * at + 3))
        sink.commit([sink.write_batch(BatchName("q", at), iter([rows]))], at)
    return root


def run(root: CaptureRoot) -> CompactResult:
    return compact(CompactOptions(root.location), JobProgress(), NINE + timedelta(days=1))


def plain_numbers(s3: S3Server, name: str) -> list[int]:
    """As a stranger reads it."""
    data = [each for key, each in s3.objects().items() if key.startswith(f"{name}/entity=")]
    tables = [pq.read_table(io.BytesIO(each), columns=["sequenceNumber"]) for each in data]
    return sorted(row["sequenceNumber"] for table in tables for row in table.to_pylist())


def own_numbers(root: CaptureRoot) -> list[int]:
    return sorted(row.number for row in History(root, "clicks").rows(0))


def strays(s3: S3Server, name: str) -> list[str]:
    start = f"{name}/{COMPACTION}/"
    return [key for key in s3.objects() if key.startswith(start) and not key.endswith("/lock")]


def check_happenings(s3: S3Server, happenings: Iterator[Happening]) -> None:
    for at, happening in enumerate(happenings):
        name = f"at-{at}"
        root = filled(name)
        s3.arm(happening)
        try:
            run(root)
        except JobFailed:
            pass
        finally:
            s3.arm()
        assert own_numbers(root) == NUMBERS, happening
        assert set(plain_numbers(s3, name)) == set(NUMBERS), happening
        run(root)
        assert plain_numbers(s3, name) == own_numbers(root) == NUMBERS, happening
        assert len(listed_files(root, "clicks")) == 1, happening
        assert strays(s3, name) == [], happening


def test_small_objects_become_one(s3: S3Server) -> None:
    """Compact: in a store of objects; manifests know the new file and have forgotten the old ones."""
    root = filled("small")
    result = run(root)
    assert (result.files_before, result.files_after) == (4, 1)
    assert plain_numbers(s3, "small") == own_numbers(root) == NUMBERS
    (file,) = (each.file for each in listed_files(root, "clicks"))
    assert recorded_texts(root, "clicks")[str(file.path)].span == span_of(root, file.path)
    assert strays(s3, "small") == []


def test_a_request_that_fails_costs_no_message(s3: S3Server) -> None:
    """Compact: a busy store, a broken connection, a lost answer, a kill; and the next compaction finishes it."""
    root = filled("good")
    s3.arm()
    run(root)
    count = len(s3.requests)
    check_happenings(s3, (Happening(at, HAPPENINGS[at % len(HAPPENINGS)]) for at in range(9, count + 1, 14)))


@pytest.mark.long
@pytest.mark.parametrize("what", HAPPENINGS)
def test_every_request_that_fails_in_every_way_costs_no_message(s3: S3Server, what: str) -> None:
    """Compact: the same with each request and everything that may happen to it."""
    root = filled("good")
    s3.arm()
    run(root)
    count = len(s3.requests)
    check_happenings(s3, (Happening(at, what) for at in range(1, count + 1)))


def test_a_compaction_that_lost_its_lock_changes_nothing(s3: S3Server) -> None:
    """Compact: another one has taken over and done the work while it merged."""
    root = filled("lost")
    told: list[str] = []

    def overtaken(merge: object, plans: object) -> object:
        for plan in plans:  # type: ignore[attr-defined]
            merged = merge(plan)  # type: ignore[operator]
            told.append(str(run(CaptureRoot(root.location)).folders))
            yield plan, merged

    with pytest.raises(JobFailed, match=r"lost its lock|is not at"):
        compact(CompactOptions(root.location), JobProgress(), NINE + timedelta(days=1), overtaken)  # type: ignore[arg-type]
    assert told == ["1"]
    assert plain_numbers(s3, "lost") == own_numbers(root) == NUMBERS
    assert strays(s3, "lost") == []
