"""The figures of a report, from a table of events: Spark counts, only small tables come here.

Theory of operation. Everything that is counted by entity, fragment, operation and time comes from one *cube* that is
made with one pass and kept. What needs single events (latency, deliveries, reasons, keys, sessions) takes one pass
each over the columns it needs. Every table has a bound: the busiest entities, reasons and keys; so neither many
entities nor many keys come to the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from busway.journal import files as journal
from busway_spark.pipeline.report.events import ARRIVALS, BOTH, CAPTURED, JOURNAL, seconds_between, slot_of
from busway_spark.pipeline.report.page import slot_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ENTITIES_MAX: Final = 200
#: Whose figures are told over time.
BUSIEST: Final = 12
_FRAGMENT_ROWS_MAX: Final = 20_000
_REASONS: Final = 8
_KEYS: Final = 30
_SLOTS: Final = 60
_DELIVERIES_MAX: Final = 20
_PERCENTS: Final = (0.5, 0.95, 0.99)
#: Upper ends of latency bins in seconds, equal steps on a scale of powers: 0.1 ms to 10 days.
LATENCY_EDGES_S: Final = tuple(10.0 ** (power / 4) for power in range(-16, 25))

Rows = list[dict[str, Any]]


@dataclass
class Figures:
    low_s: int = 0
    high_s: int = 0
    slot_s: int = 60
    total: int = 0
    #: entity, operation, count, sizeBytes; of each source.
    operations: Rows = field(default_factory=list)
    #: source, entity, operation, start, count, sizeBytes; of the busiest.
    slots: Rows = field(default_factory=list)
    #: source, entity, fragment, start, count; arrivals of the busiest that have several fragments.
    fragment_slots: Rows = field(default_factory=list)
    #: source, entity, fragments, count, maxOverMean, gini, hottest.
    skew: Rows = field(default_factory=list)
    #: entity (None: all), start (None: the whole time), count, p50, p95, p99, max; seconds.
    latency: Rows = field(default_factory=list)
    #: low, high, count; seconds.
    latency_bins: Rows = field(default_factory=list)
    #: entity, received, lockLost, abandoned, lockLossRate.
    locks: Rows = field(default_factory=list)
    #: deliveryCount, count; of completed messages.
    deliveries: Rows = field(default_factory=list)
    #: entity, reason, start, count.
    dead_letters: Rows = field(default_factory=list)
    #: entity, sent, duplicates, rate.
    duplicates: Rows = field(default_factory=list)
    #: source, entity, kind, key, count, share.
    keys: Rows = field(default_factory=list)
    #: source, entity, sessions, messagesP50, messagesP95, messagesMax.
    session_sizes: Rows = field(default_factory=list)
    #: entity, ended, p50, p95, max; seconds.
    session_lengths: Rows = field(default_factory=list)
    #: entity, start, open; the most at once.
    session_concurrency: Rows = field(default_factory=list)

    def tables(self) -> dict[str, Rows]:
        """By their names in files and JSON."""
        return {
            "operations": self.operations,
            "throughput": self.slots,
            "fragments": self.fragment_slots,
            "skew": self.skew,
            "latency": self.latency,
            "latencyHistogram": self.latency_bins,
            "locks": self.locks,
            "deliveries": self.deliveries,
            "deadLetters": self.dead_letters,
            "duplicates": self.duplicates,
            "keys": self.keys,
            "sessionSizes": self.session_sizes,
            "sessionLengths": self.session_lengths,
            "sessionConcurrency": self.session_concurrency,
        }


def figures_of(events: DataFrame) -> Figures:
    row = events.agg(
        F.count("*"), F.min(F.unix_timestamp("time")), F.max(F.unix_timestamp("time"))
    ).collect()[0]
    found = Figures(total=int(row[0]))
    if not found.total:
        return found
    found.low_s, found.high_s = int(row[1]), int(row[2])
    found.slot_s = slot_seconds(found.high_s - found.low_s, _SLOTS)
    cube = _cube(events, found.slot_s).persist()
    try:
        _count(cube, found)
    finally:
        cube.unpersist()
    _measure(events, found)
    return found


def _cube(events: DataFrame, slot_s: int) -> DataFrame:
    return events.groupBy("source", "entity", "fragment", "operation", slot_of(slot_s).alias("start")).agg(
        F.count("*").alias("count"), F.sum("sizeBytes").alias("sizeBytes")
    )


# -- what is counted


def _count(cube: DataFrame, found: Figures) -> None:
    totals = cube.groupBy("source", "entity", "operation").agg(
        F.sum("count").alias("count"), F.sum("sizeBytes").alias("sizeBytes")
    )
    busy = _busiest(cube, ENTITIES_MAX)
    found.operations = _rows(
        totals.where(F.col("entity").isin(busy)).orderBy("source", "entity", "operation")
    )
    top = busy[:BUSIEST]
    found.slots = _rows(
        cube.where(F.col("entity").isin(top))
        .groupBy("source", "entity", "operation", "start")
        .agg(F.sum("count").alias("count"), F.sum("sizeBytes").alias("sizeBytes"))
        .orderBy("source", "entity", "operation", "start")
    )
    arrivals = cube.where(F.col("operation").isin(*ARRIVALS) & F.col("entity").isin(busy))
    sources = _sources(found.operations)
    found.skew = skew_of(_of_sources(_fragment_totals(arrivals), sources))
    spread = [row["entity"] for row in found.skew if row["fragments"] > 1]
    slots = _rows(
        arrivals.where(F.col("entity").isin([each for each in top if each in spread]))
        .groupBy("entity", "fragment", "start")
        .agg(F.sum("count").alias("count"))
        .orderBy("entity", "fragment", "start")
        .limit(_FRAGMENT_ROWS_MAX)
    )
    found.fragment_slots = _of_sources(slots, sources)
    found.locks = _locks(found.operations)
    found.duplicates = _duplicates(found.operations)


def _busiest(cube: DataFrame, count: int) -> list[str]:
    rows = cube.where(F.col("entity").isNotNull()).groupBy("entity").agg(F.sum("count").alias("count"))
    return [str(row["entity"]) for row in rows.orderBy(F.desc("count"), "entity").limit(count).collect()]


def _fragment_totals(arrivals: DataFrame) -> Rows:
    counted = arrivals.groupBy("entity", F.coalesce("fragment", F.lit(0)).alias("fragment"))
    totals = counted.agg(F.sum("count").alias("count"))
    return _rows(totals.orderBy("entity", "fragment").limit(_FRAGMENT_ROWS_MAX))


def _sources(operations: Rows) -> dict[str, str]:
    """By entity, where its arrivals are told of."""
    found: dict[str, str] = {}
    for row in operations:
        if row["operation"] in ARRIVALS:
            source, entity = row["source"], row["entity"]
            found[entity] = source if found.get(entity, source) == source else BOTH
    return found


def _of_sources(rows: Rows, sources: dict[str, str]) -> Rows:
    return [{"source": sources[row["entity"]], **row} for row in rows]


def skew_of(totals: Rows) -> Rows:
    """How unevenly arrivals are spread. A fragment below the highest that was seen counts even if it got nothing."""
    by_entity: dict[tuple[str, str], dict[int, int]] = {}
    for row in totals:
        by_entity.setdefault((row["source"], row["entity"]), {})[row["fragment"]] = row["count"]
    found: Rows = []
    for (source, entity), counts in by_entity.items():
        loads = [counts.get(at, 0) for at in range(max(counts) + 1)]
        hottest = max(counts, key=lambda fragment: (counts[fragment], -fragment))
        mean = sum(loads) / len(loads)
        found.append(
            {"source": source, "entity": entity, "fragments": len(loads), "count": sum(loads),
             "maxOverMean": counts[hottest] / mean, "gini": gini(loads), "hottest": hottest}
        )  # fmt: skip
    return found


def gini(loads: Sequence[int]) -> float:
    """0: all alike; towards 1: one has all."""
    total, count = sum(loads), len(loads)
    if total == 0 or count == 0:
        return 0.0
    ranked = sum(rank * load for rank, load in enumerate(sorted(loads), start=1))
    return 2 * ranked / (count * total) - (count + 1) / count


def _by_entity(operations: Rows) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in operations:
        if row["source"] == JOURNAL:
            found.setdefault(row["entity"], {})[row["operation"]] = row["count"]
    return found


def _locks(operations: Rows) -> Rows:
    found: Rows = []
    for entity, counts in _by_entity(operations).items():
        received = counts.get(journal.RECEIVE, 0)
        lost, abandoned = counts.get(journal.LOCK_LOST, 0), counts.get(journal.ABANDON, 0)
        if received or lost:
            found.append(
                {"entity": entity, "received": received, "lockLost": lost, "abandoned": abandoned,
                 "lockLossRate": lost / received if received else None}
            )  # fmt: skip
    return found


def _duplicates(operations: Rows) -> Rows:
    found: Rows = []
    for entity, counts in _by_entity(operations).items():
        sent, dropped = counts.get(journal.SEND, 0), counts.get(journal.DUPLICATE, 0)
        if dropped:
            found.append(
                {"entity": entity, "sent": sent, "duplicates": dropped, "rate": dropped / (sent + dropped)}
            )
    return found


# -- what is measured


def _measure(events: DataFrame, found: Figures) -> None:
    if any(row["operation"] == journal.COMPLETE for row in found.operations):
        _measure_latency(events, found)
        _measure_deliveries(events, found)
    if any(row["operation"] == journal.DEAD_LETTER for row in found.operations):
        found.dead_letters = _dead_letters(events, found.slot_s)
    found.keys = _keys(events)
    found.session_sizes = _session_sizes(events)
    if any(row["operation"] == journal.SESSION_ACCEPT for row in found.operations):
        _measure_sessions(events, found)


def _percentiles(column: str) -> Column:
    return F.percentile_approx(column, list(_PERCENTS), 10_000)


def _measure_latency(events: DataFrame, found: Figures) -> None:
    """Of the whole, of each entity and of each stretch of time, with one pass."""
    done = events.where((F.col("operation") == journal.COMPLETE) & F.col("enqueuedTime").isNotNull()).select(
        "entity",
        slot_of(found.slot_s).alias("start"),
        seconds_between("enqueuedTime", "time").alias("seconds"),
    )
    grouped = done.groupingSets([[], ["entity"], ["start"]], "entity", "start").agg(
        F.count("*").alias("count"), _percentiles("seconds").alias("p"), F.max("seconds").alias("max")
    )
    rows = grouped.orderBy(F.desc("count"), "entity", "start").limit(ENTITIES_MAX + 10 * _SLOTS).collect()
    found.latency = [
        {"entity": row["entity"], "start": row["start"], "count": int(row["count"]),
         "p50": row["p"][0], "p95": row["p"][1], "p99": row["p"][2], "max": row["max"]}
        for row in rows if row["count"]
    ]  # fmt: skip
    found.latency.sort(key=lambda row: (row["start"] or 0, row["entity"] or ""))
    found.latency_bins = _bins(done)


def _bins(done: DataFrame) -> Rows:
    """Counted by how many edges a value has passed."""
    passed = sum((F.when(F.col("seconds") > edge, 1).otherwise(0) for edge in LATENCY_EDGES_S), F.lit(0))
    rows = done.groupBy(passed.alias("bin")).count().orderBy("bin").collect()
    counts = {int(row["bin"]): int(row["count"]) for row in rows}
    edges = (0.0, *LATENCY_EDGES_S, float("inf"))
    if not counts:
        return []
    return [
        {"low": edges[at], "high": edges[at + 1], "count": counts.get(at, 0)}
        for at in range(min(counts), max(counts) + 1)
    ]


def _measure_deliveries(events: DataFrame, found: Figures) -> None:
    counted = F.least(F.col("deliveryCount"), F.lit(_DELIVERIES_MAX))
    done = events.where((F.col("operation") == journal.COMPLETE) & F.col("deliveryCount").isNotNull())
    found.deliveries = _rows(done.groupBy(counted.alias("deliveryCount")).count().orderBy("deliveryCount"))


def _dead_letters(events: DataFrame, slot_s: int) -> Rows:
    """Of the most frequent reasons; the others have none."""
    dead = events.where(F.col("operation") == journal.DEAD_LETTER)
    top = dead.groupBy("reason").count().orderBy(F.desc("count"), "reason").limit(_REASONS).collect()
    names = [row["reason"] for row in top if row["reason"] is not None]
    named = F.when(F.col("reason").isin(names), F.col("reason")).alias("reason")
    rows = dead.groupBy("entity", named, slot_of(slot_s).alias("start")).count()
    return _rows(rows.orderBy("start", "entity", "reason").limit(_FRAGMENT_ROWS_MAX))


def _keys(events: DataFrame) -> Rows:
    """The keys that most messages have: a session's id where there is one, else the partition key."""
    arrived = events.where(F.col("operation").isin(*ARRIVALS))
    key = F.coalesce("sessionId", "partitionKey")
    kind = F.when(F.col("sessionId").isNotNull(), "session").otherwise("partition key")
    counted = arrived.groupBy("entity", key.alias("key"), kind.alias("kind")).agg(
        _source().alias("source"), F.count("*").alias("count")
    )
    share = F.col("count") / F.sum("count").over(Window.partitionBy("entity"))
    top = counted.withColumn("share", share).where("key is not null")
    return _rows(
        top.orderBy(F.desc("count"), "entity", "key")
        .limit(_KEYS)
        .select("source", "entity", "kind", "key", "count", "share")
    )


