"""SDK: what a machine does not have is said, and only that is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.program import ROOT, RUN_SECONDS_MAX, Missing, Program
from tests.sdk.programs import PROGRAMS

pytestmark = pytest.mark.sdk

TOOLS = sorted({tool for program in PROGRAMS for tool in program.tools})


def path_without(tool: str, folder: Path) -> str:
    """PATH, in which folders that have the tool are replaced by ones with everything else of theirs."""
    found = []
    for number, each in enumerate(map(Path, os.environ["PATH"].split(os.pathsep))):
        if not (each / tool).exists():
            found.append(each)
            continue
        rest = folder / str(number)
        rest.mkdir()
        for file in each.iterdir():
            if file.name != tool:
                (rest / file.name).symlink_to(file)
        found.append(rest)
    return os.pathsep.join(map(str, found))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_tool_is_said(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SDK: by each program that needs it; the others need nothing more than before."""

    def lacking() -> set[str]:
        return {program.name for program in PROGRAMS if program.missing() is not None}

    needy = {program.name for program in PROGRAMS if tool in program.tools}
    before = lacking()
    monkeypatch.setenv("PATH", path_without(tool, tmp_path))
    assert lacking() == before | needy
    for program in PROGRAMS:
        if program.name in needy - before:
            with pytest.raises(Missing, match=f"^{tool} is not installed: {program.name} was not tried$"):
                program.built.__wrapped__(program)


def _first(language: str) -> tuple[Program, str]:
    program = next(each for each in PROGRAMS if each.name.startswith(language))
    return program, f"{program.name}-{program.ways[0]}-{program.operations[0]}"


@pytest.mark.timeout(RUN_SECONDS_MAX)
@pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="node or npm is not installed"
)
def test_only_what_is_missing_is_skipped(tmp_path: Path) -> None:
    """SDK: without Go its programs are skipped with the reason, and one in JavaScript runs."""
    (absent, skipped), (_, run) = _first("go"), _first("javascript")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "tests/sdk/test_operations.py",
    ]
    done = subprocess.run(
        [*command, "-k", f"{skipped} or {run}"],
        cwd=ROOT,
        env={**os.environ, "PATH": path_without("go", tmp_path), "BUSWAY_SDK_ONLY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"go is not installed: {absent.name} was not tried" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
