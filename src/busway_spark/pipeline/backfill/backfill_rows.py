"""Rows of captured files by their places, for matches that come in the order of their numbers.

Theory of operation. A match says in which file its row lies and where. Matches that follow each other in one row
group of one file are a run, whose rows are cut out of the group in one step. Runs are put together until they are
worth encoding; so it matters little that files may overlap, and that neighbours by number lie in different ones. A
few row groups are kept for that, within a bound of bytes; each is read whole, and none of which nothing matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.encoded_rows import PIECE_BYTES, PIECE_ROWS, pieces
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.pipeline.backfill.backfill_matches import FILE, FRAGMENT, PLACE
from busway_spark.pipeline.captured.captured import fitted_batches
from busway_spark.pipeline.places.capture_root import CaptureRoot

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
