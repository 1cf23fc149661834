"""One Parquet file of the journal while it is written: frames → Arrow → row groups. Needs the `arrow` extra.

Theory of operation. Frames are laid side by side, each column as runs of values, and are made into rows only when
the group is written, by Arrow's own loops: no row passes through Python.
"""

from __future__ import annotations

import base64
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from busway.journal.files import COLUMNS, INTEGER, LONG, OPERATIONS, TEXT, TIMESTAMP, WORD, OpenFile
from busway.journal.frame import NO_NUMBER, Frame, RunsOfColumn, TextTable

_TYPES: Final[dict[str, Any]] = {
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TEXT: pa.string(),
    WORD: pa.dictionary(pa.int32(), pa.string()),
    LONG: pa.int64(),
    INTEGER: pa.int32(),
}
#: What every row has.
_ALWAYS: Final = ("time", "operation", "entity", "fragment")
#: What readers get.
SCHEMA: Final = pa.schema(
    [pa.field(name, _TYPES[kind], nullable=name not in _ALWAYS) for name, kind in COLUMNS.items()]
)
#: What is written: all texts by their place in a dictionary, which is how they lie in the file anyway.
WRITTEN_SCHEMA: Final = pa.schema(
    [field.with_type(_TYPES[WORD]) if COLUMNS[field.name] == TEXT else field for field in SCHEMA]
)
_OPERATION_WORDS: Final = pa.array(OPERATIONS, pa.string())
_NO_LONG: Final = pa.scalar(None, pa.int64())
_NO_DISTANCE: Final = pa.scalar(NO_NUMBER, pa.int64())
_ZERO: Final = pa.scalar(0, pa.int64())


class RowGroup:
    """Rows that become one group of a file."""

    def __init__(self) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._columns = {name: _Pieces() for name in COLUMNS}
        #: Of the frames: their rows, their paths, their other texts.
        self._frame_rows: list[int] = []
        self._paths: list[TextTable] = []
        self._texts: list[TextTable] = []

    def add(self, frame: Frame) -> None:
        """Only puts it aside: everything else is done once for the whole group."""
        for pieces, runs in zip(self._columns.values(), frame.columns, strict=True):
            pieces.add(runs)
        self._frame_rows.append(frame.rows)
        self._paths.append(frame.paths)
        self._texts.append(frame.texts)
        self.rows += frame.rows
        self.size_bytes += frame.size_bytes

    def table(self) -> pa.Table:
        """All rows, as WRITTEN_SCHEMA says."""
        before = _sums_before(self._frame_rows)
        arrays = [self._column(name, kind, before) for name, kind in COLUMNS.items()]
        return pa.Table.from_arrays(arrays, schema=WRITTEN_SCHEMA)

    def _column(self, name: str, kind: str, before: list[int]) -> Any:
        """`before`: of each frame the rows before it."""
        pieces = self._columns[name]
        values = pieces.values()
        if name == "entity" or kind == TEXT:
            texts = _texts_at(values, pieces, self._paths if name == "entity" else self._texts)
            encoded = texts.dictionary_encode()  # of runs, not of rows
            places = self._decoded(pieces, before, encoded.indices)
            return pa.DictionaryArray.from_arrays(places, encoded.dictionary)
        if name == "sequenceNumber":  # told by the distance to the row in its frame
            told = pc.if_else(pc.equal(values, _NO_DISTANCE), _NO_LONG, values)
            numbers = pc.subtract(told, pieces.of_frames(before))
            return pc.add(self._decoded(pieces, before, numbers), _counting(self.rows))
        if kind == TIMESTAMP:
            times = pc.if_else(pc.less_equal(values, _ZERO), _NO_LONG, pc.multiply(values, 1000))
            return self._decoded(pieces, before, times).view(_TYPES[kind])
        if kind == LONG:
            return self._decoded(pieces, before, _unless_negative(values))
        decoded = self._decoded(pieces, before, _unless_negative(values).cast(pa.int32()))
        return decoded if kind == INTEGER else pa.DictionaryArray.from_arrays(decoded, _OPERATION_WORDS)

    def _decoded(self, pieces: _Pieces, before: list[int], values: Any) -> Any:
        """Row by row."""
        if values.null_count == len(values):
            return pa.nulls(self.rows, values.type)
        starts = pc.add(pieces.starts(), pieces.of_frames(before).cast(pa.int32()))
        ends = pa.concat_arrays([starts.slice(1), pa.array([self.rows], pa.int32())])
        return _run_end_decoded(ends, values)


