"""The report of a triage: one row of Parquet for each dead letter, and a page to look at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from busway_spark.pipeline.deadletters.fix import Fix
from busway_spark.pipeline.deadletters.groups import Group, Survey
from busway_spark.pipeline.deadletters.plan import OUTCOMES
from busway_spark.pipeline.deadletters.route import Route
from busway_spark.pipeline.report.charts import Bar, bar_chart, bytes_text, heat_map, number_text, time_text
from busway_spark.pipeline.report.page import (
    Markup,
    card,
    details,
    notes,
    page,
    section,
    table,
    tiles,
    write_whole,
)

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
    routes: Sequence[Route] = facts["routes"]
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
    routes: Sequence[Route] = facts["routes"]
    fixes: Sequence[Fix] = facts["fixes"]
    rows: list[list[object]] = [["chosen where", facts["where"] or "(all)"]]
    rows += [[f"set {fix.part}", fix.expression] for fix in fixes]
    rows += [[f"{route.source} goes to", f"{route.destination} ({route.guarantee})"] for route in routes]
    rows.append(["resubmitted", "no: a dry run" if facts["is_dry"] else "yes"])
    return table(["", ""], rows)


def _minute(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
