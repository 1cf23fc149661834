"""A capture whose file store fails or dies at every call that it makes: nothing lost, nothing twice, and what is told
is there. Spark and the bus are played (`played_capture`), so that every call can be tried."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import pytest

from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET
from busway_spark.pipeline.compaction import CompactOptions, compact
from busway_spark.pipeline.job import HUB, QUEUE_KIND, JobFailed, JobProgress
from tests.spark.capture_rig import NINE
from tests.spark.faulty_store import (
    ERRORS,
    KILL,
    OVERTAKEN,
    Calls,
    Fault,
    FaultyObjects,
    Killed,
    calls,
)
from tests.spark.played_capture import KINDS, GivenUp, PlayedBus, PlayedCapture, PlayedCheckpoint

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
    """At every call, with everything that may happen. Or in turns; only a hub has each call then, and the others have
    every third, each beginning elsewhere."""
    begin, step = (1, 1) if all_of_them or first == 0 else (first, 3)
    for call in range(begin, count + 1, step):
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


@pytest.mark.parametrize("kind", [HUB, QUEUE_KIND])
def test_a_fault_at_any_call_of_an_object_store_loses_and_doubles_nothing(
    tmp_path: Path, calls: Calls, kind: str
) -> None:
    """Capture: where moving is copying and deleting, a fault comes between both."""
    run = PlayedCapture(tmp_path / "good", PARQUET, PlayedBus(kind), FaultyObjects)
    run.run()
    run.check_all()
    names = calls.names
    assert {"objects.copy_file", "objects.delete_file", "objects.put"} <= set(names)
    for fault in faults(len(names), all_of_them=False, first=KINDS.index(kind)):
        run = PlayedCapture(tmp_path / str(fault.call), PARQUET, PlayedBus(kind), FaultyObjects)
        run_into(run, calls, fault)
        run.check()
        run.run()
        run.check_all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_store_that_stays_broken_until_the_next_start_loses_nothing(
    tmp_path: Path, calls: Calls, layout: str
) -> None:
    """Capture: `abort` fails too, and so does what tasks do to clean up behind them."""
    names = good_calls(tmp_path / "good", layout, QUEUE_KIND, calls)
    for call in range(1, len(names) + 1, 3):
        run = played(tmp_path / str(call), layout, QUEUE_KIND)
        run_into(run, calls, Fault(call, list(ERRORS)[call % len(ERRORS)], bool(call & 2), stays=True))
        run.check()
        run.run()
        run.check_all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_faults_upon_faults_lose_and_double_nothing(tmp_path: Path, calls: Calls, layout: str) -> None:
    """Capture: what a start does to mend the last fault fails or dies as well, up to five times."""
    chance = Random(15)
    names = good_calls(tmp_path / "good", layout, HUB, calls)
    for at in range(12):
        run = played(tmp_path / str(at), layout, chance.choice(KINDS))
        told = []
        for _ in range(chance.randint(2, 5)):
            what, comes_after = chance.choice(HAPPENINGS)
            told.append(Fault(chance.randint(1, len(names) * 2 // 3), what, comes_after))
            run_into(run, calls, told[-1])
            run.check()
        run.run()
        run.check_all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_that_is_lost_after_a_fault_costs_a_hub_nothing(
    tmp_path: Path, calls: Calls, layout: str
) -> None:
    """Capture: a new query begins behind the files that are in place, among which there is no gap."""
    names = good_calls(tmp_path / "good", layout, HUB, calls)
    for call in range(len(names) // 2, len(names) + 1):
        run = played(tmp_path / str(call), layout, HUB)
        what, comes_after = HAPPENINGS[call % len(HAPPENINGS)]
        run_into(run, calls, Fault(call, what, comes_after))
        run.checkpoint = PlayedCheckpoint()
        run.run()
        run.check()
        assert run.lake() == sorted(run.bus.keys), (call, names[call - 1])
        assert run.leftovers() == []


def test_a_compaction_between_a_fault_and_the_next_start_doubles_nothing(
    tmp_path: Path, calls: Calls
) -> None:
    """Capture: what a promise names is left alone, and what is done is known by its note alone."""
    names = good_calls(tmp_path / "good", PARQUET, QUEUE_KIND, calls)
    for call in range(len(names) // 2, len(names) + 1):
        run = played(tmp_path / str(call), PARQUET, QUEUE_KIND)
        what, comes_after = HAPPENINGS[call % len(HAPPENINGS)]
        run_into(run, calls, Fault(call, what, comes_after))
        compact(CompactOptions(str(run.folder)), JobProgress(lambda *_: None), NINE + timedelta(days=1))
        run.check()
        run.run()
        run.check()
        assert run.lake() == sorted(run.bus.keys), (call, names[call - 1])


@pytest.mark.parametrize(
    "is_whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["start", "run"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_commit_that_was_given_up_and_goes_on_does_no_harm(
    tmp_path: Path, calls: Calls, layout: str, is_whole: bool
) -> None:
    """Capture: Spark was stopped while a task or a commit was under way; `abort` is called and a new capture starts,
    or does everything, and only then the old one takes its next step."""
    names = good_calls(tmp_path / "good", layout, QUEUE_KIND, calls)
    tried = 0
    for call in range(len(names) // 2 if is_whole else 1, len(names) + 1):
        run = played(tmp_path / str(call), layout, QUEUE_KIND)
        heir = PlayedCapture(run.folder, layout, run.bus)
        heir.checkpoint, heir.told = run.checkpoint, run.told
        calls.meanwhile = partial(overtake, run, heir, is_whole)
        calls.arm(Fault(call, OVERTAKEN))
        try:
            run.run()
        except GivenUp:
            tried += 1
        calls.arm()
        heir.check()
        heir.run()
        assert heir.lake() == sorted(run.bus.keys), (call, names[call - 1])
        assert heir.leftovers() == [], (call, names[call - 1])
    assert tried > len(names) // 3


def overtake(run: PlayedCapture, heir: PlayedCapture, is_whole: bool) -> None:
    if not run.messages:
        return
    run.give_up()
    if is_whole:
        heir.run()
        heir.check_all()
    else:
        heir.start()
