"""The table of timers and the sources say the same."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.timers.__main__ import PAGE, page
from tests.timers.scan import LOOKS, RINGS, ROOT, WAITS, Place, all_timers, timers_of
from tests.timers.timer import Timer
from tests.timers.timers import TIMERS

every_timer = pytest.mark.parametrize(
    "timer", TIMERS, ids=lambda timer: f"{Path(timer.file).stem}-{timer.function}-{timer.kind}"
)


def test_every_timer_of_the_sources_has_a_row() -> None:
    """House style: whoever starts one says who stops it, what its end does, and which test shows that."""
    assert sorted(all_timers() - {timer.place for timer in TIMERS}) == []


def test_every_row_has_its_timer() -> None:
    """House style: a timer that is gone takes its row along."""
    assert sorted({timer.place for timer in TIMERS} - all_timers()) == []


def test_no_timer_has_two_rows() -> None:
    """House style"""
    assert [place for place, count in Counter(timer.place for timer in TIMERS).items() if count > 1] == []


@every_timer
def test_every_row_names_a_test_that_exists(timer: Timer) -> None:
    """House style: and says what it is for and what its end does."""
    file, _, name = timer.test.partition("::")
    assert name in names_of(ROOT / "tests" / f"{file}.py"), timer.test
    assert timer.purpose
    assert timer.end
    assert timer.kind in (RINGS, WAITS, LOOKS)


@cache
def names_of(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_the_page_of_timers_is_up_to_date() -> None:
    """Documentation: docs/timers.md is made from the table."""
    assert PAGE.read_text() == page(), "run python -m tests.timers"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("loop.call_later(3, f)", RINGS),
        ("loop.call_at(3, f)", RINGS),
        ("self._runtime.timers.at(3, f)", RINGS),
        ("self._timer = Timer(3, f)", RINGS),
        ("WallAlarm(runtime, f)", RINGS),
        ("signal.alarm(3)", RINGS),
        ("await asyncio.sleep(pause_s)", WAITS),
        ("time.sleep(0.2)", WAITS),
        ("async with asyncio.timeout(3): pass", WAITS),
        ("await asyncio.wait_for(x, 3)", WAITS),
        ("await asyncio.wait(x, timeout=3)", WAITS),
        ("Config(app, timeout_keep_alive=3)", WAITS),
        ("is_over.wait(self._every_s)", WAITS),
        ("select.select([a], [], [], wait_s)", WAITS),
        ("s.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, 3)", WAITS),
        ("if now >= self._deadline: pass", LOOKS),
        ("if self._clock.monotonic() - self._since > 3: pass", LOOKS),
        ("if loop.time() < until: pass", LOOKS),
        ("await asyncio.sleep(0)", ""),
        ("if LOOP.now() - began_s > LOOP.longest_s: pass", ""),
        ("if now == then: pass", ""),
        ("text.join(lines)", ""),
        ("if time.time() < token_ends: pass", ""),
    ],
)
def test_a_timer_is_known_when_it_is_seen(code: str, kind: str) -> None:
    """House style: what rings, what waits for a bounded time, what is compared with the present."""
    found = list(timers_of(f"class C:\n    async def f(self):\n        {code}\n", "x.py"))
    assert found == ([Place("x.py", "C.f", kind)] if kind else [])