def _source() -> Column:
    """Of what is grouped; what is of both stays so."""
    first, last = F.min("source"), F.max("source")
    return F.when(first == last, first).otherwise(BOTH)


# -- sessions


def _session_sizes(events: DataFrame) -> Rows:
    arrived = events.where(F.col("operation").isin(*ARRIVALS) & F.col("sessionId").isNotNull())
    sizes = arrived.groupBy("entity", "sessionId").agg(
        _source().alias("source"), F.count("*").alias("messages")
    )
    rows = (
        sizes.groupBy("entity")
        .agg(
            _source().alias("source"),
            F.count("*").alias("sessions"),
            _percentiles("messages").alias("p"),
            F.max("messages").alias("max"),
        )
        .orderBy(F.desc("sessions"), "entity")
        .limit(ENTITIES_MAX)
        .collect()
    )
    return [
        {"source": row["source"], "entity": row["entity"], "sessions": int(row["sessions"]),
         "messagesP50": int(row["p"][0]), "messagesP95": int(row["p"][1]), "messagesMax": int(row["max"])}
        for row in rows
    ]  # fmt: skip


def _measure_sessions(events: DataFrame, found: Figures) -> None:
    turns = events.where(F.col("operation").isin(journal.SESSION_ACCEPT, journal.SESSION_END)).select(
        "entity", "sessionId", "time", "operation"
    )
    found.session_lengths = _session_lengths(turns)
    found.session_concurrency = _session_concurrency(turns, found)


