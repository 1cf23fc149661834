"""SB-9xx: partitioned queues and topics, with the unmodified Python SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.client.administration import ServiceBusAdministrationClient as OwnAdministration
from tests.conformance.traffic import bodies, dead_letters, receive_all, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

KEYS = {fragment_of_key(f"key-{n}", 16): f"key-{n}" for n in range(400)}


@pytest.fixture(scope="module")
def spread_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of its own, with four stores: tests take some of them out of service."""
    with RunningServer(tmp_path_factory.mktemp("partitioned"), "--stores", "4") as running:
        yield running


@pytest.fixture
def admin(spread_server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        spread_server.connection_string, connection_verify=spread_server.ca_file
    ) as client:
        yield client


@pytest.fixture
def client(spread_server: RunningServer) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        spread_server.connection_string, retry_total=1, retry_backoff_factor=0.02, retry_backoff_max=0.1
    ) as opened:
        yield opened


@pytest.fixture
def operator(spread_server: RunningServer) -> Iterator[OwnAdministration]:
    with OwnAdministration.from_connection_string(spread_server.connection_string) as opened:
        yield opened
        for store in opened.stores():
            if store["state"] != "open":
                opened.set_store_enabled(str(store["name"]), True)


@pytest.fixture
def queue(new_queue: Callable[..., str]) -> str:
    return new_queue(enable_partitioning=True)


def fragment(number: int | None) -> int:
    assert number is not None
    return number >> 48


def test_sb_901_one_key_is_one_fragment(client: ServiceBusClient, queue: str) -> None:
    """P-24, P-21, M-36: a thousand messages with one key have one value in the upper 16 bits, and their order."""
    with client.get_queue_sender(queue) as sender:
        for start in range(0, 1000, 250):
            sender.send_messages(
                [ServiceBusMessage(str(n), partition_key="one") for n in range(start, start + 250)]
            )
    found = receive_all(client, queue, 1000)
    assert {fragment(message.sequence_number) for message in found} == {fragment_of_key("one", 16)}
    assert bodies(found) == [str(n) for n in range(1000)]


def test_sb_902_keyless_sends_go_round(client: ServiceBusClient, queue: str) -> None:
    """P-30: single sends reach every fragment; the partition id is on every delivery (M-25). How even they are is
    tested where no disk is slow: a turn passes by a store whose commits are (P-31)."""
    send(client, queue, *[str(n) for n in range(48)])
    found = receive_all(client, queue, 48)
    assert {fragment(message.sequence_number) for message in found} == set(range(16))
    for message in found:
        annotations = message.raw_amqp_message.annotations or {}
        assert annotations[b"x-opt-partition-id"] == fragment(message.sequence_number)


def test_sb_903_the_size_is_sixteenfold_and_comes_back(
    admin: ServiceBusAdministrationClient, queue: str
) -> None:
    """P-7, P-8, E-31, E-21: reported 16384, accepted by an update; the flag itself never changes."""
    properties = admin.get_queue(queue)
    assert (properties.enable_partitioning, properties.max_size_in_megabytes) == (True, 16384)
    properties.max_delivery_count = 7
    admin.update_queue(properties)
    again = admin.get_queue(queue)
    assert (again.max_delivery_count, again.max_size_in_megabytes) == (7, 16384)
    again.enable_partitioning = False
    with pytest.raises(HttpResponseError) as refused:
        admin.update_queue(again)
    assert refused.value.status_code == 400


def test_sb_904_sessions_over_fragments(client: ServiceBusClient, new_queue: Callable[..., str]) -> None:
    """X-19, X-20, X-22, P-3, P-54, C-7, C-11: order, state and peek per session; the next may lie anywhere."""
    queue = new_queue(enable_partitioning=True, requires_session=True)
    names = [KEYS[index] for index in (0, 5, 11)]
    for name in names:
        send(client, queue, *[f"{name}/{n}" for n in range(3)], session_id=name)
    seen: set[str] = set()
    for _ in names:
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            name = receiver.session.session_id
            assert name is not None
            seen.add(name)
            receiver.session.set_state(f"state of {name}")
            receiver.session.renew_lock()
            peeked = receiver.peek_messages(max_message_count=10)
            assert bodies(peeked) == [f"{name}/{n}" for n in range(3)]
            found: list[ServiceBusReceivedMessage] = []
            while len(found) < 3:
                found += receiver.receive_messages(max_message_count=3)
            assert bodies(found) == [f"{name}/{n}" for n in range(3)]
            for message in found:
                receiver.complete_message(message)
    assert seen == set(names)
    with client.get_queue_receiver(queue, session_id=names[1], max_wait_time=1) as receiver:
        assert receiver.session.get_state() == f"state of {names[1]}".encode()


