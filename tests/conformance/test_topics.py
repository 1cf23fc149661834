"""SB-90x, SB-91x: topics and subscriptions, with the unmodified Python SDK."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient

from tests.conformance.topic_traffic import QUIET_S, NamedRule, Topic, taken
from tests.conformance.traffic import bodies
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

NewTopic = Callable[..., Topic]
RECEIVE_AND_DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
NOTHING = NamedRule("nothing", "1=0")


@pytest.fixture
def impatient(server: RunningServer) -> Iterator[ServiceBusClient]:
    """Tells the first refusal instead of trying again."""
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as opened:
        yield opened


# -- publishing


def test_sb_901_every_subscription_has_a_copy_of_its_own(new_topic: NewTopic) -> None:
    """T-1, M-39, R-10: numbers of its own, settled by itself, whatever becomes of the other copies."""
    topic = new_topic()
    topic.subscribe("early")
    topic.send("1")
    topic.subscribe("late")
    topic.send("2", "3")
    with topic.receiver("early") as early:
        first = early.receive_messages(max_message_count=1)[0]
        assert (str(first), first.sequence_number) == ("1", 1)
        late = topic.take("late", 2)
        assert [(str(copy), copy.sequence_number) for copy in late] == [("2", 1), ("3", 2)]
        early.complete_message(first)
        assert bodies(taken(early, 2)) == ["2", "3"]


def test_sb_902_a_copy_is_the_message_as_it_was_sent(client: ServiceBusClient, new_topic: NewTopic) -> None:
    """M-27a, M-28, M-29, M-30, M-31: every section comes back untouched, with the annotations of any delivery."""
    topic = new_topic()
    for name in ("one", "two"):
        topic.subscribe(name)
    sent = AmqpAnnotatedMessage(
        data_body=[b"two", b"sections"],
        header=AmqpMessageHeader(durable=True, priority=3, time_to_live=60_000),
        properties=AmqpMessageProperties(
            message_id="id",
            subject="label",
            user_id=b"user",
            content_type="text/plain",
            content_encoding="utf-8",
            correlation_id="correlation",
            to="to",
            reply_to="reply",
            group_sequence=7,
            reply_to_group_id="reply-session",
        ),
        annotations={"x-opt-partition-key": "key", "mine": 5},
        delivery_annotations={"theirs": "kept"},
        application_properties={"text": "t", "n": 7, "half": 0.5, "yes": True, "raw": b"\x00", "none": None},
        footer={"foot": "note"},
    )
    with client.get_topic_sender(topic.name) as sender:
        sender.send_messages(sent)
    for name in ("one", "two"):
        (copy,) = topic.take(name, 1)
        raw = copy.raw_amqp_message
        assert list(raw.body) == [b"two", b"sections"]
        assert (raw.header.durable, raw.header.priority, raw.header.time_to_live) == (True, 3, 60_000)
        assert raw.properties.__dict__ | {"creation_time": None, "absolute_expiry_time": None} == {
            "message_id": b"id",
            "user_id": b"user",
            "to": b"to",
            "subject": b"label",
            "reply_to": b"reply",
            "correlation_id": b"correlation",
            "content_type": b"text/plain",
            "content_encoding": b"utf-8",
            "creation_time": None,
            "absolute_expiry_time": None,
            "group_id": None,
            "group_sequence": 7,
            "reply_to_group_id": b"reply-session",
        }
        assert raw.application_properties == {
            b"text": b"t", b"n": 7, b"half": 0.5, b"yes": True, b"raw": b"\x00", b"none": None
        }  # fmt: skip
        assert raw.footer == {b"foot": b"note"}
        broker = {b"x-opt-enqueued-time", b"x-opt-sequence-number", b"x-opt-locked-until"}
        assert set(raw.annotations) == broker | {b"x-opt-partition-key", b"mine"}
        assert set(raw.delivery_annotations) == {b"theirs", b"x-opt-lock-token"}


def test_sb_903_batches_are_published_whole_and_in_order(
    client: ServiceBusClient, new_topic: NewTopic
) -> None:
    """S-4, S-20, T-9: a batch and a list, each message offered to each subscription."""
    topic = new_topic()
    topic.subscribe("all")
    topic.subscribe("even", NamedRule("even", "n % 2 = 0"))
    with client.get_topic_sender(topic.name) as sender:
        batch = sender.create_message_batch()
        for number in range(100):
            batch.add_message(ServiceBusMessage(str(number), application_properties={"n": number}))
        sender.send_messages(batch)
        sender.send_messages([ServiceBusMessage(text) for text in ("x", "y")])
    numbers = [str(number) for number in range(100)]
    everything = topic.take("all", 102)
    assert bodies(everything) == [*numbers, "x", "y"]
    assert [copy.sequence_number for copy in everything] == list(range(1, 103))
    assert bodies(topic.take("even", 50)) == numbers[::2]


def test_sb_904_what_nobody_wants_is_accepted_and_gone(
    admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """T-10, E-56: no error, no size."""
    topic = new_topic()
    topic.send("before any subscription")
    topic.subscribe("picky", NOTHING)
    topic.send("matches nothing")
    assert topic.peek("picky") == []
    assert admin.get_topic_runtime_properties(topic.name).size_in_bytes == 0


def test_sb_905_a_prefiltering_topic_refuses_what_nobody_wants(
    admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """E-53, ERR-20: the send fails with a sentence; what somebody wants passes."""
    topic = new_topic()
    properties = admin.get_topic(topic.name)
    # This SDK reads the flag and takes it as a keyword, but does not write it: only so it reaches the wire.
    properties._internal_td.filtering_messages_before_publishing = True
    admin.update_topic(properties)
    assert admin.get_topic(topic.name).filtering_messages_before_publishing
    topic.subscribe("red", NamedRule("red", "color = 'red'"))
    with pytest.raises(ServiceBusError, match=r"(?i)no.*subscription"):
        topic.send("blue", application_properties={"color": "blue"})
    topic.send("red", application_properties={"color": "red"})
    assert bodies(topic.take("red", 1)) == ["red"]


def test_sb_906_a_topic_drops_duplicates(new_topic: NewTopic) -> None:
    """E-50, S-40, S-43, S-48: by MessageId, before distribution; an action that makes ids equal drops nothing."""
    topic = new_topic(requires_duplicate_detection=True)
    topic.subscribe("plain")
    topic.subscribe("same", NamedRule("same", "1=1", "SET sys.MessageId = 'same'"))
    topic.send("first", "second", message_id="a")
    topic.send("third", message_id="b")
    assert bodies(topic.take("plain", 2)) == ["first", "third"]
    copies = topic.take("same", 2)
    assert [(str(copy), copy.message_id) for copy in copies] == [("first", "same"), ("third", "same")]


# -- time


def test_sb_907_a_scheduled_message_waits_in_the_topic(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """S-30, S-31, S-34, S-35, S-36, R-61, M-12: no subscription sees it before; its copies come in time, also for
    a subscription that was made meanwhile."""
    topic = new_topic()
    topic.subscribe("before")
    due = datetime.now(UTC) + timedelta(seconds=4)
    with client.get_topic_sender(topic.name) as sender:
        sender.schedule_messages(ServiceBusMessage("asked"), due)
        sender.send_messages(ServiceBusMessage("annotated", scheduled_enqueue_time_utc=due))
    assert topic.peek("before") == []
    assert admin.get_topic_runtime_properties(topic.name).scheduled_message_count == 2
    topic.subscribe("after")
    for name in ("before", "after"):
        copies = topic.take(name, 2)
        assert sorted(bodies(copies)) == ["annotated", "asked"]
        for copy in copies:
            assert due <= copy.enqueued_time_utc + timedelta(milliseconds=1)
            assert copy.enqueued_time_utc < due + timedelta(seconds=1)
            assert abs(copy.scheduled_enqueue_time_utc - due) < timedelta(milliseconds=2)
    assert admin.get_topic_runtime_properties(topic.name).scheduled_message_count == 0


def test_sb_908_a_scheduled_message_of_a_topic_is_cancelled(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """S-33, ERR-14: by the topic's number; one unknown number fails all of them."""
    topic = new_topic()
    topic.subscribe("s")
    due = datetime.now(UTC) + timedelta(hours=1)
    with client.get_topic_sender(topic.name) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage(text) for text in "abc"], due)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages([numbers[0], 9_999])
        sender.cancel_scheduled_messages(numbers[:2])
        assert admin.get_topic_runtime_properties(topic.name).scheduled_message_count == 1
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[0])
        sender.cancel_scheduled_messages(numbers[2])
    assert admin.get_topic_runtime_properties(topic.name).scheduled_message_count == 0


