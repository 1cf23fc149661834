"""Rows of captured files by their places, and such rows as encoded messages.

Theory of operation. Matches come in the order of their numbers. A match says in which file its row lies and where.
Matches that follow each other in one row group of one file are a run, whose rows are cut out of the group in one
step. Runs are put together until they are worth encoding; so it matters little that files may overlap, and that
neighbours by number lie in different ones. A few row groups are kept for that, within a bound of bytes; each is
read whole, and none of which nothing matched.

All rows of a piece are encoded at once (`payloads`). Each column becomes its part of the messages
(`amqp_arrays.encoding`), and the parts are joined row by row. What comes out is, byte by byte, what
`row_evaluator.captured_message` makes of each row alone; a piece with a row that needs a closer look is refused,
and whoever asked takes its rows one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway.amqp.encode import encode_value
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.encoding import PIECE_BYTES, PIECE_ROWS, pieces
from busway_spark.amqp_arrays.message_cut import Column, Longs
from busway_spark.pipeline.backfill.backfill_plan import FILE, FRAGMENT, PLACE
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import fitted_batches
from busway_spark.property_types import properties_of

_BATCH_ROWS: Final = 64 * 1024
_FILES_MAX: Final = 16
_GROUPS_MAX: Final = 8
_GROUPS_BYTES_MAX: Final = 32 * 1024 * 1024

#: File and number of a row group.
_Key = tuple[str, int]


@dataclass(frozen=True)
class MatchedRows:
    """Matches and the rows that they speak of, in one order, all of one fragment."""

    fragment: int
    matches: pa.RecordBatch
    rows: pa.RecordBatch


class CapturedRows:
    def __init__(self, root: CaptureRoot, paths: Mapping[str, str]) -> None:
        self._root = root
        self._paths = paths
        self._files: dict[str, tuple[Any, pq.ParquetFile]] = {}
        #: By file, where its row groups begin.
        self._starts: dict[str, Longs] = {}
        #: The one that was used last stands last.
        self._groups: dict[_Key, pa.RecordBatch] = {}

    def read(self, found: pa.RecordBatch) -> Iterator[MatchedRows]:
        """In the order of the matches, in pieces. Raises JobFailed."""
        gathered: list[MatchedRows] = []
        count = size = 0
        for run in self._runs(found):
            if gathered and gathered[0].fragment != run.fragment:
                yield from _pieces(gathered)
                gathered, count, size = [], 0, 0
            gathered.append(run)
            count, size = count + run.rows.num_rows, size + run.rows.nbytes
            if count >= PIECE_ROWS or size >= PIECE_BYTES:
                yield from _pieces(gathered)
                gathered, count, size = [], 0, 0
        if gathered:
            yield from _pieces(gathered)

    def close(self) -> None:
        for source, _ in self._files.values():
            source.close()
        self._files.clear()

    def _runs(self, found: pa.RecordBatch) -> Iterator[MatchedRows]:
        names, files = arrow.words(found.column(FILE))
        places, fragments = arrow.longs(found.column(PLACE)), arrow.longs(found.column(FRAGMENT))
        groups = np.zeros(len(places), np.int64)
        for index, name in enumerate(names):
            is_there = files == index
            groups[is_there] = np.searchsorted(self._starts_of(name), places[is_there], "right") - 1
        changes = (np.diff(files) != 0) | (np.diff(groups) != 0) | (np.diff(fragments) != 0)
        firsts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(places) else []
        for first, end in zip(firsts, [*firsts[1:], len(places)], strict=False):
            name, group = names[int(files[first])], int(groups[first])
            at = places[first:end] - self._starts_of(name)[group]
            rows = _cut_out(self._group((name, group)), at)
            yield MatchedRows(int(fragments[first]), found.slice(first, end - first), rows)

    def _starts_of(self, name: str) -> Longs:
        known = self._starts.get(name)
        if known is None:
            metadata = self._file(name).metadata
            counts = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
            known = self._starts[name] = np.cumsum([0, *counts[:-1]])
        return known

    def _file(self, name: str) -> pq.ParquetFile:
        if name not in self._files:
            if len(self._files) >= _FILES_MAX:
                self.close()
            source = self._root.filesystem.open_input_file(self._root.full(PurePosixPath(self._paths[name])))
            self._files[name] = (source, pq.ParquetFile(source))
        return self._files[name][1]

    def _group(self, key: _Key) -> pa.RecordBatch:
        group = self._groups.pop(key, None)
        if group is None:
            name, index = key
            batches = fitted_batches(self._file(name), self._paths[name], _BATCH_ROWS, row_groups=[index])
            group = _one(list(batches))
            self._make_room(group.nbytes)
        self._groups[key] = group
        return group

    def _make_room(self, size: int) -> None:
        while self._groups and (
            len(self._groups) >= _GROUPS_MAX
            or size + sum(each.nbytes for each in self._groups.values()) > _GROUPS_BYTES_MAX
        ):
            del self._groups[next(iter(self._groups))]


def _cut_out(group: pa.RecordBatch, at: Longs) -> pa.RecordBatch:
    """Rows that stand together are not copied."""
    first = int(at[0])
    if (np.diff(at) == 1).all():
        return group.slice(first, len(at))
    places: Any = pa.array(at)
    return group.take(places)


def _pieces(gathered: Sequence[MatchedRows]) -> Iterator[MatchedRows]:
    matches, first = _one([each.matches for each in gathered]), 0
    for rows in pieces(_one([each.rows for each in gathered])):
        yield MatchedRows(gathered[0].fragment, matches.slice(first, rows.num_rows), rows)
        first += rows.num_rows


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    library: Any = pa
    found: pa.RecordBatch = batches[0] if len(batches) == 1 else library.concat_batches(batches)
    return found


MESSAGE_ID: Final = "messageId"
#: Columns by their place in the properties of a message; the others are not captured.
_FIELDS: Final = (
    MESSAGE_ID, None, "to", "subject", "replyTo", "correlationId", "contentType", None, None, None, "sessionId",
    None, "replyToSessionId",
)  # fmt: skip
_HEADER: Final = 0x70
_HEADER_FIELDS: Final = 5
_UINT_MAX: Final = (1 << 32) - 1
_KEY_ENTRY: Final = b"\xa3\x13x-opt-partition-key"
_APPLICATION_HEAD: Final = bytes((0, 0x53, encoding.APPLICATION_PROPERTIES))


def payloads(rows: pa.RecordBatch) -> Column:
    """As senders send them; a scheduled time is not told, because it is over. Raises NotEncodable."""
    parts: list[Column] = []
    if _is_told(rows, "expiresAt"):
        parts.append(_headers(rows.column("enqueuedTime"), rows.column("expiresAt")))
    if _is_told(rows, "partitionKey"):
        parts.append(_annotations(rows.column("partitionKey")))
    parts.append(_properties(rows))
    if _is_told(rows, "properties"):
        parts.append(_application_properties(rows.column("properties"), rows.column("propertyTypes")))
    parts += encoding.data_section(arrow.filled(rows.column("body"), b""))
    return arrow.joined(*parts)


def _is_told(rows: pa.RecordBatch, name: str) -> bool:
    column = rows.column(name)
    return column.null_count < len(column)


def _headers(starts: Column, ends: Column) -> Column:
    """How long a message has to live, in the smallest form of its number."""
    lives: Longs = np.maximum(arrow.longs(ends) // 1000 - arrow.longs(starts) // 1000, 0)
    has_one = arrow.is_valid(ends)
    if (lives[has_one] > _UINT_MAX).any():
        raise encoding.NotEncodable("a life has no place in 32 bits")
    small = encoding.fixed(ends, lives.astype(">u1"), b"\x52")
    numbers = arrow.chosen(lives > 0, small, b"\x43")
    numbers = arrow.chosen(lives > 255, encoding.fixed(ends, lives.astype(">u4"), b"\x70"), numbers)
    body = arrow.joined(encoding.NULL * 2, arrow.filled(numbers, b""), encoding.NULL * 2)
    fields = encoding.compound(body, np.full(len(body), _HEADER_FIELDS), encoding.LIST_FORM)
    return encoding.only_where(has_one, encoding.section(_HEADER, fields))


def _annotations(keys: Column) -> Column:
    entries = arrow.joined(_KEY_ENTRY, encoding.variable(arrow.filled(keys, ""), encoding.TEXT_FORM))
    entry = encoding.compound(entries, np.full(len(keys), 2), encoding.MAP_FORM)
    return encoding.only_where(arrow.is_valid(keys), encoding.section(encoding.MESSAGE_ANNOTATIONS, entry))


def _properties(rows: pa.RecordBatch) -> Column:
    body = _each_row(rows, [encoding.NULL if name is None else _field(rows, name) for name in _FIELDS])
    fields = encoding.compound(body, np.full(len(body), len(_FIELDS)), encoding.LIST_FORM)
    return encoding.section(encoding.PROPERTIES, fields)


def _each_row(rows: pa.RecordBatch, parts: list[Column | bytes]) -> Column:
    """Joined row by row, also where all rows have the same."""
    if all(isinstance(part, bytes) for part in parts):
        same = b"".join(part for part in parts if isinstance(part, bytes))
        return arrow.repeated(same, encoding.BINARY, rows.num_rows)
    return arrow.joined(*parts)


def _field(rows: pa.RecordBatch, name: str) -> Column | bytes:
    if not _is_told(rows, name):
        return encoding.NULL
    column = rows.column(name)
    if name != "contentType":
        return encoding.with_null(encoding.variable(column, encoding.TEXT_FORM))
    if not arrow.is_ascii(column):
        raise encoding.NotEncodable("a content type is not ASCII")
    return encoding.with_null(encoding.variable(column, encoding.SYMBOL_FORM))


def _application_properties(texts: Column, types: Column) -> Column:
    """An element for each row, empty for a row without. Equal ones are read once."""
    known: dict[tuple[str | None, str | None], bytes] = {}
    found: list[bytes] = []
    for pair in zip(texts.to_pylist(), types.to_pylist(), strict=True):
        section = known.get(pair)
        if section is None:
            section = known[pair] = _section(*pair)
        found.append(section)
    return pa.array(found, encoding.BINARY)


def _section(text: str | None, types: str | None) -> bytes:
    try:
        properties = properties_of(text, types)
        return _APPLICATION_HEAD + encode_value(properties) if properties else b""
    except ValueError as error:  # UnknownProperties and EncodeError are such
        raise encoding.NotEncodable(str(error)) from error
