"""A bus with something of everything in it, and a picture of what clients see of one.

Two buses with the same picture hold the same: all messages in all places with their numbers, counts, times and
properties, sessions with their states, events with theirs. Looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.harness.running_server import RunningServer

SESSIONS: Final = ("", "a\0b", "ende\U0001f600", "usual")
SUBSCRIPTIONS: Final = 6
HUB: Final = "metrics"
PARTITIONS: Final = 4
EVENTS: Final = 40

Picture = dict[str, list[tuple[Any, ...]]]


@contextmanager
def client_of(server: RunningServer) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.02, retry_backoff_max=0.1
    ) as client:
        yield client


@contextmanager
def admin_of(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=server.ca_file
    ) as admin:
        yield admin


def fill(server: RunningServer, count: int = 60) -> None:
    """`count`: about how many messages in each queue."""
    with admin_of(server) as admin:
        admin.create_queue("plain")
        admin.create_queue("spread", enable_partitioning=True)
        admin.create_queue("talks", requires_session=True)
        admin.create_queue("once", requires_duplicate_detection=True)
        admin.create_queue("onward", forward_to="plain")
        admin.create_topic("news", enable_partitioning=True)
        for number in range(SUBSCRIPTIONS):
            admin.create_subscription("news", f"s{number}")
        admin.create_topic("gone")
        admin.delete_topic("gone")  # its fragments are swept, and nobody copies them
    with client_of(server) as client:
        _fill_plain(client, count)
        for key in range(9):
            _send(
                client, "spread", [message_of(f"p{n}", partition_key=f"k{key}") for n in range(key, count, 9)]
            )
        _send(client, "onward", [message_of(f"f{n}") for n in range(count // 4)])
        talks = [[message_of(f"t{n}", session_id=session)] for n in range(count // 6) for session in SESSIONS]
        _send(client, "talks", *talks)
        with client.get_queue_receiver("talks", session_id="a\0b") as talk:
            talk.session.set_state(b"half \0 way")
        _send(client, "once", [message_of(f"o{n}") for n in range(count)])
        _fill_news(client, count)


def _fill_plain(client: ServiceBusClient, count: int) -> None:
    brief = message_of("brief", time_to_live=timedelta(days=2))
    _send(
        client,
        "plain",
        [*[message_of(f"m{n}", application_properties={"n": n}) for n in range(count)], brief],
    )
    later = datetime.now(UTC) + timedelta(hours=5)
    with client.get_queue_sender("plain") as sender:
        sender.schedule_messages([message_of(f"later{n}") for n in range(3)], later)
    with client.get_queue_receiver("plain") as receiver:
        for message in _take(receiver, 12):
            place = int(str(message)[1:]) % 4
            if place == 0:
                receiver.complete_message(message)
            elif place == 1:
                receiver.defer_message(message)
            elif place == 2:
                receiver.dead_letter_message(message, reason="wrong", error_description="very")
            else:
                receiver.abandon_message(message)


def _fill_news(client: ServiceBusClient, count: int) -> None:
    with client.get_topic_sender("news") as sender:
        sender.send_messages([message_of(f"n{n}" + "x" * 3_000) for n in range(count // 2)])
    with client.get_subscription_receiver("news", "s0") as receiver:
        for message in _take(receiver, count // 4):
            receiver.complete_message(message)
    with client.get_subscription_receiver("news", "s1") as receiver:
        for message in _take(receiver, 3):
            receiver.defer_message(message)


def fill_hub(server: RunningServer, name: str = HUB) -> None:
    """The hub was made before."""
    with EventHubProducerClient.from_connection_string(
        server.connection_string, eventhub_name=name
    ) as producer:
        for n in range(EVENTS):
            event = EventData(f"e{n}" + "y" * (n * 50))
            event.properties = {"n": n}
            producer.send_batch([event], partition_id=str(n % PARTITIONS))


def message_of(body: str, **properties: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=body[:20], **properties)


def _send(client: ServiceBusClient, queue: str, *batches: list[ServiceBusMessage]) -> None:
    with client.get_queue_sender(queue) as sender:
        for batch in batches:
            sender.send_messages(batch)


def _take(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    taken: list[Any] = []
    while len(taken) < count:
        found = receiver.receive_messages(count - len(taken), max_wait_time=5)
        assert found, "there are as many"
        taken += found
    return taken


# -- looking


def picture(server: RunningServer) -> Picture:
    """What clients see, without any event hub."""
    looks: dict[str, Callable[[ServiceBusClient], list[tuple[Any, ...]]]] = {}
    for queue in ("plain", "spread", "once"):
        looks[queue] = partial(_look, lambda client, name: client.get_queue_receiver(name), queue)
    looks["letters"] = partial(_look, _letters, "plain")
    for number in range(SUBSCRIPTIONS):
        looks[f"s{number}"] = partial(
            _look, lambda client, name: client.get_subscription_receiver("news", name), f"s{number}"
        )
    for session in SESSIONS:
        looks[f"talk {session!a}"] = partial(_look_at_session, session)
    with ThreadPoolExecutor(len(looks)) as pool:  # a link is half a second of the SDK's pauses
        found = dict(zip(looks, pool.map(partial(_alone, server), looks.values()), strict=True))
    with admin_of(server) as admin:
        for properties in admin.list_queues_runtime_properties():
            counts = (
                properties.total_message_count,
                properties.active_message_count,
                properties.dead_letter_message_count,
                properties.scheduled_message_count,
                properties.size_in_bytes,
                properties.created_at_utc,
            )
            found[f"{properties.name} counts"] = [counts]
    return found


def _alone(
    server: RunningServer, look: Callable[[ServiceBusClient], list[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    with client_of(server) as client:
        return look(client)


def _letters(client: ServiceBusClient, queue: str) -> ServiceBusReceiver:
    return client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def _look(
    receiver_of: Callable[[ServiceBusClient, str], ServiceBusReceiver], name: str, client: ServiceBusClient
) -> list[tuple[Any, ...]]:
    with receiver_of(client, name) as receiver:
        return _peeked(receiver)


def _look_at_session(session: str, client: ServiceBusClient) -> list[tuple[Any, ...]]:
    with client.get_queue_receiver("talks", session_id=session) as talk:
        return [(talk.session.get_state(),), *_peeked(talk)]


def _peeked(receiver: ServiceBusReceiver) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []
    after = 0
    while page := receiver.peek_messages(250, sequence_number=after, timeout=20):
        seen += [_shown(message) for message in page]
        after = int(page[-1].sequence_number or 0) + 1
    return seen


def _shown(message: Any) -> tuple[Any, ...]:
    return (
        message.sequence_number,
        str(message),
        message.message_id,
        message.state,
        message.delivery_count,
        message.enqueued_time_utc,
        message.expires_at_utc,
        message.scheduled_enqueue_time_utc,
        message.session_id,
        message.partition_key,
        message.dead_letter_reason,
        message.dead_letter_error_description,
        sorted((message.application_properties or {}).items()),
    )


def events(server: RunningServer, name: str = HUB) -> list[tuple[Any, ...]]:
    """All of a hub, by partition and number."""
    seen: list[tuple[Any, ...]] = []
    with EventHubConsumerClient.from_connection_string(
        server.connection_string, consumer_group="$default", eventhub_name=name
    ) as consumer:

        def received(context: Any, event: Any) -> None:
            if event is None:
                return
            partition = context.partition_id
            seen.append(
                (partition, event.sequence_number, event.offset, event.enqueued_time, event.body_as_str())
            )
            if len(seen) == EVENTS:
                consumer.close()

        consumer.receive(received, starting_position="-1", max_wait_time=5)
    return sorted(seen)
