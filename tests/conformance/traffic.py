"""Short words for what every conformance test does with the SDK."""

from __future__ import annotations

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)


def send(client: ServiceBusClient, queue: str, *bodies: str, **properties: object) -> None:
    """One send for each body."""
    with client.get_queue_sender(queue) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body, **properties))


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def dead_letters(client: ServiceBusClient, queue: str) -> ServiceBusReceiver:
    return client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5)


def send_to(connection_string: str, queue: str, body: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(ServiceBusMessage(body))


def receive_all(client: ServiceBusClient, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many, completed."""
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        while len(found) < count:
            batch = receiver.receive_messages(max_message_count=count - len(found))
            assert batch, f"only {len(found)} of {count} messages came"
            for message in batch:
                receiver.complete_message(message)
            found += batch
    return found


def peek_count(client: ServiceBusClient, queue: str) -> int:
    with client.get_queue_receiver(queue) as receiver:
        return len(receiver.peek_messages(max_message_count=100))
