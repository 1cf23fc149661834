"""Dead letters that go back to work: each in one place at any moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from busway.amqp.encode import encode_value
from busway.broker.bulk.claims import Claims
from busway.broker.bulk.letter_moves import Letter, LetterMoves, Moved, takes_directly, target_of
from busway.broker.fragment.locks import Delivery
from busway.gateway.amqp.message_mapping import PayloadCodec
from busway.gateway.http.bulk.letters_route import RemadeLetters
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.store.sqlite.store import SqliteStore
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.rig import Recorder
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench


class Letters:
    """Of one queue or subscription, and what moves them."""

    def __init__(self, bench: TopicBench, source: str, top: str | None = None) -> None:
        self.bench = bench
        self.source = source
        self.top = top or source

    @property
    def queue(self) -> Any:
        return self.bench.namespace.queue(self.source)

    async def bury(self, *bodies: str, **fields: object) -> list[int]:
        await self.bench.publish(self.top, *[encoded(body, **fields) for body in bodies])
        deliveries = await self.receive(dead_letter=False)
        await self.finish(deliveries, Verb.DEAD_LETTER, dead_letter=False, dead_letter_reason="bad")
        return [delivery.message.sequence_number for delivery in deliveries]

    async def receive(self, *, dead_letter: bool = True, credit: int = 1_000) -> list[Delivery]:
        receiver, outlet = Recorder(credit), self.queue.outlet(dead_letter)
        outlet.add_receiver(receiver)
        outlet.wake(receiver)
        await settle()
        outlet.remove_receiver(receiver)
        return receiver.deliveries

    async def finish(
        self, deliveries: list[Delivery], verb: Verb, *, dead_letter: bool = True, **how: Any
    ) -> None:
        ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()
        tokens = [delivery.token for delivery in deliveries]
        self.queue.outlet(dead_letter).settle(tokens, Settlement(verb, **how), ended.set_result)
        assert await ended == []

    async def move(self, numbers: list[int], into: str | None = None, **changes: object) -> Moved:
        encoded_changes = encode_value(changes) if changes else b""
        namespace, queue = self.bench.namespace, self.queue
        destination = into or self.top
        via = None
        if destination != self.source or not takes_directly(queue):
            await namespace.transfer_queues.prepare(self.top)
            via = namespace.transfer_queues.send_via(self.top, destination)
        target = target_of(queue, destination == self.source, via)
        remade = RemadeLetters(PayloadCodec(self.bench.entropy), self.bench.clock, self.bench.limits)
        letters = [Letter(number, encoded_changes) for number in numbers]
        told = await LetterMoves(remade.message).move(queue.outlet(True), target, letters, settle)
        await settle()
        return told


def test_a_moved_letter_is_in_the_queue_and_no_longer_dead() -> None:
    """D-3: a new number, the old content; what made it a dead letter is gone, others stay."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury("a", "b", "c", properties={"tenant": 7}, subject="s")
        assert await letters.move(numbers[:2]) == Moved()
        assert await bench.bodies("q", dead_letter=True) == ["c"]
        seen = await bench.peek("q")
        assert [(each.body, each.properties, each.fields.subject) for each in seen] == [
            ("a", {"tenant": 7}, "s"),
            ("b", {"tenant": 7}, "s"),
        ]
        assert min(each.message.sequence_number for each in seen) > max(numbers)
        counts = letters.queue.counts()
        assert (counts.active, counts.dead_letter) == (2, 1)

    on_a_topic_bench(test)


def test_a_request_that_is_made_again_moves_nothing_twice() -> None:
    """D-3: after a restart too, and when two ask at once: the letter itself is the token."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury("a", "b", "c", "d")
        both = await asyncio.gather(letters.move(numbers[:2]), letters.move(numbers[:2]))
        assert sorted(len(told.gone) for told in both) == [0, 2]
        await bench.restart()
        assert (await letters.move(numbers)).gone == numbers[:2]
        assert sorted(await bench.bodies("q")) == ["a", "b", "c", "d"]
        assert await bench.bodies("q", dead_letter=True) == []

    on_a_topic_bench(test)


def test_what_somebody_holds_stays_his() -> None:
    """R-2, R-50: a lock, a claim, and what was received and deleted meanwhile."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury("a", "b", "c")
        claims = Claims(bench.clock)
        await claims.take(letters.queue, letters.queue.outlet(True), "stamp", 1, 0.0)
        assert await claims.hold(letters.queue.outlet(True), "stamp", numbers[:1]) == numbers[:1]
        held = await letters.receive(credit=1)
        assert sorted((await letters.move(numbers)).locked) == numbers[:2]
        await letters.finish(held, Verb.COMPLETE)
        told = await letters.move(numbers)
        assert (told.locked, told.gone) == (numbers[:1], numbers[1:])
        assert await bench.bodies("q") == ["c"]

    on_a_topic_bench(test)