class _Pieces:
    """The runs of one column, frame by frame."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._starts: list[memoryview] = []
        self._values: list[memoryview] = []

    def add(self, runs: RunsOfColumn) -> None:
        self._counts.append(runs.length)
        self._starts.append(runs.starts)
        self._values.append(runs.values)

    def starts(self) -> Any:
        """In the row's own frame."""
        return _array(pa.int32(), sum(self._counts), b"".join(self._starts))

    def values(self) -> Any:
        return _array(pa.int64(), sum(self._counts), b"".join(self._values))

    def of_frames(self, figures: list[int]) -> Any:
        """For each run the figure of its frame."""
        ends = pa.array(accumulate(self._counts), pa.int32())
        return _run_end_decoded(ends, pa.array(figures, pa.int64()))


def _run_end_decoded(ends: Any, values: Any) -> Any:
    return pc.call_function("run_end_decode", [pa.RunEndEncodedArray.from_arrays(ends, values)])


def _sums_before(counts: list[int]) -> list[int]:
    return list(accumulate(counts, initial=0))[:-1]


def _array(kind: Any, count: int, data: bytes) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _texts_at(places: Any, pieces: _Pieces, tables: list[TextTable]) -> Any:
    """The text at each place of the table of its frame."""
    before = _sums_before([table.length for table in tables])
    if before[-1] + tables[-1].length == 0:
        return pa.nulls(len(places), pa.string())
    texts = pa.concat_arrays([_strings(table) for table in tables])
    return pc.take(texts, pc.add(_unless_negative(places), pieces.of_frames(before)))


def _strings(table: TextTable) -> Any:
    buffers = [None, pa.py_buffer(table.ends), pa.py_buffer(table.data)]
    return pa.Array.from_buffers(pa.string(), table.length, buffers)


def _unless_negative(values: Any) -> Any:
    return pc.if_else(pc.less(values, _ZERO), _NO_LONG, values)


class _Counting:
    """0, 1, 2 …, made once, or anew twice as long."""

    def __init__(self) -> None:
        self._numbers: Any = pa.array([], pa.int64())

    def __call__(self, count: int) -> Any:
        if len(self._numbers) < count:
            self._numbers = pa.array(range(2 * count), pa.int64())
        return self._numbers.slice(0, count)


_counting: Final = _Counting()


#: Chosen by measurement: whatever repeats is left to the compression, which is cheaper than to encode it.
_OPTIONS: Final[dict[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": [name for name, kind in COLUMNS.items() if kind in (TEXT, WORD)],
    "column_encoding": {"sequenceNumber": "DELTA_BINARY_PACKED"},
    "write_statistics": ["time", "entity", "sequenceNumber"],
    "store_schema": False,
}


class ParquetFile:
    """`finish` or `abandon` is its end."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        try:
            self._writer = pq.ParquetWriter(file.stream, WRITTEN_SCHEMA, **_OPTIONS)
        except Exception:
            file.abandon()
            raise
        # Arrow's readers find here which of the texts they get as words.
        self._writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(SCHEMA.serialize()).decode()})

    def write(self, group: RowGroup) -> None:
        self._writer.write_table(group.table(), row_group_size=group.rows)

    def size_bytes(self) -> int:
        return self._file.stream.tell()

    def finish(self) -> None:
        self._writer.close()
        self._file.finish()

    def abandon(self) -> None:
        """Raises nothing."""
        try:
            self._writer.close()
        except Exception:  # what it has not written yet is refused, too
            self._writer.is_open = False
        self._file.abandon()
