"""Prints which modules import each other in circles: `python scripts/import_components.py [--package busway.broker]`.

A component is a set of modules in which each one reaches every other by imports. Imports for types only and imports
inside functions count like all others: they tie modules together in a reader's head all the same. Then, for each
package, how many of its modules others import, and the circles between packages.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "src"
ROOTS: Final = ("busway", "busway_spark")

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """By dotted name; a package by its own name."""
    found = {}
    for root in ROOTS:
        for file in sorted((SOURCES / root).rglob("*.py")):
            parts = file.relative_to(SOURCES).with_suffix("").parts
            if "_compiled" not in parts:
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports() -> Graph:
    """Each module → the modules of ours that it imports, wherever in its text."""
    known = modules()
    return {name: set(_imported(name, file, known)) - {name} for name, file in known.items()}


def _imported(name: str, file: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (found for each in node.names if (found := _module(each.name, known)))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: imports are written in full"
            base = node.module or ""
            for each in node.names:
                found = _module(f"{base}.{each.name}", known)
                if found:
                    yield found


def _module(dotted: str, known: dict[str, Path]) -> str | None:
    """The module that a name is or lies in."""
    while dotted:
        if dotted in known:
            return dotted
        dotted = dotted.rpartition(".")[0]
    return None


def components(graph: Graph) -> list[set[str]]:
    """Those of more than one, the largest first."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _visit(start, graph, seen, order)
    backwards: Graph = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            backwards[target].add(name)
    seen.clear()
    found = []
    for start in reversed(order):
        members: list[str] = []
        _visit(start, backwards, seen, members)
        if len(members) > 1:
            found.append(set(members))
    return sorted(found, key=len, reverse=True)


def _visit(start: str, graph: Graph, seen: set[str], order: list[str]) -> None:
    """Depth first; each is put into `order` behind everything that it reaches."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(sorted(graph[start])))]
    while path:
        name, targets = path[-1]
        target = next((each for each in targets if each not in seen), None)
        if target is None:
            order.append(name)
            path.pop()
        else:
            seen.add(target)
            path.append((target, iter(sorted(graph[target]))))


def between_packages(graph: Graph) -> Graph:
    """The modules of a package as one; where it has packages within it, each of its own modules by itself."""
    nested = {name.rpartition(".")[0].rpartition(".")[0] for name in graph}

    def part(name: str) -> str:
        package = name.rpartition(".")[0]
        return name if not package or package in nested or name in nested else package

    packages = {name.rpartition(".")[0] for name in graph}
    cut: Graph = {}
    for name, targets in graph.items():
        own = name if name in packages else part(name)
        cut.setdefault(own, set()).update(each if each in packages else part(each) for each in targets)
        cut[own].discard(own)
    return cut


def imported_from_outside(graph: Graph, package: str) -> set[str]:
    inside = package + "."
    return {
        target
        for name, targets in graph.items()
        if name != package and not name.startswith(inside)
        for target in targets
        if target.startswith(inside)
    }


def _shown(members: Iterable[str]) -> str:
    return "\n".join(f"    {name}" for name in sorted(members))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", action="append", default=[], help="tell also who of it others import")
    given = parser.parse_args()
    graph = imports()
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports between them")
    for found in components(graph):
        print(f"component of {len(found)}:\n{_shown(found)}")
    for found in components(between_packages(graph)):
        print(f"packages in a circle: {', '.join(sorted(found))}")
    for package in given.package:
        outside = imported_from_outside(graph, package)
        print(f"{len(outside)} modules of {package} are imported from outside:\n{_shown(outside)}")


if __name__ == "__main__":
    main()