def test_sb_909_the_shortest_life_counts_and_each_subscription_decides_what_becomes_of_it(
    new_topic: NewTopic,
) -> None:
    """E-63, M-40, M-42, D-11, M-27a: message, topic, subscription; dropped or dead-lettered; the header stays."""
    short = timedelta(seconds=1)
    topic = new_topic(default_message_time_to_live=timedelta(hours=1))
    topic.subscribe("long")
    topic.subscribe("short", default_message_time_to_live=short, dead_lettering_on_message_expiration=True)
    topic.subscribe("dropped", default_message_time_to_live=short)
    topic.send("endless")
    topic.send("brief", time_to_live=short)
    with topic.dead_letters("short") as receiver:
        dead = taken(receiver, 2)
        assert {(str(message), message.dead_letter_reason) for message in dead} == {
            ("endless", "TTLExpiredException"),
            ("brief", "TTLExpiredException"),
        }
        assert {str(message): message.time_to_live for message in dead} == {"endless": None, "brief": short}
    with topic.receiver("long") as receiver:
        assert bodies(receiver.receive_messages(max_message_count=5)) == ["endless"]
    with topic.receiver("dropped", max_wait_time=QUIET_S) as receiver:
        assert receiver.receive_messages() == []
    assert topic.peek("dropped", sub_queue=ServiceBusSubQueue.DEAD_LETTER) == []


