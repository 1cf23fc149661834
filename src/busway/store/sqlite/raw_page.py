"""A page of rows as they were committed, while it is being filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from busway.message.message import Message
from busway.store.sqlite.rows import NUMBER_MASK, message_of


class RawPage:
    """Takes rows until a limit cuts, at least one."""

    __slots__ = ("_bytes_left", "_payload_of", "_rows_left", "damaged", "last_number", "messages", "more")

    def __init__(self, limit: int, bytes_max: int, payload_of: Callable[[int], bytes | None]) -> None:
        """`payload_of`: the shared body of that number, in the same snapshot."""
        self.messages: list[Message] = []
        self.damaged: list[tuple[int, int]] = []  #: (place, number)
        self.more = False
        self.last_number = 0  #: the highest number looked at
        self._rows_left = limit
        self._bytes_left = bytes_max
        self._payload_of = payload_of

    def take_all(self, rows: Iterable[Any], place: int) -> None:
        for row in rows:
            if not self.take(row, place):
                return

    def take(self, row: Any, place: int) -> bool:
        """False when it does not fit any more. A bare key stands for a row that cannot be decoded."""
        message = message_of(row, place)
        if message is None:
            message = self._with_payload(row, place)
        size = 0 if message is None else len(message.head) + len(message.bare)
        if self._rows_left <= 0 or (size > self._bytes_left and self.last_number > 0):
            self.more = True
            return False
        self._rows_left -= 1
        self._bytes_left -= size
        if message is None:
            key: int = row if isinstance(row, int) else row[0]
            self.last_number = key & NUMBER_MASK
            self.damaged.append((place, self.last_number))
        else:
            self.last_number = message.sequence_number
            self.messages.append(message)
        return True

    def lift(self, base: int) -> None:
        """Numbers get the upper bits that row keys do without."""
        for message in self.messages:
            message.sequence_number += base

    def _with_payload(self, row: Any, place: int) -> Message | None:
        """The message of a row whose body lies elsewhere; None when the row or the body is damaged."""
        if not isinstance(row, tuple) or not isinstance(row[5], int):
            return None
        bare = self._payload_of(row[5])
        return None if bare is None else message_of((*row[:5], bare), place)
