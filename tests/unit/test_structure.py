"""Promises about the sources themselves, checked on their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
BROKER = SOURCE / "busway"
FILES = sorted(
    path for path in SOURCE.rglob("*.py") if "_compiled" not in path.parts and path.parent != SOURCE
)
PURE = [
    path
    for path in FILES
    if path.is_relative_to(BROKER)
    and path.relative_to(BROKER).parts[0] in ("amqp", "broker", "message", "model", "store")
]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 700
BUCKETS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
#: Furniture and archaisms that once had several meanings each.
BANNED_WORDS = re.compile(
    r"(?<![a-z])(doors?|desks?|anterooms?|dear|shall|upon|hitherto|thereof|whilst)(?![a-z])", re.IGNORECASE
)
#: Calls that read the machine's clock or chance: below the gateways they come as arguments.
CLOCKS = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
    "datetime.now", "datetime.utcnow", "datetime.today", "os.urandom", "uuid.uuid1", "uuid.uuid4",
}  # fmt: skip
DANGEROUS = {"eval", "exec", "compile", "__import__", "yaml.load", "os.system", "os.popen"}
DANGEROUS_MODULES = {"pickle", "marshal", "shelve", "dill"}
SQL = re.compile(r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|REPLACE|WITH)\s+\S", re.IGNORECASE)
#: The names at the head of a line of a map.
MAPPED = re.compile(r"^ {0,2}([a-z]\w*(?: [a-z]\w*)*) {2,}\S", re.MULTILINE)
#: What a secret that somebody presented, or that it must equal, is called here.
SECRET = re.compile(
    r"(^|_)(signature|sig|hmac|digest|mac|password)s?$|(^|_)(primary|secondary|root|given|own)_key$"
)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


every_file = pytest.mark.parametrize("path", FILES, ids=name_of)
every_pure_file = pytest.mark.parametrize("path", PURE, ids=name_of)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten() -> Iterator[None]:
    """They are a million objects, which the collector would walk over again and again in all later tests."""
    yield
    tree.cache_clear()
    calls.cache_clear()


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@every_file
def test_words_are_plain(path: Path) -> None:
    """House style: a stranger guesses right what a word means."""
    assert BANNED_WORDS.findall(path.read_text()) == []


@every_file
def test_functions_and_files_are_short(path: Path) -> None:
    """House style: no function over 70 lines, no file over 700."""
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


def test_no_file_is_a_bucket() -> None:
    """House style: a function without a home points at a missing noun."""
    assert [name_of(path) for path in FILES if BUCKETS & set(path.stem.split("_"))] == []
    assert [name_of(path) for path in FILES if BUCKETS & set(path.relative_to(SOURCE).parts)] == []


def test_a_class_has_its_name_for_itself() -> None:
    """House style: one meaning a word. Spark finds a format by a class called DefaultSource."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name_of(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=name_of)
def test_a_package_begins_with_a_map_of_its_files(folder: Path) -> None:
    """House style: a newcomer finds every file in the docstring of its package."""
    text = ast.get_docstring(tree(folder / "__init__.py")) or ""
    words = set(re.findall(r"\w+", text))
    assert [path.stem for path in sorted(folder.glob("[!_]*.py")) if path.stem not in words] == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=name_of)
def test_a_map_names_nothing_that_is_not_there(folder: Path) -> None:
    """House style: who folds a file away takes its line from the map."""
    text = ast.get_docstring(tree(folder / "__init__.py")) or ""
    named = [name for line in MAPPED.findall(text) for name in line.split()]
    present = {path.stem for path in folder.iterdir()}
    assert [name for name in named if name not in present] == []


@every_pure_file
def test_time_and_chance_are_arguments(path: Path) -> None:
    """House style: below the gateways nobody reads a clock or draws a number."""
    assert [name for name, _ in calls(path) if name in CLOCKS] == []
    assert {"random", "secrets"}.isdisjoint(imported(path))


@pytest.mark.parametrize("path", [path for path in FILES if "store" in path.parts], ids=name_of)
def test_sql_lies_in_sql_files(path: Path) -> None:
    """House style: statements are read from `.sql` files, never put together from text."""
    syntax = tree(path)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(syntax)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(syntax)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    assert [text for text in texts if SQL.match(text)] == []


@every_file
def test_nothing_runs_what_strangers_send(path: Path) -> None:
    """House style: no pickle, no eval, no shell."""
    assert DANGEROUS_MODULES.isdisjoint(name.partition(".")[0] for name in imported(path))
    assert [name for name, _ in calls(path) if name in DANGEROUS] == []
    keywords = [keyword for _, call in calls(path) for keyword in call.keywords if keyword.arg == "shell"]
    assert [ast.unparse(keyword.value) for keyword in keywords] == []


@every_file
def test_secrets_are_compared_in_constant_time(path: Path) -> None:
    """A-4, A-7: `hmac.compare_digest` is the only comparison of signatures and keys."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Eq | ast.NotEq | ast.In) for op in node.ops
        ):
            for side in (node.left, *node.comparators):
                assert not _is_secret(side), f"line {node.lineno}: {ast.unparse(node)}"


def _is_secret(side: ast.expr) -> bool:
    name = side.attr if isinstance(side, ast.Attribute) else side.id if isinstance(side, ast.Name) else ""
    return SECRET.search(name) is not None


def test_signatures_are_checked_at_all() -> None:
    """A-4: the comparison above is not avoided by having none."""
    found = [name for path in FILES for name, _ in calls(path) if name == "hmac.compare_digest"]
    assert found


def test_unit_tests_start_no_servers() -> None:
    """House style: tests with a server's process lie in folders that `make test` runs beside the rest."""
    tests = Path(__file__).parents[1]
    starting = [
        path.relative_to(tests)
        for path in (tests / "unit").rglob("*.py")
        if re.search(
            r"^from tests\.harness\.running_server import|OwnServer\(", path.read_text(), re.MULTILINE
        )
    ]
    assert not starting
