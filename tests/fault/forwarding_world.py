"""A chain of entities that forward, on SQLite files whose disk fails when told to, and what arrives at its end.

One world is one process. Time is a manual clock, so that whatever waits for a retry comes as soon as the test says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from busway.broker.namespace.namespace import Namespace
from busway.message.message import Message
from busway.model.descriptions import (
    Description,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.store.contract import StoreError, StoreState
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.store_contract.faulty_disk import FaultyDisk

FIRST: Final = "first"
LAST: Final = "last"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "topic/Subscriptions/on"
#: Real time, far more than anything here needs.
_WAIT_S_MAX: Final = 100.0
_CHECKPOINT_BYTES: Final = 60_000
_LOOKS_MAX: Final = 1_000
_DATA: Final = b"\x00\x53\x75\xa0"


class ForwardingWorld:
    """`open`, `send`, `close`. `disk`: None for the machine's own."""

    def __init__(self, folder: Path, disk: FaultyDisk | None, store_count: int) -> None:
        self.clock = ManualClock()
        self.stores = [
            SqliteStore(
                f"store-{number}",
                folder / f"store-{number}.db",
                self.clock,
                reserve_bytes=0,
                space_low_bytes=0,
                checkpoint_bytes=_CHECKPOINT_BYTES,
                read_threads=1,
                vfs=None if disk is None else disk.name,
            )
            for number in range(store_count)
        ]
        self.namespace = Namespace(
            "bus", self.stores, self.clock, SeededEntropy(), Limits(), root_key="k" * 43
        )

    async def open(self) -> None:
        await self.namespace.open()

    async def close(self) -> None:
        await self.namespace.close()

    async def create(self, *descriptions: Description) -> None:
        """One after the other, so that each goes to the store with the fewest."""
        for description in descriptions:
            await self.namespace.create([NewEntity(description)])

    def store_of(self, path: str) -> str:
        return self.namespace.sender(path).main.store.name

    def has_failed(self) -> bool:
        return any(store.state is not StoreState.OPEN for store in self.stores)

    async def send(self, ids: list[str]) -> list[BrokerError]:
        """One run; why messages were refused."""
        told: list[list[tuple[int, BrokerError]]] = []
        messages = [Message(b"", _DATA + bytes([len(text)]) + text.encode()) for text in ids]
        self.namespace.queue(FIRST).send(messages, told.append)
        await self._until(lambda: bool(told), "a send was never answered")
        return [error for _, error in told[0]]

    async def arrived(self, path: str = LAST, *, dead_letter: bool = False) -> list[str]:
        """Ids in the order in which they lie there."""
        outlet = self.namespace.queue(path).outlet(dead_letter)
        return [message.bare[len(_DATA) + 1 :].decode() for message in await outlet.peek(0, 250)]

    def left_behind(self) -> int:
        """Messages anywhere but at the end of the chain, and dead letters."""
        mains = [self.namespace.sender(FIRST).main]
        if self.namespace.exists(TOPIC):
            mains += [self.namespace.sender(TOPIC).main, self.namespace.queue(SUBSCRIPTION).main]
        counts = [main.counters.active + main.counters.scheduled for main in mains]
        dead = [main.dead_letter.counters.active for main in mains if main.dead_letter is not None]
        return sum(counts) + sum(dead)

    async def marks(self) -> int:
        return sum([len(await store.transfer_marks()) for store in self.stores])

    async def until_at_rest(self) -> None:
        """Time goes on until everything that moves has arrived. Stores that failed come back meanwhile."""
        for _ in range(_LOOKS_MAX):
            await self._until(self._is_at_rest, "messages never arrive")
            with contextlib.suppress(StoreError):  # the fault was met only now: then it is not over yet
                await self._flush()
                if await self.marks() == 0:
                    await self._flush()  # a mark is hidden from the moment its removal has joined a batch
                    return
        raise AssertionError("marks outlive their moves")

    async def _flush(self) -> None:
        for store in self.stores:
            await store.flush()

    async def until_moved_or_failed(self) -> None:
        await self._until(lambda: self.has_failed() or self.left_behind() == 0, "messages never move on")

    async def until_back(self) -> None:
        await self._until(lambda: self._ticked() and not self.has_failed(), "a failed store never came back")

    def _is_at_rest(self) -> bool:
        if not self._ticked() or self.has_failed():
            return False
        return self.left_behind() == 0

    def _ticked(self) -> bool:
        self.clock.advance(0.5)
        self.namespace.tick()
        return all(row["state"] == "open" for row in self.namespace.stores.shown())

    async def _until(self, happened: Callable[[], bool], otherwise: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAIT_S_MAX
        while not happened():
            assert loop.time() < deadline, otherwise
            await asyncio.sleep(0.0005)


def queue_to_queue() -> list[Description]:
    return [QueueDescription(LAST), QueueDescription(FIRST, forward_to=LAST)]


def through_a_topic() -> list[Description]:
    return [
        QueueDescription(LAST),
        TopicDescription(TOPIC),
        SubscriptionDescription(SUBSCRIPTION, forward_to=LAST),
        QueueDescription(FIRST, forward_to=TOPIC),
    ]


def from_the_first_store() -> list[Description]:
    """The source lies in the store that is opened first."""
    return [QueueDescription("beside"), *queue_to_queue()]
