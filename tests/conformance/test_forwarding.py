"""SB-94x: automatic forwarding of messages and dead letters, with the unmodified Python SDK."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient

from tests.conformance.topic_traffic import NamedRule, Topic, taken
from tests.conformance.traffic import bodies, dead_letters, peek_count, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

NewQueue = Callable[..., str]
NewTopic = Callable[..., Topic]
#: Longer than a refusing destination is tried again (F-12).
PATIENCE_S = 20


def take(client: ServiceBusClient, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    """So many, completed, and no more."""
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        return taken(receiver, count)


def take_dead(client: ServiceBusClient, queue: str, count: int = 1) -> list[ServiceBusReceivedMessage]:
    with client.get_queue_receiver(
        queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=PATIENCE_S
    ) as receiver:
        first = receiver.receive_messages(max_message_count=count)
        for message in first:
            receiver.complete_message(message)
        return [*first, *taken(receiver, count - len(first))]


def annotation(message: ServiceBusReceivedMessage, name: str) -> object:
    return (message.raw_amqp_message.annotations or {}).get(name.encode())


# -- queues


def test_sb_940_a_queue_forwards_in_order(client: ServiceBusClient, new_queue: NewQueue) -> None:
    """F-1, F-7, F-10, M-15, M-28, M-38: new number and time, the first number beside it, everything else as sent."""
    target = new_queue()
    send(client, target, "already there")
    source = new_queue(forward_to=target)
    started = datetime.now(UTC)
    with client.get_queue_sender(source) as sender:
        messages = [
            ServiceBusMessage(str(number), message_id=f"m{number}", application_properties={"n": number})
            for number in range(50)
        ]
        sender.send_messages(messages)
    found = take(client, target, 51)
    assert bodies(found) == ["already there", *(str(number) for number in range(50))]
    assert [message.sequence_number for message in found] == list(range(1, 52))
    assert annotation(found[0], "x-opt-enqueue-sequence-number") is None
    forwarded = found[1:]
    assert [message.enqueued_sequence_number for message in forwarded] == list(range(1, 51))
    assert [message.message_id for message in forwarded] == [f"m{number}" for number in range(50)]
    assert [message.application_properties for message in forwarded] == [{b"n": n} for n in range(50)]
    assert {message.delivery_count for message in forwarded} == {0}
    for message in forwarded:
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc >= started - timedelta(milliseconds=1)
        assert annotation(message, "x-opt-deadletter-source") is None


def test_sb_941_nobody_receives_from_a_source(
    server: RunningServer, client: ServiceBusClient, new_queue: NewQueue
) -> None:
    """F-4, ERR-6: the sentence says why; its dead-letter queue stays open."""
    target = new_queue()
    source = new_queue(forward_to=target)
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as impatient,
        pytest.raises(ServiceBusError, match="forwarded automatically"),
    ):
        impatient.get_queue_receiver(source, max_wait_time=1).receive_messages()
    with dead_letters(client, source) as receiver:
        assert receiver.receive_messages(max_wait_time=0.5) == []


def test_sb_942_forwarding_is_switched_on_and_off(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: NewQueue
) -> None:
    """F-1, F-2, F-4: what waits moves on when it is switched on; afterwards the queue is a queue again."""
    source, target = new_queue(), new_queue()
    send(client, source, "waited 1", "waited 2")
    with pytest.raises(HttpResponseError, match="40400"):
        admin.update_queue(admin.get_queue(source), forward_to="no-such-queue")
    admin.update_queue(admin.get_queue(source), forward_to=target)
    send(client, source, "direct")
    assert bodies(take(client, target, 3)) == ["waited 1", "waited 2", "direct"]
    properties = admin.get_queue(source)
    properties.forward_to = None
    admin.update_queue(properties)
    send(client, source, "stays")
    assert bodies(take(client, source, 1)) == ["stays"]


def test_sb_943_scheduled_messages_move_on_when_they_are_due(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: NewQueue
) -> None:
    """F-1, F-11, S-34: they wait in the source, can be cancelled there, and are not scheduled a second time."""
    target = new_queue()
    source = new_queue(forward_to=target)
    due = datetime.now(UTC) + timedelta(seconds=3)
    with client.get_queue_sender(source) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("comes"), ServiceBusMessage("cancelled")], due)
        sender.cancel_scheduled_messages(numbers[1])
    assert admin.get_queue_runtime_properties(source).scheduled_message_count == 1
    (message,) = take(client, target, 1)
    assert str(message) == "comes"
    assert message.enqueued_time_utc is not None
    assert due - timedelta(milliseconds=1) <= message.enqueued_time_utc < due + timedelta(seconds=2)


def test_sb_944_the_destination_applies_its_own_rules(client: ServiceBusClient, new_queue: NewQueue) -> None:
    """F-3, F-11, S-49, D-17: duplicates are dropped there, sessions are found there; what it refuses comes to rest
    in the source's dead-letter queue."""
    once = new_queue(requires_duplicate_detection=True)
    source = new_queue(forward_to=once)
    send(client, source, "first", "second", message_id="same")
    assert bodies(take(client, once, 1)) == ["first"]
    sessions = new_queue(requires_session=True)
    sorter = new_queue(forward_to=sessions)
    send(client, sorter, "without")
    send(client, sorter, "with", session_id="s")
    with client.get_queue_receiver(sessions, session_id="s", max_wait_time=5) as receiver:
        assert bodies(taken(receiver, 1)) == ["with"]
    (dead,) = take_dead(client, sorter)
    assert str(dead) == "without"
    assert dead.dead_letter_reason


