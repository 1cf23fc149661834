"""ARCHITECTURE.md tells the truth: what it names exists, and its numbers are the ones in force."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib

import pytest

from tests.docs.page import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
SOURCE = ROOT / "src" / "busway"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "characters": 1, "": 1}
LIMITS = re.findall(r"^\| [^|]+ \| ([\d,]+) ?(\w*) \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
MEMBERS = sorted(set(re.findall(r"`([A-Z]+[a-z]\w*)\.(\w+)`", PAGE)))
FUNCTIONS = sorted(set(re.findall(r"`([a-z]\w+)\.(\w+)`", PAGE)))


def members_of_classes() -> dict[str, set[str]]:
    """Class → what is defined in it, over all files."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {part.name for part in node.body if hasattr(part, "name")}
                found.setdefault(node.name, set()).update(names)
    return found


def test_every_step_of_a_message_is_a_method_that_exists() -> None:
    """Documentation: `Class.method`."""
    known = members_of_classes()
    assert len(MEMBERS) > 25
    assert [f"{owner}.{name}" for owner, name in MEMBERS if name not in known.get(owner, set())] == []


@pytest.mark.parametrize(("module", "name"), [pair for pair in FUNCTIONS if pair[1] != "py"])
def test_every_function_that_is_named_exists(module: str, name: str) -> None:
    """Documentation: `module.function`."""
    if module == "busway":
        assert (SOURCE / f"{name}.py").exists()
        return
    texts = [path.read_text() for path in SOURCE.rglob(f"{module}.py")]
    assert any(re.search(rf"^(def {name}\b|{name}\b.* = )", text, re.MULTILINE) for text in texts)


@pytest.mark.parametrize(("number", "unit", "where"), LIMITS, ids=[where for _, _, where in LIMITS])
def test_every_limit_has_the_number_that_is_told(number: str, unit: str, where: str) -> None:
    """L-22: the table of limits is the one in force."""
    assert in_force(where) == int(number.replace(",", "")) * UNITS[unit]


def in_force(where: str) -> object:
    """A constant of a module, a default of a dataclass, or of a constructor's argument."""
    path, _, name = where.rpartition(".")
    owner = path.rpartition(".")[2]
    if owner[:1].isupper():
        module = importlib.import_module(f"busway.{path.rpartition('.')[0]}")
        return inspect.signature(getattr(module, owner)).parameters[name].default
    return getattr(importlib.import_module(f"busway.{path}"), name)


def test_every_limit_of_the_bus_is_in_the_table() -> None:
    """L-22: none is forgotten."""
    from busway.model.limits import Limits

    told = {where.removeprefix("model.limits.Limits.") for _, _, where in LIMITS}
    assert set(inspect.signature(Limits).parameters) - told == {"sku"}


def test_every_claim_about_who_knows_whom_is_a_contract() -> None:
    """Documentation: the table names all contracts of import-linter, and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = [contract["name"] for contract in project["tool"]["importlinter"]["contracts"]]
    section = PAGE[PAGE.index("| claim | contract |") :].split("\n\n")[0]
    rows = [line.strip("|").split("|")[1].strip() for line in section.splitlines()[2:]]
    assert sorted(rows) == sorted(contracts)
