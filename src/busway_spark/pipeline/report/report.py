"""`busway pipeline report`: what captured messages and the operation journal tell, as one page and as figures.

It reads files only, so it needs no bus, and it can be run as often as one likes: each file of its output appears
whole and replaces the one before.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.job import JobFailed, Progress, failing
from busway_spark.pipeline.report.events import events
from busway_spark.pipeline.report.figures import Figures, Rows, figures_of
from busway_spark.pipeline.report.page import write_whole
from busway_spark.pipeline.report.remarks import remarks
from busway_spark.pipeline.report.report_page import report_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = "report.html"
FIGURES: Final = "figures"


@dataclass(frozen=True)
class Report:
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


def run(spark: SparkSession, options: Report, progress: Progress | None = None) -> ReportResult:
    """Raises JobFailed."""
    told = progress or Progress()
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


def _write(folder: Path, figures: Figures, remarkable: list[str], options: Report) -> Path:
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
