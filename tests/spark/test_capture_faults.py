"""A capture whose file store fails or dies at every call that it makes: nothing lost, nothing twice, and what is told
is there. Spark and the bus are played (`played_capture`), so that every call can be tried."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from busway_spark.pipeline.capture_sink import DELTA, PARQUET
from busway_spark.pipeline.job import JobFailed
from tests.spark.faulty_store import ERRORS, KILL, Calls, Fault, Killed, calls
from tests.spark.played_capture import KINDS, PlayedBus, PlayedCapture

__all__ = ["calls"]
LAYOUTS = (PARQUET, DELTA)
#: What may happen with a call: each error and a kill, before it is carried out and after.
HAPPENINGS = list(product([KILL, *ERRORS], [False, True]))


def played(folder: Path, layout: str, kind: str) -> PlayedCapture:
    return PlayedCapture(folder, layout, PlayedBus(kind))


def good_calls(folder: Path, layout: str, kind: str, calls: Calls) -> list[str]:
    """What a run without faults asks of its store."""
    calls.arm()
    run = played(folder, layout, kind)
    run.run()
    run.check_all()
    return calls.names


def run_into(run: PlayedCapture, calls: Calls, fault: Fault) -> None:
    """It ends there with a sentence, if it does not die."""
    calls.arm(fault)
    try:
        run.run()
    except Killed:
        assert fault.what == KILL
    except JobFailed:
        assert fault.what != KILL
    finally:
        calls.arm()


def faults(count: int, *, all_of_them: bool, first: int) -> Iterator[Fault]:
    """At every call; if not with everything that may happen, then in turns."""
    for call in range(1, count + 1):
        chosen = HAPPENINGS if all_of_them else [HAPPENINGS[(3 * call + first) % len(HAPPENINGS)]]
        for what, comes_after in chosen:
            yield Fault(call, what, comes_after)


def broken_by(
    names: list[str], folder: Path, layout: str, kind: str, calls: Calls, fault: Fault
) -> list[str]:
    """What went wrong after that fault and a new start with the same checkpoint."""
    run = played(folder, layout, kind)
    try:
        run_into(run, calls, fault)
        run.check()
        run.run()
        run.check_all()
    except (AssertionError, Exception) as error:
        return [f"{fault} ({names[fault.call - 1]}): {type(error).__name__} {error}"[:300]]
    shutil.rmtree(folder)
    return []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_of_the_store_loses_and_doubles_nothing(
    tmp_path: Path, calls: Calls, kind: str, layout: str
) -> None:
    """Capture: an error or a kill at each call, `abort`, and a new start with the same checkpoint."""
    check_faults(tmp_path, calls, kind, layout, all_of_them=False)


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_at_every_call_of_the_store_loses_and_doubles_nothing(
    tmp_path: Path, calls: Calls, kind: str, layout: str
) -> None:
    """Capture: the same, with everything that may happen at each call."""
    check_faults(tmp_path, calls, kind, layout, all_of_them=True)


def check_faults(tmp_path: Path, calls: Calls, kind: str, layout: str, *, all_of_them: bool) -> None:
    names = good_calls(tmp_path / "good", layout, kind, calls)
    tried = list(faults(len(names), all_of_them=all_of_them, first=KINDS.index(kind)))
    broken = [
        text
        for at, fault in enumerate(tried)
        for text in broken_by(names, tmp_path / str(at), layout, kind, calls, fault)
    ]
    assert broken == [], f"{len(broken)} of {len(tried)}:\n" + "\n".join(broken)
