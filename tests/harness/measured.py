"""Tests that hold a time against a bound, on a machine that others use too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

TRIES = 3


class TooSlow(AssertionError):
    """It took longer than it may. Nothing else is a reason to try again."""


def check_within(spent_s: float, bound_s: float, what: str = "it") -> None:
    if spent_s >= bound_s:
        raise TooSlow(f"{what} took {spent_s * 1000:.0f} ms, allowed are less than {bound_s * 1000:.0f}")


def measured(test: Callable[P, None]) -> Callable[P, None]:
    """It may try again when it was too slow: a machine that stood still for a moment says nothing about the code, but
    code that is slow is slow every time. Wrong is wrong at once. Such a test sets everything up by itself."""

    @wraps(test)
    def tries(*arguments: P.args, **named: P.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(*arguments, **named)
            except TooSlow:
                continue
        return test(*arguments, **named)

    return tries
