"""A column that is gathering, as runs of equal values: most columns of the journal say the same for many rows."""

from __future__ import annotations

from typing import Final

#: What no column holds.
_NOTHING: Final = -(1 << 61)


class RunColumn:
    """`values[i]` holds from row `starts[i]` on. Whoever adds looks at `last` first and saves the call."""

    __slots__ = ("last", "starts", "values")

    def __init__(self) -> None:
        self.last = _NOTHING
        self.starts: list[int] = []
        self.values: list[int] = []

    def put(self, row: int, value: int) -> None:
        """The last word on a row counts."""
        if value == self.last:
            return
        self.last = value
        if self.starts and self.starts[-1] == row:
            self.values[-1] = value
            return
        self.starts.append(row)
        self.values.append(value)

    def start_over(self) -> None:
        self.last = _NOTHING
        self.starts = []
        self.values = []
