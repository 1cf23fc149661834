"""One piece of work in a turn of the loop, for all of staging together: whoever takes rows apart or hands them
over takes his turn here, for a few milliseconds at most, and everybody else of the server gets his in
between."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Pace:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._turn.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._turn.release()
