"""Drives a namespace's deadlines from the event loop: one timer, armed for the earliest deadline."""

import asyncio
from typing import Final, Protocol

#: A deadline may be armed while we wait for a later one, and a machine may sleep: look this often.
PAUSE_MAX_S: Final = 0.05


class Clockwork(Protocol):
    """What has deadlines: the namespace."""

    def next_deadline(self) -> float | None: ...
    def tick(self) -> None: ...


class Ticker:
    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(PAUSE_MAX_S, self._rang)

    def _rang(self) -> None:
        self._clockwork.tick()
        self._arm()
