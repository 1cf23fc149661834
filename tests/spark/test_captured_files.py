"""Which captured files there are: Parquet files in folders, a Delta table, both, and what others do to a table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from busway_spark.pipeline.capture.capture_sink import PARQUET
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import SCHEMA, folder_of
from busway_spark.pipeline.captured.captured_files import last_numbers, listed_files, spanned
from busway_spark.pipeline.captured.manifests import FileSpan, RecordedFile, span_of, write_manifest
from busway_spark.pipeline.compaction import CompactOptions, compact
from busway_spark.pipeline.job import JobFailed, JobProgress
from tests.cost.machine import slowness
from tests.spark.capture_rig import NINE
from tests.spark.table_rig import action, note, optimise, put, replayed, rewrite


def place(root: Path) -> CaptureRoot:
    return CaptureRoot(str(root))


def test_files_of_a_table_are_found_by_its_log_alone(tmp_path: Path) -> None:
    """Delta: what a killed task has left lying is no file of the table; what the log names is, by any name."""
    put(tmp_path, range(20), "a/b c%ä")
    put(tmp_path, range(20, 40), "a/b c%ä", partition=1)
    put(tmp_path, range(5), "other")
    mine = next(tmp_path.glob("entity=a*/*/*/partition=0/*.parquet"))
    shutil.copy(mine, mine.with_name("0-00000000000000000000-killed-3-0123abcd.parquet"))
    assert replayed(tmp_path, "a/b c%ä") == {0: [*range(20)], 1: [*range(20, 40)]}
    listed = listed_files(place(tmp_path))
    assert [(each.file.entity, each.file.partition, each.file.first_number) for each in listed] == [
        ("a/b c%ä", 0, 0),
        ("a/b c%ä", 1, 20),
        ("other", 0, 0),
    ]
    assert all((tmp_path / each.path).stat().st_size == each.bytes for each in listed)


def test_the_log_tells_what_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta: numbers and times are in the log, so planning opens no file; times are rounded outwards."""
    put(tmp_path, range(20), at=NINE + timedelta(microseconds=1_500))
    monkeypatch.setattr("busway_spark.pipeline.captured.captured_files.span_of", None)
    [file] = spanned(place(tmp_path), listed_files(place(tmp_path)))
    nine_us = int(NINE.timestamp()) * 1_000_000
    assert (file.span.rows, file.span.first_number, file.span.last_number) == (20, 0, 19)
    assert (file.span.first_time_us - nine_us, file.span.last_time_us - nine_us) == (1_000, 19_002_000)


