"""All cells of the matrix, on the build as it is and on the Python sources: a row of `make chaos`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.chaos.scenario import Outcome

_SCENARIO: Final = "changes-cells"
#: Of one build; on an idle machine it takes one or two.
_MINUTES_MAX: Final = 40


def all_cells(folder: Path, rounds: int, seed: int) -> Outcome:
    """`rounds`: how often each cell is run on each build, each time with a seed of its own."""
    told: list[dict[str, object]] = []
    for place in range(rounds):
        for name, pure in (("as it is", {}), ("pure", {"BUSWAY_PURE": "1"})):
            told.append(_run(folder / f"{place} {name}.txt", seed + place, pure))
    violations: dict[str, int] = {}
    for each in told:
        failed = each["failed"]
        assert isinstance(failed, dict)
        for what, count in failed.items():
            violations[what] = violations.get(what, 0) + count
    builds = ", ".join(str(each["build"]) for each in told)
    return Outcome(
        _SCENARIO,
        sum(_number(each, "cells") for each in told),
        sum(_number(each, "planned") for each in told),
        sum(_number(each, "sent") for each in told),
        sum(_number(each, "received") for each in told),
        violations,
        builds,
    )


def _run(file: Path, seed: int, more: dict[str, str]) -> dict[str, object]:
    """In a process of its own. What it says of cells that fail is kept in the file."""
    command = [sys.executable, "-m", "tests.changes", "--all", "--keep-going", "--json", "--seed", str(seed)]
    with file.open("w") as said:
        ended = subprocess.run(
            command,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=said,
            timeout=_MINUTES_MAX * 60,
            check=False,
        )
    sys.stderr.write(file.read_text())
    lines = ended.stdout.decode().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {
            "build": "none",
            "cells": 0,
            "planned": 1,
            "sent": 0,
            "received": 0,
            "failed": {f"ended with {ended.returncode}": 1},
        }
    found: dict[str, object] = json.loads(lines[-1])
    return found


def _number(told: dict[str, object], key: str) -> int:
    value = told[key]
    assert isinstance(value, int)
    return value
