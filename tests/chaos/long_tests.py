"""Tests that take too long for every day, marked `long`: every point of what `make test` tries a share of, and jobs
that start Spark many times."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.chaos.scenario import Outcome

_PASSED: Final = re.compile(r"(\d+) passed")
_ROOT: Final = Path(__file__).parents[2]
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def every_point(folder: Path, rounds: int, seed: int) -> Outcome:
    """A round is a test."""
    del seed
    return _run("Every point", folder, rounds, "tests", "--ignore", "tests/spark")


def jobs_on_spark(folder: Path, rounds: int, seed: int) -> Outcome:
    """A round is a test."""
    del seed
    if find_spec("pyspark") is None:
        return Outcome("Jobs on Spark", 0, rounds, skipped="Spark is not installed (make setup-spark)")
    return _run("Jobs on Spark", folder, rounds, "tests/spark")


def stores_in_postgres(folder: Path, rounds: int, seed: int) -> Outcome:
    """What `make test-postgres` runs. A round is a test."""
    del seed
    command = ["make", "--no-print-directory", "-C", str(_ROOT), "test-postgres"]
    return _ended("Stores in PostgreSQL", folder, rounds, [*command, f"ARGS=--basetemp {folder / 'tests'}"])


def _run(name: str, folder: Path, rounds: int, *paths: str) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "long", *paths]
    return _ended(name, folder, rounds, [*command, "--basetemp", str(folder / "tests")])


def _ended(name: str, folder: Path, rounds: int, command: list[str]) -> Outcome:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        (folder / "pytest.txt").write_text(done.stdout + done.stderr)
    passed = _PASSED.search(done.stdout)
    return Outcome(
        name,
        0 if passed is None else int(passed[1]),
        rounds,
        violations=dict.fromkeys(_FAILED.findall(done.stdout), 1),
    )
