"""SB-100x: everything that AMQP offers on partitioned entities, line by line, with the unmodified Python SDK; with
Proton what the SDK has no word for.

Each operation is tried where it could go wrong: on messages that lie in several fragments at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError, SessionLockLostError

from busway.broker.entity.fragment_choice import fragment_of_key
from tests.conformance.proton_peer import ProtonPeer, needs_proton
from tests.conformance.topic_traffic import NamedRule, Topic
from tests.conformance.traffic import bodies
from tests.harness.running_server import RunningServer

with suppress(ImportError):
    from proton import int32, timestamp

pytestmark = pytest.mark.sdk

NewQueue = Callable[..., str]
NewTopic = Callable[..., Topic]
#: One key for each of the sixteen fragments.
KEYS = {fragment_of_key(f"key-{n}", 16): f"key-{n}" for n in range(400)}
#: The first millisecond of the year 9999: any date (X-17).
ANY_DATE_MS = 253_370_764_800_000


class Entity:
    """A partitioned queue, or a partitioned topic with one subscription: the two ends of it."""

    def __init__(self, client: ServiceBusClient, entity: str | Topic) -> None:
        self._client = client
        self._entity = entity

    def sender(self) -> ServiceBusSender:
        if isinstance(self._entity, Topic):
            return self._client.get_topic_sender(self._entity.name)
        return self._client.get_queue_sender(self._entity)

    def receiver(self) -> ServiceBusReceiver:
        if isinstance(self._entity, Topic):
            return self._entity.receiver("s")
        return self._client.get_queue_receiver(self._entity, max_wait_time=5)


@pytest.fixture(params=["queue", "topic"])
def entity(
    request: pytest.FixtureRequest, client: ServiceBusClient, new_queue: NewQueue, new_topic: NewTopic
) -> Entity:
    if request.param == "queue":
        return Entity(client, new_queue(enable_partitioning=True))
    topic = new_topic(enable_partitioning=True)
    topic.subscribe("s")
    return Entity(client, topic)


@pytest.fixture
def session_queue(new_queue: NewQueue) -> str:
    return new_queue(enable_partitioning=True, requires_session=True)


def fragment(number: int | None) -> int:
    assert number is not None
    return number >> 48


def take(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """So many, locked."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = receiver.receive_messages(max_message_count=count - len(found))
        assert batch, f"only {len(found)} of {count} messages came"
        found += batch
    return found


def send_to_fragments(sender: ServiceBusSender, *indexes: int) -> None:
    """One message for each, that says where it belongs."""
    for index in indexes:
        sender.send_messages(ServiceBusMessage(str(index), partition_key=KEYS[index]))


def test_sb_1000_batch_send_and_batch_receive(entity: Entity) -> None:
    """P-70, P-4, S-20, S-25, S-26: an SDK batch lies in one fragment, in order; several come back in one receive."""
    with entity.sender() as sender, entity.receiver() as receiver:
        for name in ("a", "b", "c"):
            batch = sender.create_message_batch()
            for number in range(10):
                batch.add_message(ServiceBusMessage(f"{name}{number}"))
            sender.send_messages(batch)
        found = take(receiver, 30)
        where: dict[str, set[int]] = {}
        for message in found:
            where.setdefault(str(message)[0], set()).add(fragment(message.sequence_number))
        assert all(len(fragments) == 1 for fragments in where.values())
        assert len(set.union(*where.values())) == 3
        for name in where:
            of_batch = [str(message) for message in found if str(message)[0] == name]
            assert of_batch == [f"{name}{number}" for number in range(10)]
        for message in found:
            receiver.complete_message(message)
        assert receiver.peek_messages(1, sequence_number=1) == []


