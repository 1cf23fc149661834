"""One measured run: rate, and the broker's CPU time per message (the figure that noise hardly touches)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import psutil

from benchmarks.generator import Load, Target, run, run_both


@dataclass(frozen=True)
class Figure:
    rate: float
    cpu_us: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def measure(target: Target, mode: str, load: Load) -> Figure:
    return _with_cpu(target, load, lambda: run(target, mode, load))


def measure_both(target: Target, load: Load) -> Figure:
    return _with_cpu(target, load, lambda: run_both(target, load))


def middle(figures: list[Figure]) -> Figure:
    return Figure(
        median(figure.rate for figure in figures),
        median(figure.cpu_us for figure in figures),
        median(figure.p50_ms for figure in figures),
        median(figure.p99_ms for figure in figures),
    )


def cpu_s(pid: int) -> float:
    """CPU time that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _with_cpu(target: Target, load: Load, work: Callable[[], dict[str, float]]) -> Figure:
    before = cpu_s(target.pid)
    result = work()
    return Figure(
        result["rate"],
        (cpu_s(target.pid) - before) / load.messages * 1e6,
        result.get("p50_ms", 0.0),
        result.get("p99_ms", 0.0),
    )
