"""Finds every timer in the sources: what rings by itself, what waits for a bounded time, what looks at a deadline."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"

#: The kinds of places. `rings`: calls back later. `waits`: somebody stands still for at most so long. `looks`: a
#: deadline as data, which somebody compares with the time now and then.
RINGS: Final = "rings"
WAITS: Final = "waits"
LOOKS: Final = "looks"

_RINGING: Final = frozenset({"call_later", "call_at", "Timer", "WallAlarm", "alarm", "setitimer"})
_HEAPS: Final = ("timers", "_by_wall")
_BOUNDED: Final = frozenset({"timeout", "timeout_at", "wait_for"})
#: Waits whose bound is an argument without a name.
_WAITING: Final = frozenset({"wait", "join", "acquire", "result", "select", "settimeout", "set_busy_timeout"})
_SECONDS: Final = ("_s", "_S", "_MS", "seconds")
#: How the present is called where deadlines are looked at.
_NOW: Final = frozenset({"now", "now_s", "_now"})
#: Who measures how long a turn of the loop took looks at a clock, and waits for nothing.
_STOPWATCH: Final = "LOOP."
_STOPWATCHES: Final = frozenset({"busway/event_loop.py", "busway/signals/measured_process.py"})


@dataclass(frozen=True, order=True)
class Place:
    #: Below `src`.
    file: str
    #: With its class.
    function: str
    kind: str


def timers_of(text: str, file: str) -> Iterator[Place]:
    """Each place once, however many calls it has."""
    seen: set[Place] = set()
    for function, node in _with_function(ast.parse(text)):
        kind = _kind_of(node)
        if kind == LOOKS and (file in _STOPWATCHES or _STOPWATCH in ast.unparse(node)):
            continue
        place = Place(file, function, kind) if kind else None
        if place is not None and place not in seen:
            seen.add(place)
            yield place


@cache
def all_timers(source: Path = SOURCE) -> frozenset[Place]:
    return frozenset(
        place
        for path in sorted(source.rglob("*.py"))
        if "_compiled" not in path.parts
        for place in timers_of(path.read_text(), path.relative_to(source).as_posix())
    )


def _with_function(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    left: list[tuple[str, ast.AST]] = [("", tree)]
    while left:
        inside, node = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                left.append((f"{inside}.{child.name}".lstrip("."), child))
            else:
                left.append((inside, child))
                yield inside, child


def _kind_of(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _kind_of_call(node)
    if isinstance(node, ast.Compare):
        are_ordered = all(isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for operator in node.ops)
        return LOOKS if are_ordered and any(map(_is_now, ast.walk(node))) else ""
    return ""


def _kind_of_call(call: ast.Call) -> str:
    name = _name_of(call.func)
    of = _name_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in _RINGING or (name == "at" and of.endswith(_HEAPS)):
        return RINGS
    if name == "sleep":
        return WAITS if ast.unparse(call.args[0]) != "0" else ""
    words = [word.arg or "" for word in call.keywords]
    is_bounded = (
        (name in _BOUNDED and of == "asyncio")
        or any(word.startswith("timeout") or word.endswith("timeout") for word in words)
        or (name in _WAITING and any(_is_time(argument) for argument in call.args))
        or (name == "setsockopt" and "TIMEOUT" in ast.unparse(call))
    )
    return WAITS if is_bounded else ""


def _is_time(argument: ast.expr) -> bool:
    return isinstance(argument, (ast.Name, ast.Attribute)) and _name_of(argument).endswith(_SECONDS)


def _is_now(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        is_wall = ast.unparse(node.func) == "time.time"
        return _name_of(node.func) in ("monotonic", "time") and not is_wall
    return isinstance(node, (ast.Name, ast.Attribute)) and _name_of(node) in _NOW


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
