"""SB-4xx: message sessions, with the unmodified Python SDK."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.conformance.traffic import bodies, dead_letters, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk


def test_sb_401_a_named_session_gives_its_messages_in_order(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-3, X-4, X-12, M-2: only that session's messages, in sequence."""
    queue = new_queue(requires_session=True)
    for number in range(5):
        send(client, queue, f"a{number}", session_id="a")
        send(client, queue, f"b{number}", session_id="b")
    with client.get_queue_receiver(queue, session_id="b", max_wait_time=5) as receiver:
        messages = receiver.receive_messages(max_message_count=10)
        while len(messages) < 5:
            messages += receiver.receive_messages(max_message_count=10)
        assert bodies(messages) == [f"b{number}" for number in range(5)]
        assert {message.session_id for message in messages} == {"b"}
        for message in messages:
            receiver.complete_message(message)
        assert receiver.receive_messages(max_wait_time=1) == []


def test_sb_402_next_available_gives_the_oldest_free_session_then_times_out(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-7, X-8, ERR-16: sessions come oldest first; when all are taken the accept waits and times out."""
    queue = new_queue(requires_session=True)
    send(client, queue, "1", session_id="older")
    send(client, queue, "2", session_id="newer")
    with (
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as one,
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as two,
    ):
        assert (one.session.session_id, two.session.session_id) == ("older", "newer")
        with (
            pytest.raises(OperationTimeoutError),
            client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as three,
        ):
            three.receive_messages()


def test_sb_403_a_locked_session_cannot_be_accepted_twice(
    client: ServiceBusClient, server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """X-5, X-6, ERR-13: an empty session can be accepted, but by one receiver only."""
    queue = new_queue(requires_session=True)
    with client.get_queue_receiver(queue, session_id="s", max_wait_time=5) as holder:
        assert holder.session.session_id == "s"
        with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as impatient,
            pytest.raises(SessionCannotBeLockedError),
            impatient.get_queue_receiver(queue, session_id="s") as second,
        ):
            second.receive_messages(max_wait_time=1)


def test_sb_404_session_state_is_kept(client: ServiceBusClient, new_queue: Callable[..., str]) -> None:
    """X-15, X-16: state survives the receiver and the messages; None clears it."""
    queue = new_queue(requires_session=True)
    with client.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00half way")
    with client.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
        assert receiver.session.get_state() == b"\x00half way"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_sb_405_closing_a_session_frees_it_without_a_count(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-11: unsettled messages return at once, with their count unchanged."""
    queue = new_queue(requires_session=True)
    send(client, queue, "m", session_id="s")
    for _ in range(3):
        with client.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages()
            assert message.delivery_count == 0


def test_sb_406_a_session_lock_is_renewed_and_lost(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-9, X-10, X-13, ERR-12: renewal moves the end; after it the session is another's and the count rises."""
    queue = new_queue(requires_session=True, lock_duration=timedelta(seconds=5))
    send(client, queue, "m", session_id="s")
    receiver = client.get_queue_receiver(queue, session_id="s", max_wait_time=5)
    with receiver:
        (message,) = receiver.receive_messages()
        before = receiver.session.locked_until_utc
        renewed = receiver.session.renew_lock()
        assert before is not None
        assert renewed >= before
        assert renewed - datetime.now(UTC) <= timedelta(seconds=5)
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=15) as other:
            assert other.session.session_id == "s"
            (again,) = other.receive_messages()
            assert again.delivery_count == 1
            with pytest.raises((SessionLockLostError, ServiceBusError)):
                receiver.complete_message(message)
            other.complete_message(again)


def test_sb_407_plain_receivers_and_session_receivers_do_not_mix(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-1, X-2, S-7, ERR-6: wrong kinds of receivers and messages without a session are refused with a reason."""
    with_sessions, without = new_queue(requires_session=True), new_queue()
    with (
        pytest.raises(ServiceBusError, match="requires sessions"),
        client.get_queue_receiver(with_sessions) as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
    with (
        pytest.raises(ServiceBusError, match="does not require sessions"),
        client.get_queue_receiver(without, session_id="s") as receiver,
    ):
        receiver.receive_messages(max_wait_time=1)
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        send(client, with_sessions, "no session")
    send(client, with_sessions, "the empty session", session_id="")


def test_sb_408_deferral_abandon_and_dead_letters_in_a_session(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """X-12, X-14, R-54, D-4, R-66: abandoned comes next again, deferred by number under the session's lock, dead
    letters without sessions, peek sees the session only."""
    queue = new_queue(requires_session=True)
    send(client, queue, "0", "1", "2", session_id="s")
    send(client, queue, "x", session_id="t")
    with client.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
        (first,) = receiver.receive_messages(max_message_count=1)
        receiver.abandon_message(first)
        (again,) = receiver.receive_messages(max_message_count=1)
        assert (str(again), again.delivery_count) == ("0", 1)
        receiver.defer_message(again)
        (second,) = receiver.receive_messages(max_message_count=1)
        assert str(second) == "1"
        receiver.dead_letter_message(second, reason="r")
        assert bodies(receiver.peek_messages(max_message_count=10, sequence_number=1)) == ["0", "2"]
        (deferred,) = receiver.receive_deferred_messages(again.sequence_number)
        receiver.complete_message(deferred)
    with dead_letters(client, queue) as dead:
        (message,) = dead.receive_messages()
        assert (str(message), message.session_id) == ("1", "s")
        dead.complete_message(message)
