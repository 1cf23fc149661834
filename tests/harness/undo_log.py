"""Changes of dicts that can be taken back, for a batch that turns out to be impossible half way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class NumberUsedTwice(Exception):
    """A batch puts a row where one is."""


class UndoLog:
    """Changes dicts and can take everything back."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._remember(table, key)
        table[key] = value

    def pop(self, table: dict[K, V], key: K) -> None:
        self._remember(table, key)
        table.pop(key, None)

    def _remember(self, table: dict[K, V], key: K) -> None:
        if key in table:
            before = table[key]
            self._steps.append(lambda: table.__setitem__(key, before))
        else:
            self._steps.append(lambda: table.pop(key, None))

    def roll_back(self) -> None:
        for step in reversed(self._steps):
            step()
