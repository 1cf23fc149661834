"""A partitioned entity on several memory stores, and short forms for what tests do with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery
from busway.broker.fragment.outlet import Outlet
from busway.message.message import Message
from busway.model.descriptions import NewEntity, QueueDescription, with_values
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.harness.scene import play
from tests.unit.broker.namespace_bench import NamespaceBench, settle
from tests.unit.broker.rig import Answer, Recorder

COUNT = 4
QUEUE = "orders"


def index_of(number: int) -> int:
    """M-36: the upper 16 bits."""
    return number >> 48


def text(body: str = "x", **fields: Any) -> Message:
    return Message(b"", body.encode(), **fields)


class PartitionBench(NamespaceBench):
    """With a queue of four fragments on four stores: fragment i lies in store i."""

    @property
    def queue(self) -> Queue:
        return self.namespace.queue(QUEUE)

    def outlet(self, dead_letter: bool = False) -> Outlet:
        return self.queue.outlet(dead_letter)

    async def make(self, **values: object) -> QueueDescription:
        description = with_values(QueueDescription(QUEUE), {"enable_partitioning": True, **values})
        (made,) = await self.namespace.create([NewEntity(description)])
        assert isinstance(made, QueueDescription)
        return made

    async def try_send(self, *messages: Message, atomically: bool = False) -> Answer:
        answer = Answer()
        if atomically:
            self.queue.send_atomically(list(messages), answer)
        else:
            self.queue.send(list(messages), answer)
        await settle()
        return answer

    async def put(self, *messages: Message) -> list[int]:
        """Sends them one by one and gives their numbers."""
        for message in messages:
            answer = await self.try_send(message)
            assert answer.refused == [], answer.refused
        return [message.sequence_number for message in messages]

    async def put_one_in_each(self) -> list[int]:
        return await self.put(*[text(f"{n}") for n in range(COUNT)])

    def receiver(self, credit: int = 100, *, deletes: bool = False, dead_letter: bool = False) -> Recorder:
        recorder = Recorder(credit, deletes=deletes)
        self.outlet(dead_letter).add_receiver(recorder)
        self.outlet(dead_letter).wake(recorder)
        return recorder

    async def receive(self, credit: int = 100, **options: bool) -> list[Delivery]:
        recorder = self.receiver(credit, **options)
        await settle()
        self.outlet(options.get("dead_letter", False)).remove_receiver(recorder)
        return recorder.deliveries

    async def end(
        self, deliveries: list[Delivery], verb: Verb = Verb.COMPLETE, session_id: str | None = None
    ) -> list[type[BrokerError]]:
        answer = Answer()
        tokens = [delivery.token for delivery in deliveries]
        self.outlet().settle(tokens, Settlement(verb), answer, session_id)
        await settle()
        return answer.errors()

    async def lose(self, store: int) -> None:
        await self.namespace.stores.disable(f"store-{store}")
        await settle()

    async def regain(self, store: int) -> None:
        await self.namespace.stores.enable(f"store-{store}")
        await settle()


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.bare.decode() for delivery in deliveries]


def spread(numbers: list[int]) -> dict[int, int]:
    """Fragment → how many."""
    return dict(Counter(map(index_of, numbers)))


def on_partitions(
    test: Callable[[PartitionBench], Awaitable[None]],
    *,
    stores: int = COUNT,
    limits: Limits | None = None,
    **values: object,
) -> None:
    """With a partitioned queue of these properties."""

    async def scenario(bench: PartitionBench) -> None:
        await bench.make(**values)
        await test(bench)

    on_stores(scenario, stores=stores, limits=limits)


def on_stores(
    test: Callable[[PartitionBench], Awaitable[None]], *, stores: int = COUNT, limits: Limits | None = None
) -> None:
    """Without any entity."""
    play(lambda: PartitionBench(stores, replace(limits or Limits(), partition_count=COUNT)), test)
