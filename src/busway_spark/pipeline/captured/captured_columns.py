"""The columns of captured files, whoever wrote them and when.

A captured table may gain columns: a later version of Busway, or somebody's own job, adds one that may be null. Files
that were there before lack it, and where it stands among the others is nobody's promise. So readers take columns by
their names. One that a file lacks is null in all of its rows; one that a reader does not know is left out. A type may
be another form of the one in `captured.SCHEMA` (texts with long offsets, times in nanoseconds); any other is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.captured.captured import SCHEMA
from busway_spark.pipeline.job import JobFailed


def check_columns(found: pa.Schema, where: str, wanted: pa.Schema = SCHEMA) -> list[str]:
    """Those of the wanted that are there. Raises JobFailed for a column of another type, and for one that no row can
    do without."""
    there: list[str] = []
    for field in wanted:
        at = found.get_field_index(field.name)
        if at < 0 and not field.nullable:
            raise JobFailed(f"{where} is no file of captured messages: it has no column '{field.name}'.")
        if at < 0:
            continue
        kind = found.field(at).type
        if not _is_kin(kind, field.type):
            raise JobFailed(
                f"{where} cannot be read: its column '{field.name}' is {kind}, and captured messages have"
                f" {field.type} there."
            )
        there.append(field.name)
    return there


def with_others(found: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Our columns, and behind them those of others, for whoever puts files together and must keep them. `found`: of
    each file where it lies and what it has. Raises JobFailed where a column has two types."""
    others: dict[str, pa.Field[Any]] = {}
    for where, schema in found:
        check_columns(schema, where)
        for field in schema:
            if SCHEMA.get_field_index(field.name) >= 0:
                continue
            known = others.setdefault(field.name, field.with_nullable(True))
            if not known.type.equals(field.type):
                raise JobFailed(
                    f"{where} cannot be put together with others: its column '{field.name}' is {field.type}, and"
                    f" {known.type} elsewhere."
                )
    return pa.schema([*SCHEMA, *others.values()])


def fitted(batch: pa.RecordBatch, wanted: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """With exactly the wanted columns, in their order. The batch is one that was checked."""
    if batch.schema.equals(wanted):
        return batch
    columns = [_column(batch, field) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def fitted_batches(file: pq.ParquetFile, where: str, rows: int, **which: Any) -> Iterator[pa.RecordBatch]:
    """Of an open file, in the columns of SCHEMA. `which`: as `iter_batches` takes it. Raises JobFailed."""
    there = check_columns(file.schema_arrow, where)
    for batch in file.iter_batches(rows, columns=there, **which):
        yield fitted(batch)


def _column(batch: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    at = batch.schema.get_field_index(field.name)
    found: Any = pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at)
    column: pa.Array[Any] = found if found.type.equals(field.type) else found.cast(field.type, safe=False)
    return column


def _is_kin(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found.equals(wanted) or pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found):
        found = found.value_type
    return any(all(map(is_one, (found, wanted))) for is_one in (_is_text, _is_bytes, _is_time, _is_whole))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind)


def _is_whole(kind: pa.DataType) -> bool:
    """That fits into 64 bits with a sign."""
    return pa.types.is_signed_integer(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64)