def test_sb_905_deferral_and_dead_lettering(client: ServiceBusClient, queue: str) -> None:
    """R-55, P-4, P-55, P-70: deferred messages of several fragments by their numbers; dead letters keep theirs."""
    send(client, queue, *[str(n) for n in range(6)])
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < 6:
            found += receiver.receive_messages(max_message_count=6 - len(found))
        for message in found[:3]:
            receiver.defer_message(message)
        for message in found[3:]:
            receiver.renew_message_lock(message)
            receiver.dead_letter_message(message, reason="why")
        numbers = [message.sequence_number or 0 for message in found[:3]]
        assert len({fragment(number) for number in numbers}) == 3
        deferred = receiver.receive_deferred_messages(numbers)
        assert sorted(bodies(deferred)) == sorted(bodies(found[:3]))
        for message in deferred:
            receiver.complete_message(message)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers)
    with dead_letters(client, queue) as receiver:
        dead: list[ServiceBusReceivedMessage] = []
        while len(dead) < 3:
            dead += receiver.receive_messages(max_message_count=3)
        assert {m.sequence_number for m in dead} == {m.sequence_number for m in found[3:]}
        for message in dead:
            receiver.complete_message(message)


def test_sb_906_schedule_and_cancel(client: ServiceBusClient, queue: str) -> None:
    """S-38, P-70: the number names the fragment, cancelling finds it, what is left comes at its time."""
    soon = datetime.now(UTC) + timedelta(seconds=2)
    with client.get_queue_sender(queue) as sender:
        (keyed,) = sender.schedule_messages(ServiceBusMessage("keyed", partition_key=KEYS[9]), soon)
        others = [sender.schedule_messages(ServiceBusMessage("other"), soon)[0] for _ in range(3)]
        assert fragment(keyed) == 9
        assert len({fragment(number) for number in others}) == 3
        sender.cancel_scheduled_messages(others)
    (left,) = receive_all(client, queue, 1)
    assert (str(left), fragment(left.sequence_number)) == ("keyed", 9)


def test_sb_907_a_peek_walk_is_complete(client: ServiceBusClient, queue: str) -> None:
    """P-50, P-52, P-53, R-67: with last + 1 every message once, then nothing."""
    send(client, queue, *[str(n) for n in range(40)])
    seen: list[int] = []
    with client.get_queue_receiver(queue) as receiver:
        while page := receiver.peek_messages(
            max_message_count=7, sequence_number=seen[-1] + 1 if seen else 0
        ):
            seen += [message.sequence_number or 0 for message in page]
    assert len(seen) == 40
    assert seen == sorted(set(seen))


