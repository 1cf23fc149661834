"""A queue on a memory store under a manual clock, and receivers that remember what they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from busway.broker.entity.entity import Queue
from busway.broker.fragment.expiry_and_schedule import Activator, ExpirySweeper
from busway.broker.fragment.fragment import Fragment
from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.runtime import BrokerRuntime
from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.descriptions import QueueDescription
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.store.contract import Counters, FragmentKey, FragmentRow, Page, Store, StoreError
from busway.timers import Timers
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.quiet_loop import is_quiet

Refused = list[tuple[int, BrokerError]]


class Recorder(Receiver):
    """A receiver with credit; keeps its deliveries."""

    def __init__(self, credit: int = 0, *, deletes: bool = False) -> None:
        self.deletes = deletes
        self.credit = credit
        self.deliveries: list[Delivery] = []
        self.runs: list[int] = []
        self.evicted_with: list[BrokerError] = []
        #: How many it had each time a read or deletion for it ended.
        self.caught_up_after: list[int] = []
        #: So many of each run are handed back.
        self.refuses = 0

    def room(self) -> int:
        return self.credit

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        taken = deliveries[: len(deliveries) - self.refuses] if self.refuses else deliveries
        refused = deliveries[len(taken) :]
        self.credit -= len(taken)
        self.deliveries.extend(taken)
        self.runs.append(len(taken))
        return refused

    def caught_up(self) -> None:
        self.caught_up_after.append(len(self.deliveries))

    def evict(self, error: BrokerError) -> None:
        self.evicted_with.append(error)

    def numbers(self) -> list[int]:
        return [delivery.message.sequence_number for delivery in self.deliveries]

    def tokens(self) -> list[bytes]:
        return [delivery.token for delivery in self.deliveries]

    def take(self) -> list[Delivery]:
        """What came since the last look."""
        taken, self.deliveries = self.deliveries, []
        return taken


class Answer:
    """A `RunDone` that remembers."""

    def __init__(self) -> None:
        self.refused: Refused | None = None

    def __call__(self, refused: Refused) -> None:
        assert self.refused is None, "told twice"
        self.refused = refused

    @property
    def is_done(self) -> bool:
        return self.refused is not None

    def errors(self) -> list[type[BrokerError]]:
        assert self.refused is not None, "not told yet"
        return [type(error) for _, error in self.refused]


class CountingStore(MemoryStore):
    """Counts the reads of messages, by range and by number."""

    reads = 0
    fetches = 0

    async def by_number(self, fragment: FragmentKey, place: int, numbers: Sequence[int]) -> Page:
        self.fetches += 1
        return await super().by_number(fragment, place, numbers)

    async def messages(
        self, fragment: FragmentKey, place: int, after: int, limit: int, bytes_max: int
    ) -> Page:
        self.reads += 1
        return await super().messages(fragment, place, after, limit, bytes_max)


def unheard(_refused: Refused) -> None:
    """A `RunDone` for those who do not listen."""


class Rig:
    """One queue with everything it needs."""

    queue: Queue

    def __init__(self, limits: Limits | None = None, **description: Any) -> None:
        self.clock = ManualClock()
        self.limits = Limits() if limits is None else limits
        self.description = replace(QueueDescription("orders"), **description)
        self.store = CountingStore("first")
        self.budget = WindowBudget(self.limits.window_bytes_max)
        self.timers = Timers()
        self.tasks: set[asyncio.Task[None]] = set()
        self.store_failures: list[StoreError] = []
        self.runtime = self._new_runtime()

    def _new_runtime(self) -> BrokerRuntime:
        self.timers = Timers()
        self.budget = WindowBudget(self.limits.window_bytes_max)
        return BrokerRuntime(
            self.clock,
            SeededEntropy(),
            self.limits,
            self.timers,
            self.budget,
            self.spawn,
            self._note_store_failure,
        )

    def _note_store_failure(self, _store: Store, error: StoreError) -> None:
        self.store_failures.append(error)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "background work failed", "exception": task.exception()}
            )

    async def open(self) -> Rig:
        asyncio.get_running_loop().set_exception_handler(_fail_loudly)
        await self.store.open()
        batch = self.store.batch()
        for index, key in enumerate((self.store.next_fragment_key(), self.store.next_fragment_key())):
            batch.fragments_created.append(FragmentRow(key, f"orders {index}", 0, Counters()))
        await self.store.flush()
        await self.load()
        return self

    async def load(self) -> None:
        """A new life: fragments are made from what the store has."""
        self.runtime = self._new_runtime()
        rows = await self.store.fragments()
        dead_letter = self._fragment(rows[1], dead_letter=True)
        main = self._fragment(rows[0], dead_letter=False, target=dead_letter)
        self.queue = Queue("orders", self.description, main, dead_letter)
        Activator(self.store, self._fragment_of, self.runtime).start()
        ExpirySweeper(self.store, self._fragment_of, self.runtime).start()
        main.start()
        dead_letter.start()

    def _fragment(self, row: FragmentRow, *, dead_letter: bool, target: Fragment | None = None) -> Fragment:
        settings = FragmentSettings.of_queue(self.description, self.limits, dead_letter=dead_letter)
        return Fragment(row.key, row.fragment_index, row.counters, self.store, settings, self.runtime, target)

    async def _fragment_of(self, key: FragmentKey) -> Fragment | None:
        return next((f for f in (self.queue.main, self.queue.dead_letter) if f.key == key), None)

    async def restart(self) -> None:
        """The process dies and comes back."""
        await self.calm()
        self.store.crash()
        await self.store.open()
        await self.load()

    @property
    def main(self) -> Fragment:
        return self.queue.main

    @property
    def dead_letter(self) -> Fragment:
        return self.queue.dead_letter

    async def calm(self) -> None:
        """Lets commits, reads and background work come to an end."""
        for _ in range(440):
            await asyncio.sleep(0)
            if is_quiet():
                return

    async def advance(self, seconds: float) -> None:
        """Time passes; everything it brings happens."""
        self.clock.advance(seconds)
        for _ in range(60):
            self.timers.run(self.clock.monotonic())
            await self.calm()
            deadline = self.timers.next_deadline()
            if deadline is None or deadline > self.clock.monotonic():
                return

    async def send(self, *messages: Message) -> Refused:
        answer = Answer()
        self.queue.send(list(messages), answer)
        await self.calm()
        assert answer.refused is not None
        return answer.refused

    async def send_texts(self, *texts: str) -> None:
        assert await self.send(*[text(item) for item in texts]) == []

    def receiver(self, credit: int = 0, *, deletes: bool = False, dead_letter: bool = False) -> Recorder:
        recorder = Recorder(credit, deletes=deletes)
        outlet = self.queue.outlet(dead_letter)
        outlet.add_receiver(recorder)
        outlet.wake(recorder)
        return recorder

    async def receive(
        self, credit: int = 10, *, deletes: bool = False, dead_letter: bool = False
    ) -> list[Delivery]:
        """What is receivable now, by a receiver that leaves again."""
        recorder = self.receiver(credit, deletes=deletes, dead_letter=dead_letter)
        await self.calm()
        self.queue.outlet(dead_letter).remove_receiver(recorder)
        return recorder.deliveries

    async def settle_later(self, deliveries: list[Delivery], verb: Verb) -> Answer:
        """The answer may still be open."""
        answer = Answer()
        self.main.settle([delivery.token for delivery in deliveries], Settlement(verb), answer)
        await self.calm()
        return answer

    async def settle(
        self,
        deliveries: list[Delivery],
        verb: Verb = Verb.COMPLETE,
        *,
        dead_letter: bool = False,
        session_id: str | None = None,
        **settlement: Any,
    ) -> list[type[BrokerError]]:
        answer = Answer()
        tokens = [delivery.token for delivery in deliveries]
        self.queue.outlet(dead_letter).settle(tokens, Settlement(verb, **settlement), answer, session_id)
        await self.calm()
        return answer.errors()


def _fail_loudly(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    raise AssertionError(f"{context.get('message')}: {context.get('exception')!r}") from context.get(
        "exception"
    )


def text(body: str, **fields: Any) -> Message:
    return Message(b"", body.encode(), **fields)


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.bare.decode() for delivery in deliveries]


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [delivery.message.sequence_number for delivery in deliveries]


def play(scenario: Callable[[Rig], Awaitable[None]], limits: Limits | None = None, **description: Any) -> Rig:
    """Runs one scenario on a fresh queue."""
    rig = Rig(limits, **description)

    async def run() -> None:
        await rig.open()
        await scenario(rig)
        await rig.calm()
        assert not rig.tasks, "background work does not end"

    asyncio.run(run())
    return rig
