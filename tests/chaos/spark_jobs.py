"""Kills of whole jobs on Spark: the tests that start Spark too often for every day (`long` in tests/spark)."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.chaos.scenario import Outcome

NAME: Final = "Jobs on Spark"
_PASSED: Final = re.compile(r"(\d+) passed")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def kill_jobs(folder: Path, rounds: int, seed: int) -> Outcome:
    """A round is a test."""
    del seed
    if find_spec("pyspark") is None:
        return Outcome(NAME, 0, rounds, skipped="Spark is not installed (make setup-spark)")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "long", "tests/spark"]
    done = subprocess.run(
        [*command, "--basetemp", str(folder / "tests")], capture_output=True, text=True, check=False
    )
    if done.returncode:
        (folder / "pytest.txt").write_text(done.stdout + done.stderr)
    passed = _PASSED.search(done.stdout)
    return Outcome(
        NAME,
        0 if passed is None else int(passed[1]),
        rounds,
        violations=dict.fromkeys(_FAILED.findall(done.stdout), 1),
    )