def _session_lengths(turns: DataFrame) -> Rows:
    """From each accept to the end that follows it."""
    one_after_other = Window.partitionBy("entity", "sessionId").orderBy("time", "operation")
    paired = turns.withColumns(
        {"next": F.lead("time").over(one_after_other), "then": F.lead("operation").over(one_after_other)}
    ).where((F.col("operation") == journal.SESSION_ACCEPT) & (F.col("then") == journal.SESSION_END))
    lengths = paired.select("entity", seconds_between("time", "next").alias("seconds"))
    rows = (
        lengths.groupBy("entity")
        .agg(F.count("*").alias("ended"), _percentiles("seconds").alias("p"), F.max("seconds").alias("max"))
        .orderBy(F.desc("ended"), "entity")
        .limit(ENTITIES_MAX)
        .collect()
    )
    return [
        {
            "entity": row["entity"],
            "ended": int(row["ended"]),
            "p50": row["p"][0],
            "p95": row["p"][1],
            "max": row["max"],
        }
        for row in rows
    ]


def _session_concurrency(turns: DataFrame, found: Figures) -> Rows:
    """The most that were open at once, in each stretch of time. What was open before the first event shows as a
    balance below zero, and is added."""
    in_order = (
        Window.partitionBy("entity").orderBy("time", "operation").rowsBetween(Window.unboundedPreceding, 0)
    )
    change = F.when(F.col("operation") == journal.SESSION_ACCEPT, 1).otherwise(-1)
    running = turns.withColumn("open", F.sum(change).over(in_order))
    busy = [row["entity"] for row in found.session_lengths[:BUSIEST]]
    rows = (
        running.where(F.col("entity").isin(busy))
        .groupBy("entity", slot_of(found.slot_s).alias("start"))
        .agg(
            F.max("open").alias("most"),
            F.min("open").alias("least"),
            F.max_by("open", F.struct("time", "operation")).alias("last"),
        )
        .orderBy("entity", "start")
        .collect()
    )
    return fill_concurrency([row.asDict() for row in rows], found.slot_s)


def fill_concurrency(rows: Rows, slot_s: int) -> Rows:
    """A stretch without an event has as many open as the one before had at its end."""
    found: Rows = []
    for entity in dict.fromkeys(row["entity"] for row in rows):
        own = {row["start"]: row for row in rows if row["entity"] == entity}
        before = max(0, -min(row["least"] for row in own.values()))
        level = before
        for start in range(min(own), max(own) + 1, slot_s):
            row = own.get(start)
            most = level if row is None else max(level, row["most"] + before)
            level = level if row is None else row["last"] + before
            found.append({"entity": entity, "start": start, "open": most})
    return found


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


assert CAPTURED in ARRIVALS, "what was captured has arrived"
