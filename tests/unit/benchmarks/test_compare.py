"""Benchmarks: what `python -m benchmarks.compare` takes, refuses and prints."""

from __future__ import annotations

import os
import threading
import time

import pytest

from benchmarks import compare, generator
from benchmarks.comparison_table import table, verdict_of
from benchmarks.contender import Cost
from benchmarks.pair_ratios import Interval, Verdict
from benchmarks.pairing import Pairs
from benchmarks.planted_slowness import Finding
from benchmarks.process_counters import InstructionCounter, NoCounter, cpu_ns

#: perf_event_open(2): a clock of the kernel's own, which virtual machines have too.
_SOFTWARE, _TASK_CLOCK = 1, 1


def pairs(ratio: float, instructions: float | None = None) -> Pairs:
    return Pairs([Cost(10.0, instructions)] * 10, [Cost(10.0 * ratio, instructions)] * 10)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name the commit to compare with"),
        (["HEAD", "--pairs", "5"], "at least 6 pairs"),
        (["HEAD", "--only", "nosuch"], "invalid choice: 'nosuch'"),
        (["HEAD", "main"], "unrecognized arguments: main"),
    ],
)
def test_a_wrong_call_is_refused(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Benchmarks: nothing is built or started for it."""
    with pytest.raises(SystemExit, match="2"):
        compare.main(words)
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("name", "sentence"), [("nosuch", "git knows no commit"), ("", "Name the commit")])
def test_an_unknown_base_is_a_sentence_and_a_status(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Benchmarks: nothing measured is status 2, so that it is not taken for a tree that became worse."""
    monkeypatch.setattr(generator, "build", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert compare.main([name]) == compare.NOT_MEASURED
    assert sentence in capsys.readouterr().err


def test_a_missing_generator_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Benchmarks: before a tree is built for minutes."""

    def build() -> None:
        raise generator.Unavailable("libqpid-proton11-dev")

    monkeypatch.setattr(generator, "build", build)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert compare.main(["HEAD"]) == compare.NOT_MEASURED
    assert "libqpid-proton11-dev" in capsys.readouterr().err


def test_a_given_number_of_pairs_is_exact() -> None:
    """Benchmarks: without one, at least ten and as many as the interval needs."""
    assert compare.QUICK.pairs_min >= 10
    assert compare.WHOLE.pairs_min >= 10
    plan = compare.plan_of(compare._options(["HEAD", "--pairs", "30", "--quick"]))
    assert (plan.pairs_min, plan.pairs_max) == (30, 30)


def test_the_table_tells_costs_ratios_and_verdicts() -> None:
    """Benchmarks: with a counter it has instructions, without one it says why not."""
    found = {"send": pairs(1.0, 700.0), "hub-bulk": pairs(1.08, 700.0)}
    text = table(found, "these two", None)
    assert "| send     | 10.00   | 10.00  | 1.000x    | 1.000 … 1.000 | 10    | 700 " in text
    assert text.count("| WORSE     |") == 1
    assert [verdict_of(each) for each in found.values()] == [Verdict.NOT_WORSE, Verdict.WORSE]
    without = table({"send": pairs(1.0)}, "these two", "not supported")
    assert "no counter here (not supported)" in without
    assert "instr. ratio" not in without


@pytest.mark.parametrize(
    ("middle", "low", "high", "is_planted", "holds"),
    [
        (1.0, 0.98, 1.02, False, True),
        (1.012, 1.005, 1.02, False, True),
        (1.02, 1.012, 1.03, False, False),
        (1.05, 1.04, 1.06, True, True),
        (1.05, 0.99, 1.09, True, False),
        (1.02, 1.01, 1.03, True, False),
    ],
)
def test_the_self_test_notices(middle: float, low: float, high: float, is_planted: bool, holds: bool) -> None:
    """Benchmarks: equal trees must come out equal and the planted share must be seen as what it is."""
    assert Finding("send", Interval(middle, low, high), is_planted).holds is holds


def test_cpu_time_is_that_of_all_threads() -> None:
    """Benchmarks: the clock of a process counts what its threads use, in nanoseconds."""
    before_ns, own_ns = cpu_ns(os.getpid()), time.process_time_ns()
    thread = threading.Thread(target=_busy)
    thread.start()
    thread.join()
    used_ns, own_used_ns = cpu_ns(os.getpid()) - before_ns, time.process_time_ns() - own_ns
    assert used_ns > 4_000_000
    assert abs(used_ns - own_used_ns) < 2_000_000
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_ns(2**22 + 1)


def test_a_counter_counts_threads_that_come_later() -> None:
    """Benchmarks: checked with an event that virtual machines have too."""
    try:
        counter = InstructionCounter(os.getpid(), _SOFTWARE, _TASK_CLOCK)
    except NoCounter as error:
        pytest.skip(str(error))
    before = counter.read()
    thread = threading.Thread(target=_busy)
    thread.start()
    thread.join()
    assert counter.read() - before > 4_000_000
    counter.close()


def _busy() -> None:
    end_ns = time.thread_time_ns() + 5_000_000
    while time.thread_time_ns() < end_ns:
        pass
