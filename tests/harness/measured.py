"""Tests that hold a time against a bound, on a machine that others use too."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

TRIES = 3


def measured(test: Callable[P, None]) -> Callable[P, None]:
    """It may try again: a machine that stood still for a moment says nothing about the code, but code that is slow
    is slow every time. Such a test sets everything up by itself."""

    @wraps(test)
    def tries(*arguments: P.args, **named: P.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return test(*arguments, **named)
            except AssertionError:
                continue
        return test(*arguments, **named)

    return tries
