"""Which captured files there are at a place, the one way in which every job finds them; and their rows in order.

Theory of operation. An entity is captured into Parquet files, whose folders and names say what they are
(`captured`), or into a Delta table, whose log says it (`delta_table`). Files of a table are never found by looking
into folders: their names are no names of captured files, and what was removed from it may lie there for long. A
place may hold both, some entities this way and some the other. An entity of which there are files in the log and
others in folders is refused: somebody has made a table of captured files, and what is there twice cannot be told.

Of Parquet files, what a compaction is replacing right now is left out, and a listing that it has overtaken is made
again (`swap`).

What a file holds (`FileSpan`) is told by the table's log or, of Parquet files, by manifests. A record of a file
that has another size is of another file. What nobody has written down is told by footers, which are opened only
when somebody asks (`spanned`).

As a table of Spark they are exactly the files that were listed, with entity, date, hour and partition. Columns are
asked for by name: one that a file lacks is null, one that nobody asked for is not read. What the folders say Spark
takes from the paths, as far as they are what we write. A Delta table's optimize may put files anywhere; for those
it is looked up by their names, of which there is one each.

As history their rows come in order. Files of a partition are read one behind the other, hour by hour. Where the
numbers of some overlap (sessions, several stores) these are read together and merged, and a file whose rows stand
in another order is sorted, so that rows of a partition and hour come in the order of their numbers.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby, repeat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from busway_spark.pipeline.captured.capture_root import TOP, CaptureRoot
from busway_spark.pipeline.captured.captured import (
    FOLDERS,
    SCHEMA,
    CapturedFile,
    entity_folder,
    fitted_batches,
    folder_of,
    parse_text,
)
from busway_spark.pipeline.captured.delta_table import TableFile, table_files
from busway_spark.pipeline.captured.manifests import FileSpan, RecordedFile, recorded_texts, span_of
from busway_spark.pipeline.captured.swap import hidden_by, read_swaps
from busway_spark.pipeline.job import JobFailed, driver_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LISTINGS_MAX: Final = 20
_HOUR_US: Final = 3_600_000_000
#: Footers that are opened at once: on an object store most of the time is waiting.
_FOOTERS_AT_ONCE: Final = 16
_NAME: Final = "file name of captured messages"
_FOLDERS_DDL: Final = f"`{_NAME}` STRING, entity STRING, date STRING, hour STRING, partition INT"


class ListedFile(NamedTuple):
    """`file` says what the file is; where it lies is `path`, below the root."""

    file: CapturedFile
    path: PurePosixPath
    bytes: int
    #: None: to be looked up (`spanned`).
    span: FileSpan | None = None
    #: False: its rows may stand in any order.
    is_rising: bool = True


class SpannedFile(NamedTuple):
    """A file and what it holds."""

    file: CapturedFile
    path: PurePosixPath
    bytes: int
    span: FileSpan
    is_rising: bool


def listed_files(
    root: CaptureRoot, entity: str | None = None, since_us: int | None = None, until_us: int | None = None
) -> list[ListedFile]:
    """Sorted by entity, hour, partition and number. Those of hours that a time lies in, or all. Raises JobFailed."""
    with _no_collection():
        in_table = [_of_table(root, each) for each in table_files(root, entity)]
        lying = _lying_files(root, entity)
        _check_one_layout(root, in_table, lying)
        found = [each for each in (*in_table, *lying) if _may_have(each.file.hour, since_us, until_us)]
        return sorted(found, key=lambda each: each.file)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Of garbage: looking for some among millions of small things takes longer than making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def spanned(root: CaptureRoot, files: Sequence[ListedFile]) -> list[SpannedFile]:
    """With what each holds; those without rows are left out. Raises JobFailed for what is no captured file."""
    unknown = [each for each in files if each.span is None]
    looked_up: dict[PurePosixPath, FileSpan] = {}
    if unknown:
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "footers") as pool:
            spans = pool.map(lambda each: span_of(root, each.path), unknown)
            looked_up = {each.path: span for each, span in zip(unknown, spans, strict=True)}
    with _no_collection():
        return [
            SpannedFile(each.file, each.path, each.bytes, span, each.is_rising)
            for each in files
            if (span := each.span or looked_up[each.path]).rows > 0
        ]


def last_numbers(root: CaptureRoot, entity: str) -> dict[int, int]:
    """Of a hub, by partition: the last that is captured."""
    files = listed_files(root, entity)
    newest = {each.file.partition: each for each in sorted(files, key=lambda each: each.file.first_number)}
    # A table's optimize may have put the newest rows into a file that begins before others.
    asked = [each for each in files if each.span is not None or each is newest[each.file.partition]]
    last: dict[int, int] = {}
    for each in spanned(root, asked):
        last[each.file.partition] = max(each.span.last_number, last.get(each.file.partition, -1))
    return last


def _may_have(hour: datetime, since_us: int | None, until_us: int | None) -> bool:
    if since_us is None and until_us is None:
        return True
    start_us = int(hour.timestamp()) * 1_000_000
    return (until_us is None or start_us < until_us) and (since_us is None or start_us + _HOUR_US > since_us)


def _check_one_layout(root: CaptureRoot, in_table: Iterable[ListedFile], lying: Iterable[ListedFile]) -> None:
    both = {each.file.entity for each in in_table} & {each.file.entity for each in lying}
    if both:
        raise JobFailed(
            f"'{min(both)}' is captured into Parquet files at {root.location}, and the Delta table there has files"
            " of it too: which messages are in both cannot be told. Move the folder _delta_log elsewhere, or the"
            " Parquet files."
        )


# -- a table


def _of_table(root: CaptureRoot, each: TableFile) -> ListedFile:
    span = _span_told(each)
    first = each.first_number
    if first is None:
        span = span_of(root, each.path)
        first = span.first_number
    file = CapturedFile(each.entity, each.hour, each.partition, first)
    return ListedFile(file, each.path, each.bytes, span, each.is_rising)


def _span_told(each: TableFile) -> FileSpan | None:
    """By the log, as far as it tells everything. Its times may be rounded, outwards, to milliseconds."""
    if each.rows == 0:
        return FileSpan(0, 0, -1, 0, -1)
    if (
        each.rows is None
        or each.first_number is None
        or each.last_number is None
        or each.first_time is None
        or each.last_time is None
    ):
        return None
    return FileSpan(
        each.rows,
        each.first_number,
        each.last_number,
        _microseconds(each.first_time),
        _microseconds(each.last_time),
    )


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


# -- folders


def _lying_files(root: CaptureRoot, entity: str | None) -> list[ListedFile]:
    for _ in range(_LISTINGS_MAX):
        swaps = read_swaps(root)
        hidden = hidden_by(root, swaps)
        found = [each for folder in _entity_folders(root, entity) for each in root.files(folder)]
        if read_swaps(root) == swaps and hidden_by(root, swaps) == hidden:
            return _recorded(root, [each for each in found if not hidden or each[0] not in hidden])
    raise JobFailed(f"{root.location} is compacted all the time; try again later.")


def _recorded(root: CaptureRoot, found: Iterable[tuple[PurePosixPath, int]]) -> list[ListedFile]:
    """Captured files, with what manifests tell. There may be a million: a file costs microseconds."""
    records: dict[str, dict[str, RecordedFile]] = {}
    listed: list[ListedFile] = []
    for path, size in found:
        text = str(path)
        file = parse_text(text)
        if file is None:
            continue
        if file.entity not in records:
            records[file.entity] = recorded_texts(root, file.entity)
        record = records[file.entity].get(text)
        span = record.span if record is not None and record.bytes == size else None
        listed.append(ListedFile(file, path, size, span))
    return listed


def _entity_folders(root: CaptureRoot, entity: str | None) -> list[PurePosixPath]:
    if entity is not None:
        return [entity_folder(entity)]
    return [folder for folder in root.folders(TOP) if folder.name.startswith("entity=")]


def captured_frame(
    spark: SparkSession, root: CaptureRoot, files: Sequence[ListedFile | SpannedFile], schema: StructType
) -> DataFrame:
    """`schema`: the wanted columns; with the folders' own, which are behind the others then."""
    usual = [each for each in files if each.path.parent == _usual_folder(each.file)]
    strange = [each for each in files if each.path.parent != _usual_folder(each.file)]
    frames: list[DataFrame] = []
    if usual:
        place = root.spark_location
        paths = [f"{place}/{each.path}" for each in usual]
        with _telling_drivers():
            frames.append(spark.read.schema(schema).option("basePath", place).parquet(*paths))
    if strange:
        frames.append(_looked_up(spark, root, strange, schema))
    if not frames:
        return spark.createDataFrame([], schema)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _usual_folder(file: CapturedFile) -> object:
    return folder_of(file.entity, file.hour, file.partition)


