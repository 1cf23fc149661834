"""Captured tables that gain columns: files of versions before and after this one, in both layouts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import SCHEMA, check_columns, fitted
from busway_spark.pipeline.captured.captured_files import History, listed_files
from busway_spark.pipeline.compaction import CompactOptions, compact
from busway_spark.pipeline.job import JobFailed, JobProgress
from tests.spark.capture_rig import NINE
from tests.spark.table_rig import NEW, OLD, TRACE, columns_of, make_table, optimise, put, replayed, rewrite


def mixed(root: Path, layout: str) -> None:
    """Ten rows each by a version before this one, by this one, and by one behind it."""
    put(root, range(10), layout=layout)
    put(root, range(20, 30), layout=layout)
    old, new = sorted(root.rglob("0-*.parquet"))
    rewrite(old, OLD)
    rewrite(new, NEW)
    if layout == DELTA:  # the log still has the sizes of before; nobody asks for them to read
        DeltaTable(str(root)).alter.add_columns(_delta_fields(pa.schema([TRACE])))
    put(root, range(10, 20), layout=layout)


def _delta_fields(schema: pa.Schema) -> Any:
    from deltalake import Schema

    return Schema.from_arrow(schema).fields


@pytest.mark.parametrize("layout", [PARQUET, DELTA])
def test_old_and_new_files_are_read_together(tmp_path: Path, layout: str) -> None:
    """Columns: one that a file lacks is null, one that nobody knows is left out, and order means nothing."""
    mixed(tmp_path, layout)
    history = History(CaptureRoot(str(tmp_path)), "clicks")
    rows = list(history.rows(0))
    assert [row.number for row in rows] == [*range(30)]
    assert [row.body for row in rows] == [b"0-%d" % number for number in range(30)]
    assert {row.property_types for row in rows} == {None}
    assert {row.properties for row in rows} == {"{}"}


def test_compaction_keeps_every_column(tmp_path: Path) -> None:
    """Columns: what is put together has a column of each of its files; who lacked it has null there."""
    mixed(tmp_path, PARQUET)
    compact(CompactOptions(str(tmp_path)), JobProgress(), NINE + timedelta(days=1))
    [merged] = tmp_path.glob("entity=*/**/*.parquet")
    rows = pq.ParquetFile(merged).read().to_pylist()
    assert [row["sequenceNumber"] for row in rows] == [*range(30)]
    assert [row[TRACE.name] for row in rows] == [None] * 20 + [f"trace-{at}" for at in range(20, 30)]
    assert replayed(tmp_path) == {0: [*range(30)]}


def test_a_table_gains_the_columns_that_it_lacks(tmp_path: Path) -> None:
    """Columns: a capture into a table of an earlier version adds what is new, so that everybody sees it."""
    make_table(tmp_path, OLD)
    assert "propertyTypes" not in columns_of(tmp_path)
    put(tmp_path, range(10))
    put(tmp_path, range(10, 20))
    assert sorted(columns_of(tmp_path)) == sorted([*SCHEMA.names, "entity", "date", "hour", "partition"])
    assert len(DeltaTable(str(tmp_path)).to_pyarrow_table()) == 20
    assert replayed(tmp_path) == {0: [*range(20)]}
    changes = [each["operation"] for each in DeltaTable(str(tmp_path)).history()]
    assert changes.count("ADD COLUMN") == 1


def test_a_table_keeps_the_columns_that_are_not_ours(tmp_path: Path) -> None:
    """Columns: a capture into a table of a later version takes nothing away; its own rows have null there."""
    make_table(tmp_path, NEW)
    put(tmp_path, range(10))
    put(tmp_path, range(10, 20))
    optimise(tmp_path)
    assert TRACE.name in columns_of(tmp_path)
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().column(TRACE.name).null_count == 20
    assert replayed(tmp_path) == {0: [*range(20)]}


def test_another_type_is_refused(tmp_path: Path) -> None:
    """Columns: a column of ours that holds something else is told by name, in files and in tables."""
    wrong = SCHEMA.set(SCHEMA.get_field_index("subject"), pa.field("subject", pa.int64()))
    make_table(tmp_path / "table", wrong)
    with pytest.raises(JobFailed, match=r"its column 'subject' is int64, and captured messages have string"):
        put(tmp_path / "table", range(10))
    with pytest.raises(JobFailed, match="'subject' is int64"):
        listed_files(CaptureRoot(str(tmp_path / "table")))
    put(tmp_path / "files", range(10), layout=PARQUET)
    [path] = (tmp_path / "files").rglob("0-*.parquet")
    rows = pq.ParquetFile(path).read().to_pylist()
    pq.write_table(pa.Table.from_pylist(rows, schema=wrong), path)
    with pytest.raises(JobFailed, match="'subject' is int64"):
        replayed(tmp_path / "files")


def test_other_forms_of_a_type_are_taken() -> None:
    """Columns: what other programs write for texts, bytes, numbers and times is read as ours."""
    forms: dict[str, pa.Array[Any]] = {
        "body": pa.array([b"x"], pa.large_binary()),
        "subject": pa.array(["s"]).dictionary_encode(),
        "messageId": pa.array(["m"], pa.large_string()),
        "enqueuedTime": pa.array([1_000_000_000], pa.timestamp("ns")),
        "sequenceNumber": pa.array([7], pa.int32()),
        "to": pa.nulls(1),
    }
    batch = pa.RecordBatch.from_pydict(forms)
    check_columns(batch.schema, "it")
    [row] = fitted(batch).to_pylist()
    assert (row["sequenceNumber"], row["body"], row["subject"], row["messageId"], row["to"]) == (
        7,
        b"x",
        "s",
        "m",
        None,
    )
    assert row["enqueuedTime"].timestamp() == 1.0
    with pytest.raises(JobFailed, match="it has no column 'sequenceNumber'"):
        check_columns(batch.schema.remove(4), "it")