def test_sb_1001_deferred_messages_by_number(entity: Entity) -> None:
    """P-70, R-51, R-52, R-55: of several fragments in one request, all of them or none."""
    with entity.sender() as sender, entity.receiver() as receiver:
        send_to_fragments(sender, 0, 7, 15)
        for message in take(receiver, 3):
            receiver.defer_message(message)
        numbers = [message.sequence_number or 0 for message in receiver.peek_messages(10, sequence_number=1)]
        assert [fragment(number) for number in numbers] == [0, 7, 15]
        missing = numbers[0] + 1
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([*numbers, missing])
        deferred = receiver.receive_deferred_messages(numbers)
        assert bodies(deferred) == ["0", "7", "15"]
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers[:1])
        for message in deferred:
            receiver.complete_message(message)
        assert receiver.peek_messages(1, sequence_number=1) == []


def test_sb_1002_peek(entity: Entity) -> None:
    """P-70, P-50, P-51, P-53, R-60: fragment by fragment, from a number of any of them, without a lock."""
    with entity.sender() as sender, entity.receiver() as receiver:
        send_to_fragments(sender, 12, 3, 3, 12, 0)
        seen = receiver.peek_messages(max_message_count=10)
        assert bodies(seen) == ["0", "3", "3", "12", "12"]
        start = seen[2].sequence_number or 0
        assert bodies(receiver.peek_messages(2, sequence_number=start)) == ["3", "12"]
        assert {message.delivery_count for message in seen} == {0}
        for message in take(receiver, 5):
            receiver.complete_message(message)


def test_sb_1003_renew_lock(entity: Entity) -> None:
    """P-70, R-30: of messages in several fragments, each with its own token."""
    with entity.sender() as sender, entity.receiver() as receiver:
        send_to_fragments(sender, 2, 11)
        for message in take(receiver, 2):
            before = message.locked_until_utc
            assert before is not None
            while datetime.now(UTC) < before - timedelta(seconds=59.95):
                pass
            assert receiver.renew_message_lock(message) >= before
            receiver.complete_message(message)


def test_sb_1004_schedule_and_cancel(entity: Entity) -> None:
    """P-70, S-30, S-33, S-38: the numbers say the fragment; one missing number cancels nothing."""
    later = datetime.now(UTC) + timedelta(minutes=10)
    soon = datetime.now(UTC) + timedelta(seconds=2)
    with entity.sender() as sender, entity.receiver() as receiver:
        numbers = [
            sender.schedule_messages(ServiceBusMessage(str(index), partition_key=KEYS[index]), later)[0]
            for index in (1, 8)
        ]
        assert [fragment(number) for number in numbers] == [1, 8]
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages([*numbers, numbers[1] + 1])
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[:1])
        (due,) = sender.schedule_messages(ServiceBusMessage("comes", partition_key=KEYS[8]), soon)
        (message,) = take(receiver, 1)
        assert (str(message), fragment(message.sequence_number), fragment(due)) == ("comes", 8, 8)
        receiver.complete_message(message)


def test_sb_1005_a_schedule_request_is_a_batch(entity: Entity) -> None:
    """S-23, S-25, S-38: several messages in one request share a fragment; distinct keys are refused whole."""
    later = datetime.now(UTC) + timedelta(minutes=10)
    with entity.sender() as sender:
        numbers = sender.schedule_messages([ServiceBusMessage(str(n)) for n in range(5)], later)
        assert len({fragment(number) for number in numbers}) == 1
        keyed = [ServiceBusMessage(str(n), partition_key=KEYS[4]) for n in range(2)]
        more = sender.schedule_messages(keyed, later)
        assert {fragment(number) for number in more} == {4}
        distinct = [ServiceBusMessage(str(index), partition_key=KEYS[index]) for index in (4, 5)]
        with pytest.raises(ServiceBusError, match="distinct SessionId or PartitionKey"):
            sender.schedule_messages(distinct, later)
        sender.cancel_scheduled_messages(numbers + more)
        with pytest.raises(MessageNotFoundError):  # nothing of the refused request was scheduled
            sender.cancel_scheduled_messages([more[-1] + 1])


