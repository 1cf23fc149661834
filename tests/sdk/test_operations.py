"""SDK: each operation of each program, by each way to the bus, is a test of its own."""

from __future__ import annotations

import os
from collections import Counter
from fnmatch import fnmatch

import pytest

from tests.sdk.conftest import Outcomes
from tests.sdk.known_failures import KNOWN, reason
from tests.sdk.program import RUN_SECONDS_MAX, SOURCES, Program
from tests.sdk.programs import JAVA_SERVICE_BUS, PROGRAMS

pytestmark = pytest.mark.sdk

ONLY = os.environ.get("BUSWAY_SDK_ONLY", "").split()


def _marks(program: str, way: str, operation: str) -> list[pytest.MarkDecorator]:
    why = reason(program, way, operation)
    return [] if why is None else [pytest.mark.xfail(reason=why, strict=True)]


def _cases() -> list[object]:
    cases = []
    for program in PROGRAMS:
        for way in program.ways:
            for operation in program.operations_by(way):
                marks = _marks(program.name, way, operation)
                name = f"{program.name}-{way}-{operation}"
                cases.append(pytest.param(program, way, operation, marks=marks, id=name))
    return cases


# The first of a program waits for all of them, and perhaps for a build.
@pytest.mark.timeout(RUN_SECONDS_MAX + 3_600)
@pytest.mark.parametrize(("program", "way", "operation"), _cases())
def test_an_operation_works(program: Program, way: str, operation: str, outcomes: Outcomes) -> None:
    """SDK: the program says that it found what it wanted."""
    if ONLY and operation not in ONLY:
        pytest.skip("not asked for")
    outcome = outcomes(program, way).get(operation)
    assert outcome is not None, (
        f"the program ended before it tried {operation}: see build/sdk/{program.name}-{way}.log"
    )
    assert outcome.passed, outcome.found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_operations_have_names_of_their_own(program: Program) -> None:
    """SDK: a name that is there twice would be one test for two operations."""
    assert [name for name, count in Counter(program.operations).items() if count > 1] == []


@pytest.mark.parametrize("pattern", KNOWN)
def test_a_known_failure_is_of_an_operation_that_exists(pattern: str) -> None:
    """SDK: the list of what does not work has no entry that nobody needs."""
    names = (
        f"{one.name}/{way}/{name}" for one in PROGRAMS for way in one.ways for name in one.operations_by(way)
    )
    assert any(fnmatch(name, pattern) for name in names)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_version_is_the_one_it_is_built_with(program: Program) -> None:
    """SDK: what COMPATIBILITY says was run is what the manifest asks for, or what the build is told."""
    manifests = [path for pattern in program.beside for path in SOURCES.glob(pattern)]
    names = ("go.mod", "pom.xml", "package.json", "Cargo.toml")
    asked = "".join(path.read_text() for path in manifests if path.name in names)
    assert program.version in asked or program.version in JAVA_SERVICE_BUS
