"""`async with client.transaction():` against a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.entity_properties import Value
from busway.client.errors import LockLost, NothingTookPlace, Refused
from busway.client.messages import ServiceBusMessage, ServiceBusReceivedMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.running_server import RunningServer

Work = Callable[[ServiceBusClient, str], Awaitable[None]]


@pytest.fixture
def play(server: RunningServer) -> Callable[..., None]:
    """Runs work with a client and a fresh queue."""

    def run(work: Work, *, plain_login: bool = False, **properties: Value) -> None:
        queue = f"queue-{uuid4()}"
        with ServiceBusAdministrationClient.from_connection_string(
            server.connection_string
        ) as administration:
            administration.create_queue(queue, properties)

        async def scenario() -> None:
            client = ServiceBusClient.from_connection_string(
                server.connection_string, plain_login=plain_login
            )
            async with asyncio.timeout(60), client:
                await work(client, queue)

        asyncio.run(scenario())

    return run


async def bodies(client: ServiceBusClient, queue: str) -> list[bytes]:
    """What lies in the queue, without taking it."""
    return [message.body for message in await client.get_management(queue).peek_messages(100)]


@pytest.mark.parametrize("plain_login", [False, True])
def test_a_job_is_completed_and_its_results_are_sent_together(
    play: Callable[..., None], plain_login: bool
) -> None:
    """TX-1, TX-5, TX-8: a job is completed and its results are sent together."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            await sender.send_messages(ServiceBusMessage(b"job"))
            [job] = await receiver.receive_messages()
            async with client.transaction():
                await receiver.complete_message(job)
                await sender.send_messages(ServiceBusMessage(b"one"))
                await sender.send_messages([ServiceBusMessage(b"two"), ServiceBusMessage(b"three")])
                assert await bodies(client, queue) == [b"job"]
            assert await bodies(client, queue) == [b"one", b"two", b"three"]
            assert job.is_settled

    play(work, plain_login=plain_login)


def test_an_exception_rolls_back_and_the_message_can_be_settled_again(play: Callable[..., None]) -> None:
    """TX-9: an exception rolls back and the message can be settled again."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            await sender.send_messages(ServiceBusMessage(b"job"))
            [job] = await receiver.receive_messages()

            async def fails() -> None:
                async with client.transaction():
                    await receiver.complete_message(job)
                    await sender.send_messages(ServiceBusMessage(b"never"))
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fails()
            assert await bodies(client, queue) == [b"job"]
            assert not job.is_settled
            async with client.transaction():
                await receiver.complete_message(job)
            assert await bodies(client, queue) == []

    play(work)


def test_every_way_to_settle_takes_part(play: Callable[..., None]) -> None:
    """TX-1, R-11…R-15: every way to settle takes part."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            await sender.send_messages([ServiceBusMessage(name) for name in (b"a", b"d", b"x")])
            abandoned, deferred, dead = await receiver.receive_messages(3)
            async with client.transaction():
                await receiver.abandon_message(abandoned)
                await receiver.defer_message(deferred)
                await receiver.dead_letter_message(dead, "no use", "really")
            [again] = await receiver.receive_messages(3)
            assert (again.body, again.delivery_count) == (b"a", 1)
            [fetched] = await receiver.receive_deferred_messages([deferred.sequence_number or 0])
            async with client.transaction():
                await receiver.complete_message(again)
                await receiver.complete_message(fetched)
            assert await bodies(client, queue) == []
            assert await bodies(client, f"{queue}/$DeadLetterQueue") == [b"x"]

    play(work)


def test_scheduling_and_cancelling_take_part(play: Callable[..., None]) -> None:
    """S-37: scheduling and cancelling take part."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        at_ms = round(time.time() * 1000) + 600_000
        async with client.get_queue_sender(queue) as sender:
            async with client.transaction():
                numbers = await sender.schedule_messages(ServiceBusMessage(b"later"), at_ms)
                assert await bodies(client, queue) == []
            assert await bodies(client, queue) == [b"later"]
            async with client.transaction():
                await sender.cancel_scheduled_messages(numbers)
                assert await bodies(client, queue) == [b"later"]
            assert await bodies(client, queue) == []

    play(work)


def test_a_lock_that_ends_before_the_commit_rolls_everything_back(play: Callable[..., None]) -> None:
    """TX-10: a lock that ends before the commit rolls everything back."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            await sender.send_messages(ServiceBusMessage(b"job"))
            [job] = await receiver.receive_messages()
            async with client.get_queue_receiver(queue) as other:
                again: list[ServiceBusReceivedMessage] = []

                async def takes_too_long() -> None:
                    async with client.transaction():
                        await receiver.complete_message(job)
                        await sender.send_messages(ServiceBusMessage(b"never"))
                        again.extend(await other.receive_messages(1, 20.0))

                with pytest.raises(NothingTookPlace, match="lock"):
                    await takes_too_long()
                assert await bodies(client, queue) == [b"job"]
                await other.complete_message(again[0])
            with pytest.raises(LockLost):
                await receiver.complete_message(job)

    play(work, LockDuration="PT5S")


