"""A namespace on SQLite files whose disk fails when told to, and short verbs for the scenarios that play on it.

One world is one process: it ends in a crash, or it survives an error and goes on. Time is a manual clock that all
worlds of a point share, so whatever a store holds is the same in every run and can be compared as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from busway.broker.descriptions import QueueDescription
from busway.broker.entity_changes import NewEntity
from busway.broker.errors import BrokerError, ServerBusy
from busway.broker.fragment import Fragment
from busway.broker.limits import Limits
from busway.broker.message_sessions import MessageSession
from busway.broker.namespace import Namespace
from busway.broker.queue import Queue
from busway.broker.receiver import Delivery, Receiver
from busway.broker.settlement import Settlement
from busway.message import Message
from busway.store.contract import StoreState
from busway.store.sqlite.store import SqliteStore
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.store_contract.faulty_disk import FaultyDisk, reboot
from tests.store_contract.scenario import fields_of

QUEUE: Final = "orders"
#: Real time, and far more than anything here needs: an answer that takes longer never comes.
ANSWER_S_MAX: Final = 10.0
_PEEK_MAX: Final = 250
#: Small, so that checkpoints fall between and into the steps.
_CHECKPOINT_BYTES: Final = 60_000


class NeverAnswered(Exception):
    """Somebody waits for an answer that does not come: as bad as a wrong one."""


class CrashWorld:
    """`open`, verbs, `close`. `disk`: None for the machine's own."""

    def __init__(self, folder: Path, clock: ManualClock, disk: FaultyDisk | None, store_count: int) -> None:
        self.clock = clock
        self._stores = [
            SqliteStore(
                f"store-{number}",
                folder / f"store-{number}.db",
                clock,
                reserve_bytes=0,
                space_low_bytes=0,
                checkpoint_bytes=_CHECKPOINT_BYTES,
                read_threads=1,
                vfs=None if disk is None else disk.name,
            )
            for number in range(store_count)
        ]
        self.namespace = Namespace("bus", self._stores, clock, SeededEntropy(), Limits(), root_key="k" * 43)

    async def open(self) -> None:
        await self.namespace.open()

    async def close(self) -> None:
        await self.namespace.close()

    @property
    def lost_commits(self) -> int:
        return sum(store.lost_commits for store in self._stores)

    def has_failed(self) -> bool:
        return any(store.state is not StoreState.OPEN for store in self._stores)

    async def recover(self) -> None:
        """Time brings failed stores back. Only monotonic time: what is stored bears the wall's."""
        await _until(self._is_back, "a failed store never came back")

    def _is_back(self) -> bool:
        self.clock.advance(1.0)
        self.clock.step_wall(-1.0)
        self.namespace.tick()
        return all(row["state"] == "open" for row in self.namespace.stores())

    async def create(self, *descriptions: QueueDescription) -> None:
        await self.namespace.create([NewEntity(description) for description in descriptions])

    # -- sending

    async def send(self, *messages: Message, path: str = QUEUE) -> None:
        answer = _Answer()
        self.namespace.queue(path).send(list(messages), answer)
        await answer.wait()

    async def send_batch(self, *messages: Message) -> None:
        answer = _Answer()
        self.queue.send_atomically(list(messages), answer)
        await answer.wait()

    # -- receiving

    @property
    def queue(self) -> Queue:
        return self.namespace.queue(QUEUE)

    async def receive(
        self, count: int, *, dead_letter: bool = False, deletes: bool = False
    ) -> list[Delivery]:
        """Waits for so many; the receiver leaves again."""
        outlet = self.queue.outlet(dead_letter)
        taker = _Taker(count, deletes)
        outlet.add_receiver(taker)
        outlet.wake(taker)
        return await self._taken(outlet, taker)

    async def _taken(self, outlet: Fragment, taker: _Taker) -> list[Delivery]:
        wanted = taker.credit
        await _until(
            lambda: len(taker.deliveries) == wanted or self.has_failed(), "messages are never delivered"
        )
        outlet.remove_receiver(taker)
        if len(taker.deliveries) < wanted:
            raise taker.error or ServerBusy("the store failed before a delivery")
        return taker.deliveries

    async def accept(self, session_id: str) -> MessageSession:
        return await self.queue.main.accept_session(_Taker(0, False), session_id, 1.0)

    async def receive_in(self, session: MessageSession, count: int) -> list[Delivery]:
        taker = session.receiver
        assert isinstance(taker, _Taker)
        taker.credit = count
        self.queue.main.wake(taker)
        await _until(
            lambda: len(taker.deliveries) == count or self.has_failed(), "messages of a session never come"
        )
        if len(taker.deliveries) < count:
            raise taker.error or ServerBusy("the store failed before a delivery")
        return taker.deliveries

    async def settle(
        self,
        deliveries: list[Delivery],
        settlement: Settlement,
        *,
        dead_letter: bool = False,
        session_id: str | None = None,
    ) -> None:
        answer = _Answer()
        tokens = [delivery.token for delivery in deliveries]
        self.queue.outlet(dead_letter).settle(tokens, settlement, answer, session_id)
        await answer.wait()

    # -- time

    async def pass_until(self, wall_ms: int, happened: Callable[[], bool], *, and_on_s: float = 0.0) -> None:
        """The clock goes on to an instant; waits until what it brings has happened and is durable. `and_on_s`: the
        clock's pace meanwhile, for what a store that was opened after that instant does not look for at once."""
        queue = self.queue
        self.clock.advance(max(0, wall_ms - self.clock.wall_ms()) / 1000)

        def is_over() -> bool:
            self.namespace.tick()
            self.clock.advance(and_on_s)
            return happened() or self.has_failed()

        await _until(is_over, "what time brings never happens")
        await queue.main.durable()
        await queue.dead_letter.durable()

    # -- what there is

    async def picture(self) -> list[object]:
        """Everything a client can see and that outlives a process."""
        rules = [replace(rule, modified_at_ms=0) for rule in self.namespace.rules()]
        seen: list[object] = [rules]
        for description in self.namespace.queues():
            queue = self.namespace.queue(description.path)
            seen.append(description)
            seen.append(replace(await self.namespace.counts(description.path), accessed_at_ms=0))
            for outlet in (queue.main, queue.dead_letter):
                seen.append([fields_of(each) for each in await outlet.peek(1, _PEEK_MAX)])
            if description.requires_session:
                seen.append(await _states(queue.main))
        return seen