def test_sb_1006_session_locks_and_states(client: ServiceBusClient, session_queue: str) -> None:
    """P-70, X-9, X-15, X-19, X-22: renewed, set, read and cleared, in sessions of several fragments."""
    names = [KEYS[index] for index in (3, 9, 14)]
    for name in names:
        with client.get_queue_receiver(session_queue, session_id=name, max_wait_time=5) as receiver:
            before = receiver.session.locked_until_utc
            assert before is not None
            assert receiver.session.renew_lock() >= before
            assert receiver.session.get_state() is None
            receiver.session.set_state(f"of {name}".encode())
    for name in names:
        with client.get_queue_receiver(session_queue, session_id=name, max_wait_time=5) as receiver:
            assert receiver.session.get_state() == f"of {name}".encode()
            receiver.session.set_state(None)
            assert receiver.session.get_state() is None


def test_sb_1007_peek_in_a_session(client: ServiceBusClient, session_queue: str) -> None:
    """P-70, C-7, X-22: only its messages, in order, from the first on and from a number on."""
    with client.get_queue_sender(session_queue) as sender:
        for index in (6, 7, 6, 7, 6):
            sender.send_messages(ServiceBusMessage(str(index), session_id=KEYS[index]))
    with client.get_queue_receiver(session_queue, session_id=KEYS[6], max_wait_time=5) as receiver:
        peeked = receiver.peek_messages(max_message_count=10)
        assert bodies(peeked) == ["6", "6", "6"]
        assert {fragment(message.sequence_number) for message in peeked} == {6}
        start = peeked[1].sequence_number or 0
        assert len(receiver.peek_messages(10, sequence_number=start)) == 2


def test_sb_1008_deferral_and_schedule_in_a_session(client: ServiceBusClient, session_queue: str) -> None:
    """P-70, R-54, S-38, X-19: the session's fragment has all of it."""
    soon = datetime.now(UTC) + timedelta(seconds=1)
    with client.get_queue_sender(session_queue) as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("later", session_id=KEYS[10]), soon)
        sender.send_messages([ServiceBusMessage(str(n), session_id=KEYS[10]) for n in range(2)])
    with client.get_queue_receiver(session_queue, session_id=KEYS[10], max_wait_time=5) as receiver:
        first, second, last = take(receiver, 3)
        assert (bodies([first, second, last]), fragment(number)) == (["0", "1", "later"], 10)
        receiver.defer_message(first)
        receiver.complete_message(second)
        receiver.complete_message(last)
        (again,) = receiver.receive_deferred_messages([first.sequence_number or 0])
        receiver.complete_message(again)
        assert receiver.peek_messages(1, sequence_number=1) == []


def test_sb_1009_a_lost_session_is_told(client: ServiceBusClient, new_queue: NewQueue) -> None:
    """P-70, X-11, ERR-12: the lock of a session in any fragment ends like that of a plain one."""
    queue = new_queue(enable_partitioning=True, requires_session=True, lock_duration=timedelta(seconds=5))
    with client.get_queue_receiver(queue, session_id=KEYS[13], max_wait_time=5) as receiver:
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(max_wait_time=10)
        with pytest.raises(SessionLockLostError):
            receiver.session.renew_lock()


@needs_proton
def test_sb_1010_sessions_are_enumerated_over_all_fragments(
    server: RunningServer, client: ServiceBusClient, session_queue: str
) -> None:
    """P-70, X-17, X-22: each once, in pages, by messages or state; by the date of the state alone when asked."""
    names = sorted(KEYS[index] for index in range(16))
    for name in names[:15]:
        with client.get_queue_sender(session_queue) as sender:
            sender.send_messages(ServiceBusMessage("x", session_id=name))
    with client.get_queue_receiver(session_queue, session_id=names[15], max_wait_time=5) as receiver:
        receiver.session.set_state(b"only a state")

    def listed(peer: ProtonPeer, date_ms: int, skip: int, top: int) -> tuple[int, list[str]]:
        body = {"last-updated-time": timestamp(date_ms), "skip": int32(skip), "top": int32(top)}
        answer = peer.ask(session_queue, "get-message-sessions", body)
        return answer.status, [] if answer.status == 204 else list(answer.body["sessions-ids"].elements)

    with ProtonPeer(server) as peer:
        assert listed(peer, ANY_DATE_MS, 0, 100) == (200, names)
        pages = [listed(peer, ANY_DATE_MS, skip, 6)[1] for skip in (0, 6, 12)]
        assert list(chain(*pages)) == names
        assert listed(peer, ANY_DATE_MS, 16, 6) == (204, [])
        assert listed(peer, 1_000, 0, 100) == (200, [names[15]])


