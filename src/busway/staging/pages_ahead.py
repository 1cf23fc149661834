"""The chunks of a log, read one page ahead: the next one is on its way from the store while the rows of this one are
handed over. Nothing is added to a log that is being published, so what was read ahead stays true."""

from __future__ import annotations

import asyncio

from busway.message.event_chunk import span
from busway.store.contract import FragmentKey, Store
from busway.store.log_contract import ChunkPage


class PagesAhead:
    def __init__(self, store: Store, log: FragmentKey, bytes_max: int) -> None:
        self._store = store
        self._log = log
        self._bytes_max = bytes_max
        #: Where the page begins that is on its way.
        self._number = -1
        self._reading: asyncio.Task[ChunkPage] | None = None

    async def page(self, number: int) -> ChunkPage:
        """From that number on. Raises StoreError."""
        reading, self._reading = self._reading, None
        if reading is not None and self._number == number:
            page = await reading
        else:
            _forget(reading)
            page = await self._store.chunks(self._log, number, self._bytes_max)
        if page.more and page.chunks and not page.damaged:
            self._number = span(page.chunks[-1])[1] + 1
            self._reading = asyncio.create_task(self._store.chunks(self._log, self._number, self._bytes_max))
        return page

    def close(self) -> None:
        reading, self._reading = self._reading, None
        _forget(reading)


def _forget(reading: asyncio.Task[ChunkPage] | None) -> None:
    """Whatever becomes of it."""
    if reading is not None and not reading.cancel():
        reading.exception()
