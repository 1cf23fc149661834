"""Rows of the formats "eventhubs" and "servicebus" as rows of captured files.

Theory of operation. Batches hold many thousand rows, so nothing goes row by row that can go by column. Properties
of an event come as a map of JSON texts: all names and texts of a batch lie flat behind each other, names are few and
are quoted once each, and one join makes an object of each row's share. What an event's properties section brought is
found in the flat names of `systemProperties`. Most events have neither, and then nothing is done at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from busway_spark.pipeline.captured.captured import SCHEMA

#: pa.Array[Any]s whose values are in `systemProperties` of an event, by the name that they have there.
_OF_SYSTEM: Final = {
    "messageId": "message-id",
    "sessionId": "group-id",
    "subject": "subject",
    "contentType": "content-type",
    "correlationId": "correlation-id",
    "to": "to",
    "replyTo": "reply-to",
    "replyToSessionId": "reply-to-group-id",
}
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
#: JSON texts of doubles that no reader takes for one.
_DOUBLES: Final = r"^(NaN|-?Infinity|-?\d+\.0|-?\d+(\.\d+)?e\+\d+)$"
_EMPTY: Final = "{}"
_HOUR_US: Final = 3_600_000_000
_STRING: Final = pa.string()

Longs = NDArray[np.int64]


class UnfitRows(ValueError):
    """The rows are none of a format that can be captured; the text says why."""


@dataclass(frozen=True)
class CapturedRun:
    """Rows of one partition and hour, their numbers rising."""

    partition: int
    #: Hours since 1970.
    hour: int
    rows: pa.RecordBatch


def captured_runs(batch: pa.RecordBatch) -> list[CapturedRun]:
    """The rows of a batch in the order of their numbers, cut where the partition or the hour changes."""
    if batch.num_rows == 0:
        return []
    rows = captured_batch(batch)
    partitions, hours, numbers = _partitions(batch), _hours(rows), _longs(rows.column(0))
    changes = (np.diff(partitions) != 0) | (np.diff(hours) != 0)
    if (np.diff(numbers)[~changes] <= 0).any():
        order = np.lexsort((numbers, hours, partitions))
        rows, partitions, hours = rows.take(order), partitions[order], hours[order]
        changes = (np.diff(partitions) != 0) | (np.diff(hours) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(numbers)]
    return [
        CapturedRun(int(partitions[start]), int(hours[start]), rows.slice(start, end - start))
        for start, end in pairwise(bounds)
    ]


def captured_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """In the schema of captured files. Raises UnfitRows."""
    columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    if "systemProperties" in columns:
        columns.update(_system_columns(columns.pop("systemProperties"), batch.num_rows))
    if "properties" in columns and pa.types.is_map(columns["properties"].type):
        columns["properties"], types = _objects(columns["properties"])
        if types is not None:
            columns.setdefault("propertyTypes", types)
    arrays = [_column(columns, field, batch.num_rows) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(columns: dict[str, pa.Array[Any]], field: pa.Field[Any], count: int) -> pa.Array[Any]:
    found = columns.get(field.name)
    if found is None:
        found = pa.nulls(count, field.type)
    if not field.nullable and found.null_count:
        raise UnfitRows(f"A row has no '{field.name}', so it cannot be captured.")
    return found if found.type == field.type else found.cast(field.type)


def _partitions(batch: pa.RecordBatch) -> Longs:
    """Of a hub, or the fragment."""
    for name in ("partition", "fragment"):
        at = batch.schema.get_field_index(name)
        if at >= 0:
            return _longs(batch.column(at).cast(pa.int64()))
    raise UnfitRows("Rows without a column 'partition' or 'fragment' cannot be captured.")


def _hours(rows: pa.RecordBatch) -> Longs:
    return _longs(rows.column(1).cast(pa.int64())) // _HOUR_US


def _longs(column: pa.Array[Any]) -> Longs:
    if column.null_count:
        raise UnfitRows("A row has no number or no partition, so it cannot be captured.")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


# -- properties as one JSON object


@dataclass(frozen=True)
class _FlatMap:
    """The names and texts of all rows of a map column, and where each row's begin."""

    bounds: Longs
    names: pa.Array[Any]
    texts: pa.Array[Any]

    @classmethod
    def of(cls, column: Any) -> _FlatMap:
        bounds = np.asarray(column.offsets.to_numpy(), np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        return cls(
            bounds - first, column.keys.slice(first, last - first), column.items.slice(first, last - first)
        )

    @property
    def rows(self) -> Longs:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


def _objects(column: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
    """The objects, and the types that their JSON does not tell."""
    flat = _FlatMap.of(column)
    if len(flat.names) == 0:
        return pa.repeat(pa.scalar(_EMPTY, _STRING), len(column)), None
    texts: Any = flat.texts.cast(_STRING).fill_null("null")
    types: pa.Array[Any] | None = None
    doubles = pc.match_substring_regex(texts, _DOUBLES)
    if pc.any(doubles).as_py():
        types = _double_types(flat, np.asarray(doubles.to_numpy(zero_copy_only=False)), len(column))
        strange = pc.is_in(texts, value_set=pa.array(_NO_NUMBERS, _STRING))
        texts = pc.if_else(strange, _join('"', texts, '"', ""), texts)
    offsets: Any = pa.array(flat.bounds, pa.int32())
    entries: Any = pa.ListArray.from_arrays(offsets, _join(_quoted(flat.names), texts, ": "))
    return _join("{", pc.binary_join(entries, ", "), "}", ""), types


def _join(*parts: Any) -> Any:
    """Row by row; the last one is what stands between the others."""
    return pc.binary_join_element_wise(*parts)


def _quoted(names: pa.Array[Any]) -> pa.Array[Any]:
    """Each different name is quoted once."""
    encoded: Any = names.cast(_STRING).dictionary_encode()
    quoted = [json.dumps(name, ensure_ascii=False) for name in encoded.dictionary.to_pylist()]
    found: pa.Array[Any] = pa.array(quoted, _STRING).take(encoded.indices)
    return found


def _double_types(flat: _FlatMap, doubles: NDArray[np.bool_], count: int) -> pa.Array[Any]:
    """For doubles that JSON has no form for, and those without a fraction."""
    told: list[dict[str, str]] = [{} for _ in range(count)]
    rows, names = flat.rows, flat.names
    for at in np.flatnonzero(doubles).tolist():
        told[int(rows[at])][str(names[at].as_py())] = "double"
    texts = [json.dumps(each, ensure_ascii=False) if each else None for each in told]
    return pa.array(texts, _STRING)


# -- the properties section of events


def _system_columns(column: pa.Array[Any], count: int) -> dict[str, pa.Array[Any]]:
    flat = _FlatMap.of(column)
    if len(flat.names) == 0:
        return {}
    encoded: Any = flat.names.cast(_STRING).dictionary_encode()
    known = {name: index for index, name in enumerate(encoded.dictionary.to_pylist())}
    indices, rows = np.asarray(encoded.indices.to_numpy()), flat.rows
    found: dict[str, pa.Array[Any]] = {}
    for name, key in _OF_SYSTEM.items():
        if key in known:
            entries = np.flatnonzero(indices == known[key])
            found[name] = _spread(flat.texts, entries, rows[entries], count)
    return found


def _spread(texts: pa.Array[Any], entries: Longs, rows: Longs, count: int) -> pa.Array[Any]:
    """The texts of these entries, each at its row."""
    places = np.zeros(count, np.int64)
    is_absent = np.ones(count, np.bool_)
    places[rows], is_absent[rows] = entries, False
    wanted: Any = pa.array(places, mask=is_absent)
    return _unquoted(texts.take(wanted))


def _unquoted(texts: pa.Array[Any]) -> pa.Array[Any]:
    """JSON texts as what they say; numbers as their digits."""
    plain = texts.cast(_STRING)
    if pc.any(pc.match_substring(plain, "\\")).as_py():
        return pa.array([None if text is None else _said(text) for text in plain.to_pylist()], _STRING)
    is_text = pc.starts_with(plain, '"')
    inner: pa.Array[Any] = pc.if_else(is_text, pc.utf8_slice_codeunits(plain, 1, -1), plain)
    return inner


def _said(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text