def test_receivers_of_the_dead_letter_queue_never_get_what_was_moved() -> None:
    """R-1: not from memory, where it was read before, and not by a lock that comes back."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury(*"abcdef")
        back = await letters.receive(credit=3)  # the window has read more
        await letters.finish(back, Verb.RELEASE)
        assert await letters.move(numbers[1:5]) == Moved()
        left = await letters.receive()
        assert [each.message.sequence_number for each in left] == [numbers[0], numbers[5]]

    on_a_topic_bench(test)


def test_deferred_letters_go_too() -> None:
    """R-50: by their numbers, like the others."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury("a", "b")
        await letters.finish(await letters.receive(credit=1), Verb.DEFER)
        assert await letters.move(numbers) == Moved()
        assert sorted(await bench.bodies("q")) == ["a", "b"]
        assert letters.queue.counts().dead_letter == 0

    on_a_topic_bench(test)


def test_changes_are_made_on_the_way() -> None:
    """M-1: fields, properties, the body; a delay counts by the server's clock."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        letters = Letters(bench, "q")
        (number,) = await letters.bury("a", properties={"keep": 1, "drop": 2})
        changes = {"subject": "new", "body": b"B", "properties.drop": None, "properties.add": "x"}
        assert await letters.move([number], **changes) == Moved()
        (seen,) = await bench.peek("q")
        assert (seen.body, seen.properties, seen.fields.subject) == ("B", {"keep": 1, "add": "x"}, "new")
        (number,) = [each for each in await letters.bury("later") if each != seen.message.sequence_number]
        now_ms = bench.clock.wall_ms()
        assert await letters.move([number], delay=60_000) == Moved()
        scheduled = [each for each in await bench.peek("q") if each.body == "later"]
        assert [each.message.scheduled_at_ms for each in scheduled] == [now_ms + 60_000]

    on_a_topic_bench(test)


@pytest.mark.parametrize(
    "kind",
    ["another queue", "topic", "partitioned", "duplicates"],
)
def test_others_are_reached_by_way_of_the_transfer_queue(kind: str) -> None:
    """TX-3: other entities, topics, partitions, and where duplicates are detected; each arrives once."""

    async def test(bench: TopicBench) -> None:
        source, top, into, where = "q", "q", None, "q"
        if kind == "topic":
            await bench.topic("t")
            await bench.subscription("t", "s")
            source, top, where = "t/Subscriptions/s", "t", "t/Subscriptions/s"
        else:
            given: dict[str, dict[str, object]] = {
                "partitioned": {"enable_partitioning": True},
                "duplicates": {"requires_duplicate_detection": True},
            }
            await bench.queue("q", **given.get(kind, {}))
        if kind == "another queue":
            await bench.queue("other")
            into = where = "other"
        letters = Letters(bench, source, top)
        bodies = [f"{at}" for at in range(12)]
        numbers = await letters.bury(*bodies)
        assert await letters.move(numbers, into) == Moved()
        assert (await letters.move(numbers, into)).gone == sorted(numbers)
        for _ in range(5):
            await settle()
        assert sorted(await bench.bodies(where)) == sorted(bodies)
        assert await bench.bodies(source, dead_letter=True) == []

    on_a_topic_bench(test, limits=Limits(partition_count=4))


def test_one_that_is_refused_keeps_no_other_from_going() -> None:
    """L-5, X-4: it stays where it is, with the reason."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("q")
        await bench.queue("sessions", requires_session=True)
        letters = Letters(bench, "q")
        with_session = await letters.bury("a", group_id="s")
        without = await letters.bury("b")
        told = await letters.move([*with_session, *without], "sessions")
        assert [number for number, _ in told.refused] == without
        assert await bench.bodies("q", dead_letter=True) == ["b"]
        told = await letters.move(without, body=b"x" * 300_000)
        assert [number for number, _ in told.refused] == without
        told = await letters.move(without, nonsense=1)
        assert [error.sentence for _, error in told.refused] == ["There is no part 'nonsense' of a message."]

    on_a_topic_bench(test)


def test_a_store_that_fails_in_the_middle_leaves_each_in_one_place(tmp_path: Path) -> None:
    """D-5: on disk, closed without a word and opened again: in the queue or among the dead letters, never both."""

    async def run() -> None:
        bench = TopicBench(1)
        stores = [SqliteStore("store-0", tmp_path / "store-0.db", bench.clock)]
        bench.stores = stores  # type: ignore[assignment]
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        await bench.queue("q")
        letters = Letters(bench, "q")
        numbers = await letters.bury(*[f"{at}" for at in range(50)])
        moving = asyncio.ensure_future(letters.move(numbers))
        for _ in range(3):
            await asyncio.sleep(0)
        await bench.restart()
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
        live, dead = await bench.bodies("q"), await bench.bodies("q", dead_letter=True)
        assert sorted([*live, *dead], key=int) == [f"{at}" for at in range(50)]
        await letters.move(numbers)
        assert sorted(await bench.bodies("q"), key=int) == [f"{at}" for at in range(50)]
        await bench.namespace.close()

    asyncio.run(run())
