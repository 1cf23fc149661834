"""The page's sources: what was taken from elsewhere is what it says, and ours is written as we say."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

CONSOLE = Path(__file__).parents[2] / "src" / "busway" / "gateway" / "http" / "console"
MODULES = sorted((CONSOLE / "page").rglob("*.js"))
COLUMNS_MAX = 140
LINES_MAX = 300
_IMPORT = re.compile(r'^import (?:[^"\n]* from )?"([^"]+)";$', re.MULTILINE)

every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CONSOLE)))


def test_what_was_taken_from_elsewhere_is_what_it_says() -> None:
    """Licences: each file is known by its digest, and has its licence beside it."""
    lines = (CONSOLE / "vendor" / "checksums.txt").read_text().splitlines()[1:]
    said = {name: digest for digest, name in (line.split() for line in lines)}
    present = {path.name for path in (CONSOLE / "vendor").iterdir()} - {"checksums.txt"}
    assert set(said) == present
    for name, digest in said.items():
        assert hashlib.sha256((CONSOLE / "vendor" / name).read_bytes()).hexdigest() == digest, name
    assert {name.split(".")[0].split("-")[0] for name in present} == {"preact", "htm", "uplot"}
    assert {f"{name}.LICENSE.txt" for name in ("preact", "htm", "uplot")} <= present


@every_module
def test_a_module_is_written_as_the_others_are(path: Path) -> None:
    """House style: as `page/README.md` says."""
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX or line != line.rstrip() or "\t" in line] == []
    assert text.lstrip().startswith("/**"), "what it is"
    exports = [
        number
        for number, line in enumerate(lines)
        if re.match(r"export (async )?(function|const|class) ", line)
    ]
    undocumented = [lines[number] for number in exports if not lines[number - 1].rstrip().endswith("*/")]
    assert undocumented == []


@every_module
def test_nothing_in_a_module_makes_markup_of_text(path: Path) -> None:
    """Attack: names come from strangers."""
    found = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function",
        path.read_text(),
    )
    assert found == []


@every_module
def test_a_module_imports_what_is_here(path: Path) -> None:
    """Offline: nothing is loaded from anywhere else."""
    for target in _IMPORT.findall(path.read_text()):
        if target.startswith("."):
            assert (path.parent / target).resolve() in MODULES, target
        else:
            assert target in ("preact", "preact/hooks", "htm"), target
