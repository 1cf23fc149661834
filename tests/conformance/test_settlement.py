"""SB-2xx: what can happen to a locked message, with the unmodified Python SDK."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError

from tests.conformance.traffic import bodies, dead_letters, receive_all, send

pytestmark = pytest.mark.sdk

SHORT_LOCK = timedelta(seconds=5)  # the shortest there is (E-20)


def test_sb_201_an_abandoned_message_comes_back_first_with_a_higher_count(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-6, R-11, R-40, M-20, M-38: abandon returns it to its place; number and id stay, the count rises."""
    queue = new_queue()
    send(client, queue, "first", "second")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (first,) = receiver.receive_messages(max_message_count=1)
        receiver.abandon_message(first)
        again = receiver.receive_messages(max_message_count=1)
        assert bodies(again) == ["first"]
        assert (again[0].delivery_count, again[0].sequence_number) == (1, first.sequence_number)
        assert again[0].lock_token != first.lock_token
        receiver.complete_message(again[0])


def test_sb_202_after_the_last_allowed_delivery_it_is_dead_lettered(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-41, R-42, D-1, D-10, M-22, M-38: delivered exactly MaxDeliveryCount times, then dead with the reason."""
    queue = new_queue(max_delivery_count=3)
    send(client, queue, "poison", application_properties={"kept": 1})
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        for attempt in range(3):
            (message,) = receiver.receive_messages()
            assert message.delivery_count == attempt
            receiver.abandon_message(message)
        assert receiver.receive_messages(max_wait_time=1) == []
    with dead_letters(client, queue) as receiver:
        (dead,) = receiver.receive_messages()
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert "3" in (dead.dead_letter_error_description or "")
        assert dead.application_properties[b"kept"] == 1
        assert dead.sequence_number == 1
        receiver.complete_message(dead)


def test_sb_203_the_application_can_dead_letter_with_reason_and_description(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-14, D-6, D-16: reason and description come back from the dead-letter queue."""
    queue = new_queue()
    send(client, queue, "bad")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        receiver.dead_letter_message(message, reason="Unreadable", error_description="no such format")
        assert receiver.receive_messages(max_wait_time=1) == []
    with dead_letters(client, queue) as receiver:
        (dead,) = receiver.receive_messages()
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
            "Unreadable",
            "no such format",
        )
        receiver.complete_message(dead)