def test_manifests_tell_what_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests: planning opens no file that was written down, and believes no record of another size."""
    put(tmp_path, range(20), layout=PARQUET)
    put(tmp_path, range(20, 40), layout=PARQUET)
    opened: list[PurePosixPath] = []

    def told(root: CaptureRoot, path: PurePosixPath) -> FileSpan:
        opened.append(path)
        return span_of(root, path)

    monkeypatch.setattr("busway_spark.pipeline.captured.captured_files.span_of", told)
    assert replayed(tmp_path) == {0: [*range(40)]}
    assert opened == []
    [second] = tmp_path.rglob("0-*20.parquet")
    rewrite(second, SCHEMA)
    assert replayed(tmp_path) == {0: [*range(40)]}
    assert [each.name for each in opened] == [second.name]


class Listed(CaptureRoot):
    """A place whose files are made up: so many of each hour."""

    hours, of_each = 1_000, 1_000
    known: list[tuple[PurePosixPath, int]]

    def files(self, folder: PurePosixPath) -> list[tuple[PurePosixPath, int]]:
        return super().files(folder) if folder.parts[0] == "_capture" else self.known

    def made_up(self) -> Iterator[tuple[PurePosixPath, RecordedFile]]:
        for hour in range(self.hours):
            moment = NINE + timedelta(hours=hour)
            start = f"{folder_of('clicks', moment, 0)}/0-"
            for at in range(self.of_each):
                number = (hour * self.of_each + at) * 10
                time_us = int(moment.timestamp()) * 1_000_000 + at
                span = FileSpan(10, number, number + 9, time_us, time_us)
                yield PurePosixPath(f"{start}{number:020}.parquet"), RecordedFile(4_000, span)


@pytest.mark.long
@pytest.mark.timeout(1_200)  # of the clock, on a machine that has much else to do
def test_a_million_files_are_planned_within_seconds(tmp_path: Path) -> None:
    """Manifests: a plan over 1,000,000 files takes at most 10 s of the processor and opens none of them."""
    root = Listed(str(tmp_path))
    records = dict(root.made_up())
    write_manifest(root, "clicks", records)
    root.known = [(PurePosixPath(str(path)), each.bytes) for path, each in records.items()]
    began = process_time()
    files = spanned(root, listed_files(root, "clicks"))
    took = process_time() - began
    assert (len(files), files[-1].span.last_number) == (1_000_000, 9_999_999)
    print(f"{len(files):,} files planned in {took:.1f} s of the processor")
    assert took < 10 * slowness()


def test_a_file_of_which_the_log_tells_nothing_is_opened(tmp_path: Path) -> None:
    """Delta: a table whose writer kept no statistics is read all the same."""
    put(tmp_path, range(20))
    put(tmp_path, range(20, 40))
    add = action(tmp_path, "add")
    del add["add"]["stats"]
    note(tmp_path, add)
    assert replayed(tmp_path) == {0: [*range(40)]}
    assert last_numbers(place(tmp_path), "clicks") == {0: 39}


def test_an_optimised_table_is_read_in_the_order_of_numbers(tmp_path: Path) -> None:
    """Delta: optimize puts files together in any order and leaves the old ones lying: each row once, and rising."""
    for first in range(0, 100, 20):
        put(tmp_path, range(first, first + 20))
    optimise(tmp_path)
    put(tmp_path, range(100, 110))
    assert len(list(tmp_path.rglob("*.parquet"))) == 7
    listed = listed_files(place(tmp_path))
    assert [(each.file.first_number, each.is_rising) for each in listed] == [(0, False), (100, True)]
    assert replayed(tmp_path) == {0: [*range(110)]}
    assert last_numbers(place(tmp_path), "clicks") == {0: 109}
    DeltaTable(str(tmp_path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    assert replayed(tmp_path) == {0: [*range(110)]}


def test_what_was_deleted_from_a_table_is_gone(tmp_path: Path) -> None:
    """Delta: rows that somebody deleted are not read again, although their files still lie there."""
    put(tmp_path, range(20))
    put(tmp_path, range(5), "other")
    DeltaTable(str(tmp_path)).delete("entity = 'clicks' AND sequenceNumber >= 5")
    assert replayed(tmp_path) == {0: [*range(5)]}
    DeltaTable(str(tmp_path)).delete("entity = 'clicks'")
    assert listed_files(place(tmp_path), "clicks") == []
    assert replayed(tmp_path, "other") == {0: [*range(5)]}


def test_a_place_may_hold_both(tmp_path: Path) -> None:
    """Delta: entities in Parquet files and entities in a table lie in one place, and each is read its own way."""
    put(tmp_path, range(20), "clicks", PARQUET)
    put(tmp_path, range(30), "orders")
    assert replayed(tmp_path, "clicks") == {0: [*range(20)]}
    assert replayed(tmp_path, "orders") == {0: [*range(30)]}
    assert [each.file.entity for each in listed_files(place(tmp_path))] == ["clicks", "orders"]
    with pytest.raises(JobFailed, match="its own 'optimize' puts files together"):
        compact(CompactOptions(str(tmp_path)), JobProgress())


def test_an_entity_in_both_is_refused(tmp_path: Path) -> None:
    """Delta: captured files that somebody has made a table of would be counted twice, or not at all."""
    put(tmp_path, range(20), "clicks", PARQUET)
    put(tmp_path, range(30))
    with pytest.raises(JobFailed, match="'clicks' is captured into Parquet files at"):
        listed_files(place(tmp_path))


def vectors(root: Path) -> None:
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    note(root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    assert replayed(root) == {0: [*range(20)]}, "the feature alone changes nothing"
    add = action(root, "add")
    kind = {"storageType": "i", "pathOrInlineDv": "0" * 40, "sizeInBytes": 32, "cardinality": 1}
    add["add"]["deletionVector"] = kind
    note(root, add)


def mapping(root: Path) -> None:
    note(root, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
    found = action(root, "metaData")
    found["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    note(root, found)


def clone(root: Path) -> None:
    add = action(root, "add")
    add["add"]["path"] = f"file://{root}/elsewhere.parquet"
    note(root, add)


def stranger(root: Path) -> None:
    shutil.rmtree(root)
    write_deltalake(str(root), pa.table({"id": [1]}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (vectors, "deletion vectors"),
        (mapping, "columnMapping"),
        (clone, "names files outside its own folder"),
        (stranger, "is none of captured messages"),
    ],
)
def test_what_would_be_read_wrong_is_refused(
    tmp_path: Path, change: Callable[[Path], None], sentence: str
) -> None:
    """Delta: what we do not write and cannot read as it is meant is refused with a sentence."""
    put(tmp_path, range(20))
    change(tmp_path)
    with pytest.raises(JobFailed, match=sentence):
        listed_files(place(tmp_path))


def test_a_damaged_log_is_one_sentence(tmp_path: Path) -> None:
    """Delta: what cannot be read is told, not counted as nothing."""
    put(tmp_path, range(20))
    last: Any = sorted((tmp_path / "_delta_log").glob("*.json"))[-1]
    last.write_text('{"add": {"path": 7}}')
    with pytest.raises(JobFailed, match=r"The Delta table at .* cannot be read"):
        listed_files(place(tmp_path))
