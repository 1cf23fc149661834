"""A namespace on SQLite files whose disk fails when told to, and short verbs for the scenarios that play on it.

One world is one process: it ends in a crash, or it survives an error and goes on. Time is a manual clock that all
worlds of a point share, so whatever a store holds is the same in every run and can be compared as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.message_sessions import MessageSession
from busway.broker.fragment.outlet import Outlet
from busway.broker.namespace.namespace import Namespace
from busway.broker.transaction.transactions import Transaction
from busway.message.message import Message
from busway.model.descriptions import Description, NewEntity, QueueDescription
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.model.settlement import Settlement
from busway.store.contract import StoreState
from busway.store.sqlite.store import SqliteStore
from tests.chaos.crash_picture import Picture, is_at_rest, picture_of
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.store_contract.faulty_disk import FaultyDisk, reboot

QUEUE: Final = "orders"
#: Real time, and far more than anything here needs: an answer that takes longer never comes.
ANSWER_S_MAX: Final = 10.0
#: Fragments of a partitioned entity: one for each store where there are four.
PARTITIONS: Final = 4
_LOOKS_MAX: Final = 200
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
        limits = Limits(partition_count=PARTITIONS)
        self.namespace = Namespace("bus", self._stores, clock, SeededEntropy(), limits, root_key="k" * 43)
        #: Of a step that is carried out in parts: bodies that must be there now, and that must not.
        self.promised: set[bytes] = set()
        self.gone: set[bytes] = set()

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
        return all(row["state"] == "open" for row in self.namespace.stores.shown())

    async def create(self, *descriptions: Description) -> None:
        await self.namespace.create([NewEntity(description) for description in descriptions])

    async def rest(self) -> None:
        """Whatever moves by itself arrives; a move that waits to be tried again is given the time. Raises ServerBusy
        when a store fails meanwhile."""
        for _ in range(_LOOKS_MAX):
            await _until(self._rests_or_failed, "messages never arrive")
            if self.has_failed():
                raise ServerBusy("the store failed during a move")
            await self._flush()
            marks = [await store.transfer_marks() for store in self._stores]
            if not any(marks) and is_at_rest(self.namespace):
                await self._flush()  # a mark is hidden from the moment its removal has joined a batch
                return
            self._has_ticked()
        raise NeverAnswered("marks outlive their moves")

    def _rests_or_failed(self) -> bool:
        return is_at_rest(self.namespace) or self.has_failed() or self._has_ticked()

    async def _flush(self) -> None:
        for store in self._stores:
            await store.flush()

    def _has_ticked(self) -> bool:
        """False, after some time."""
        self._is_back()
        return False

    # -- sending

    async def send(self, *messages: Message, path: str = QUEUE) -> None:
        answer = _Answer()
        self.namespace.sender(path).send(list(messages), answer)
        await answer.wait()

    async def send_parts(self, *messages: Message, path: str = QUEUE) -> None:
        """Each message for itself; those that were acknowledged are promised, whatever becomes of the others."""
        answer = _Answer()
        self.namespace.sender(path).send(list(messages), answer)
        refused = await answer.refused()
        stored = {message.bare for place, message in enumerate(messages) if place not in refused}
        self.promised |= stored
        await answer.wait()

    async def send_batch(self, *messages: Message, path: str = QUEUE) -> None:
        answer = _Answer()
        self.namespace.sender(path).send_atomically(list(messages), answer)
        await answer.wait()

    # -- receiving

    @property
    def queue(self) -> Queue:
        return self.namespace.queue(QUEUE)

    async def receive(
        self, count: int, *, dead_letter: bool = False, deletes: bool = False, path: str = QUEUE
    ) -> list[Delivery]:
        """Waits for so many; the receiver leaves again."""
        outlet = self.namespace.queue(path).outlet(dead_letter)
        taker = _Taker(count, deletes)
        outlet.add_receiver(taker)
        outlet.wake(taker)
        return await self._taken(outlet, taker)

    async def _taken(self, outlet: Outlet, taker: _Taker) -> list[Delivery]:
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
        path: str = QUEUE,
    ) -> None:
        answer = _Answer()
        tokens = [delivery.token for delivery in deliveries]
        self.namespace.queue(path).outlet(dead_letter).settle(tokens, settlement, answer, session_id)
        refused = await answer.refused()
        self.gone |= {each.message.bare for place, each in enumerate(deliveries) if place not in refused}
        await answer.wait()

    # -- transactions

    async def transact(
        self, gather: Callable[[Transaction], Awaitable[None]], *, rolls_back: bool = False
    ) -> None:
        """Raises why it was not committed."""
        transactions, control = self.namespace.transactions(), object()
        txn_id = transactions.declare(control)
        answer = _Answer()

        def discharged(error: BrokerError | None) -> None:
            answer([] if error is None else [(0, error)])

        try:
            await gather(transactions.find(txn_id))
        except BrokerError:
            transactions.owner_gone(control)
            raise
        transactions.discharge(control, txn_id, fail=rolls_back, done=discharged)
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

    async def picture(self, *, loosely: bool = False) -> Picture:
        """Everything a client can see and that outlives a process, once all that moves has arrived."""
        await self.rest()
        return await picture_of(self.namespace, _Taker(0, False), loosely=loosely)


class _Answer:
    """A `RunDone` that somebody waits for."""

    def __init__(self) -> None:
        self._told: list[tuple[int, BrokerError]] | None = None

    def __call__(self, refused: list[tuple[int, BrokerError]]) -> None:
        assert self._told is None, "told twice"
        self._told = refused

    async def wait(self) -> None:
        """Raises the first error; an unknown outcome before any other."""
        refused = (await self.refused()).values()
        for error in sorted(refused, key=lambda each: not isinstance(each, StoreOutcomeUnknown)):
            raise error

    async def refused(self) -> dict[int, BrokerError]:
        await _until(lambda: self._told is not None, "an operation was never answered")
        return dict(self._told or ())


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
