"""SB-3xx: scheduling, time to live and duplicate detection, with the unmodified Python SDK."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.traffic import bodies, dead_letters, receive_all, send

pytestmark = pytest.mark.sdk


def test_sb_301_a_scheduled_message_appears_at_its_time(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """S-30, S-31, S-34, S-35, S-36, M-12, M-16: invisible to receive before, seen by peek, enqueued within the
    second after its time, under a new number."""
    queue = new_queue()
    due = datetime.now(UTC) + timedelta(seconds=2)
    with client.get_queue_sender(queue) as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), due)
        sender.send_messages(ServiceBusMessage("now"))
    with client.get_queue_receiver(queue, max_wait_time=10) as receiver:
        states = {str(message): message.state.name for message in receiver.peek_messages(max_message_count=5)}
        assert states == {"later": "SCHEDULED", "now": "ACTIVE"}
        assert admin.get_queue_runtime_properties(queue).scheduled_message_count == 1
        assert bodies(receive_all(client, queue, 1)) == ["now"]
        (message,) = receiver.receive_messages()
        assert str(message) == "later"
        assert message.sequence_number != number
        assert due <= message.enqueued_time_utc + timedelta(milliseconds=1)
        assert message.enqueued_time_utc < due + timedelta(seconds=1)
        assert abs(message.scheduled_enqueue_time_utc - due) < timedelta(milliseconds=2)
        receiver.complete_message(message)


def test_sb_302_a_cancelled_message_never_comes(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-33, ERR-14: cancelling deletes it; cancelling again finds nothing."""
    queue = new_queue()
    due = datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        assert len(numbers) == 2
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[0])
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages() == []


def test_sb_303_a_time_in_the_past_means_now(client: ServiceBusClient, new_queue: Callable[..., str]) -> None:
    """S-32: scheduled for yesterday is sent now."""
    queue = new_queue()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    send(client, queue, "now", scheduled_enqueue_time_utc=yesterday)
    assert bodies(receive_all(client, queue, 1)) == ["now"]


def test_sb_304_a_message_expires_into_the_dead_letter_queue_when_asked(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """M-11, M-40, M-41, M-42, M-44, D-11: after its time to live it is not delivered but dead-lettered."""
    queue = new_queue(dead_lettering_on_message_expiration=True)
    send(client, queue, "short", time_to_live=timedelta(seconds=1))
    send(client, queue, "long", time_to_live=timedelta(hours=1))
    with dead_letters(client, queue) as receiver:
        (dead,) = receiver.receive_messages(max_wait_time=10)
        assert (str(dead), dead.dead_letter_reason) == ("short", "TTLExpiredException")
        assert dead.dead_letter_error_description == "The message expired and was dead lettered."
        receiver.complete_message(dead)
    assert bodies(receive_all(client, queue, 1)) == ["long"]


def test_sb_305_the_queues_default_cuts_longer_lives(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_queue: Callable[..., str]
) -> None:
    """M-40, M-27a, E-26: the default applies, silently, and does not show in the header."""
    queue = new_queue(default_message_time_to_live=timedelta(seconds=2))
    send(client, queue, "cut", time_to_live=timedelta(hours=1))
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        assert message.time_to_live == timedelta(hours=1)
        receiver.abandon_message(message)
        deadline = datetime.now(UTC) + timedelta(seconds=100)
        while admin.get_queue_runtime_properties(queue).total_message_count:
            assert datetime.now(UTC) < deadline, "the sweep never removed it"
        assert receiver.receive_messages(max_wait_time=1) == []


def test_sb_306_a_duplicate_is_accepted_and_dropped(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """S-40, S-43, S-45, M-1: one copy per MessageId in the window, also after it was consumed, also scheduled."""
    queue = new_queue(requires_duplicate_detection=True)
    send(client, queue, "first", "second", message_id="same")
    assert bodies(receive_all(client, queue, 1)) == ["first"]
    send(client, queue, "third", message_id="same")
    with client.get_queue_sender(queue) as sender:
        due = datetime.now(UTC) + timedelta(hours=1)
        sender.schedule_messages(ServiceBusMessage("fourth", message_id="same"), due)
        sender.send_messages([ServiceBusMessage(body, message_id=body) for body in ("x", "y", "x")])
    assert bodies(receive_all(client, queue, 2)) == ["x", "y"]
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages() == []
