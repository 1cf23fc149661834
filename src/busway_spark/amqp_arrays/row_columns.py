"""Columns and maps that are gathered out of pieces, each for some of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import Column, Longs


class RowColumn:
    """A value for some of the rows, null for all others. A later piece wins."""

    def __init__(self, count: int, kind: pa.DataType) -> None:
        self._count = count
        self._kind = kind
        self._rows: list[Longs] = []
        self._arrays: list[Column] = []

    def add(self, rows: Longs, values: Column) -> None:
        if len(rows):
            self._rows.append(rows)
            self._arrays.append(values)

    def array(self) -> Column:
        if not self._arrays:
            return arrow.nulls(self._kind, self._count)
        if len(self._arrays) == 1 and len(self._rows[0]) == self._count:
            return self._arrays[0]
        order = np.full(self._count, -1, np.int64)
        rows = np.concatenate(self._rows)
        order[rows] = np.arange(len(rows))
        return arrow.taken(pa.concat_arrays(self._arrays), order)


class RowMaps:
    """A map for each row. Entries keep the order in which their row got them."""

    def __init__(self, count: int) -> None:
        self._counts: Longs = np.zeros(count, np.int64)
        self._rows: list[Longs] = []
        self._places: list[Longs] = []
        self._names: list[Column] = []
        self._values: list[Column] = []

    def add(self, rows: Longs, names: Column, values: Column) -> None:
        """At most one entry for each row."""
        if len(rows):
            self._append(rows, self._counts[rows], names, values)
            self._counts[rows] += 1

    def add_runs(self, rows: Longs, counts: Longs, names: Column, values: Column) -> None:
        """So many entries for each of these rows, the entries of a row one behind the other."""
        if len(names):
            within = np.arange(len(names)) - np.repeat(np.cumsum(counts) - counts, counts)
            self._append(
                np.repeat(rows, counts), np.repeat(self._counts[rows], counts) + within, names, values
            )
            self._counts[rows] += counts

    def _append(self, rows: Longs, places: Longs, names: Column, values: Column) -> None:
        self._rows.append(rows)
        self._places.append(places)
        self._names.append(names)
        self._values.append(values)

    def parts(self, value_kind: pa.DataType) -> tuple[NDArray[np.int32], Column, Column]:
        """Where the entries of each row begin, the end of the last one behind; and all names and values."""
        offsets: NDArray[np.int32] = np.zeros(len(self._counts) + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        if not self._names:
            return offsets, pa.array([], pa.string()), pa.array([], value_kind)
        rows = np.concatenate(self._rows)
        order = np.empty(len(rows), np.int64)
        order[offsets[rows] + np.concatenate(self._places)] = np.arange(len(rows))
        names, values = pa.concat_arrays(self._names), pa.concat_arrays(self._values)
        return offsets, arrow.taken(names, order), arrow.taken(values, order)

    def array(self, value_kind: pa.DataType) -> Column:
        return arrow.maps(*self.parts(value_kind))
