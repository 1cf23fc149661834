"""The page of a report: figures as charts that people would rather look at than read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from busway.journal import files as journal
from busway_spark.pipeline.report.events import ARRIVALS, CAPTURED
from busway_spark.pipeline.report.figures import Figures, Rows
from busway_spark.pipeline.report.page import (
    Bar,
    Markup,
    Series,
    bar_chart,
    bytes_text,
    card,
    details,
    duration_text,
    heat_map,
    histogram,
    line_chart,
    notes,
    number_text,
    page,
    section,
    table,
    tiles,
    time_text,
)

_LINES: Final = 6
_SMALL: Final = 12
_HEAT_ROWS: Final = 32
_BARS: Final = 15
_STARTS_MIN: Final = 4
_SMALL_WIDTH: Final = 330
_NO_REASON: Final = "(none or other)"


def report_page(figures: Figures, remarkable: Sequence[str], sources: Sequence[str]) -> str:
    parts = [
        notes(remarkable),
        tiles(_tiles(figures)),
        section("Throughput", _throughput(figures)),
        section("Entity by entity", _small_multiples(figures), small=True),
        section("Spread over fragments and partitions", _spread(figures)),
        section("From enqueued to completed", _latency(figures)),
        section("Locks, deliveries, duplicates", _locks(figures)),
        section("Dead letters", _dead_letters(figures)),
        section("Keys", _keys(figures)),
        section("Sessions", _sessions(figures)),
        section("All operations", _operations(figures)),
    ]
    title = "What the bus did"
    return page(title, f"{_span(figures)} · from {', '.join(sources)}", [part for part in parts if part])


def _span(figures: Figures) -> str:
    if not figures.total:
        return "No events"
    low, high = (datetime.fromtimestamp(at, UTC) for at in (figures.low_s, figures.high_s))
    return f"{low:%Y-%m-%d %H:%M} to {high:%Y-%m-%d %H:%M} UTC, in steps of {duration_text(figures.slot_s)}"


def _tiles(figures: Figures) -> list[tuple[str, str]]:
    arrived = _sum(figures, *ARRIVALS)
    seconds = max(1, figures.high_s - figures.low_s)
    whole = next((row for row in figures.latency if row["entity"] is None and row["start"] is None), None)
    shown = [
        (number_text(arrived), "messages in"),
        (f"{number_text(arrived / seconds)}/s", "on average"),
        (number_text(len({row["entity"] for row in figures.operations})), "entities"),
    ]
    if whole is not None:
        shown += [
            (duration_text(whole["p50"]), "median latency"),
            (duration_text(whole["p99"]), "p99 latency"),
        ]
    for name, words in (
        (journal.COMPLETE, "completed"),
        (journal.DEAD_LETTER, "dead-lettered"),
        (journal.LOCK_LOST, "locks lost"),
        (journal.DUPLICATE, "duplicates dropped"),
    ):
        if _sum(figures, name):
            shown.append((number_text(_sum(figures, name)), words))
    return shown


def _sum(figures: Figures, *operations: str) -> int:
    return sum(row["count"] for row in figures.operations if row["operation"] in operations)


# -- throughput


def _throughput(figures: Figures) -> list[Markup]:
    cards = [
        _lines(
            figures, "Messages in per second", ARRIVALS, "Sent, published or captured; the busiest entities."
        ),
        _lines(figures, "Messages completed per second", (journal.COMPLETE,), "The busiest entities."),
    ]
    sized = [row for row in figures.slots if row["sizeBytes"] and row["operation"] in ARRIVALS]
    if sized:
        series = _series(figures, sized, "sizeBytes")
        cards.append(card("Bytes in per second", line_chart("Bytes in per second", series, text=bytes_text)))
    return [each for each in cards if each]


def _lines(figures: Figures, title: str, operations: Sequence[str], explanation: str) -> Markup:
    rows = [row for row in figures.slots if row["operation"] in operations]
    if not rows:
        return Markup("")
    chart = line_chart(title, _series(figures, rows, "count"))
    return card(title, chart, explanation, _series_table(figures, rows, title))


def _series(figures: Figures, rows: Rows, column: str) -> list[Series]:
    """A line for each of the largest; a stretch of time without an event is 0."""
    totals: dict[str, float] = {}
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        name = row["entity"] or _NO_REASON
        totals[name] = totals.get(name, 0) + row[column]
        own = values.setdefault(name, {})
        own[row["start"]] = own.get(row["start"], 0) + row[column]
    names = sorted(totals, key=lambda name: (-totals[name], name))[:_LINES]
    looks = _looks(figures)
    return [
        Series(
            name,
            [(start, values[name].get(start, 0) / figures.slot_s) for start in _starts(figures)],
            looks.get(name),
        )
        for name in names
    ]


def _looks(figures: Figures) -> dict[str, int]:
    """An entity has the same colour in all charts."""
    totals: dict[str, int] = {}
    for row in figures.operations:
        totals[row["entity"]] = totals.get(row["entity"], 0) + row["count"]
    return {name: at for at, name in enumerate(sorted(totals, key=lambda name: (-totals[name], name)))}


def _starts(figures: Figures) -> list[int]:
    """A last stretch that has hardly begun is left out: it would look as if everything stopped."""
    first = figures.low_s // figures.slot_s * figures.slot_s
    starts = list(range(first, figures.high_s + 1, figures.slot_s))
    has_begun = figures.high_s - starts[-1] >= figures.slot_s / 4 or len(starts) <= _STARTS_MIN
    return starts if has_begun else starts[:-1]


def _series_table(figures: Figures, rows: Rows, title: str) -> Markup:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["entity"]] = totals.get(row["entity"], 0) + row["count"]
    seconds = max(1, figures.high_s - figures.low_s)
    shown = [[name, count, f"{number_text(count / seconds)}/s"] for name, count in sorted(totals.items())]
    return details(
        "as a table", table(["entity", title.lower().removesuffix(" per second"), "average"], shown)
    )


def _small_multiples(figures: Figures) -> list[Markup]:
    """In and out of one entity at a time."""
    names = list(dict.fromkeys(row["entity"] for row in figures.slots))
    if len(names) < 2:
        return []
    cards: list[Markup] = []
    for name in names[:_SMALL]:
        own = [row for row in figures.slots if row["entity"] == name]
        series = [
            Series(word, line[0].points)
            for word, operations in (("in", ARRIVALS), ("completed", (journal.COMPLETE,)))
            if (line := _series(figures, [row for row in own if row["operation"] in operations], "count"))
        ]
        if series:
            cards.append(card(name, line_chart(name, series, width=_SMALL_WIDTH, height=130, filled=True)))
    return cards


# -- spread


def _spread(figures: Figures) -> list[Markup]:
    spread = [row for row in figures.skew if row["fragments"] > 1]
    if not spread:
        return []
    rows = [
        [
            row["entity"],
            row["fragments"],
            row["count"],
            f"{row['maxOverMean']:.2f}",
            f"{row['gini']:.3f}",
            row["hottest"],
        ]
        for row in sorted(spread, key=lambda row: -row["gini"])[:_BARS]
    ]
    heads = ["entity", "fragments", "messages", "max / mean", "Gini", "hottest"]
    cards = [card("How even", table(heads, rows), "Gini: 0 is all alike, towards 1 one fragment has it all.")]
    for source, name in dict.fromkeys((row["source"], row["entity"]) for row in figures.fragment_slots):
        own = [row for row in figures.fragment_slots if (row["source"], row["entity"]) == (source, name)]
        words = f"{name} ({source})"
        cards.append(card(words, _fragment_heat(figures, own, words), "Messages in, by fragment and time."))
    return cards


def _fragment_heat(figures: Figures, rows: Rows, title: str) -> str:
    starts = _starts(figures)
    counts = {(row["fragment"] or 0, row["start"]): row["count"] for row in rows}
    fragments = list(range(max(fragment for fragment, _ in counts) + 1))[:_HEAT_ROWS]
    values = [[float(counts.get((fragment, start), 0)) for start in starts] for fragment in fragments]
    return heat_map(title, [str(each) for each in fragments], _names(figures, starts), values, text=_messages)


def _names(figures: Figures, starts: Sequence[int]) -> list[str]:
    span = max(figures.slot_s, starts[-1] - starts[0])
    return [time_text(start, span) for start in starts]


def _messages(value: float) -> str:
    return f"{number_text(value)} messages"


# -- latency


def _latency(figures: Figures) -> list[Markup]:
    whole = next((row for row in figures.latency if row["entity"] is None and row["start"] is None), None)
    if whole is None:
        return []
    over_time = [row for row in figures.latency if row["start"] is not None]
    series = [
        Series(name, [(row["start"], row[name]) for row in over_time]) for name in ("p50", "p95", "p99")
    ]
    title = "Latency over time"
    each = [
        [row["entity"], row["count"], *(duration_text(row[name]) for name in ("p50", "p95", "p99", "max"))]
        for row in sorted(figures.latency, key=lambda row: -row["p99"])
        if row["start"] is None and row["entity"] is not None
    ][:_BARS]
    return [
        card(
            title,
            line_chart(title, series, text=duration_text),
            "Half, 95 % and 99 % of the messages were faster.",
        ),
        card("How long it took", _latency_bins(figures, whole), "Bins grow by powers of ten, four to each."),
        card("By entity", table(["entity", "completed", "p50", "p95", "p99", "max"], each)),
    ]


def _latency_bins(figures: Figures, whole: dict[str, float]) -> str:
    bins = figures.latency_bins
    if not bins:
        return histogram("How long it took", [0.0], [])
    edges = [bins[0]["low"], *(row["high"] for row in bins)]
    marks = [(name, whole[name]) for name in ("p50", "p99")]
    counts = [float(row["count"]) for row in bins]
    return histogram("How long it took", edges, counts, edge_text=_edge, marks=marks)


def _edge(seconds: float) -> str:
    return "more" if seconds == float("inf") else duration_text(seconds)


# -- locks, deliveries, duplicates


def _locks(figures: Figures) -> list[Markup]:
    cards: list[Markup] = []
    lost = [row for row in figures.slots if row["operation"] == journal.LOCK_LOST]
    if lost:
        title = "Locks lost per second"
        cards.append(
            card(title, line_chart(title, _series(figures, lost, "count")), "They ran out unsettled.")
        )
        bars = [
            Bar(row["entity"], 100 * row["lockLossRate"], f"{row['lockLost']} of {row['received']} received")
            for row in sorted(figures.locks, key=lambda row: -(row["lockLossRate"] or 0))
            if row["lockLossRate"]
        ]
        cards.append(
            card(
                "Locks lost by entity", _bars("Locks lost by entity", bars, _percent), "Of what was received."
            )
        )
    if figures.deliveries:
        title = "How often a message had been delivered before"
        counted = [Bar(str(row["deliveryCount"]), row["count"]) for row in figures.deliveries]
        cards.append(card(title, _bars(title, counted), "Counted when it was completed."))
    if figures.duplicates:
        bars = [
            Bar(row["entity"], 100 * row["rate"], f"{row['duplicates']} dropped, {row['sent']} kept")
            for row in sorted(figures.duplicates, key=lambda row: -row["rate"])
        ]
        cards.append(
            card("Duplicates dropped", _bars("Duplicates dropped", bars, _percent), "Of what was sent.")
        )
    return cards


def _bars(title: str, bars: Sequence[Bar], text: Callable[[float], str] = number_text) -> str:
    return bar_chart(title, list(bars)[:_BARS], text=text)


def _percent(value: float) -> str:
    return f"{number_text(value)} %"


# -- dead letters


def _dead_letters(figures: Figures) -> list[Markup]:
    rows = figures.dead_letters
    if not rows:
        return []
    starts = _starts(figures)
    totals: dict[str, int] = {}
    counts: dict[tuple[str, int], float] = {}
    for row in rows:
        reason = row["reason"] or _NO_REASON
        totals[reason] = totals.get(reason, 0) + row["count"]
        counts[reason, row["start"]] = counts.get((reason, row["start"]), 0) + row["count"]
    reasons = sorted(totals, key=lambda reason: (-totals[reason], reason))
    values = [[counts.get((reason, start), 0.0) for start in starts] for reason in reasons]
    heat = heat_map("Reasons over time", reasons, _names(figures, starts), values, text=_messages)
    by_entity: dict[str, int] = {}
    for row in rows:
        by_entity[row["entity"]] = by_entity.get(row["entity"], 0) + row["count"]
    entities = [Bar(name, count) for name, count in sorted(by_entity.items(), key=lambda each: -each[1])]
    return [
        card("Reasons over time", heat),
        card("Reasons", _bars("Reasons", [Bar(reason, totals[reason]) for reason in reasons])),
        card("By entity", _bars("Dead letters by entity", entities)),
    ]


# -- keys and sessions


def _keys(figures: Figures) -> list[Markup]:
    if not figures.keys:
        return []
    several = len({row["entity"] for row in figures.keys}) > 1
    bars = [
        Bar(
            f"{row['key']} · {row['entity']}" if several else row["key"],
            row["count"],
            f"{row['kind']}, {row['share']:.1%} of {row['entity']}",
        )
        for row in figures.keys
    ]
    return [card("Hot keys", _bars("Hot keys", bars), "A session's id, or the partition key.")]


def _sessions(figures: Figures) -> list[Markup]:
    cards: list[Markup] = []
    if figures.session_concurrency:
        title = "Sessions open at once"
        names = list(dict.fromkeys(row["entity"] for row in figures.session_concurrency))[:_LINES]
        series = [
            Series(
                name,
                [(row["start"], row["open"]) for row in figures.session_concurrency if row["entity"] == name],
            )
            for name in names
        ]
        cards.append(card(title, line_chart(title, series)))
    if figures.session_lengths:
        rows = [
            [row["entity"], row["ended"], *(duration_text(row[name]) for name in ("p50", "p95", "max"))]
            for row in figures.session_lengths[:_BARS]
        ]
        cards.append(
            card("How long sessions were held", table(["entity", "ended", "p50", "p95", "max"], rows))
        )
    if figures.session_sizes:
        rows = [
            [row["entity"], row["sessions"], row["messagesP50"], row["messagesP95"], row["messagesMax"]]
            for row in figures.session_sizes[:_BARS]
        ]
        heads = ["entity", "sessions", "p50", "p95", "max"]
        cards.append(card("Messages in a session", table(heads, rows)))
    return cards


def _operations(figures: Figures) -> list[Markup]:
    if not figures.operations:
        return []
    names = [name for name in (CAPTURED, *journal.OPERATIONS) if _sum(figures, name)]
    counts: dict[str, dict[str, int]] = {}
    for row in figures.operations:
        counts.setdefault(row["entity"], {})[row["operation"]] = row["count"]
    rows = [[entity, *(own.get(name) for name in names)] for entity, own in sorted(counts.items())]
    return [card("Counted by entity", table(["entity", *names], rows), wide=True)]