def test_sb_204_a_dead_message_cannot_be_dead_lettered_again_but_abandoned_for_ever(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """D-2, R-43: in the dead-letter queue the count does not rise; dead-lettering is refused."""
    queue = new_queue(max_delivery_count=1)
    send(client, queue, "dead")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        receiver.abandon_message(receiver.receive_messages()[0])
    with dead_letters(client, queue) as receiver:
        for _ in range(3):
            (message,) = receiver.receive_messages()
            receiver.abandon_message(message)
        (message,) = receiver.receive_messages()
        assert message.delivery_count == 1
        with pytest.raises(ServiceBusError):
            receiver.dead_letter_message(message)


def test_sb_205_a_deferred_message_is_received_by_its_number_only(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-13, R-44, R-50, R-51, M-23, M-50: receive skips it, peek shows it as deferred, its number fetches it."""
    queue = new_queue()
    send(client, queue, "later", "now")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1)
        receiver.defer_message(message)
        number = message.sequence_number
        assert bodies(receive_all(client, queue, 1)) == ["now"]
        (peeked,) = receiver.peek_messages(sequence_number=1)
        assert peeked.state.name == "DEFERRED"
        (deferred,) = receiver.receive_deferred_messages(number)
        assert (str(deferred), deferred.delivery_count) == ("later", 1)
        receiver.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(number)


def test_sb_206_abandoning_a_deferred_message_leaves_it_deferred(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-44, R-52, R-53: the count rises, it stays deferred; one missing number fails the whole request."""
    queue = new_queue()
    send(client, queue, "later")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        receiver.defer_message(message)
        number = message.sequence_number
        (deferred,) = receiver.receive_deferred_messages([number])
        receiver.abandon_message(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([number, 999])
        (again,) = receiver.receive_deferred_messages([number])
        assert again.delivery_count == 2
        assert receiver.receive_messages(max_wait_time=1) == []
        receiver.dead_letter_message(again, reason="enough")
    with dead_letters(client, queue) as receiver:
        assert receiver.receive_messages()[0].dead_letter_reason == "enough"


def test_sb_207_a_lock_ends_and_the_message_is_delivered_again(
    client: ServiceBusClient, new_queue: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-4, R-5, R-7, R-17, ERR-11: after LockDuration it is available again with a higher count; the old lock is
    worth nothing."""
    queue = new_queue(lock_duration=SHORT_LOCK)
    send(client, queue, "slow")
    with client.get_queue_receiver(queue, max_wait_time=10) as receiver:
        (late,) = receiver.receive_messages()
        assert late.locked_until_utc is not None
        assert timedelta(seconds=3) < late.locked_until_utc - datetime.now(UTC) <= SHORT_LOCK
        (again,) = receiver.receive_messages()
        assert (str(again), again.delivery_count) == ("slow", 1)
        assert again.lock_token != late.lock_token
        receiver.complete_message(again)
        monkeypatch.setattr(
            ServiceBusReceivedMessage, "_lock_expired", False
        )  # else the SDK would not even ask
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(late)


def test_sb_208_a_renewed_lock_lives_on(client: ServiceBusClient, new_queue: Callable[..., str]) -> None:
    """R-30: renewal gives a new end, as often as one likes; the message is still ours after the first end."""
    queue = new_queue(lock_duration=SHORT_LOCK)
    send(client, queue, "long work")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        first_end = message.locked_until_utc
        assert first_end is not None
        while datetime.now(UTC) < first_end + timedelta(seconds=1):
            renewed = receiver.renew_message_lock(message)
            assert renewed >= first_end
            time.sleep(1)
        assert receiver.receive_messages(max_wait_time=1) == []
        receiver.complete_message(message)


def test_sb_209_a_lock_outlives_its_link_and_can_be_settled_from_elsewhere(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-18, R-19: after the receiver is closed the message stays locked, and $management still settles it."""
    queue = new_queue(lock_duration=SHORT_LOCK)
    send(client, queue, "orphan", "other")
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1)
    with client.get_queue_receiver(queue, max_wait_time=2) as other:
        (next_one,) = other.receive_messages(max_message_count=1)
        assert str(next_one) == "other"
        other.complete_message(next_one)
        assert other.receive_messages(max_wait_time=1) == []
        (again,) = other.receive_messages(max_wait_time=8)
        assert (str(again), again.delivery_count) == (str(message), 1)
        other.complete_message(again)


def test_sb_210_settling_what_was_received_and_deleted_is_refused(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-20, R-44: there is nothing to settle in receive-and-delete."""
    queue = new_queue()
    send(client, queue, "gone")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages()
        with pytest.raises(ValueError, match="not supported"):
            receiver.complete_message(message)


def test_sb_211_peek_walks_through_everything_and_changes_nothing(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-60, R-61, R-62, R-63, R-64: active and locked messages by number, from a start, again and again."""
    queue = new_queue()
    send(client, queue, *(str(number) for number in range(10)))
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        (locked,) = receiver.receive_messages(max_message_count=1)
        everything = receiver.peek_messages(max_message_count=20, sequence_number=1)
        assert bodies(everything) == [str(number) for number in range(10)]
        assert everything[0].locked_until_utc is None
        assert all(message.state.name == "ACTIVE" for message in everything)
        tail = receiver.peek_messages(max_message_count=20, sequence_number=8)
        assert [message.sequence_number for message in tail] == [8, 9, 10]
        assert receiver.peek_messages(sequence_number=11) == []
        receiver.complete_message(locked)
        assert receiver.peek_messages(sequence_number=1)[0].delivery_count == 0


def test_sb_212_competing_receivers_never_share_a_message(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """R-2, R-3: each message goes to one consumer at a time."""
    queue = new_queue()
    send(client, queue, *(str(number) for number in range(20)))
    with (
        client.get_queue_receiver(queue, max_wait_time=2) as one,
        client.get_queue_receiver(queue, max_wait_time=2) as two,
    ):
        first = one.receive_messages(max_message_count=12)
        second = two.receive_messages(max_message_count=12)
        taken = bodies(first) + bodies(second)
        assert len(taken) == len(set(taken)) == 20
        for message in first:
            one.complete_message(message)
        for message in second:
            two.complete_message(message)


def test_sb_213_the_transfer_dead_letter_queue_is_there_and_empty(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """E-8, D-22: tools that look into it find nothing, and no error."""
    queue = new_queue()
    send(client, queue, "elsewhere")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        assert receiver.peek_messages() == []
        assert receiver.receive_messages(max_wait_time=1) == []