async def _states(outlet: Fragment) -> dict[str, bytes | None]:
    """A state can be read only by whoever holds the session."""
    states: dict[str, bytes | None] = {}
    for session_id in await outlet.list_sessions(None, 0, 100):
        held = await outlet.accept_session(_Taker(0, False), session_id, 1.0)
        states[session_id] = await outlet.session_state(session_id)
        held.close()
    return states


class _Answer:
    """A `RunDone` that somebody waits for."""

    def __init__(self) -> None:
        self._told: list[tuple[int, BrokerError]] | None = None

    def __call__(self, refused: list[tuple[int, BrokerError]]) -> None:
        assert self._told is None, "told twice"
        self._told = refused

    async def wait(self) -> None:
        """Raises the first error."""
        await _until(lambda: self._told is not None, "an operation was never answered")
        for _, error in self._told or ():
            raise error


class _Taker(Receiver):
    """Takes as many as it has credit for."""

    def __init__(self, credit: int, deletes: bool) -> None:
        self.credit = credit
        self.deletes = deletes
        self.deliveries: list[Delivery] = []
        self.error: BrokerError | None = None

    def room(self) -> int:
        return self.credit - len(self.deliveries)

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        self.deliveries.extend(deliveries)
        return []

    def evict(self, error: BrokerError) -> None:
        self.error = error


async def _until(happened: Callable[[], bool], otherwise: str) -> None:
    """Commits and reads run in threads, so this waits in real time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ANSWER_S_MAX
    pause_s = 0.0
    while not happened():
        if loop.time() > deadline:
            raise NeverAnswered(otherwise)
        await asyncio.sleep(pause_s)
        pause_s = min(0.002, pause_s + 0.0001)


def forget_shared_memory(folder: Path) -> None:
    """The next process finds none of the last one's."""
    for file in folder.glob("*.db"):
        reboot(file)


def queue(**values: Any) -> QueueDescription:
    return replace(QueueDescription(QUEUE), **values)
