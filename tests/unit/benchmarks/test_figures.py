"""Benchmarks: what is counted for a message, and which figure a bar is held against."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks import artemis, bars, meter
from benchmarks.bars import AGAINST_TODAY, Bar
from benchmarks.measurement import CORES_MAX, Figure, middle
from benchmarks.meter import Meter, Used, written_bytes
from benchmarks.report import Report
from benchmarks.throughput import _rate
from benchmarks.workloads import TITLES


def row(report: Report) -> list[str]:
    return [cell.strip() for cell in report.text().splitlines()[-1].split("|")[1:-1]]


def test_every_bar_is_easier_than_its_goal() -> None:
    """Benchmarks: rates have a goal above the bar, costs one below; none is missing its bar."""
    upwards = {
        *(bars.SEND, bars.RECEIVE_WINDOW, bars.RECEIVE_BACKLOG, bars.BOTH, bars.BOTH_ARTEMIS),
        *(bars.CONNECTIONS, bars.PURE_RATE, bars.SUSTAINED_RATE),
        *(bars.POSTGRES_SEND, bars.POSTGRES_RECEIVE, bars.POSTGRES_BOTH),
    }
    for bar in (each for each in (*vars(bars).values(), *AGAINST_TODAY.values()) if isinstance(each, Bar)):
        if bar.goal is not None:
            assert bar.goal > bar.bar if bar in upwards else bar.goal < bar.bar


def test_every_bar_against_a_commit_has_its_workload() -> None:
    """Benchmarks: what is held against the commit of the bars is what a comparison measures."""
    assert set(AGAINST_TODAY) <= set(TITLES)


def test_a_row_tells_bar_goal_and_verdict() -> None:
    """Benchmarks: the bar decides; the goal and what it was before stand beside it."""
    report = Report("here")
    report.at_least("send", 420.0, 100.0, Bar(4.2, 5.0, "2.9x"))
    assert row(report) == ["send", "420/s", "100/s", "4.20x", ">= 4.2x", "yes", ">= 5x, was 2.9x"]
    report.at_most("latency", 0.9, 1.0, Bar(0.65, 0.5), "ms")
    assert row(report)[3:] == ["0.90x", "<= 0.65x", "**no**", "<= 0.5x"]
    assert not report.bar_holds()


def test_pairs_give_the_ratio_themselves() -> None:
    """Benchmarks: the median of the ratios of pairs counts, not the ratio of two medians."""
    report = Report("here")
    report.at_most("both", 9.0, 10.0, 0.8, "µs/message", 0.7)
    assert row(report)[3:6] == ["0.70x", "<= 0.8x", "yes"]


@pytest.mark.parametrize(("cores", "holds"), [(CORES_MAX, "**no**"), (CORES_MAX + 0.01, "yes")])
def test_on_a_full_machine_the_cpu_decides(cores: float, holds: str) -> None:
    """Benchmarks: three times the rate at a fifth of the CPU misses a bar of four, unless the machine was full."""
    report = Report("here")
    _rate(report, "both", Figure(300.0, 2.0, cores=cores), Figure(100.0, 10.0), Bar(4.0))
    assert row(report)[5] == holds
    assert ("the machine is full" in row(report)[4]) is (holds == "yes")


def test_without_a_peer_there_is_no_verdict() -> None:
    """Benchmarks: where a peer cannot be had, its figures are told without a ratio."""
    report = Report("here")
    _rate(report, "both", Figure(300.0, 2.0, cores=2.0), None, Bar(4.0))
    assert row(report) == ["both", "300/s", "", "", "", "", ""]
    assert report.bar_holds()


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_a_peer_that_cannot_be_had_is_told(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Benchmarks: without Java, or without Maven to fetch it, Artemis is left out with a reason."""
    monkeypatch.setattr(artemis, "HOME", tmp_path / "not-there")
    monkeypatch.setattr(artemis.shutil, "which", lambda program: None if program == missing else program)
    assert artemis.why_not_here() == f"{missing} is not there"


def test_the_middle_is_that_of_each_figure() -> None:
    """Benchmarks: every field has its own median."""
    found = [Figure(*[number * 1.0] * len(fields(Figure))) for number in (1, 7, 3)]
    assert middle(found) == found[2]


def test_a_rest_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks: what a server uses idle is taken off for the time that is waited; what it does besides counts."""
    clock_ns, used_ns = 0, 0

    def sleep(seconds: float) -> None:
        nonlocal clock_ns, used_ns
        clock_ns += round(seconds * 1e9)
        used_ns += round(seconds * 1e9 * 0.02)

    monkeypatch.setattr(meter.time, "sleep", sleep)
    monkeypatch.setattr(meter.time, "monotonic_ns", lambda: clock_ns)
    monkeypatch.setattr(meter.time, "monotonic", lambda: clock_ns / 1e9)
    monkeypatch.setattr(meter, "cpu_ns", lambda _: used_ns)
    monkeypatch.setattr(meter, "written_bytes", lambda _: 0)
    found = Meter(1)
    assert found.learn_idle() == pytest.approx(0.02)
    before = found.now()
    used_ns += 5_000_000
    assert (found.rested() - before).cpu_ns == pytest.approx(5_000_000, abs=10)


def test_bytes_are_those_of_the_kernel() -> None:
    """Benchmarks: the account of a process that runs can be read."""
    assert written_bytes(os.getpid()) >= 0
    assert Used(3, 5) - Used(1, 2) + Used(1, 1) == Used(3, 4)
