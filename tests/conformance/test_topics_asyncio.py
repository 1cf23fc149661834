"""SB-93x: topics and subscriptions with the asynchronous Python SDK, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from tests.conformance.topic_traffic import NamedRule, Topic
from tests.conformance.traffic import bodies
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

NewTopic = Callable[..., Topic]
Work = Callable[[ServiceBusClient], Coroutine[Any, Any, None]]


def run(server: RunningServer, work: Work) -> None:
    async def with_client() -> None:
        async with ServiceBusClient.from_connection_string(
            server.connection_string, retry_backoff_factor=0.1
        ) as client:
            await work(client)

    asyncio.run(with_client())


async def publish(client: ServiceBusClient, topic: Topic, *texts: str, **properties: Any) -> None:
    async with client.get_topic_sender(topic.name) as sender:
        await sender.send_messages([ServiceBusMessage(text, **properties) for text in texts])


@asynccontextmanager
async def receiving(
    client: ServiceBusClient, topic: Topic, subscription: str, **options: Any
) -> AsyncIterator[ServiceBusReceiver]:
    async with client.get_subscription_receiver(topic.name, subscription, **options) as receiver:
        yield receiver


async def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many, not settled."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = await receiver.receive_messages(max_message_count=count - len(found), max_wait_time=5)
        assert batch, f"only {len(found)} of {count} messages came"
        found += batch
    return found


def test_sb_930_publish_receive_and_settle(server: RunningServer, new_topic: NewTopic) -> None:
    """T-1, R-1, R-10, R-11, R-13, R-14, R-51, R-60, D-1: every verb on one subscription, the other untouched."""
    topic = new_topic()
    topic.subscribe("s", NamedRule("red", "color = 'red'"))
    topic.subscribe("other")

    async def work(client: ServiceBusClient) -> None:
        await publish(client, topic, "0", "1", "2", "3", application_properties={"color": "red"})
        await publish(client, topic, "blue", application_properties={"color": "blue"})
        async with receiving(client, topic, "s") as receiver:
            completed, abandoned, deferred, dead = await received(receiver, 4)
            await receiver.complete_message(completed)
            await receiver.abandon_message(abandoned)
            await receiver.defer_message(deferred)
            await receiver.dead_letter_message(dead, reason="why")
            (again,) = await received(receiver, 1)
            assert (str(again), again.delivery_count) == ("1", 1)
            await receiver.complete_message(again)
            assert bodies(await receiver.peek_messages(max_message_count=5)) == ["2"]
            (fetched,) = await receiver.receive_deferred_messages([deferred.sequence_number])
            await receiver.complete_message(fetched)
        async with receiving(client, topic, "s", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (found,) = await received(receiver, 1)
            assert (str(found), found.dead_letter_reason) == ("3", "why")
            await receiver.complete_message(found)
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with receiving(client, topic, "other", receive_mode=mode) as receiver:
            assert bodies(await received(receiver, 5)) == ["0", "1", "2", "3", "blue"]

    run(server, work)


def test_sb_931_scheduling_and_cancelling(server: RunningServer, new_topic: NewTopic) -> None:
    """S-30, S-31, S-33, S-34, ERR-14: on a topic."""
    topic = new_topic()
    topic.subscribe("s")
    due = datetime.now(UTC) + timedelta(seconds=3)

    async def work(client: ServiceBusClient) -> None:
        async with client.get_topic_sender(topic.name) as sender:
            numbers = await sender.schedule_messages([ServiceBusMessage(text) for text in "ab"], due)
            await sender.cancel_scheduled_messages(numbers[0])
            with pytest.raises(MessageNotFoundError):
                await sender.cancel_scheduled_messages(numbers[0])
        async with receiving(client, topic, "s") as receiver:
            (message,) = await received(receiver, 1)
            assert str(message) == "b"
            assert message.enqueued_time_utc is not None
            assert message.enqueued_time_utc >= due - timedelta(milliseconds=1)
            await receiver.complete_message(message)

    run(server, work)


def test_sb_932_sessions(server: RunningServer, new_topic: NewTopic) -> None:
    """X-3, X-4, X-7, X-8, X-15: named and next available, with state; all at the same time."""
    topic = new_topic()
    topic.subscribe("s", requires_session=True)

    async def drained(client: ServiceBusClient, session: Any) -> tuple[str, list[str]]:
        async with receiving(client, topic, "s", session_id=session) as receiver:
            messages = await received(receiver, 3)
            for message in messages:
                await receiver.complete_message(message)
            await receiver.session.set_state(bodies(messages)[-1].encode())
            assert await receiver.session.get_state() == str(messages[-1]).encode()
            assert (await receiver.session.renew_lock()) > datetime.now(UTC)
            return receiver.session.session_id, bodies(messages)

    async def work(client: ServiceBusClient) -> None:
        for session in "abc":
            await publish(client, topic, *(f"{session}{number}" for number in range(3)), session_id=session)
        found = await asyncio.gather(
            drained(client, "b"),
            drained(client, NEXT_AVAILABLE_SESSION),
            drained(client, NEXT_AVAILABLE_SESSION),
        )
        assert dict(found) == {name: [f"{name}{number}" for number in range(3)] for name in "abc"}

    run(server, work)


def test_sb_933_the_renewer_keeps_a_lock(server: RunningServer, new_topic: NewTopic) -> None:
    """R-30: a message of a subscription, worked on longer than its lock lasts."""
    topic = new_topic()
    topic.subscribe("s", lock_duration=timedelta(seconds=5))

    async def work(client: ServiceBusClient) -> None:
        await publish(client, topic, "long")
        async with AutoLockRenewer() as renewer, receiving(client, topic, "s") as receiver:
            (message,) = await received(receiver, 1)
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            async with receiving(client, topic, "s") as other:
                assert await other.receive_messages(max_wait_time=7) == []
            await receiver.complete_message(message)

    run(server, work)


def test_sb_934_competing_receivers_share_a_subscription(server: RunningServer, new_topic: NewTopic) -> None:
    """R-3, R-70: each message once, whoever takes it."""
    topic = new_topic()
    topic.subscribe("s")
    wanted = [str(number) for number in range(200)]

    async def work(client: ServiceBusClient) -> None:
        await publish(client, topic, *wanted)
        found: list[str] = []

        async def worker() -> None:
            async with receiving(client, topic, "s", prefetch_count=10, max_wait_time=2) as receiver:
                async for message in receiver:
                    found.append(str(message))
                    await receiver.complete_message(message)

        await asyncio.gather(*(worker() for _ in range(4)))
        assert sorted(found, key=int) == wanted

    run(server, work)


def test_sb_935_a_topic_is_not_received_from_and_a_subscription_not_sent_to(
    server: RunningServer, new_topic: NewTopic
) -> None:
    """E-9, E-10, ERR-6: a topic is not received from and a subscription not sent to."""
    topic = new_topic()
    topic.subscribe("s")

    async def work(client: ServiceBusClient) -> None:
        with pytest.raises(ServiceBusError, match="Subscriptions/s"):
            async with client.get_queue_receiver(topic.name) as receiver:
                await receiver.receive_messages(max_wait_time=1)
        with pytest.raises(ServiceBusError, match=r"(?i)send"):
            async with client.get_queue_sender(topic.path_of("s")) as sender:
                await sender.send_messages(ServiceBusMessage("lost"))

    run(server, work)


def test_sb_936_copies_and_dead_letters_are_forwarded(server: RunningServer, new_topic: NewTopic) -> None:
    """F-1, F-10, M-15, M-21, D-20: through a subscription into another topic, dead letters likewise."""
    first, second = new_topic(), new_topic()
    second.subscribe("end")
    first.subscribe("onward", forward_to=second.name)
    first.subscribe("read", forward_dead_lettered_messages_to=second.name)

    async def work(client: ServiceBusClient) -> None:
        await publish(client, first, "moved")
        async with receiving(client, second, "end") as end:
            (moved,) = await received(end, 1)
            assert (str(moved), moved.enqueued_sequence_number, moved.dead_letter_source) == (
                "moved",
                1,
                None,
            )
            await end.complete_message(moved)
            async with receiving(client, first, "read") as reader:
                (message,) = await received(reader, 1)
                await reader.dead_letter_message(message, reason="why")
            (dead,) = await received(end, 1)
            assert (dead.dead_letter_source or "").lower() == first.path_of("read").lower()
            assert dead.dead_letter_reason == "why"
            await end.complete_message(dead)

    run(server, work)
