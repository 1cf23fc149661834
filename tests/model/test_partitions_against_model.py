"""A partitioned queue on four stores that fail and return, against a plain model of what each message's fate may be.

The model knows for each body what was told: stored, refused, unknown; completed, or unknown. In the end all stores
are brought back, all locks end, and everything that is there is received: what was stored and not completed comes
exactly once, what was refused or completed never, what is unknown at most once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from busway.broker.fragment.locks import Delivery
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.harness.examples import examples_of
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, index_of
from tests.unit.broker.rig import Answer, Recorder

T = TypeVar("T")
STORED, UNKNOWN, REFUSED, COMPLETED, PERHAPS_COMPLETED = (
    "stored",
    "unknown",
    "refused",
    "completed",
    "perhaps",
)
stores = st.integers(0, COUNT - 1)
keys = st.sampled_from([None, None, "a", "b", "c", "d"])


class PartitionedQueueMachine(RuleBasedStateMachine):
    """P-2, P-24, P-25, P-31, P-48: whatever stores do, nothing acknowledged is lost and nothing comes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.fates: dict[bytes, str] = {}
        self.key_of: dict[bytes, str | None] = {}
        self.fragment_of_key: dict[str, int] = {}
        self.last_number: dict[str, int] = {}
        self.held: list[Delivery] = []
        self.recorder = Recorder(0)
        self.bench = self.run(self._opened())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def _opened(self) -> PartitionBench:
        bench = PartitionBench(COUNT, replace(Limits(), partition_count=COUNT))
        await bench.namespace.open()
        return bench

    @initialize()
    def create(self) -> None:
        async def make() -> None:
            await self.bench.make(max_delivery_count=1000)
            await settle()
            self.bench.outlet().add_receiver(self.recorder)

        self.run(make())

    # -- what clients do

    @rule(key=keys, count=st.integers(1, 20), is_batch=st.booleans())
    def send(self, key: str | None, count: int, is_batch: bool) -> None:
        bodies = [f"{len(self.fates) + place}".encode() for place in range(count)]
        messages = [Message(b"", body, partition_key=key) for body in bodies]
        self.key_of.update(dict.fromkeys(bodies, key))
        answer = self.run(self.bench.try_send(*messages, atomically=is_batch))
        assert answer.refused is not None, "every send is answered"
        refused = dict(answer.refused)
        if is_batch and refused:
            refused = dict.fromkeys(range(count), refused[0])
        for place, message in enumerate(messages):
            self.fates[message.bare] = _fate_of_send(refused.get(place))
            if place not in refused:
                self._check_number(message)

    def _check_number(self, message: Message) -> None:
        """P-24, P-47: a key means one fragment, and its numbers grow."""
        key, number = message.partition_key, message.sequence_number
        if key is not None:
            assert self.fragment_of_key.setdefault(key, index_of(number)) == index_of(number)
            assert number > self.last_number.get(key, 0)
            self.last_number[key] = number

    @rule(credit=st.integers(1, 30))
    def receive(self, credit: int) -> None:
        async def take() -> None:
            self.recorder.credit = credit
            self.bench.outlet().wake(self.recorder)
            await settle()
            self.recorder.credit = 0

        self.run(take())
        taken = self.recorder.take()
        assert len(taken) <= credit
        for delivery in taken:
            assert self.fates[delivery.message.bare] in (STORED, UNKNOWN, PERHAPS_COMPLETED)
            self.fates[delivery.message.bare] = STORED
        self.held += taken

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 10), verb=st.sampled_from([Verb.COMPLETE, Verb.COMPLETE, Verb.ABANDON]))
    def end(self, count: int, verb: Verb) -> None:
        some, self.held = self.held[:count], self.held[count:]

        async def ended() -> Answer:
            answer = Answer()
            tokens = [delivery.token for delivery in some]
            self.bench.outlet().settle(tokens, Settlement(verb), answer)
            await settle()
            return answer

        answer = self.run(ended())
        assert answer.refused is not None, "every settlement is answered"
        refused = dict(answer.refused)
        for place, delivery in enumerate(some):
            body = delivery.message.bare
            if verb is Verb.COMPLETE and place not in refused:
                assert self.fates[body] in (STORED, PERHAPS_COMPLETED)
                self.fates[body] = COMPLETED
            elif verb is Verb.COMPLETE and isinstance(refused[place], StoreOutcomeUnknown):
                self.fates[body] = PERHAPS_COMPLETED

    # -- what happens to stores

    @rule(store=stores)
    def disable(self, store: int) -> None:
        """Without the first store, the catalogue's home, nothing can be taken out; that one may only fail."""
        if store > 0:
            with contextlib.suppress(ServerBusy, StoreOutcomeUnknown):
                self.run(self.bench.lose(store))

    @rule(store=stores)
    def enable(self, store: int) -> None:
        with contextlib.suppress(ServerBusy, StoreOutcomeUnknown):
            self.run(self.bench.regain(store))

    @rule(store=stores, is_applied=st.sampled_from([None, False, True]))
    def fail_next_commit(self, store: int, is_applied: bool | None) -> None:
        if is_applied is None:
            self.bench.stores[store].refuse_next_commit()
        else:
            self.bench.stores[store].lose_next_commit(is_applied=is_applied)

    @rule(seconds=st.sampled_from([0.2, 1.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.bench.advance(seconds))

    # -- what must hold

    @invariant()
    def receivers_stay(self) -> None:
        """P-48: no outage of one store detaches a receiver of the whole entity."""
        assert self.recorder.evicted_with == []

    def teardown(self) -> None:
        try:
            self.run(self._check_the_end())
        finally:
            self.run(self.bench.namespace.close())
            self.loop.close()

    async def _check_the_end(self) -> None:
        if not self.bench.namespace.exists("orders"):
            return
        for store in self.bench.stores:
            store._next_outcome = None
        await self.bench.advance(60)
        for number in range(COUNT):
            await self.bench.regain(number)
        await self.bench.advance(200)
        assert {str(store["state"]) for store in self.bench.namespace.stores.shown()} == {"open"}
        self.recorder.credit = 100_000
        self.bench.outlet().wake(self.recorder)
        await settle(200)
        found = [delivery.message.bare for delivery in self.recorder.take()]
        assert len(found) == len(set(found)), "nothing comes twice"
        for body, fate in self.fates.items():
            if fate == STORED:
                assert body in found, f"{body!r} was stored and is lost"
            elif fate in (REFUSED, COMPLETED):
                assert body not in found, f"{body!r} was {fate} and is back"


def _fate_of_send(error: BrokerError | None) -> str:
    if error is None:
        return STORED
    return UNKNOWN if isinstance(error, StoreOutcomeUnknown) else REFUSED


PartitionedQueueMachine.TestCase.settings = settings(
    max_examples=examples_of(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


TestPartitionedQueue = PartitionedQueueMachine.TestCase