def test_sb_945_chains_end_after_four_hops(client: ServiceBusClient, new_queue: NewQueue) -> None:
    """F-6, F-14, L-17, D-14, M-15: dead-lettered where it stopped; the first number is that of the first queue."""
    chain = [new_queue()]
    for _ in range(5):
        chain.insert(0, new_queue(forward_to=chain[0]))
    send(client, chain[1], "four hops")
    assert bodies(take(client, chain[-1], 1)) == ["four hops"]
    send(client, chain[0], "one too many")
    (dead,) = take_dead(client, chain[4])
    assert (str(dead), dead.dead_letter_reason) == ("one too many", "MaxTransferHopCountExceeded")
    assert dead.enqueued_sequence_number == 1
    assert peek_count(client, chain[-1]) == 0


def test_sb_946_a_loop_ends(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: NewQueue
) -> None:
    """E-33, F-6, F-14: a queue that forwards to itself."""
    queue = new_queue()
    admin.update_queue(admin.get_queue(queue), forward_to=queue)
    send(client, queue, "round and round")
    (dead,) = take_dead(client, queue)
    assert (str(dead), dead.dead_letter_reason) == ("round and round", "MaxTransferHopCountExceeded")


def test_sb_947_a_destination_that_refuses_sends_to_the_dead_letters_of_the_source(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: NewQueue
) -> None:
    """F-12, D-17: disabled or deleted; after some seconds, and senders notice nothing."""
    disabled, deleted = new_queue(), new_queue()
    sources = {
        "TransferDestinationDisabled": (new_queue(forward_to=disabled), disabled),
        "TransferDestinationNotFound": (new_queue(forward_to=deleted), deleted),
    }
    admin.update_queue(admin.get_queue(disabled), status=EntityStatus.DISABLED)
    admin.delete_queue(deleted)
    for source, _ in sources.values():
        send(client, source, "stranded")
    for reason, (source, target) in sources.items():
        (dead,) = take_dead(client, source)
        assert (str(dead), dead.dead_letter_reason) == ("stranded", reason)
        assert target in (dead.dead_letter_error_description or "")


# -- subscriptions


def test_sb_950_subscriptions_forward_into_queues_and_topics(
    client: ServiceBusClient, new_queue: NewQueue, new_topic: NewTopic
) -> None:
    """F-1, F-11, T-4, T-7: filters of the second topic see what the first one's action made."""
    queue = new_queue()
    second = new_topic()
    second.subscribe("high", NamedRule("high", "level > 5"))
    second.subscribe("all")
    first = new_topic()
    first.subscribe("to-queue", NamedRule("red", "color = 'red'"), forward_to=queue)
    first.subscribe("to-topic", NamedRule("raise", "1=1", "SET level = level * 10"), forward_to=second.name)
    first.send("red", application_properties={"color": "red", "level": 1})
    first.send("blue", application_properties={"color": "blue", "level": 0})
    (red,) = take(client, queue, 1)
    assert (str(red), red.enqueued_sequence_number) == ("red", 1)
    assert red.application_properties == {b"color": b"red", b"level": 1}
    (high,) = second.take("high", 1)
    assert high.application_properties == {b"color": b"red", b"level": 10, b"RuleName": b"raise"}
    everything = second.take("all", 2)
    assert [(str(copy), copy.enqueued_sequence_number) for copy in everything] == [("red", 1), ("blue", 2)]