def test_sb_908_batches_have_one_key(client: ServiceBusClient, queue: str) -> None:
    """S-23, S-25, S-26, C-10: a batch is one fragment; distinct keys are refused whole."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(n)) for n in range(20)])
        with pytest.raises(ServiceBusError, match="distinct"):
            sender.send_messages(
                [ServiceBusMessage("a", partition_key="a"), ServiceBusMessage("b", partition_key="b")]
            )
    found = receive_all(client, queue, 20)
    assert len({fragment(message.sequence_number) for message in found}) == 1
    with client.get_queue_receiver(queue, max_wait_time=1) as receiver:
        assert receiver.receive_messages() == []


def test_sb_909_duplicates_are_found_in_their_fragment(
    client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """P-22, S-41, S-42, S-24: the id is the key; the same id under another key is another message."""
    queue = new_queue(enable_partitioning=True, requires_duplicate_detection=True)
    for _ in range(3):
        send(client, queue, "same", message_id="one")
    send(client, queue, "other key", message_id="one", partition_key="k")
    assert sorted(bodies(receive_all(client, queue, 2))) == ["other key", "same"]
    with (
        client.get_queue_sender(queue) as sender,
        pytest.raises(ServiceBusError, match="distinct SessionId, PartitionKey, or MessageId"),
    ):
        sender.send_messages([ServiceBusMessage("a", message_id="1"), ServiceBusMessage("b", message_id="2")])


def test_sb_910_session_and_partition_key_must_agree(client: ServiceBusClient, queue: str) -> None:
    """P-21, C-10: refused as an invalid operation."""
    message = ServiceBusMessage("x", session_id="a")
    message.raw_amqp_message.annotations = {b"x-opt-partition-key": "b"}
    with client.get_queue_sender(queue) as sender, pytest.raises(ServiceBusError, match="PartitionKey"):
        sender.send_messages(message)


def test_sb_911_receive_and_delete(client: ServiceBusClient, queue: str) -> None:
    """P-46, R-1: everything comes once."""
    send(client, queue, *[str(n) for n in range(30)])
    found: list[str] = []
    with client.get_queue_receiver(
        queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, max_wait_time=2
    ) as receiver:
        while batch := receiver.receive_messages(max_message_count=7):
            found += bodies(batch)
    assert sorted(map(int, found)) == list(range(30))


def test_sb_912_a_store_out_of_service_is_passed_by_and_heals(
    client: ServiceBusClient,
    admin: ServiceBusAdministrationClient,
    operator: OwnAdministration,
    queue: str,
) -> None:
    """P-2, P-25, P-31, P-48, P-61, E-90, E-91, E-103, E-104: keyless goes on, keyed is told to come again."""
    send(client, queue, *[f"before {n}" for n in range(32)])
    lost = {int(str(f["index"])) for f in operator.fragments(queue) if f["store"] == "store-2"}
    assert len(lost) == 4
    key = next(KEYS[index] for index in sorted(lost))
    with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue, max_wait_time=2) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("open"))
        operator.set_store_enabled("store-2", False)
        for n in range(24):
            sender.send_messages(ServiceBusMessage(f"during {n}"))
        with pytest.raises(ServiceBusError) as told:
            sender.send_messages(ServiceBusMessage("keyed", partition_key=key))
        assert "not available" in str(told.value)
        numbers = admin.get_queue_runtime_properties(queue)
        assert admin.get_queue(queue).availability_status == "Limited"
        assert numbers.active_message_count == 24 + 24 + 1
        found = []
        while batch := receiver.receive_messages(max_message_count=100):
            for message in batch:
                receiver.complete_message(message)
            found += batch
        assert len(found) == 24 + 24 + 1
        assert {fragment(m.sequence_number) for m in found}.isdisjoint(lost)
        operator.set_store_enabled("store-2", True)
        sender.send_messages(ServiceBusMessage("keyed", partition_key=key))
        again = []
        while batch := receiver.receive_messages(max_message_count=100):
            for message in batch:
                receiver.complete_message(message)
            again += batch
        assert len(again) == 8 + 1
        assert {fragment(m.sequence_number) for m in again} == lost
    assert admin.get_queue(queue).availability_status == "Available"
    assert admin.get_queue_runtime_properties(queue).total_message_count == 0


def test_sb_913_management_while_a_store_is_away(
    admin: ServiceBusAdministrationClient, operator: OwnAdministration, queue: str
) -> None:
    """P-60: a creation fails cleanly and leaves nothing; updates and deletions go on."""
    operator.set_store_enabled("store-3", False)
    name = f"late-{uuid4().hex[:8]}"
    with pytest.raises(HttpResponseError) as refused:
        admin.create_queue(name, enable_partitioning=True, retry_total=0)
    assert refused.value.status_code == 503
    assert name not in {each.name for each in admin.list_queues()}
    properties = admin.get_queue(queue)
    properties.max_delivery_count = 3
    admin.update_queue(properties)
    admin.delete_queue(queue)
    operator.set_store_enabled("store-3", True)
    admin.create_queue(queue, enable_partitioning=True)
    assert admin.get_queue_runtime_properties(queue).total_message_count == 0
    admin.create_queue(name, enable_partitioning=True)


def test_sb_914_partitioned_topics(
    client: ServiceBusClient, admin: ServiceBusAdministrationClient, operator: OwnAdministration
) -> None:
    """P-62, T-13, P-3: rules count in every fragment; copies stay in theirs; one fragment less is no outage."""
    topic = f"news-{uuid4().hex[:8]}"
    admin.create_topic(topic, enable_partitioning=True)
    assert admin.get_topic(topic).max_size_in_megabytes == 16384
    admin.create_subscription(topic, "all")
    admin.create_subscription(topic, "red")
    admin.create_rule(topic, "red", "red", filter=SqlRuleFilter("colour = 'red'"))
    admin.delete_rule(topic, "red", "$Default")
    with client.get_topic_sender(topic) as sender:
        for n in range(32):
            colour = "red" if n % 2 else "blue"
            sender.send_messages(ServiceBusMessage(str(n), application_properties={"colour": colour}))

    def drained(name: str) -> list[int]:
        found = []
        with client.get_subscription_receiver(topic, name, max_wait_time=2) as receiver:
            while batch := receiver.receive_messages(max_message_count=100):
                for message in batch:
                    receiver.complete_message(message)
                found += batch
        return [fragment(message.sequence_number) for message in found]

    everywhere = drained("all")
    assert (len(everywhere), set(everywhere)) == (32, set(range(16)))
    assert len(drained("red")) == 16
    operator.set_store_enabled("store-1", False)
    with client.get_topic_sender(topic) as sender:
        for n in range(12):
            sender.send_messages(ServiceBusMessage(str(n)))
    assert len(drained("all")) == 12


def test_sb_915_everything_outlives_a_restart(
    spread_server: RunningServer, queue: str, client: ServiceBusClient
) -> None:
    """P-24, M-36: numbers, keys and fragments are the same after it."""
    send(client, queue, "before", partition_key="restart")
    client.close()
    spread_server.stop()
    spread_server.start()
    with ServiceBusClient.from_connection_string(spread_server.connection_string) as fresh:
        send(fresh, queue, "after", partition_key="restart")
        found = receive_all(fresh, queue, 2)
    assert bodies(found) == ["before", "after"]
    first, second = (message.sequence_number or 0 for message in found)
    assert second == first + 1