# -- receiving from a subscription


def test_sb_910_every_way_to_settle(new_topic: NewTopic) -> None:
    """R-10, R-11, R-13, R-14, R-50, R-51, R-60, D-1, D-6: complete, abandon, defer, dead-letter, peek; the copies
    of another subscription feel nothing of it."""
    topic = new_topic()
    topic.subscribe("s")
    topic.subscribe("other")
    topic.send("complete", "abandon", "defer", "dead")
    with topic.receiver("s") as receiver:
        messages = {str(message): message for message in receiver.receive_messages(max_message_count=4)}
        assert list(messages) == ["complete", "abandon", "defer", "dead"]
        receiver.complete_message(messages["complete"])
        receiver.abandon_message(messages["abandon"])
        receiver.defer_message(messages["defer"])
        receiver.dead_letter_message(messages["dead"], reason="why", error_description="because")
        (again,) = receiver.receive_messages()
        assert (str(again), again.delivery_count) == ("abandon", 1)
        receiver.complete_message(again)
        (peeked,) = receiver.peek_messages(max_message_count=5)
        assert (str(peeked), peeked.state.name) == ("defer", "DEFERRED")
        (deferred,) = receiver.receive_deferred_messages([peeked.sequence_number])
        assert str(deferred) == "defer"
        receiver.complete_message(deferred)
    (dead,) = topic.take_dead("s", 1)
    assert (str(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == (
        "dead",
        "why",
        "because",
    )
    assert dead.sequence_number == 4
    others = topic.take("other", 4)
    assert [message.delivery_count for message in others] == [0] * 4


def test_sb_911_receive_and_delete_and_prefetch(new_topic: NewTopic) -> None:
    """R-1, R-20, R-70: consumed when sent; nothing to settle."""
    topic = new_topic()
    topic.subscribe("s")
    topic.send(*(str(number) for number in range(20)))
    with topic.receiver("s", receive_mode=RECEIVE_AND_DELETE, prefetch_count=5) as receiver:
        seen: list[str] = []
        while len(seen) < 20:
            batch = receiver.receive_messages(max_message_count=7)
            assert batch
            seen += bodies(batch)
            with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
                receiver.complete_message(batch[0])
    assert seen == [str(number) for number in range(20)]
    assert topic.peek("s") == []


def test_sb_912_locks_are_renewed_lost_and_counted(new_topic: NewTopic) -> None:
    """R-4, R-5, R-17, R-30, R-41, D-10, E-60, ERR-11: with the subscription's own lock duration and maximum."""
    topic = new_topic()
    topic.subscribe("s", lock_duration=timedelta(seconds=5), max_delivery_count=2)
    topic.send("m")
    with topic.receiver("s", max_wait_time=10) as receiver:
        (message,) = receiver.receive_messages()
        until = message.locked_until_utc
        renewed = receiver.renew_message_lock(message)
        assert renewed >= until
        assert renewed - datetime.now(UTC) <= timedelta(seconds=5)
        (again,) = receiver.receive_messages()
        assert again.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        receiver.abandon_message(again)
    (dead,) = topic.take_dead("s", 1)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


# -- sessions


def test_sb_913_sessions_of_a_subscription(new_topic: NewTopic, server: RunningServer) -> None:
    """X-3, X-4, X-5, X-7, X-8, X-12, X-15, R-54: named and next, in order, one receiver each, with state and
    deferral, while another subscription of the topic has no sessions."""
    topic = new_topic()
    topic.subscribe("plain")
    topic.subscribe("sessions", requires_session=True)
    topic.subscribe("others", requires_session=True)
    for number in range(3):
        topic.send(f"a{number}", session_id="a")
        topic.send(f"b{number}", session_id="b")
    with (
        topic.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as first,
        topic.receiver("sessions", session_id="b") as second,
        topic.receiver("others", session_id="a") as elsewhere,
    ):
        assert first.session.session_id == "a"
        with (
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as impatient,
            pytest.raises(SessionCannotBeLockedError),
            impatient.get_subscription_receiver(topic.name, "sessions", session_id="a") as third,
        ):
            third.receive_messages(max_wait_time=1)
        assert elsewhere.session.get_state() is None
        first.session.set_state(b"half way")
        assert elsewhere.session.get_state() is None
        later = first.receive_messages(max_message_count=1)[0]
        first.defer_message(later)
        assert first.session.renew_lock() > datetime.now(UTC)
        (deferred,) = first.receive_deferred_messages([later.sequence_number])
        first.complete_message(deferred)
        assert bodies(taken(first, 2)) == ["a1", "a2"]
        assert bodies(taken(second, 3)) == ["b0", "b1", "b2"]
        assert bodies(taken(elsewhere, 3)) == ["a0", "a1", "a2"]
    with topic.receiver("sessions", session_id="a") as again:
        assert again.session.get_state() == b"half way"
    assert bodies(topic.take("plain", 6)) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_sb_914_a_session_subscription_dead_letters_what_has_no_session(new_topic: NewTopic) -> None:
    """S-7, D-4, D-12, X-1, X-2: the send succeeds, others get their copy; plain and session receivers do not mix."""
    topic = new_topic()
    topic.subscribe("plain")
    topic.subscribe("sessions", requires_session=True)
    topic.send("homeless")
    assert bodies(topic.take("plain", 1)) == ["homeless"]
    (dead,) = topic.take_dead("sessions", 1)
    assert (dead.dead_letter_reason or "").lower() == "session id is null."
    assert "session identifier is null" in (dead.dead_letter_error_description or "")
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        topic.take("sessions", 1)
    with pytest.raises(ServiceBusError, match="sessionful"), topic.receiver("plain", session_id="a"):
        pass


# -- what is refused


def test_sb_915_a_topic_is_not_received_from_and_a_subscription_not_sent_to(
    impatient: ServiceBusClient, new_topic: NewTopic
) -> None:
    """E-9, E-10, D-7, ERR-6: the sentence tells what to do instead."""
    topic = new_topic()
    topic.subscribe("orders-for-eu")
    wanted = r"cannot be received from.*Subscriptions/orders-for-eu"
    with pytest.raises(ServiceBusError, match=wanted):
        impatient.get_queue_receiver(topic.name, max_wait_time=1).receive_messages()
    with pytest.raises(ServiceBusError):
        impatient.get_queue_receiver(topic.name).peek_messages()
    message = ServiceBusMessage("lost")
    for path in (topic.path_of("orders-for-eu"), topic.path_of("orders-for-eu") + "/$DeadLetterQueue"):
        with pytest.raises(ServiceBusError, match=r"(?i)send"), impatient.get_queue_sender(path) as sender:
            sender.send_messages(message)
    with (
        pytest.raises(ServiceBusError, match=r"(?i)send"),
        impatient.get_queue_sender(topic.path_of("orders-for-eu")) as sender,
    ):
        sender.schedule_messages(message, datetime.now(UTC) + timedelta(hours=1))
    assert topic.peek("orders-for-eu") == []


def test_sb_916_missing_topics_and_subscriptions_are_told(
    impatient: ServiceBusClient, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """ERR-1, S-10: at the token already, which the SDK calls an authentication error; names are known in any
    case (E-7, E-8)."""
    topic = new_topic()
    topic.subscribe("Known")
    caplog.set_level(logging.INFO, "azure.servicebus")
    for name, subscription in ((topic.name, "unknown"), ("no-such-topic", "Known")):
        caplog.clear()
        receiver = impatient.get_subscription_receiver(name, subscription, max_wait_time=1)
        with pytest.raises(ServiceBusAuthenticationError):
            receiver.receive_messages()
        assert "Put token error: b'amqp:not-found'" in caplog.text
    with impatient.get_topic_sender(topic.name.upper()) as sender:
        sender.send_messages(ServiceBusMessage("m"))
    assert bodies(topic.take("KNOWN", 1)) == ["m"]


def test_sb_917_status_of_topic_and_subscription(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """E-80, E-82, E-83, E-84, ERR-3: a disabled topic is still received from, a disabled subscription still gets its
    copies; links that stand are ended."""
    topic = new_topic()
    topic.subscribe("s")

    def status_of_topic(status: EntityStatus) -> None:
        admin.update_topic(admin.get_topic(topic.name), status=status)

    def status_of_subscription(status: EntityStatus) -> None:
        admin.update_subscription(topic.name, admin.get_subscription(topic.name, "s"), status=status)

    with (
        client.get_topic_sender(topic.name) as sender,
        client.get_subscription_receiver(topic.name, "s", max_wait_time=5) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("1"))
        for status in (EntityStatus.SEND_DISABLED, EntityStatus.DISABLED):
            status_of_topic(status)
            with pytest.raises(MessagingEntityDisabledError):
                sender.send_messages(ServiceBusMessage("refused"))
        assert bodies(taken(receiver, 1)) == ["1"]
        status_of_topic(EntityStatus.ACTIVE)
        for number, status in enumerate((EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED)):
            status_of_subscription(status)
            with pytest.raises(MessagingEntityDisabledError):
                receiver.receive_messages()
            sender.send_messages(ServiceBusMessage(f"kept{number}"))
        status_of_subscription(EntityStatus.ACTIVE)
    assert bodies(topic.take("s", 2)) == ["kept0", "kept1"]


def test_sb_918_what_is_deleted_is_gone_with_everything_below(
    impatient: ServiceBusClient, admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """E-65, E-86: links end; a subscription of the same name starts empty, with no old rule."""
    topic = new_topic()
    topic.subscribe("s", NOTHING)
    topic.subscribe("kept")
    topic.send("old")
    with impatient.get_subscription_receiver(topic.name, "s", max_wait_time=5) as receiver:
        assert receiver.peek_messages() == []
        admin.delete_subscription(topic.name, "s")
        with pytest.raises(ServiceBusError, match="could not be found"):
            receiver.receive_messages()
    topic.subscribe("s")
    topic.send("new")
    assert bodies(topic.take("s", 1)) == ["new"]
    admin.delete_topic(topic.name)
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription(topic.name, "kept")
    admin.create_topic(topic.name)
    assert list(admin.list_subscriptions(topic.name)) == []


# -- restarts


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_sb_919_everything_is_there_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    """S-1, T-9, E-64, R-14, S-30: copies, dead letters, rules and scheduled messages, also after kill -9."""
    with RunningServer(tmp_path) as server:
        clients = (
            ServiceBusClient.from_connection_string(server.connection_string),
            ServiceBusAdministrationClient.from_connection_string(
                server.connection_string, connection_verify=server.ca_file
            ),
        )
        topic = Topic("restarted", *clients)
        topic.subscribe("red", NamedRule("red", "color = 'red'", "SET seen = TRUE"), max_delivery_count=1)
        topic.subscribe("all")
        with clients[0].get_topic_sender("restarted") as sender:
            due = datetime.now(UTC) + timedelta(hours=1)
            sender.schedule_messages(ServiceBusMessage("later"), due)
        topic.send("dead", "red", application_properties={"color": "red"})
        with topic.receiver("red") as receiver:
            receiver.dead_letter_message(receiver.receive_messages(max_message_count=1)[0], reason="why")
        if is_killed:
            server.kill()
        else:
            assert server.stop() == 0
        server.start()
        topic.send("fresh", application_properties={"color": "red"})
        reds = topic.take("red", 2)
        assert [(str(copy), copy.sequence_number) for copy in reds] == [("red", 2), ("fresh", 3)]
        assert [copy.application_properties[b"RuleName"] for copy in reds] == [b"red", b"red"]
        assert [str(copy) for copy in topic.take_dead("red", 1)] == ["dead"]
        assert bodies(topic.take("all", 3)) == ["dead", "red", "fresh"]
        assert clients[1].get_topic_runtime_properties("restarted").scheduled_message_count == 1
        for client in clients:
            client.close()