@needs_proton
def test_sb_1011_rules_over_amqp_count_in_every_fragment(server: RunningServer, new_topic: NewTopic) -> None:
    """P-70, P-62, T-12, T-13: added and removed by AMQP requests on a subscription of a partitioned topic."""
    topic = new_topic(enable_partitioning=True)
    topic.subscribe("s")
    node = topic.path_of("s")
    red = {"sql-filter": {"expression": "colour = 'red'"}}
    with ProtonPeer(server) as peer:
        assert peer.ask(node, "add-rule", {"rule-name": "red", "rule-description": red}).status == 200
        assert peer.ask(node, "remove-rule", {"rule-name": "$Default"}).status == 200
        for colour in ("red", "blue"):
            for index in range(16):
                topic.send(colour, partition_key=KEYS[index], application_properties={"colour": colour})
        found = topic.take("s", 16)
        assert {(str(m), fragment(m.sequence_number)) for m in found} == {("red", n) for n in range(16)}
        assert peer.ask(node, "remove-rule", {"rule-name": "red"}).status == 200
        topic.send("red", partition_key=KEYS[0], application_properties={"colour": "red"})
        assert topic.peek("s") == []


def test_sb_1012_rules_through_the_administration_client(new_topic: NewTopic) -> None:
    """P-62, T-13, X-21: an action that sets a session id leaves the copy in its fragment."""
    topic = new_topic(enable_partitioning=True)
    topic.subscribe("s", NamedRule("moved", "1=1", f"SET sys.SessionId = '{KEYS[2]}'"))
    topic.send("m", partition_key=KEYS[1])
    (copy,) = topic.take("s", 1)
    assert (copy.session_id, fragment(copy.sequence_number)) == (KEYS[2], 1)


def test_sb_1013_the_asyncio_client_does_the_same(server: RunningServer, new_queue: NewQueue) -> None:
    """P-70, P-4: batch send and receive, peek, renew, defer, schedule and cancel in one go."""
    queue = new_queue(enable_partitioning=True)
    later = datetime.now(UTC) + timedelta(minutes=10)

    async def scenario() -> dict[str, Any]:
        async with AsyncClient.from_connection_string(server.connection_string) as client:
            sender = client.get_queue_sender(queue)
            receiver = client.get_queue_receiver(queue, max_wait_time=5)
            async with sender, receiver:
                for index in (4, 9):
                    await sender.send_messages(
                        [ServiceBusMessage(f"{index}/{n}", partition_key=KEYS[index]) for n in range(3)]
                    )
                numbers = await sender.schedule_messages(ServiceBusMessage("never"), later)
                await sender.cancel_scheduled_messages(numbers)
                peeked = await receiver.peek_messages(max_message_count=10)
                found: list[ServiceBusReceivedMessage] = []
                while len(found) < 6:
                    found += await receiver.receive_messages(max_message_count=6 - len(found))
                for message in found:
                    await receiver.renew_message_lock(message)
                    await receiver.defer_message(message)
                every = [message.sequence_number or 0 for message in found]
                deferred = await receiver.receive_deferred_messages(every)
                for message in deferred:
                    await receiver.complete_message(message)
                left = await receiver.peek_messages(1, sequence_number=1)
                return {"peeked": bodies(peeked), "deferred": sorted(bodies(deferred)), "left": left}

    every = [f"{index}/{n}" for index in (4, 9) for n in range(3)]
    assert asyncio.run(scenario()) == {"peeked": every, "deferred": every, "left": []}
