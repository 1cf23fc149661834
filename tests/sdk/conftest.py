"""The servers of the whole run, and each program's outcomes by each way, tried once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sdk.bus import Bus, serving
from tests.sdk.program import Missing, Outcome, Program

Outcomes = Callable[[Program, str], dict[str, Outcome]]


@pytest.fixture(scope="session")
def ways() -> Iterator[dict[str, Bus]]:
    # Not pytest's own folder: another run of pytest would remove it under a run as long as this.
    with tempfile.TemporaryDirectory(prefix="busway-sdk-") as folder, serving(Path(folder)) as found:
        yield found


@pytest.fixture(scope="session")
def outcomes(ways: dict[str, Bus]) -> Outcomes:
    """What a program printed by one way. Its standard error is kept beside what it was built into."""
    tried: dict[tuple[str, str], dict[str, Outcome]] = {}

    def of(program: Program, way: str) -> dict[str, Outcome]:
        key = (program.name, way)
        if key not in tried:
            try:
                folder = program.built()
            except Missing as missing:
                pytest.skip(str(missing))
            bus = ways[way]
            bus.make_entities(program)
            chosen = os.environ.get("BUSWAY_SDK_ONLY", "").split()
            # What was tried whole is kept: it is what `record` writes down.
            log: Path = folder.with_name(f"{program.name}-{way}{'-chosen' if chosen else ''}.log")
            tried[key] = program.run(bus.environment(program), log, chosen or program.operations_by(way))
        return tried[key]

    return of
