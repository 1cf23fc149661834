"""Captured messages and operations of the journal as one table of events, which the figures are made from.

Columns: `source` (captured or journal), `time`, `operation`, `entity`, `fragment`, `sessionId`, `partitionKey`,
`sizeBytes`, `deliveryCount`, `enqueuedTime`, `reason`. A captured message is an event `captured` at the time when it
was enqueued. Only the columns and folders that are needed are read: of a year of files, those of the days asked for.

A message that is captured and that the journal tells of as well is counted once (`not_told`).

An entity may be captured and journalled, each from a day of its own on. The arrival of a message that the journal
tells of is counted from the journal, which knows more of it; every other captured message is counted from the
capture. A message is the same in both when entity, fragment, sequence number and the time at which it was enqueued
are: numbers alone begin anew when an entity is deleted and made again. A topic is captured through a subscription,
and the journal has rows for the topic and for each subscription: a captured message has the number that it got in
one of these. The journal tells of a message when it is durable, which is a moment after the time that it was enqueued
at. So it is asked beyond the stretch of time that is reported on: reports of two days that follow each other count a
message once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from busway.journal import files as journal
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured import FOLDERS
from busway_spark.pipeline.captured.captured_files import captured_frame, listed_files
from busway_spark.pipeline.job import JobFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

_DAY: Final = timedelta(days=1)
_SUBSCRIPTION: Final = "^(.+)/subscriptions/[^/]+$"
_KEYS: Final = ("toldOf", "toldFragment", "toldNumber", "toldMs")
CAPTURED: Final = "captured"
JOURNAL: Final = "journal"
#: Some messages of an entity from the one, some from the other.
BOTH: Final = "captured and journal"
#: What brings a message in.
ARRIVALS: Final = (journal.SEND, journal.PUBLISH, CAPTURED)
COLUMNS: Final = ("source", *journal.COLUMNS)
_JOURNAL_TYPES: Final[dict[str, DataType]] = {
    journal.TIMESTAMP: TimestampType(),
    journal.TEXT: StringType(),
    journal.WORD: StringType(),
    journal.LONG: LongType(),
    journal.INTEGER: IntegerType(),
}
_FOLDERS: Final = [StructField("date", StringType()), StructField("hour", StringType())]
_JOURNAL: Final = StructType(
    [StructField(name, _JOURNAL_TYPES[kind]) for name, kind in journal.COLUMNS.items()] + _FOLDERS
)
_CAPTURED_TYPES: Final[dict[str, DataType]] = {
    "enqueuedTime": TimestampType(),
    "body": BinaryType(),
    "sequenceNumber": LongType(),
    "sessionId": StringType(),
    "partitionKey": StringType(),
    "entity": StringType(),
    "date": StringType(),
    "hour": StringType(),
    "partition": IntegerType(),
}
_CAPTURED: Final = StructType([StructField(name, kind) for name, kind in _CAPTURED_TYPES.items()])


def not_told(
    captured: DataFrame, operations: DataFrame, since: datetime | None, until: datetime | None
) -> DataFrame:
    """Captured messages whose arrival is not among the operations. Those have the column `date` of their folders."""
    is_arrival = F.col("operation").isin(journal.SEND, journal.PUBLISH)
    arrivals = operations.where(is_arrival & F.col("sequenceNumber").isNotNull())
    if since is not None:
        arrivals = arrivals.where(F.col("date") >= _day(since - _DAY))
    if until is not None:
        arrivals = arrivals.where(F.col("date") <= _day(until + _DAY))
    name = F.lower("entity")
    topic = F.regexp_extract(name, _SUBSCRIPTION, 1)
    names = F.when(topic == "", F.array(name)).otherwise(F.array(name, topic))
    told = arrivals.select(F.explode(names).alias(_KEYS[0]), *_identity())
    rows = captured.select("*", name.alias(_KEYS[0]), *_identity())
    return rows.join(told, list(_KEYS), "left_anti").select(*captured.columns)


def _identity() -> list[Column]:
    found = (F.coalesce("fragment", F.lit(0)), F.col("sequenceNumber"), F.unix_millis("enqueuedTime"))
    return [column.alias(name) for column, name in zip(found, _KEYS[1:], strict=True)]


def events(
    spark: SparkSession,
    *,
    captured: str | None,
    journal_folder: str | None,
    since: datetime | None,
    until: datetime | None,
    entities: Sequence[str],
    with_sizes: bool,
) -> DataFrame:
    """Raises JobFailed when a folder is not there."""
    if captured is None and journal_folder is None:
        raise JobFailed("Nothing to report on: give --captured or --journal.")
    operations = None if journal_folder is None else _journal(spark, journal_folder)
    frames: list[DataFrame] = []
    if captured is not None:
        rows = _chosen(_captured(spark, captured, since, until, with_sizes), since, until, entities)
        frames.append(rows if operations is None else not_told(rows, operations, since, until))
    if operations is not None:
        frames.append(_chosen(operations, since, until, entities))
    return reduce(lambda one, other: one.unionByName(other), frames).select(*COLUMNS)


def _captured(
    spark: SparkSession, folder: str, since: datetime | None, until: datetime | None, with_sizes: bool
) -> DataFrame:
    """From the files that count: those that a compaction is just replacing do not."""
    _check_folder(folder, "--captured")
    root = CaptureRoot(folder)
    with root.telling():
        files = listed_files(root, None, _microseconds(since), _microseconds(until))
    rows = captured_frame(spark, root, files, _CAPTURED)
    size: Column = F.octet_length("body").cast("long") if with_sizes else F.lit(None).cast("long")
    known = {
        "source": F.lit(CAPTURED),
        "time": F.col("enqueuedTime"),
        "operation": F.lit(CAPTURED),
        "fragment": F.col("partition"),
        "sizeBytes": size,
        "deliveryCount": F.lit(None).cast("int"),
        "reason": F.lit(None).cast("string"),
    }
    return rows.withColumns(known).select(*COLUMNS, "date")


def _journal(spark: SparkSession, folder: str) -> DataFrame:
    _check_folder(folder, "--journal")
    try:
        rows = spark.read.schema(_JOURNAL).parquet(folder)
    except PySparkException as error:
        raise JobFailed(f"--journal: '{folder}' cannot be read as Parquet.") from error
    return rows.withColumn("source", F.lit(JOURNAL)).select(*COLUMNS, "date")


def _check_folder(folder: str, option: str) -> None:
    if "://" not in folder and not Path(folder).is_dir():
        raise JobFailed(f"{option}: there is no folder '{folder}'.")


def _chosen(
    rows: DataFrame, since: datetime | None, until: datetime | None, entities: Sequence[str]
) -> DataFrame:
    conditions: list[Column] = [F.col("time").isNotNull()]
    if since is not None:
        conditions += [F.col("time") >= F.lit(since), F.col("date") >= _day(since)]
    if until is not None:
        conditions += [F.col("time") < F.lit(until), F.col("date") <= _day(until)]
    if entities:
        conditions.append(reduce(lambda one, other: one | other, [_is_of(each) for each in entities]))
    return rows.where(reduce(lambda one, other: one & other, conditions)).select(*COLUMNS)


def _is_of(entity: str) -> Column:
    """The entity and what lies below it: subscriptions, dead-letter queues."""
    name = entity.strip("/").lower()
    return (F.lower("entity") == name) | F.lower("entity").startswith(f"{name}/")


def _day(moment: datetime) -> Column:
    return F.lit(f"{moment.astimezone(UTC):%Y-%m-%d}")


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1_000_000)


def slot_of(slot_s: int) -> Column:
    """When its stretch of time begins, in seconds since 1970."""
    return (F.floor(F.unix_timestamp("time") / slot_s) * slot_s).cast("long")


def seconds_between(first: str, last: str) -> Column:
    """With microseconds; what runs backwards because clocks were set counts as nothing."""
    micros = F.unix_micros(F.col(last)) - F.unix_micros(F.col(first))
    return F.greatest(micros / F.lit(timedelta(seconds=1) // timedelta(microseconds=1)), F.lit(0.0))


assert set(FOLDERS) <= set(_CAPTURED_TYPES), "the folders' columns are read by their names"
