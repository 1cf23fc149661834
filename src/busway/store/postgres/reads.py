"""The reads of the contract on connections that all stores of a database share.

A page of active rows begins no earlier than the fragment's head (`commit_part.PartMaker`): before it there may be
dead rows of everything that was consumed since the last vacuum, and an old snapshot keeps vacuum from ever coming.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from busway.message.message import PLACE_ACTIVE, Message
from busway.store.contract import FragmentKey
from busway.store.postgres.commit_part import PartMaker
from busway.store.postgres.reader import PostgresReader, ReadingConnections
from busway.store.postgres.time_head import TimeHead
from busway.store.reads import CorrectedReads
from busway.store.rows import RawPage
from busway.store.spans import ReadSpan, Spans

T = TypeVar("T")


class StoreReaders:
    """`spans.ReadThreads` of one store."""

    def __init__(self, connections: ReadingConnections, store: int) -> None:
        self._connections = connections
        self._store = store

    @property
    def threads(self) -> Executor | None:
        return self._connections.threads

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return self._connections.errors

    def run(self, work: Callable[[PostgresReader], T]) -> T:
        """In a reader thread."""
        return self._connections.run(lambda cursor: work(PostgresReader(self._store, cursor)))


class PostgresReads(CorrectedReads[PostgresReader]):
    """The reading half of `contract.Store`."""

    def __init__(self, spans: Spans[PostgresReader], maker: PartMaker) -> None:
        super().__init__(spans)
        self._maker = maker

    def begin_with(self, maker: PartMaker) -> None:
        self._maker = maker
        self.begin(maker.dropped, maker.sharing, maker.number_bases)

    def _due_head(self) -> TimeHead:
        return self._maker.due_head

    def _expiry_head(self) -> TimeHead:
        return self._maker.expiry_head

    def _before_head(self, fragment: FragmentKey) -> int:
        return self._maker.heads.get(fragment, 1) - 1

    async def _raw_messages(
        self,
        span: ReadSpan[PostgresReader],
        fragment: FragmentKey,
        place: int,
        after: int,
        limit: int,
        bytes_max: int,
    ) -> RawPage:
        maker = self._maker
        head = maker.heads.get(fragment, 1)
        if place != PLACE_ACTIVE or after >= head:
            return await super()._raw_messages(span, fragment, place, after, limit, bytes_max)
        returns = maker.returns_stored
        page = await super()._raw_messages(span, fragment, place, head - 1, limit, bytes_max)
        first = min((found for found in (_first(page.messages), _first_damaged(page)) if found), default=0)
        if first and maker is self._maker:
            maker.seen_first(fragment, first, page.last_number, returns)
        return page


def _first(messages: list[Message]) -> int:
    """The number of the first; 0 when there is none."""
    return messages[0].sequence_number if messages else 0


def _first_damaged(page: RawPage) -> int:
    return page.damaged[0][1] if page.damaged else 0
