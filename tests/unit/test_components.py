"""How modules hang together: who imports whom, in circles or not (`scripts/import_components.py` prints it)."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import import_components as graph_of  # noqa: E402

sys.path.remove(str(SCRIPTS))

#: The parts of a fragment, which know it. This number only ever goes down.
LARGEST: Final = 13
FACES: Final = 10
PUBLIC: Final = re.compile(r"Outside of the broker one knows (.*)\.$", re.S)
BROKER: Final = graph_of.SOURCES / "busway" / "broker"
KNOWN: Final = re.compile(r"^Others know (.*)\.$", re.S | re.M)


@cache
def imports() -> graph_of.Graph:
    return graph_of.imports()


def test_no_more_modules_import_each_other_in_a_circle_than_do_already() -> None:
    """House style: imports for types and those inside functions count like all others."""
    assert max(map(len, graph_of.components(imports()))) <= LARGEST


def test_a_circle_is_found_however_it_is_closed() -> None:
    """The graph itself: a chain is none, a circle is, and two that touch are one."""
    chain = {"a": {"b"}, "b": {"c"}, "c": set[str]()}
    assert graph_of.components(chain) == []
    assert graph_of.components({**chain, "c": {"b"}}) == [{"b", "c"}]
    two = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c", "a"}, "e": {"a"}}
    assert graph_of.components(two) == [{"a", "b", "c", "d"}]


def test_others_know_few_modules_of_the_broker() -> None:
    """House style: what gateways, streams and staging work with is a small face."""
    outside = {
        target
        for name, targets in imports().items()
        if not name.startswith("busway.broker")
        for target in targets
        if target.startswith("busway.broker")
    }
    assert len(outside) <= FACES, sorted(outside)


def test_no_packages_import_each_other_in_a_circle() -> None:
    """House style: a package knows those below it, never one that knows it. Where a package has others within it, its
    own modules stand for themselves."""
    assert graph_of.components(graph_of.between_packages(imports())) == []


@pytest.mark.parametrize(
    "folder",
    sorted(path for path in BROKER.iterdir() if (path / "__init__.py").is_file()),
    ids=lambda p: p.name,
)
def test_what_others_import_of_the_broker_is_named_as_public(folder: Path) -> None:
    """House style: each package of the broker says which of its modules are for others, and no other is used."""
    package = f"busway.broker.{folder.name}"
    imported = graph_of.imported_from_outside(imports(), package)
    outside = {
        target.rpartition(".")[2]
        for name, targets in imports().items()
        if not name.startswith("busway.broker")
        for target in targets & imported
    }
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    found = PUBLIC.search(text)
    assert found is not None, "no sentence about what is public"
    assert set(re.findall(r"`(\w+)`", found[1])) == outside


def packages() -> list[str]:
    """But for the two roots, and the broker's, which have a face of their own."""
    found = [name for name, file in graph_of.modules().items() if file.name == "__init__.py" and "." in name]
    return sorted(name for name in found if not name.startswith("busway.broker"))


@pytest.mark.parametrize("package", packages())
def test_what_others_import_of_a_package_is_named_by_it(package: str) -> None:
    """House style: a package says which of its modules are for others, and no other is used."""
    known = graph_of.modules()
    own = {name for name in known if name.rpartition(".")[0] == package and known[name].name != "__init__.py"}
    used = {
        target
        for name, targets in imports().items()
        if name != package and not name.startswith(package + ".")
        for target in targets & own
    }
    found = KNOWN.search(ast.get_docstring(ast.parse(known[package].read_text())) or "")
    assert found is not None, "no sentence about what others know"
    if found[1] == "all of it":
        assert used == own
    else:
        assert {f"{package}.{name}" for name in re.findall(r"`(\w+)`", found[1])} == used
