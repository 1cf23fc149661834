"""Groups of dead letters: how many, since when, and some to look at. Counted by Spark; only the groups come here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from busway_spark.pipeline.deadletters.columns import AGE_NAMES
from busway_spark.pipeline.report.charts import slot_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What can be grouped by: the word of the option → the column.
KEYS: Final = {
    "entity": "source",
    "reason": "deadLetterReason",
    "description": "deadLetterErrorDescription",
    "fingerprint": "fingerprint",
    "subject": "subject",
    "age": "age",
}
USUAL_KEYS: Final = ("entity", "reason", "fingerprint")
GROUPS_MAX: Final = 200
_BARS_MAX: Final = 12
_REASONS_MAX: Final = 8


@dataclass(frozen=True)
class Sample:
    sequence_number: int
    message_id: str | None
    enqueued: datetime | None
    subject: str | None
    delivery_count: int | None
    description: str | None
    body_start: str | None


@dataclass(frozen=True)
class Group:
    #: Word of KEYS → value.
    keys: dict[str, str | None]
    count: int
    chosen: int
    first: datetime | None
    last: datetime | None
    delivery_count_max: int | None
    body_bytes: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Slot:
    """How many of a reason were enqueued in one stretch of time."""

    start_s: int
    reason: str | None
    count: int


@dataclass
class Survey:
    total: int = 0
    chosen: int = 0
    #: Deferred by a stream that reads this dead-letter queue: they are its business.
    held: int = 0
    #: How many groups there are; `groups` has the largest.
    group_count: int = 0
    groups: list[Group] = field(default_factory=list)
    #: Word of KEYS → (value, count, chosen), the largest first. This and what follows only where it is drawn.
    breakdowns: dict[str, list[tuple[str | None, int, int]]] = field(default_factory=dict)
    slot_s: int = 0
    slots: list[Slot] = field(default_factory=list)


def survey(
    letters: DataFrame, sources: Sequence[str], by: Sequence[str], samples: int, *, draws: bool
) -> Survey:
    """`letters` as `deadletters_columns.chosen` gives them, kept: they are read several times. `draws`: also what the
    page of a report draws."""
    row = letters.agg(
        F.count("*"), _count_if(F.col("isChosen")), _count_if(F.col("isHeld")),
        F.min(F.unix_timestamp("enqueuedTime")), F.max(F.unix_timestamp("enqueuedTime")),
    ).collect()[0]  # fmt: skip
    found = Survey(total=int(row[0]), chosen=int(row[1]), held=int(row[2]))
    if not found.total:
        return found
    found.groups, found.group_count = _groups(letters, sources, by, samples)
    if draws:
        found.breakdowns = _breakdowns(letters, sources)
        found.slot_s = slot_seconds(int(row[4] or 0) - int(row[3] or 0))
        reasons = [reason for reason, _, _ in found.breakdowns["reason"][:_REASONS_MAX]]
        found.slots = _slots(letters, found.slot_s, reasons)
    return found


def _count_if(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _groups(
    letters: DataFrame, sources: Sequence[str], by: Sequence[str], samples: int
) -> tuple[list[Group], int]:
    columns = [KEYS[word] for word in by]
    sample = F.struct(
        "sequenceNumber", "messageId", "enqueuedTime", "subject", "deliveryCount",
        F.substring("deadLetterErrorDescription", 1, 400).alias("description"), "bodyStart",
    )  # fmt: skip
    grouped = letters.groupBy(*columns).agg(
        F.count("*").alias("count"),
        _count_if(F.col("isChosen")).alias("chosen"),
        F.min("enqueuedTime").alias("first"),
        F.max("enqueuedTime").alias("last"),
        F.max("deliveryCount").alias("deliveries"),
        F.coalesce(F.sum("bodyBytes"), F.lit(0)).alias("bytes"),
        (F.min_by(sample, F.col("sequenceNumber"), samples) if samples else F.array()).alias("samples"),
    )
    kept = grouped.orderBy(F.desc("count"), *columns).limit(GROUPS_MAX).collect()
    count = len(kept) if len(kept) < GROUPS_MAX else grouped.count()
    return [_group(row, sources, by) for row in kept], count


def _group(row: Any, sources: Sequence[str], by: Sequence[str]) -> Group:
    return Group(
        keys={word: _value(word, row[KEYS[word]], sources) for word in by},
        count=int(row["count"]),
        chosen=int(row["chosen"]),
        first=_aware(row["first"]),
        last=_aware(row["last"]),
        delivery_count_max=row["deliveries"],
        body_bytes=int(row["bytes"]),
        samples=tuple(_sample(each) for each in row["samples"] or ()),
    )


def _sample(row: Any) -> Sample:
    return Sample(
        int(row["sequenceNumber"]),
        row["messageId"],
        _aware(row["enqueuedTime"]),
        row["subject"],
        row["deliveryCount"],
        row["description"],
        row["bodyStart"],
    )


def _aware(moment: datetime | None) -> datetime | None:
    """Spark gives local times without a zone."""
    return None if moment is None else moment.astimezone(UTC)


def _value(word: str, value: object, sources: Sequence[str]) -> str | None:
    if word == "entity":
        return sources[int(str(value))]
    return None if value is None else str(value)


def _breakdowns(letters: DataFrame, sources: Sequence[str]) -> dict[str, list[tuple[str | None, int, int]]]:
    """The largest values of every key, all with one pass."""
    columns = list(KEYS.values())
    counted = letters.groupingSets([[column] for column in columns], *columns).agg(
        F.count("*").alias("count"),
        _count_if(F.col("isChosen")).alias("chosen"),
        *(F.grouping(column).alias(f"without_{column}") for column in columns),
    )
    value = F.coalesce(*(F.col(column).cast("string") for column in columns))
    word = F.coalesce(*(F.when(F.col(f"without_{KEYS[word]}") == 0, word) for word in KEYS))
    flat = counted.select(word.alias("word"), value.alias("value"), "count", "chosen")
    place = F.row_number().over(Window.partitionBy("word").orderBy(F.desc("count"), "value"))
    rows = (
        flat.withColumn("place", place).where(F.col("place") <= _BARS_MAX).orderBy("word", "place").collect()
    )
    found: dict[str, list[tuple[str | None, int, int]]] = {word: [] for word in KEYS}
    for row in rows:
        known = _value(row["word"], row["value"], sources)
        found[row["word"]].append((known, int(row["count"]), int(row["chosen"])))
    found["age"].sort(key=lambda each: AGE_NAMES.index(each[0] or AGE_NAMES[-1]))
    return found


def _slots(letters: DataFrame, slot_s: int, reasons: Sequence[str | None]) -> list[Slot]:
    """Of these reasons; all others together have none."""
    reason = F.col("deadLetterReason")
    named = F.when(reason.isin([each for each in reasons if each is not None]), reason)
    start = (F.floor(F.unix_timestamp("enqueuedTime") / slot_s) * slot_s).cast("long")
    rows = letters.groupBy(start.alias("start"), named.alias("reason")).count().orderBy("start").collect()
    return [
        Slot(int(row["start"]), row["reason"], int(row["count"])) for row in rows if row["start"] is not None
    ]
