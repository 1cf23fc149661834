"""What a triage tells: groups of dead letters, one row of Parquet for each dead letter, and a page to look at.

A group says how many there are, since when, and has some to look at. Groups are counted by Spark; only the groups
come here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F

from busway_spark.pipeline.deadletters.columns import AGE_NAMES, Fix
from busway_spark.pipeline.deadletters.plan import OUTCOMES, LetterRoute
from busway_spark.pipeline.report.page import (
    Bar,
    Markup,
    bar_chart,
    bytes_text,
    card,
    details,
    heat_map,
    notes,
    number_text,
    page,
    section,
    slot_seconds,
    table,
    tiles,
    time_text,
    write_whole,
)

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
    found.groups, found.group_count = _largest_groups(letters, sources, by, samples)
    if draws:
        found.breakdowns = _breakdowns(letters, sources)
        found.slot_s = slot_seconds(int(row[4] or 0) - int(row[3] or 0))
        reasons = [reason for reason, _, _ in found.breakdowns["reason"][:_REASONS_MAX]]
        found.slots = _slots(letters, found.slot_s, reasons)
    return found


def _count_if(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _largest_groups(
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


_TEXT: Final = pa.string()
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("entity", _TEXT),
    pa.field("sequenceNumber", pa.int64()),
    pa.field("enqueuedTime", pa.timestamp("us", tz="UTC")),
    *(pa.field(name, _TEXT) for name in (
        "messageId", "sessionId", "partitionKey", "subject", "contentType", "correlationId", "to", "replyTo",
    )),
    pa.field("deliveryCount", pa.int32()),
    pa.field("state", _TEXT),
    pa.field("fragment", pa.int32()),
    *(pa.field(name, _TEXT) for name in (
        "deadLetterReason", "deadLetterErrorDescription", "deadLetterSource", "fingerprint", "age",
    )),
    pa.field("bodyBytes", pa.int64()),
    *(pa.field(name, _TEXT) for name in ("bodyStart", "properties")),
    pa.field("isHeld", pa.bool_()),
    pa.field("isChosen", pa.bool_()),
    *(pa.field(name, _TEXT) for name in ("group", "done", "detail", "destination")),
]  # fmt: skip
SCHEMA: Final = pa.schema(_FIELDS)
_ROWS_AT_ONCE: Final = 5_000
_GROUPS_SHOWN: Final = 40
_NO_REASON: Final = "(none or other)"


class LetterFile:
    """`with LetterFile(path) as file: file.add(row)`: it appears when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._half = path.with_name(f".{path.name}.{uuid4().hex}")
        self._writer = pq.ParquetWriter(self._half, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> LetterFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            self._writer.close()
            if error is None:
                os.replace(self._half, self._path)
            else:
                self._half.unlink(missing_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        moment = row["enqueuedTime"]
        row["enqueuedTime"] = None if moment is None else moment.astimezone(UTC)
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows.clear()


def write_page(path: Path, survey: Survey, facts: Mapping[str, Any], now: datetime) -> Path:
    routes: Sequence[LetterRoute] = facts["routes"]
    names = ", ".join(route.source for route in routes)
    parts = [
        notes(facts["warnings"]),
        tiles(_tiles(survey, facts)),
        section("Why", _why(survey)),
        section("When and what", _when(survey)),
        section(
            "Groups",
            [card(f"The largest of {survey.group_count}", _groups(survey.groups, facts["by"]), wide=True)],
        ),
        section("What was asked for", [card("Choice, fixes and destinations", _asked(facts), wide=True)]),
    ]
    title = f"Dead letters of {names}"
    write_whole(path, page(title, f"Browsed {now:%Y-%m-%d %H:%M} UTC", parts))
    return path


def _tiles(survey: Survey, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    outcomes: Mapping[str, int] = facts["outcomes"]
    done = [(number_text(outcomes[name]), name) for name in OUTCOMES if outcomes.get(name)]
    chosen = "would be resubmitted" if facts["is_dry"] else "chosen"
    return [
        (number_text(survey.total), "dead letters"),
        (number_text(survey.chosen), chosen),
        (number_text(survey.group_count), "groups"),
        *done,
        *([(number_text(survey.held), "held by a stream")] if survey.held else []),
    ]


def _why(survey: Survey) -> list[Markup]:
    names = {"reason": "By reason", "fingerprint": "By error fingerprint"}
    return [card(title, _bars(survey, word, title), _ORANGE) for word, title in names.items()]


_ORANGE: Final = "Orange is what is chosen."


def _when(survey: Survey) -> list[Markup]:
    cards = [card("When they were enqueued", _heat(survey), "By reason; the fuller the more.")]
    for word, title in (("age", "By age"), ("subject", "By subject"), ("entity", "By entity")):
        if len(survey.breakdowns.get(word, ())) > 1 or word == "age":
            cards.append(card(title, _bars(survey, word, title)))
    return cards


def _bars(survey: Survey, word: str, title: str) -> str:
    bars = [
        Bar(value if value else "(none)", count, f"{count / max(1, survey.total):.0%} of all", part)
        for value, count, part in survey.breakdowns.get(word, ())
    ]
    return bar_chart(title, bars, part_name="chosen")


def _heat(survey: Survey) -> str:
    if not survey.slots:
        return heat_map("When they were enqueued", [], [], [])
    low, high = survey.slots[0].start_s, survey.slots[-1].start_s
    starts = list(range(low, high + 1, max(1, survey.slot_s)))
    counts = {(slot.reason, slot.start_s): slot.count for slot in survey.slots}
    totals: dict[str | None, int] = {}
    for slot in survey.slots:
        totals[slot.reason] = totals.get(slot.reason, 0) + slot.count
    reasons = sorted(totals, key=lambda reason: -totals[reason])
    columns = [time_text(start, max(high - low, survey.slot_s)) for start in starts]
    values = [[float(counts.get((reason, start), 0)) for start in starts] for reason in reasons]
    return heat_map("When they were enqueued", [reason or _NO_REASON for reason in reasons], columns, values)


def _groups(groups: Sequence[Group], by: Sequence[str]) -> Markup:
    heads = [*by, "count", "chosen", "first", "last", "deliveries ≤", "bodies"]
    rows = "".join(_group_row(group, by) for group in groups[:_GROUPS_SHOWN])
    plain = table(heads, [])
    return Markup(plain.replace("<tbody></tbody>", f"<tbody>{rows}</tbody>"))


def _group_row(group: Group, by: Sequence[str]) -> str:
    cells = table(
        [],
        [
            [
                *(group.keys[word] or "–" for word in by),
                group.count,
                group.chosen,
                _minute(group.first),
                _minute(group.last),
                group.delivery_count_max,
                bytes_text(group.body_bytes),
            ]
        ],
    )
    row = cells.partition("<tbody><tr>")[2].partition("</tr>")[0]
    heads = ["number", "message id", "enqueued", "subject", "deliveries", "description", "body"]
    samples = [
        [str(each.sequence_number), each.message_id, _minute(each.enqueued), each.subject, each.delivery_count,
         each.description, each.body_start]
        for each in group.samples
    ]  # fmt: skip
    if not samples:
        return f"<tr>{row}</tr>"
    shown = details(f"{len(samples)} of them", table(heads, samples))
    return f'<tr class="open">{row}</tr><tr><td class="all" colspan="{len(by) + 6}">{shown}</td></tr>'


def _asked(facts: Mapping[str, Any]) -> Markup:
    routes: Sequence[LetterRoute] = facts["routes"]
    fixes: Sequence[Fix] = facts["fixes"]
    rows: list[list[object]] = [["chosen where", facts["where"] or "(all)"]]
    rows += [[f"set {fix.part}", fix.expression] for fix in fixes]
    rows += [[f"{route.source} goes to", f"{route.destination} ({route.guarantee})"] for route in routes]
    rows.append(["resubmitted", "no: a dry run" if facts["is_dry"] else "yes"])
    return table(["", ""], rows)


def _minute(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
