"""`busway pipeline report`: what captured messages and the operation journal tell, as one page and as figures.

It reads files only, so it needs no bus, and it can be run as often as one likes: each file of its output appears
whole and replaces the one before.

What is remarkable in the figures is said in sentences, the most pressing first; a handful of messages says
nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from busway.journal import files as journal
from busway_spark.pipeline.job import JobFailed, JobProgress, failing
from busway_spark.pipeline.report.events import events
from busway_spark.pipeline.report.figures import Figures, Rows, figures_of
from busway_spark.pipeline.report.page import duration_text, number_text, write_whole
from busway_spark.pipeline.report.report_page import report_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MESSAGES_MIN: Final = 20
_DEAD_SHARE: Final = 0.01
_LOST_SHARE: Final = 0.01
_DUPLICATE_SHARE: Final = 0.05
_KEY_SHARE: Final = 0.25
_SKEW: Final = 2.0
_TAIL: Final = 20.0
_PEAK: Final = 4.0
_BACKLOG_SHARE: Final = 0.2
_OF_A_KIND: Final = 2


#: How bad it is, and the sentence.
Remark = tuple[float, str]


def remarks(figures: Figures) -> list[str]:
    if not figures.total:
        return ["There is nothing in this stretch of time."]
    kinds = (_dead, _lost, _backlog, _skewed, _hot, _tail, _repeated, _peak)
    found = [sentence for kind in kinds for sentence in _worst(kind(figures))]
    return found or ["Nothing stands out."]


def _worst(found: Iterator[Remark]) -> list[str]:
    return [sentence for _, sentence in sorted(found, key=lambda remark: -remark[0])[:_OF_A_KIND]]


def _counts(figures: Figures) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in figures.operations:
        found.setdefault(row["entity"], {})[row["operation"]] = row["count"]
    return found


def _dead(figures: Figures) -> Iterator[Remark]:
    for entity, counts in _counts(figures).items():
        dead, received = counts.get(journal.DEAD_LETTER, 0), counts.get(journal.RECEIVE, 0)
        base = max(received, counts.get(journal.SEND, 0))
        if dead and base >= _MESSAGES_MIN and dead / base >= _DEAD_SHARE:
            why = _first_reason(figures.dead_letters, entity)
            yield dead / base, f"{entity}: {dead / base:.1%} of the messages were dead-lettered{why}."


def _first_reason(rows: Rows, entity: str) -> str:
    totals: dict[str, int] = {}
    for row in rows:
        if row["entity"] == entity and row["reason"] is not None:
            totals[row["reason"]] = totals.get(row["reason"], 0) + row["count"]
    if not totals:
        return ""
    reason = max(totals, key=lambda each: totals[each])
    return f", most often because of {reason} ({number_text(totals[reason])})"


def _lost(figures: Figures) -> Iterator[Remark]:
    for row in figures.locks:
        rate = row["lockLossRate"]
        if rate is not None and row["received"] >= _MESSAGES_MIN and rate >= _LOST_SHARE:
            yield rate, f"{row['entity']}: {rate:.1%} of the locks ran out before the message was settled."


def _backlog(figures: Figures) -> Iterator[Remark]:
    for entity, counts in _counts(figures).items():
        sent = counts.get(journal.SEND, 0) + counts.get(journal.ACTIVATE, 0)
        gone = (
            counts.get(journal.COMPLETE, 0)
            + counts.get(journal.DEAD_LETTER, 0)
            + counts.get(journal.EXPIRE, 0)
        )
        gone += counts.get(journal.FORWARD, 0)
        if sent >= _MESSAGES_MIN and gone and (sent - gone) / sent >= _BACKLOG_SHARE:
            yield (
                (sent - gone) / sent,
                f"{entity}: {number_text(sent - gone)} more messages came than went; the backlog grew.",
            )


def _skewed(figures: Figures) -> Iterator[Remark]:
    for row in figures.skew:
        if row["fragments"] > 1 and row["count"] >= _MESSAGES_MIN and row["maxOverMean"] >= _SKEW:
            yield (
                row["maxOverMean"],
                f"{row['entity']}: fragment {row['hottest']} gets {number_text(row['maxOverMean'])} times the average"
                f" (Gini {row['gini']:.2f} over {row['fragments']} fragments).",
            )


def _hot(figures: Figures) -> Iterator[Remark]:
    for row in figures.keys:
        if row["count"] >= _MESSAGES_MIN and row["share"] >= _KEY_SHARE:
            key = row["key"][:60]
            sentence = f"{row['entity']}: the {row['kind']} '{key}' has {row['share']:.0%} of all messages."
            yield row["share"], sentence


def _tail(figures: Figures) -> Iterator[Remark]:
    for row in figures.latency:
        if row["start"] is None and row["entity"] is not None and row["count"] >= _MESSAGES_MIN:
            p50, p99 = row["p50"], row["p99"]
            if p50 > 0 and p99 / p50 >= _TAIL:
                yield (
                    p99 / p50,
                    f"{row['entity']}: one in a hundred messages took {duration_text(p99)} or more from enqueued to"
                    f" completed; the median is {duration_text(p50)}.",
                )


def _repeated(figures: Figures) -> Iterator[Remark]:
    for row in figures.duplicates:
        if row["sent"] + row["duplicates"] >= _MESSAGES_MIN and row["rate"] >= _DUPLICATE_SHARE:
            yield (
                row["rate"],
                f"{row['entity']}: {row['rate']:.1%} of what was sent was a duplicate and dropped.",
            )


def _peak(figures: Figures) -> Iterator[Remark]:
    slots = max(1, (figures.high_s - figures.low_s) // figures.slot_s + 1)
    if slots < 6:
        return
    loads: dict[str, dict[int, int]] = {}
    for row in figures.slots:
        if row["operation"] in (journal.SEND, journal.PUBLISH):
            own = loads.setdefault(row["entity"], {})
            own[row["start"]] = own.get(row["start"], 0) + row["count"]
    for entity, own in loads.items():
        mean = sum(own.values()) / slots
        if sum(own.values()) >= 10 * _MESSAGES_MIN and max(own.values()) >= _PEAK * mean:
            ratio = max(own.values()) / mean
            yield ratio, f"{entity}: the busiest stretch had {number_text(ratio)} times the average load."


PAGE: Final = "report.html"
FIGURES: Final = "figures"


@dataclass(frozen=True)
class ReportJob:
    """What to look at, and where to tell it."""

    #: Folders; at least one of the two.
    captured: str | None = None
    journal: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Only these and what lies below them; empty: all.
    entities: tuple[str, ...] = ()
    #: Also count the bytes of captured bodies, which must be read for that.
    with_sizes: bool = False
    #: A folder of this machine: the page, and the figures as Parquet; None: neither.
    out: Path | None = None


@dataclass(frozen=True)
class ReportResult:
    figures: Figures
    remarkable: list[str]
    page: Path | None

    def as_json(self) -> dict[str, Any]:
        return {
            "since": _instant(self.figures.low_s) if self.figures.total else None,
            "until": _instant(self.figures.high_s) if self.figures.total else None,
            "slotSeconds": self.figures.slot_s,
            "events": self.figures.total,
            "remarkable": self.remarkable,
            **{name: [_json_row(row) for row in rows] for name, rows in self.figures.tables().items()},
            "page": None if self.page is None else str(self.page),
        }


def run(spark: SparkSession, options: ReportJob, progress: JobProgress | None = None) -> ReportResult:
    """Raises JobFailed."""
    told = progress or JobProgress()
    if options.since is not None and options.until is not None and options.until <= options.since:
        raise JobFailed("--until is not after --since.")
    rows = events(
        spark,
        captured=options.captured,
        journal_folder=options.journal,
        since=options.since,
        until=options.until,
        entities=options.entities,
        with_sizes=options.with_sizes,
    )
    with failing("The files could not be read: "):
        figures = figures_of(rows)
    told.tell(f"{figures.total} events counted.", events=figures.total)
    remarkable = remarks(figures)
    page = None if options.out is None else _write(options.out, figures, remarkable, options)
    return ReportResult(figures, remarkable, page)


def _write(folder: Path, figures: Figures, remarkable: list[str], options: ReportJob) -> Path:
    sources = [
        name
        for name, given in (("captured data", options.captured), ("the journal", options.journal))
        if given
    ]
    for name, rows in figures.tables().items():
        write_rows(folder / FIGURES / f"{name}.parquet", rows)
    write_whole(
        folder / f"{FIGURES}.json",
        json.dumps(ReportResult(figures, remarkable, None).as_json(), indent=1) + "\n",
    )
    write_whole(folder / PAGE, report_page(figures, remarkable, sources))
    return folder / PAGE


def write_rows(path: Path, rows: Rows) -> None:
    """A small table. One without rows takes the old file away: it would tell of another run."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        pq.write_table(pa.Table.from_pylist(rows), half)
        os.replace(half, path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