def _looked_up(
    spark: SparkSession, root: CaptureRoot, files: Sequence[ListedFile | SpannedFile], schema: StructType
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    told = [(each.path.name, *_folder_values(each.file)) for each in files]
    folders = spark.createDataFrame(told, _FOLDERS_DDL)
    own = StructType([field for field in schema.fields if field.name not in FOLDERS])
    paths = [f"{root.spark_location}/{each.path}" for each in files]
    with _telling_drivers():
        rows = spark.read.schema(own).parquet(*paths).withColumn(_NAME, F.col("_metadata.file_name"))
    return rows.join(F.broadcast(folders), _NAME).select(*(field.name for field in schema.fields))


@contextmanager
def _telling_drivers() -> Iterator[None]:
    """Spark looks for the files at once, by a driver that it may not have."""
    try:
        yield
    except Exception as error:
        sentence = driver_sentence(str(error))
        if sentence is None:
            raise
        raise JobFailed(sentence) from error


def _folder_values(file: CapturedFile) -> tuple[str, str, str, int]:
    return file.entity, f"{file.hour:%Y-%m-%d}", f"{file.hour:%H}", file.partition


_BATCH_ROWS: Final = 2_048
_SORTED_ROWS: Final = 64 * 1024
_TIMES: Final = ("enqueuedTime", "expiresAt", "scheduledEnqueueTime")


class HistoryRow(NamedTuple):
    """The columns of `captured`, in their order; times in microseconds since 1970."""

    number: int
    time_us: int
    body: bytes | None
    message_id: str | None
    session_id: str | None
    partition_key: str | None
    subject: str | None
    content_type: str | None
    correlation_id: str | None
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    expires_us: int | None
    scheduled_us: int | None
    enqueued_number: int | None
    offset: str | None
    publisher: str | None
    properties: str | None
    property_types: str | None


class Mark(NamedTuple):
    """A place in the history of a partition: everything up to it, in this order."""

    hour: int
    number: int


START: Final = Mark(0, -1)
END: Final = Mark(1 << 60, 1 << 62)


class RowSelection:
    """Which numbers of a partition and hour are wanted."""

    def numbers(self, file: CapturedFile) -> NDArray[np.int64] | None:
        """Sorted; None: all of them."""
        del file
        return None


class History:
    """The captured messages of one entity, from one time up to, not including, another."""

    def __init__(
        self, root: CaptureRoot, entity: str, since_us: int | None = None, until_us: int | None = None
    ) -> None:
        self._root = root
        self._since_us = -(1 << 62) if since_us is None else since_us
        self._until_us = 1 << 62 if until_us is None else until_us
        files = spanned(root, listed_files(root, entity, since_us, until_us))
        self.files = [each for each in files if self._is_wanted(each.span)]

    def _is_wanted(self, span: FileSpan) -> bool:
        return span.last_time_us >= self._since_us and span.first_time_us < self._until_us

    def partitions(self) -> dict[int, Mark]:
        """With the end of each."""
        ends: dict[int, Mark] = {}
        for each in self.files:
            partition = each.file.partition
            ends[partition] = max(_end(each), ends.get(partition, START))
        return ends

    def rows(
        self, partition: int, after: Mark = START, last: Mark = END, selection: RowSelection | None = None
    ) -> Iterator[HistoryRow]:
        """Behind one mark, up to and with another."""
        files = sorted(
            (each for each in self.files if each.file.partition == partition),
            key=lambda each: (each.file.hour, each.span.first_number),
        )
        for chain in _chains(files):
            if max(_end(each) for each in chain) <= after or _end(chain[0]).hour > last.hour:
                continue
            wanted = (selection or RowSelection()).numbers(chain[0].file)
            parts = [self._file_rows(each, after, last, wanted) for each in chain]
            yield from parts[0] if len(parts) == 1 else heapq.merge(*parts, key=_number)

    def _file_rows(
        self, file: SpannedFile, after: Mark, last: Mark, wanted: NDArray[np.int64] | None
    ) -> Iterator[HistoryRow]:
        hour = _end(file).hour
        low = after.number if hour == after.hour else -1 if hour > after.hour else END.number
        high = last.number if hour == last.hour else END.number
        for batch in _batches(self._root, file):
            numbers: Any = batch.column(0).to_numpy()
            times: Any = batch.column(1).cast(pa.int64()).to_numpy()
            keep = (numbers > low) & (numbers <= high) & (times >= self._since_us) & (times < self._until_us)
            if wanted is not None:
                keep &= np.isin(numbers, wanted, assume_unique=True)
            if keep.all():
                yield from _rows(batch)
            elif keep.any():
                yield from _rows(batch.filter(pa.array(keep)))


def _end(file: SpannedFile) -> Mark:
    return Mark(int(file.file.hour.timestamp()) // 3600, file.span.last_number)


def _number(row: HistoryRow) -> int:
    return row.number


def _chains(files: Iterable[SpannedFile]) -> Iterator[list[SpannedFile]]:
    """Files of one hour whose numbers overlap, together."""
    for _, of_hour in groupby(files, key=lambda each: each.file.hour):
        chain: list[SpannedFile] = []
        reach = -1
        for each in of_hour:
            if chain and each.span.first_number > reach:
                yield chain
                chain = []
            chain.append(each)
            reach = max(reach, each.span.last_number)
        yield chain


def _batches(root: CaptureRoot, file: SpannedFile) -> Iterator[pa.RecordBatch]:
    """In the order of their numbers."""
    where = root.full(file.path)
    try:
        with root.filesystem.open_input_file(where) as source:
            parquet = pq.ParquetFile(source)
            if file.is_rising or _rises(parquet):
                yield from fitted_batches(parquet, where, _BATCH_ROWS)
            else:
                yield from _sorted_batches(parquet, where)
    except FileNotFoundError:
        raise JobFailed(
            f"{where} is gone: it was put together with others meanwhile. Start again; it goes on where it was."
        ) from None
    except (pa.ArrowException, KeyError) as error:
        raise JobFailed(f"{where} cannot be read: {error}") from error


def _rises(parquet: pq.ParquetFile) -> bool:
    numbers: Any = parquet.read([SCHEMA.names[0]]).column(0).to_numpy()
    return bool((np.diff(numbers) > 0).all())


def _sorted_batches(parquet: pq.ParquetFile, where: str) -> Iterator[pa.RecordBatch]:
    """Of a file that a table's optimize has put together. It is in memory, whole, while it is read."""
    table = pa.Table.from_batches(list(fitted_batches(parquet, where, _SORTED_ROWS)), SCHEMA)
    yield from table.sort_by(SCHEMA.names[0]).to_batches(_BATCH_ROWS)


def _rows(batch: pa.RecordBatch) -> Iterator[HistoryRow]:
    count = batch.num_rows
    columns: list[Iterable[Any]] = []
    for name, column in zip(SCHEMA.names, batch.columns, strict=True):
        values: Any = column.cast(pa.int64()) if name in _TIMES else column
        columns.append(repeat(None, count) if values.null_count == count else values.to_pylist())
    return map(HistoryRow._make, zip(*columns, strict=True))