def test_sb_951_nobody_receives_from_a_subscription_that_forwards(
    server: RunningServer, admin: ServiceBusAdministrationClient, new_queue: NewQueue, new_topic: NewTopic
) -> None:
    """F-4, E-62: not from one that forwards to its own topic either."""
    queue = new_queue()
    topic = new_topic()
    topic.subscribe("s", forward_to=queue)
    admin.create_subscription(topic.name, "self", forward_to=topic.name)
    for name in ("s", "self"):
        with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as impatient,
            pytest.raises(ServiceBusError, match="forwarded automatically"),
        ):
            impatient.get_subscription_receiver(topic.name, name, max_wait_time=1).receive_messages()


# -- dead letters


def test_sb_952_dead_letters_are_forwarded_and_say_where_they_come_from(
    client: ServiceBusClient, new_queue: NewQueue, new_topic: NewTopic
) -> None:
    """D-20, M-21, M-22, D-6: reason and source are on the message, whoever dead-lettered it."""
    graveyard = new_queue()
    queue = new_queue(forward_dead_lettered_messages_to=graveyard, max_delivery_count=1)
    send(client, queue, "by hand", "by count", application_properties={"kept": 1})
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        by_hand, by_count = receiver.receive_messages(max_message_count=2)
        receiver.dead_letter_message(by_hand, reason="why", error_description="because")
        receiver.abandon_message(by_count)
    found = {str(message): message for message in take(client, graveyard, 2)}
    assert {name: message.dead_letter_source for name, message in found.items()} == {
        "by hand": queue,
        "by count": queue,
    }
    assert found["by hand"].application_properties == {
        b"kept": 1,
        b"DeadLetterReason": b"why",
        b"DeadLetterErrorDescription": b"because",
    }
    assert found["by count"].dead_letter_reason == "MaxDeliveryCountExceeded"
    assert {message.enqueued_sequence_number for message in found.values()} == {1, 2}
    topic = new_topic()
    topic.subscribe(
        "s", forward_dead_lettered_messages_to=graveyard, default_message_time_to_live=timedelta(seconds=1),
        dead_lettering_on_message_expiration=True,
    )  # fmt: skip
    topic.send("by time")
    (message,) = take(client, graveyard, 1)
    assert message.dead_letter_source == topic.path_of("s")
    assert message.dead_letter_reason == "TTLExpiredException"


def test_sb_953_a_forwarded_dead_letter_queue_is_not_received_from(
    server: RunningServer, new_queue: NewQueue
) -> None:
    """D-20, ERR-6: the sentence says why."""
    graveyard = new_queue()
    queue = new_queue(forward_dead_lettered_messages_to=graveyard)
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as impatient,
        pytest.raises(ServiceBusError, match="forwarded automatically"),
        dead_letters(impatient, queue) as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)


# -- crashes


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore:Exception ignored in.*socket:pytest.PytestUnraisableExceptionWarning")
def test_sb_954_a_crash_neither_loses_nor_doubles_what_is_on_its_way(tmp_path: Path) -> None:
    """F-1, S-1: kill -9 in the middle of a move, over and over, between queues of different stores. (The SDK
    forgets to close the socket of a connection that broke.)"""
    count, sent = 3_000, 0
    with RunningServer(tmp_path) as server:
        with ServiceBusAdministrationClient.from_connection_string(
            server.connection_string, connection_verify=server.ca_file
        ) as admin:
            admin.create_queue("end")
            admin.create_queue("middle", forward_to="end")
            admin.create_queue("start", forward_to="middle")
        for pause_s in (0.0, 0.05, 0.2):
            with (
                ServiceBusClient.from_connection_string(server.connection_string) as client,
                client.get_queue_sender("start") as sender,
            ):
                for _ in range(count // 3 // 100):
                    sender.send_messages([ServiceBusMessage(str(sent + number)) for number in range(100)])
                    sent += 100
                time.sleep(pause_s)
                server.kill()
            server.start()
        with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver("end", max_wait_time=10, prefetch_count=500) as receiver,
        ):
            found: list[str] = []
            while len(found) < sent:
                batch = receiver.receive_messages(max_message_count=500)
                assert batch, f"only {len(set(found))} of {sent} came"
                found += bodies(batch)
                for message in batch:
                    receiver.complete_message(message)
            assert receiver.receive_messages(max_wait_time=2) == []
    del client, sender, receiver
    gc.collect()  # the forgotten sockets go here, not in somebody else's test
    assert sorted(map(int, found)) == list(range(sent))
