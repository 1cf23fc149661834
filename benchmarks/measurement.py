"""One measured run: rate, and what the broker spends for each message until its store is idle again (`meter`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from statistics import median

import psutil

from benchmarks.generator import Load, Target, run, run_both
from benchmarks.meter import NOTHING, SOON_S, Meter

#: Fits into what a broker holds ready in memory: a queue's window has 4,096.
WINDOW_MESSAGES = 4_000
#: Where generator and broker together use more cores, a rate tells how they share the machine.
CORES_MAX = 1.9


@dataclass(frozen=True)
class Figure:
    rate: float
    cpu_us: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    #: To disk, for each message.
    written_bytes: float = 0.0
    #: The load generator's own CPU, for each message.
    generator_us: float = 0.0
    #: That generator and broker used together while messages passed.
    cores: float = 0.0
    #: PostgreSQL's share of `cpu_us`.
    database_us: float = 0.0

    @property
    def is_machine_full(self) -> bool:
        return self.cores > CORES_MAX


def measure(target: Target, mode: str, load: Load, rest_s: float = SOON_S) -> Figure:
    return _metered(target, load, lambda: run(target, mode, load), rest_s)


def measure_both(target: Target, load: Load, rest_s: float = SOON_S) -> Figure:
    return _metered(target, load, lambda: run_both(target, load), rest_s)


def measure_from_window(target: Target, load: Load, rest_s: float = SOON_S) -> Figure:
    """Receiving what was sent just before and never left the broker's memory, a little at a time. What sending left
    to be done meanwhile is in the cost, and so is a connection for each little."""
    meter, little = meter_of(target), replace(load, messages=WINDOW_MESSAGES)
    turns = max(load.messages // WINDOW_MESSAGES, 1)
    used, passing, took_s, wall_s, generator_s = NOTHING, NOTHING, 0.0, 0.0, 0.0
    for turn in range(turns):
        run(target, "send", little)
        before, begun = meter.now(), time.monotonic()
        result = run(target, "recv", little)
        wall_s += time.monotonic() - begun
        during = meter.now() - before
        passing += during
        used += meter.rested(rest_s) - before if turn == turns - 1 else during
        took_s += result["secs"]
        generator_s += result["cpu_s"]
    count = turns * WINDOW_MESSAGES
    return Figure(
        count / took_s,
        used.cpu_ns / count / 1e3,
        written_bytes=used.written_bytes / count,
        generator_us=generator_s / count * 1e6,
        cores=(passing.cpu_ns / 1e9 + generator_s) / wall_s,
    )


def middle(figures: list[Figure]) -> Figure:
    return Figure(
        **{each.name: median(getattr(one, each.name) for one in figures) for each in fields(Figure)}
    )


def cpu_s(pid: int) -> float:
    """CPU time that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


_METERS: dict[int, Meter] = {}


def meter_of(target: Target) -> Meter:
    """The first call learns what the server uses idle, so nobody may be using it."""
    pid = target.pid
    if pid not in _METERS:
        _METERS[pid] = Meter(pid, database_pid=target.database_pid)
        _METERS[pid].learn_idle()
    return _METERS[pid]


def _metered(target: Target, load: Load, work: Callable[[], dict[str, float]], rest_s: float) -> Figure:
    meter = meter_of(target)
    before, database_ns = meter.now(), meter.database_ns()
    result = work()
    during = meter.now() - before
    used = meter.rested(rest_s) - before
    return Figure(
        result["rate"],
        used.cpu_ns / load.messages / 1e3,
        result.get("p50_ms", 0.0),
        result.get("p99_ms", 0.0),
        used.written_bytes / load.messages,
        result["cpu_s"] / load.messages * 1e6,
        (during.cpu_ns / 1e9 + result["cpu_s"]) / result["secs"],
        (meter.database_ns() - database_ns) / load.messages / 1e3,
    )