def test_transactions_follow_the_code_and_not_the_connection(play: Callable[..., None]) -> None:
    """TX-8: tasks of the block take part, other code of the same client does not."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender:
            inside, outside = asyncio.Event(), asyncio.Event()

            async def bystander() -> None:
                await inside.wait()
                await sender.send_messages(ServiceBusMessage(b"outside"))
                outside.set()

            beside = asyncio.create_task(bystander())
            async with client.transaction():
                sends = [sender.send_messages(ServiceBusMessage(b"inside")) for _ in range(3)]
                await asyncio.gather(*sends)
                inside.set()
                await outside.wait()
                assert await bodies(client, queue) == [b"outside"]
            await beside
            assert await bodies(client, queue) == [b"outside", *[b"inside"] * 3]

    play(work)


def test_transactions_are_not_nested_and_each_is_for_one_block(play: Callable[..., None]) -> None:
    """TX-5: transactions are not nested and each is for one block."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender:
            transaction = client.transaction()
            late: list[asyncio.Task[None]] = []
            go_on = asyncio.Event()

            async def straggler() -> None:
                await go_on.wait()
                await sender.send_messages(ServiceBusMessage(b"late"))

            async with transaction:
                late.append(asyncio.create_task(straggler()))
                with pytest.raises(Refused):
                    async with client.transaction():
                        pass
            go_on.set()
            with pytest.raises(Refused, match="over"):
                await late[0]
            with pytest.raises(Refused):
                async with transaction:
                    pass

    play(work)


def test_many_transactions_at_once_keep_to_themselves(play: Callable[..., None]) -> None:
    """TX-8: many transactions at once keep to themselves."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender:

            async def one(number: int) -> None:
                try:
                    async with client.transaction():
                        await sender.send_messages(ServiceBusMessage(b"%d" % number))
                        if number % 2:
                            raise KeyError
                except KeyError:
                    pass

            await asyncio.gather(*[one(number) for number in range(50)])
            assert sorted(map(int, await bodies(client, queue))) == list(range(0, 50, 2))

    play(work)


def test_what_is_refused_is_told_at_once_and_dooms_the_transaction(play: Callable[..., None]) -> None:
    """TX-7, L-13: a block that goes on without it commits nothing."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender:

            async def too_many() -> None:
                async with client.transaction():
                    await sender.send_messages([ServiceBusMessage(b"m") for _ in range(100)])
                    with pytest.raises(
                        Refused, match="Cannot send more than 100 messages in a single transaction"
                    ):
                        await sender.send_messages(ServiceBusMessage(b"one too many"))

            with pytest.raises(NothingTookPlace, match="Cannot send more than 100"):
                await too_many()
            assert await bodies(client, queue) == []

    play(work)


def test_sessions_take_part(play: Callable[..., None]) -> None:
    """TX-1, TX-15: messages of several sessions in one transaction of an unpartitioned queue."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender:
            async with client.transaction():
                await sender.send_messages(ServiceBusMessage(b"a", session_id="a"))
                await sender.send_messages(ServiceBusMessage(b"b", session_id="b"))
            async with client.get_queue_receiver(queue, session_id="a") as receiver:
                [message] = await receiver.receive_messages()
                async with client.transaction():
                    await receiver.complete_message(message)
                    await sender.send_messages(ServiceBusMessage(b"c", session_id="b"))
            assert await bodies(client, queue) == [b"b", b"c"]

    play(work, RequiresSession=True)


def test_messages_may_go_to_other_entities(server: RunningServer) -> None:
    """TX-3, TX-22: wherever their stores are, in order, exactly once."""
    names = [f"entity-{uuid4()}" for _ in range(6)]
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as administration:
        for name in names:
            administration.create_queue(name, {})

    async def scenario() -> None:
        client = ServiceBusClient.from_connection_string(server.connection_string)
        async with asyncio.timeout(60), client:
            source, *others = names
            senders = [client.get_queue_sender(name) for name in others]
            for sender in senders:
                await sender.open()
            async with (
                client.get_queue_sender(source) as sender,
                client.get_queue_receiver(source) as receiver,
            ):
                for _ in range(3):
                    await sender.send_messages(ServiceBusMessage(b"job"))
                for number in range(3):
                    [job] = await receiver.receive_messages()
                    async with client.transaction():
                        await receiver.complete_message(job)
                        for other in senders:
                            await other.send_messages(ServiceBusMessage(b"%d" % number))
            assert await bodies(client, source) == []
            for name in others:
                async with client.get_queue_receiver(name, receive_mode="receive-and-delete") as taker:
                    found: list[bytes] = []
                    while len(found) < 3:
                        found += [message.body for message in await taker.receive_messages(3, 20.0)]
                    assert found == [b"0", b"1", b"2"]
                    assert await taker.receive_messages(1, 0.05) == []

    asyncio.run(scenario())


def test_a_transaction_on_a_partitioned_queue_keeps_to_one_key(play: Callable[..., None]) -> None:
    """TX-12, TX-13, TX-17: a transaction on a partitioned queue keeps to one key."""

    async def work(client: ServiceBusClient, queue: str) -> None:
        async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
            async with client.transaction():
                for step in (b"reserve", b"charge", b"confirm"):
                    await sender.send_messages(ServiceBusMessage(step, partition_key="order 7"))

            async def also_with(key: str | None) -> None:
                async with client.transaction():
                    await sender.send_messages(ServiceBusMessage(b"first", partition_key="order 7"))
                    await sender.send_messages(ServiceBusMessage(b"another", partition_key=key))

            with pytest.raises(Refused, match="needs a PartitionKey"):
                await also_with(None)
            with pytest.raises(Refused, match="must have the same"):
                await also_with("order 8")
            steps = await receiver.receive_messages(10)
            assert [received.body for received in steps] == [b"reserve", b"charge", b"confirm"]
            assert len({(received.sequence_number or 0) >> 48 for received in steps}) == 1
            async with client.transaction():
                for received in steps:
                    await receiver.complete_message(received)
                await sender.send_messages(ServiceBusMessage(b"done", partition_key="order 7"))
            assert await bodies(client, queue) == [b"done"]

    play(work, EnablePartitioning=True)
