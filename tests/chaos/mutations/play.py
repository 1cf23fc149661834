"""Each fault in a copy of the sources of its own; the tests that should see it run on that copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.mutations.copies import COPIES
from tests.chaos.mutations.databases import DATABASES
from tests.chaos.mutations.defects import DEFECTS
from tests.chaos.mutations.fault import ROOT, SOURCE, Fault, PlaceLost
from tests.chaos.mutations.greed import GREED
from tests.chaos.mutations.letters import LETTERS
from tests.chaos.mutations.lost import LOST
from tests.chaos.mutations.postgres import POSTGRES
from tests.chaos.mutations.promises import PROMISES
from tests.chaos.mutations.reset import RESET
from tests.chaos.mutations.safekeeping import SAFEKEEPING
from tests.chaos.mutations.staging import STAGING
from tests.chaos.scenario import Outcome

FAULTS: Final = (
    *PROMISES,
    *LOST,
    *DEFECTS,
    *GREED,
    *STAGING,
    *LETTERS,
    *RESET,
    *SAFEKEEPING,
    *COPIES,
    *POSTGRES,
    *DATABASES,
)
JOBS: Final = 2
#: Of the tests of one fault. A fault may make a test hang; pytest ends that one after two minutes.
SECONDS_MAX: Final = 300
#: What pytest ends with when all tests passed, and when some failed.
_GREEN: Final = 0
_RED: Final = 1
_RED_TEST: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
#: Passes only if the copy is what is imported: nothing would be seen otherwise.
_WITNESS: Final = (
    "import busway, os, pathlib;"
    " assert pathlib.Path(busway.__file__).is_relative_to(os.environ['PYTHONPATH']), busway.__file__"
)


@dataclass(frozen=True)
class Seen:
    """What became of one fault. `problem` is empty when a test saw it."""

    fault: Fault
    seconds: float
    test: str = ""
    problem: str = ""


def play(fault: Fault, folder: Path) -> Seen:
    begun = time.monotonic()
    try:
        broken = fault.broken()
    except PlaceLost as lost:
        return Seen(fault, 0.0, problem=str(lost))
    copy = folder / re.sub(r"\W+", "-", fault.name)
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("_compiled"))
    (copy / fault.file).write_text(broken)
    try:
        test, problem = _looked(fault, copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return Seen(fault, time.monotonic() - begun, test, problem)


def _looked(fault: Fault, copy: Path) -> tuple[str, str]:
    """(the test that saw it, what is wrong)"""
    witness = _python(copy, "-c", _WITNESS)
    if witness.returncode != _GREEN:
        return "", f"the copy cannot be imported: {witness.stderr.strip()[-300:]}"
    ended = _tested(copy, *fault.tests)
    if ended.returncode == _GREEN:
        return "", "nobody saw it"
    found = _RED_TEST.search(ended.stdout)
    if ended.returncode != _RED or found is None:
        return "", f"the tests could not run (status {ended.returncode}): {ended.stdout.strip()[-500:]}"
    sound = _tested(SOURCE, found[1])
    if sound.returncode != _GREEN:
        return "", f"{found[1]} is red without the fault, too"
    return found[1], ""


def _tested(source: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    options = ("-x", "-q", "--tb=no", "--no-header", "-rfE", "-p", "no:cacheprovider", "-p", "no:randomly")
    return _python(source, "-m", "pytest", *options, *tests)


def _python(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "BUSWAY_PURE": "1", "COLUMNS": "400"}
    environment.pop("PYTEST_ADDOPTS", None)
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, -1, f"still running after {SECONDS_MAX} s", "")


def play_all(faults: Sequence[Fault], jobs: int, tell: Callable[[Seen], None]) -> list[Seen]:
    """In the order of the table; each is told when it has ended."""
    folder = Path(tempfile.mkdtemp(prefix="busway-mutations-"))

    def one(fault: Fault) -> Seen:
        seen = play(fault, folder)
        tell(seen)
        return seen

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, faults))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(seen: Seen) -> str:
    verdict = f"seen by {seen.test}" if not seen.problem else f"NOT SEEN: {seen.problem}"
    return f"{seen.fault.name} ({seen.fault.about}; {seen.seconds:.0f} s): {verdict}"


def break_on_purpose(_folder: Path, rounds: int, _seed: int) -> Outcome:
    """For `make chaos`: all of them. `sent` counts faults, `received` those that were seen."""
    seen = play_all(FAULTS, JOBS, lambda one: print(told(one), file=sys.stderr, flush=True))
    missed = {f"{one.fault.name}: {one.problem}": 1 for one in seen if one.problem}
    return Outcome("mutations", len(seen), rounds, len(seen), len(seen) - len(missed), missed)
