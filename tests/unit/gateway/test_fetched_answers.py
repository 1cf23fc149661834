"""Receive by sequence number: what one answer may hold, and how it is built."""

from __future__ import annotations

import asyncio

from busway.amqp.sections import AmqpMessage, decode_message, encode_message
from busway.amqp.types import UInt
from busway.broker.entity.group_requests import settle_durably
from busway.client.messages import ServiceBusMessage
from busway.gateway.amqp.nodes.request_and_answer import long_array
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.gateway.node_bench import NodeBench, condition, on_a_bench, sentence, status

KIB = 1024


async def defer(bench: NodeBench, sizes: list[int]) -> list[int]:
    """New deferred messages of these sizes: their numbers."""
    await bench.queue("orders")
    for size in sizes:
        await bench.send("orders", ServiceBusMessage(bytes(size)))
    deliveries = await bench.lock("orders", len(sizes))
    outlet = bench.namespace.queue("orders").outlet(False)
    tokens = [delivery.token for delivery in deliveries]
    assert await settle_durably(outlet, tokens, Settlement(Verb.DEFER), None) == []
    return [delivery.message.sequence_number for delivery in deliveries]


async def fetch(bench: NodeBench, numbers: list[int], mode: int) -> AmqpMessage:
    body = {"sequence-numbers": long_array(numbers), "receiver-settle-mode": UInt(mode)}
    return await bench.ask("orders", "receive-by-sequence-number", body)


def test_too_much_for_one_answer_is_told_with_what_fits() -> None:
    """Attack: 1 KB of request was answered with 185 MiB; nothing is locked or deleted by what is refused."""

    async def test(bench: NodeBench) -> None:
        numbers = await defer(bench, [30 * KIB] * 5)
        for mode in (0, 1):
            answer = await fetch(bench, numbers, mode)
            assert (status(answer), condition(answer)) == (400, "com.microsoft:argument-out-of-range")
            assert "the first 3 of the 5 numbers fit" in sentence(answer)
        assert status(await fetch(bench, numbers[:3], 1)) == 200
        assert status(await fetch(bench, numbers[3:], 0)) == 200

    on_a_bench(test, Limits(fetch_bytes_max=100 * KIB))


def test_a_long_answer_is_built_in_several_turns() -> None:
    """Attack: others have their turn after each megabyte, and the answer is whole."""

    async def test(bench: NodeBench) -> None:
        numbers = await defer(bench, [200 * KIB] * 40)
        turns = 0
        asking = asyncio.ensure_future(fetch(bench, numbers, 1))
        while not asking.done():
            await asyncio.sleep(0)
            turns += 1
        answer = decode_message(encode_message(await asking))
        assert len(answer.body["messages"]) == 40
        assert len({entry["lock-token"] for entry in answer.body["messages"]}) == 40
        assert turns >= 8

    on_a_bench(test)
