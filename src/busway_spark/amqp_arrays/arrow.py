"""The functions of Arrow that are used here, each with one meaning and one type."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs

#: Its functions are made at run time, for many types each.
_compute: Final[Any] = pyarrow.compute


def joined(*parts: Column | bytes) -> Column:
    """The bytes of each row one behind the other, in one pass; null where a part is null."""
    found: Column = _compute.binary_join_element_wise(*parts, b"")
    return found


def joined_texts(*parts: Column | str) -> Column:
    found: Column = _compute.binary_join_element_wise(*parts, "")
    return found


def filled(column: Column, value: object) -> Column:
    found: Column = _compute.fill_null(column, value) if column.null_count else column
    return found


def chosen(wanted: Column | Flags, yes: object, no: object) -> Column:
    condition = pa.array(wanted) if isinstance(wanted, np.ndarray) else wanted
    found: Column = _compute.if_else(condition, yes, no)
    return found


def longs(column: Column, null: int = 0) -> Longs:
    """Whole numbers; `null` for null."""
    found: Longs = filled(column.cast(pa.int64()), null).to_numpy()
    return found


def doubles(column: Column) -> NDArray[np.float64]:
    found: NDArray[np.float64] = filled(column, 0.0).to_numpy()
    return found


def flags(column: Column) -> Flags:
    """Null is False."""
    found: Flags = filled(column, False).to_numpy(zero_copy_only=False)
    return found


def is_valid(column: Column) -> Flags:
    found: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def differs(column: Column, text: str) -> Column:
    found: Column = _compute.not_equal(column, text)
    return found


def unequal(first: Column, second: Column) -> Column:
    """Null where one of them is."""
    found: Column = _compute.not_equal(first, second)
    return found


def has_any(column: Column) -> bool:
    return _compute.any(column).as_py() is True


def is_ascii(column: Column) -> bool:
    return _compute.all(_compute.string_is_ascii(column)).as_py() is not False


def matches(column: Column, pattern: str) -> Column:
    found: Column = _compute.match_substring_regex(column, pattern)
    return found


def replaced(column: Column, wanted: Column, values: Column) -> Column:
    found: Column = _compute.replace_with_mask(column, wanted, values)
    return found


def byte_lengths(column: Column) -> Longs:
    """0 for null."""
    return longs(_compute.binary_length(column))


def repeated(value: object, kind: pa.DataType, count: int) -> Column:
    repeat: Any = pa.repeat
    found: Column = repeat(pa.scalar(value, kind), count)
    return found


def nulls(kind: pa.DataType, count: int) -> Column:
    make: Any = pa.nulls
    found: Column = make(count, kind)
    return found


def taken(column: Column, places: Longs) -> Column:
    """Elements by their places; null for a place of -1."""
    is_missing = places < 0
    indexes: Any = pa.array(places, mask=is_missing) if is_missing.any() else pa.array(places)
    found: Column = column.take(indexes)
    return found


def each_second(column: Column) -> Column:
    """From the one at place 1 on."""
    places: Any = pa.array(np.arange(1, len(column), 2))
    found: Column = column.take(places)
    return found


def filtered(column: Column, wanted: Flags) -> Column:
    mask: Any = pa.array(wanted)
    found: Column = column.filter(mask)
    return found


def of_buffers(kind: pa.DataType, offsets: NDArray[np.int32], data: pa.Buffer | None) -> Column:
    """Texts or bytes that follow each other in the data."""
    bounds = buffer(np.ascontiguousarray(offsets))
    found: Column = pa.Array.from_buffers(kind, len(offsets) - 1, [None, bounds, data])
    return found


def buffer(array: NDArray[Any]) -> pa.Buffer:
    """Over the array's own bytes."""
    raw: Any = array.data
    return pa.py_buffer(raw)


def words(column: Column) -> tuple[list[str], Longs]:
    """The different texts of a column, and for each row which of them it has; -1 for null."""
    encoded: Any = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), longs(encoded.indices, -1)


def map_parts(column: Column) -> tuple[NDArray[np.int32], Column, Column]:
    """Offsets, keys and items of a column of maps, without what lies outside of it."""
    maps: Any = column
    offsets: NDArray[np.int32] = maps.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    return offsets - offsets[0], maps.keys.slice(first, end - first), maps.items.slice(first, end - first)


def maps(
    offsets: NDArray[np.int32], names: Column, values: Column, kind: pa.DataType | None = None
) -> Column:
    make: Any = pa.MapArray.from_arrays
    found: Column = make(pa.array(offsets), names, values, type=kind)
    return found


def variant_maps(
    kind: pa.DataType, offsets: NDArray[np.int32], names: Column, values: Column, metadata: Column
) -> Column:
    """Maps of variants; `kind` is the map's own type, for what it says about its fields."""
    maps_kind: Any = kind
    fields = struct_fields(maps_kind.item_type)
    parts: Any = [values if each.name == "value" else metadata for each in fields]
    return maps(offsets, names, pa.StructArray.from_arrays(parts, fields=fields), kind)


def list_texts(offsets: NDArray[np.int32], members: Column, between: str) -> Column:
    """The members of each row in one text."""
    make: Any = pa.ListArray.from_arrays
    found: Column = _compute.binary_join(make(pa.array(offsets), members), between)
    return found


def with_rows(batch: pa.RecordBatch, rows: Longs, others: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with these of its rows taken from another one."""
    order = np.arange(batch.num_rows)
    order[rows] = np.arange(batch.num_rows, batch.num_rows + len(rows))
    library: Any = pa
    found: pa.RecordBatch = library.concat_batches([batch, others]).take(pa.array(order))
    return found


def rows_where(batch: pa.RecordBatch, wanted: Flags) -> pa.RecordBatch:
    rows: Any = batch
    found: pa.RecordBatch = rows.filter(pa.array(wanted))
    return found


def struct_fields(kind: pa.DataType) -> list[pa.Field[Any]]:
    fields: Any = kind
    return list(fields)


def struct_field(column: Column, name: str) -> Column:
    struct: Any = column
    found: Column = struct.field(name)
    return found
