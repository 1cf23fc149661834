"""Whether PostgreSQL stays fast while it lives: with a million messages queued, and while somebody holds an old
snapshot, so that vacuum may remove nothing of what is consumed.

Two servers, each with a PostgreSQL of its own, live through the snapshot at the same time: one sends and receives
many messages a second in commits of many, the other few in commits of one. What is updated in every commit is found
out by the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import bars
from benchmarks.generator import Load
from benchmarks.measurement import measure_both
from benchmarks.meter import REST_S
from benchmarks.parts import Bench
from benchmarks.postgres_rig import BusOnPostgres, why_not_here
from benchmarks.report import Report

_BODY_BYTES = 100
#: The snapshot is held for so many looks of so many seconds.
_LOOKS, _LOOK_S = 10, 60
_BEFORE = 2
_BACKLOG_ROUNDS_MIN = 5


@dataclass(frozen=True)
class Pace:
    title: str
    rate: int


MANY = Pace("many a second", 17_000)
SMALL = Pace("200 sends a second, each a commit of its own", 200)


def postgres_age(bench: Bench, report: Report) -> None:
    """messages in PostgreSQL with a million queued, and under a snapshot that is held for ten minutes"""
    reason = why_not_here()
    if reason is not None:
        report.note("age of messages in PostgreSQL", f"left out: {reason}")
        return
    _queued(bench, report)
    with ThreadPoolExecutor(2) as pool:
        lives = [(pace, pool.submit(_life, bench, pace)) for pace in (MANY, SMALL)]
        for pace, life in lives:
            _report_life(report, pace, life.result(), bench)


# -- a million queued


def _queued(bench: Bench, report: Report) -> None:
    load = Load(messages=20_000 if bench.quick else 60_000, body_bytes=_BODY_BYTES)
    sizes = (1_000, 50_000) if bench.quick else (1_000, 1_000_000)
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    with BusOnPostgres(bench.folder / "postgres-queued") as bus:
        bus.start()
        queues = {size: bus.queue("--max-size-in-megabytes", "5120") for size in sizes}
        for size, target in queues.items():
            bus.fill(target, size, _BODY_BYTES)
            measure_both(target, load, REST_S)
        for turn in range(max(bench.rounds, _BACKLOG_ROUNDS_MIN)):
            for size in sizes if turn % 2 == 0 else reversed(sizes):
                costs[size].append(measure_both(queues[size], load, REST_S).cpu_us)
    few, many = (median(costs[size]) for size in sizes)
    title = f"PostgreSQL, CPU of both ways at once with {sizes[1]:,} queued, against {sizes[0]:,}"
    report.at_most(title, many, few, bars.POSTGRES_QUEUED, "µs/message")


# -- an old snapshot


@contextmanager
def held_snapshot(bus: BusOnPostgres) -> Iterator[None]:
    """As a back-up or a report that somebody forgot has it."""
    with bus.database.connect(bus.database_name) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM busway.stores")
        yield
        connection.execute("ROLLBACK")


def _life(bench: Bench, pace: Pace) -> list[float]:
    """CPU for each message, look by look: `_BEFORE` the snapshot, then while it is held."""
    looks, look_s = (3, 5) if bench.quick else (_LOOKS, _LOOK_S)
    with BusOnPostgres(_folder(bench, pace)) as bus:
        bus.start()
        target = bus.queue("--max-size-in-megabytes", "5120")
        load = Load(pace.rate * look_s, _BODY_BYTES, rate=pace.rate)
        look: Callable[[], float] = lambda: measure_both(target, load).cpu_us  # noqa: E731
        look()
        found = [look() for _ in range(_BEFORE)]
        with held_snapshot(bus):
            return found + [look() for _ in range(looks)]


def _folder(bench: Bench, pace: Pace) -> Path:
    return bench.folder / f"postgres-{pace.rate}"


def _report_life(report: Report, pace: Pace, found: list[float], bench: Bench) -> None:
    before, held = found[:_BEFORE], found[_BEFORE:]
    look_s = 5 if bench.quick else _LOOK_S
    what = f"a snapshot held for {len(held) * look_s} s, {pace.rate * look_s * len(held):,} consumed, {pace.title}"
    report.note(
        f"PostgreSQL, CPU by {look_s} s, {what}", " ".join(f"{each:.1f}" for each in found) + " µs/message"
    )
    report.at_most(
        f"PostgreSQL, CPU at the end of {what}, against before",
        median(held[-3:]),
        median(before),
        bars.POSTGRES_SNAPSHOT,
        "µs/message",
    )
