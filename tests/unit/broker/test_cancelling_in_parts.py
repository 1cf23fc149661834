"""Scheduled messages of a partitioned entity are cancelled all together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from busway.model.errors import BrokerError, MessageNotFound, ServerBusy, StoreOutcomeUnknown
from busway.store.contract import FragmentKey, Page
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, bodies, index_of, on_partitions, text


async def schedule_one_in_each(bench: PartitionBench, in_s: float = 10.0) -> list[int]:
    at_ms = bench.clock.wall_ms() + round(in_s * 1000)
    messages = [text(str(n), scheduled_at_ms=at_ms) for n in range(COUNT)]
    for message in messages:
        await bench.queue.schedule([message])
    numbers = [message.sequence_number for message in messages]
    assert len({index_of(number) for number in numbers}) == COUNT
    return numbers


async def _outcome(cancelling: asyncio.Task[None]) -> BrokerError | None:
    try:
        await cancelling
    except BrokerError as error:
        return error
    return None


def test_messages_that_fall_due_while_others_are_cancelled_are_cancelled_too() -> None:
    """S-33, S-38: what was found is out of time's reach until all of it is gone."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        slow = bench.stores[index_of(numbers[0])]
        slow.hold_commits()
        cancelling = asyncio.ensure_future(bench.queue.cancel_scheduled(numbers))
        await settle(60)
        await bench.advance(20)
        slow.release_commits()
        assert await _outcome(cancelling) is None
        await bench.advance(5)
        assert bench.queue.counts().total == 0
        assert await bench.receive() == []

    on_partitions(test)


def test_messages_that_fall_due_while_others_are_looked_for_are_cancelled_too() -> None:
    """S-33, S-38: a store that reads slowly gives the others no time to become active."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        slow = bench.stores[index_of(numbers[-1])]
        read, may_read = slow.by_number, asyncio.Event()

        async def slowly(fragment: FragmentKey, place: int, wanted: Sequence[int]) -> Page:
            await may_read.wait()
            return await read(fragment, place, wanted)

        slow.by_number = slowly  # type: ignore[method-assign]
        cancelling = asyncio.ensure_future(bench.queue.cancel_scheduled(numbers))
        await settle(60)
        await bench.advance(20)
        may_read.set()
        error = await _outcome(cancelling)
        await bench.advance(5)
        left = len(await bench.receive())
        assert (error is None, left) in ((True, 0), (False, COUNT)), "all of them or none"

    on_partitions(test)


def test_a_message_that_fell_due_before_it_was_found_fails_the_whole_request() -> None:
    """S-33: and the others stay scheduled, and come at their time."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench, in_s=20)
        early = text("early", scheduled_at_ms=bench.clock.wall_ms() + 1000)
        (first,) = await bench.queue.schedule([early])
        await bench.advance(5)
        with pytest.raises(MessageNotFound, match=str(first)):
            await bench.queue.cancel_scheduled([*numbers, first])
        assert bench.queue.counts().scheduled == COUNT
        await bench.advance(20)
        assert len(await bench.receive()) == COUNT + 1

    on_partitions(test)


@pytest.mark.parametrize("failing", range(1, COUNT))
@pytest.mark.parametrize("is_certain", [True, False])
def test_when_one_store_fails_what_the_others_have_cancelled_is_scheduled_again(
    failing: int, is_certain: bool
) -> None:
    """S-33: so the request may be repeated; only a store of unknown outcome may have done its part."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        if is_certain:
            bench.stores[failing].refuse_next_commit()
        else:
            bench.stores[failing].lose_next_commit(is_applied=False)
        error = await _outcome(asyncio.ensure_future(bench.queue.cancel_scheduled(numbers)))
        assert type(error) is (ServerBusy if is_certain else StoreOutcomeUnknown)
        await bench.advance(5, 0.5)
        assert (await bench.namespace.counts("orders")).scheduled == COUNT
        await bench.queue.cancel_scheduled(numbers[:1])
        await bench.advance(10, 0.5)
        assert sorted(bodies(await bench.receive())) == ["1", "2", "3"]
        assert bench.queue.counts().size_bytes == COUNT - 1

    on_partitions(test)


def test_a_store_that_goes_between_the_look_and_the_deletion_changes_nothing() -> None:
    """S-33, P-48: a store that goes between the look and the deletion changes nothing."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        whole = bench.stores[3].by_number

        async def goes(*arguments: object) -> object:
            await bench.lose(1)
            return await whole(*arguments)  # type: ignore[arg-type]

        bench.stores[3].by_number = goes  # type: ignore[method-assign, assignment]
        error = await _outcome(asyncio.ensure_future(bench.queue.cancel_scheduled(numbers)))
        assert isinstance(error, ServerBusy)
        del bench.stores[3].by_number
        await bench.regain(1)
        assert bench.queue.counts().scheduled == COUNT
        await bench.queue.cancel_scheduled(numbers)
        assert bench.queue.counts().scheduled == 0

    on_partitions(test)


def test_two_requests_for_the_same_messages_do_not_count_them_twice() -> None:
    """S-33: one of them finds nothing."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        both = [asyncio.ensure_future(bench.queue.cancel_scheduled(numbers)) for _ in range(2)]
        outcomes = [await _outcome(one) for one in both]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["MessageNotFound", "NoneType"]
        counts = bench.queue.counts()
        assert (counts.scheduled, counts.size_bytes) == (0, 0)

    on_partitions(test)


def test_whoever_asked_may_go_without_leaving_a_half() -> None:
    """S-33: the connection was lost meanwhile."""

    async def test(bench: PartitionBench) -> None:
        numbers = await schedule_one_in_each(bench)
        slow = bench.stores[2]
        slow.hold_commits()
        cancelling = asyncio.ensure_future(bench.queue.cancel_scheduled(numbers))
        await settle(60)
        cancelling.cancel()
        slow.refuse_next_commit()
        slow.release_commits()
        await settle(60)
        await bench.advance(5, 0.5)
        assert bench.queue.counts().scheduled == COUNT

    on_partitions(test)
