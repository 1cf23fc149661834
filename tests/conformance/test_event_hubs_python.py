"""EH-1xx: event hubs with the unmodified Python SDK, azure-eventhub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.eventhub.exceptions import (
    AuthenticationError,
    ConnectionLostError,
    EventDataSendError,
    EventHubError,
)
from azure.servicebus import ServiceBusClient

from busway.streams.key_hash import partition_of_key
from tests.conformance.event_traffic import QUICK, Hub, Reading, texts, until
from tests.conformance.traffic import receive_all, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

NewHub = Callable[..., Hub]
KEY = "k" * 43 + "="


def test_eh_101_a_batch_goes_out_and_comes_back(new_hub: NewHub) -> None:
    """H-4, H-16, H-17, H-20, H-21: numbers from 0, offsets, times, in order, all in one partition."""
    hub = new_hub(PartitionCount=2)
    before = datetime.now(UTC) - timedelta(seconds=1)
    hub.send(*(str(number) for number in range(5)))
    found = hub.read(5)
    assert len({partition for partition, _ in found}) == 1
    assert texts(found) == ["0", "1", "2", "3", "4"]
    events = [event for _, event in found]
    assert [event.sequence_number for event in events] == list(range(5))
    assert [event.offset for event in events] == [str(number) for number in range(5)]
    assert all(
        event.enqueued_time is not None and before < event.enqueued_time < datetime.now(UTC)
        for event in events
    )


def test_eh_102_every_part_of_an_event_survives(new_hub: NewHub) -> None:
    """H-16: properties, application properties, annotations and body as they were sent."""
    hub = new_hub(PartitionCount=1)
    sent = EventData(b"\x00\xff body")
    sent.properties = {"color": "red", "count": 7, "ratio": 0.5, "yes": True}
    sent.content_type = "application/octet-stream"
    sent.correlation_id = "correlation"
    sent.message_id = "id-1"
    with hub.producer() as producer:
        producer.send_event(sent)
        producer.send_event(AmqpAnnotatedMessage(value_body={"a": [1, 2]}))
    (_, first), (_, second) = hub.read(2)
    assert b"".join(cast("Iterable[bytes]", first.body)) == b"\x00\xff body"
    received = cast("dict[bytes, object]", first.properties)
    assert {name.decode(): value for name, value in received.items()} == {
        "color": b"red",
        "count": 7,
        "ratio": 0.5,
        "yes": True,
    }
    assert (first.content_type, first.correlation_id, first.message_id) == (
        "application/octet-stream",
        "correlation",
        "id-1",
    )
    assert second.body == {b"a": [1, 2]}


def test_eh_103_a_partition_key_chooses_the_partition(new_hub: NewHub) -> None:
    """H-10, H-16: in batches and singly; readers see the key."""
    hub = new_hub(PartitionCount=4)
    keys = ["alphabet", "FWfAT", "key-1", "ключ"]
    with hub.producer() as producer:
        for key in keys:
            batch = producer.create_batch(partition_key=key)
            batch.add(EventData(key))
            producer.send_batch(batch)
            producer.send_event(EventData(key), partition_key=key)
    for partition, event in hub.read(8):
        body = event.body_as_str()
        assert partition == str(partition_of_key(body, 4))
        assert event.partition_key is not None
        assert event.partition_key.decode() == body


def test_eh_104_a_partition_is_addressed_by_its_id(new_hub: NewHub) -> None:
    """H-12: an unknown one is refused."""
    hub = new_hub(PartitionCount=3)
    with hub.producer() as producer:
        producer.send_event(EventData("single"), partition_id="2")
        batch = producer.create_batch(partition_id="2")
        batch.add(EventData("batch"))
        producer.send_batch(batch)
        with pytest.raises(EventHubError, match="Invalid partition 3"):  # it asks for the ids before it sends
            producer.send_event(EventData("nowhere"), partition_id="3")
    found = hub.read(2)
    assert [partition for partition, _ in found] == ["2", "2"]
    assert texts(found) == ["single", "batch"]


def test_eh_105_events_without_a_key_are_spread(new_hub: NewHub) -> None:
    """H-11: in turn, though a partition whose store is slow just now is passed over."""
    hub = new_hub(PartitionCount=4)
    with hub.producer() as producer:
        for number in range(12):
            producer.send_event(EventData(str(number)))
    found = hub.read(12)
    assert sorted(map(int, texts(found))) == list(range(12))
    assert len({partition for partition, _ in found}) > 1


def test_eh_106_a_buffering_producer(new_hub: NewHub) -> None:
    """H-10, H-11: it chooses partitions by itself and sends in the background."""
    hub = new_hub(PartitionCount=2)
    failures: list[Any] = []
    sent: list[Any] = []
    producer = hub.producer(
        buffered_mode=True,
        on_success=lambda events, _: sent.extend(events),
        on_error=lambda *problem: failures.append(problem),
        max_wait_time=0.2,
    )
    with producer:
        for number in range(30):
            producer.send_event(EventData(str(number)))
        producer.flush()
    assert (len(sent), failures) == (30, [])
    assert sorted(int(text) for text in texts(hub.read(30))) == list(range(30))


def test_eh_107_a_batch_is_as_large_as_the_link_allows(new_hub: NewHub) -> None:
    """H-14: batches are cut by what the attach says; what is larger is refused alone."""
    hub = new_hub(PartitionCount=1)
    with hub.producer() as producer:
        batch = producer.create_batch()
        assert batch.max_size_in_bytes == 1_048_576
        batch.add(EventData(bytes(1_000_000)))
        with pytest.raises(ValueError, match="size limit"):
            batch.add(EventData(bytes(100_000)))
        producer.send_batch(batch)
        with pytest.raises(EventDataSendError, match="exceeds the limit"):
            producer.send_event(EventData(bytes(1_100_000)))
        producer.send_event(EventData("after"))
    found = hub.read(2)
    assert [len(text) for text in texts(found)] == [1_000_000, 5]


def test_eh_108_runtime_information(new_hub: NewHub) -> None:
    """H-16, H-27: of the hub and of its partitions, empty and not."""
    hub = new_hub(PartitionCount=2)
    hub.send("a", "b", partition_id="1")
    with hub.consumer() as client:
        properties = client.get_eventhub_properties()
        assert properties["eventhub_name"] == hub.name
        assert properties["partition_ids"] == client.get_partition_ids() == ["0", "1"]
        assert abs((datetime.now(UTC) - properties["created_at"]).total_seconds()) < 60
        assert client.get_partition_properties("0") == {
            "eventhub_name": hub.name,
            "id": "0",
            "beginning_sequence_number": -1,
            "last_enqueued_sequence_number": -1,
            "last_enqueued_offset": "-1",
            "is_empty": True,
            "last_enqueued_time_utc": datetime(1, 1, 1, tzinfo=UTC),
        }
        full = client.get_partition_properties("1")
        assert (full["beginning_sequence_number"], full["last_enqueued_sequence_number"]) == (0, 1)
        assert (full["last_enqueued_offset"], full["is_empty"]) == ("1", False)


def test_eh_109_what_is_not_there_is_told(server: RunningServer, new_hub: NewHub) -> None:
    """ERR-1, H-12, H-27: a missing hub, consumer group and partition."""
    hub = new_hub(PartitionCount=1)
    missing = EventHubProducerClient.from_connection_string(
        server.connection_string, eventhub_name="no-such-hub", **{**QUICK, "retry_total": 0}
    )
    with missing, pytest.raises(AuthenticationError, match="CBS Token authentication failed"):
        missing.send_event(
            EventData("x")
        )  # the token is refused with 404, and the client keeps that to itself
    with hub.consumer(retry_total=0) as client, pytest.raises(EventHubError, match="between 0 and 0"):
        client.get_partition_properties("7")
    with Reading(hub.consumer("nobody", retry_total=0), partition_id="0") as reading:
        assert "could not be found" in str(reading.wait_for_error())


@pytest.mark.parametrize(
    ("position", "inclusive", "expected"),
    [
        ("-1", False, ["0", "1", "2", "3"]),
        ("1", False, ["2", "3"]),
        ("1", True, ["1", "2", "3"]),
        (2, False, ["3"]),
        (0, True, ["0", "1", "2", "3"]),
    ],
)
def test_eh_110_a_reader_begins_where_it_wants(
    new_hub: NewHub, position: Any, inclusive: bool, expected: list[str]
) -> None:
    """H-20: offsets and sequence numbers, with and without the event itself."""
    hub = new_hub(PartitionCount=1)
    hub.send("0", "1", "2", "3")
    options = {"starting_position": position, "starting_position_inclusive": inclusive}
    assert texts(hub.read(len(expected), **options)) == expected


def test_eh_111_a_reader_begins_at_a_time_or_at_the_end(new_hub: NewHub) -> None:
    """H-20: a reader begins at a time or at the end."""
    hub = new_hub(PartitionCount=1)
    hub.send("old")
    time.sleep(0.02)
    between = datetime.now(UTC)
    time.sleep(0.02)
    hub.send("new")
    assert texts(hub.read(1, starting_position=between)) == ["new"]
    with Reading(hub.consumer(), starting_position="@latest", partition_id="0") as reading:
        until(lambda: _is_attached(reading))
        hub.send("latest")
        assert texts(reading.wait_for(1)) == ["latest"]


def _is_attached(reading: Reading) -> bool:
    """A consumer opens its link some time after it was started."""
    processors = reading.client._event_processors.values()
    return any(consumer.handler_ready for one in processors for consumer in one._consumers.values())


def test_eh_112_a_position_behind_the_end_is_refused(new_hub: NewHub) -> None:
    """H-22: a position behind the end is refused."""
    hub = new_hub(PartitionCount=1)
    with Reading(hub.consumer(retry_total=0), starting_position=5, partition_id="0") as reading:
        problem = str(reading.wait_for_error())
    assert (
        "The supplied sequence number '5' is invalid. The last sequence number in the system is '-1'"
        in problem
    )


def test_eh_113_reading_removes_nothing(new_hub: NewHub) -> None:
    """H-1, H-5: every consumer group, and everybody who reads again, gets all."""
    hub = new_hub(PartitionCount=1)
    hub.add_group("second")
    hub.send("a", "b")
    for group in ("$Default", "$default", "second", "SECOND"):
        assert texts(hub.read(2, group=group)) == ["a", "b"]


def test_eh_114_a_higher_owner_level_takes_over(new_hub: NewHub) -> None:
    """H-24, H-25: a higher owner level takes over."""
    hub = new_hub(PartitionCount=1)
    hub.send("a")
    with Reading(hub.consumer(), owner_level=1, partition_id="0") as first:
        first.wait_for(1)
        with Reading(hub.consumer(), owner_level=2, partition_id="0") as second:
            second.wait_for(1)
            problem = first.wait_for_error()
            assert isinstance(problem, ConnectionLostError)
            assert "New receiver" in str(problem)
            with Reading(hub.consumer(retry_total=0), owner_level=1, partition_id="0") as third:
                assert "higher epoch" in str(third.wait_for_error())
            with Reading(hub.consumer(retry_total=0), partition_id="0") as fourth:
                assert "non-epoch receiver is not allowed" in str(fourth.wait_for_error())


def test_eh_115_the_sixth_reader_is_refused(new_hub: NewHub) -> None:
    """H-23: the sixth reader is refused."""
    hub = new_hub(PartitionCount=1)
    hub.send("a")
    readings = [Reading(hub.consumer(), partition_id="0") for _ in range(5)]
    try:
        for reading in readings:
            reading.__enter__()
        for reading in readings:
            reading.wait_for(1)
        with Reading(hub.consumer(retry_total=0), partition_id="0") as sixth:
            assert "maximum number of allowed receivers per partition" in str(sixth.wait_for_error())
    finally:
        for reading in readings:
            reading.__exit__()


def test_eh_116_a_reader_can_follow_the_end_of_its_partition(new_hub: NewHub) -> None:
    """H-26: a reader can follow the end of its partition."""
    hub = new_hub(PartitionCount=1)
    hub.send("a", "b")
    with Reading(hub.consumer(), track_last_enqueued_event_properties=True) as reading:
        reading.wait_for(2)
        told = reading.contexts[-1].last_enqueued_event_properties
    assert (told["sequence_number"], told["offset"]) == (1, "1")
    assert told["enqueued_time"] <= told["retrieval_time"]


def test_eh_117_many_events_pass_in_order(new_hub: NewHub) -> None:
    """H-20, H-21: over many refills of the prefetched credit."""
    hub = new_hub(PartitionCount=1)
    count = 3_000
    with hub.producer() as producer:
        for start in range(0, count, 500):
            producer.send_batch([EventData(str(number)) for number in range(start, start + 500)])
    assert texts(hub.read(count)) == [str(number) for number in range(count)]


def test_eh_118_a_client_reads_all_partitions(new_hub: NewHub) -> None:
    """H-4, H-20: without a checkpoint store a client takes every partition."""
    hub = new_hub(PartitionCount=4)
    for partition in range(4):
        hub.send(f"p{partition}", partition_id=str(partition))
    found = hub.read(4)
    assert sorted((partition, event.body_as_str()) for partition, event in found) == [
        (str(index), f"p{index}") for index in range(4)
    ]


def test_eh_119_over_websockets(new_hub: NewHub, server: RunningServer) -> None:
    """A-11: the same over port and path of WebSockets, with TLS."""
    hub = new_hub(PartitionCount=1)
    facts = hub.facts
    options = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://127.0.0.1:{server.port}",
        "connection_verify": server.ca_file,
        **QUICK,
    }
    text = (
        f"Endpoint=sb://127.0.0.1:{server.port}/;SharedAccessKeyName={facts['SharedAccessKeyName']};"
        f"SharedAccessKey={facts['SharedAccessKey']}"
    )
    with EventHubProducerClient.from_connection_string(text, eventhub_name=hub.name, **options) as producer:
        producer.send_event(EventData("over the web"))
    client = EventHubConsumerClient.from_connection_string(
        text, "$Default", eventhub_name=hub.name, **options
    )
    with Reading(client) as reading:
        assert texts(reading.wait_for(1)) == ["over the web"]


def test_eh_120_rights_of_a_hubs_own_rules(new_hub: NewHub, server: RunningServer) -> None:
    """A-2, A-6, A-9: Send sends, Listen reads, either tells about the hub."""
    hub = new_hub(
        PartitionCount=1,
        AuthorizationRules=[
            {"Name": "writes", "Rights": ["Send"], "PrimaryKey": KEY, "SecondaryKey": KEY},
            {"Name": "reads", "Rights": ["Listen"], "PrimaryKey": KEY, "SecondaryKey": KEY},
        ],
    )

    def text(rule: str) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessKeyName={rule};SharedAccessKey={KEY};"
            f"EntityPath={hub.name};UseDevelopmentEmulator=true"
        )

    quick = {**QUICK, "retry_total": 0}
    with EventHubProducerClient.from_connection_string(text("writes"), **quick) as producer:
        producer.send_event(EventData("a"))
        assert producer.get_partition_ids() == ["0"]
    with (
        EventHubProducerClient.from_connection_string(text("reads"), **quick) as producer,
        pytest.raises(EventHubError, match="'Send' claim"),
    ):
        producer.send_event(EventData("b"))
    with Reading(
        EventHubConsumerClient.from_connection_string(text("reads"), "$Default", **quick)
    ) as reading:
        assert texts(reading.wait_for(1)) == ["a"]
    writes = EventHubConsumerClient.from_connection_string(text("writes"), "$Default", **quick)
    with Reading(writes, partition_id="0") as reading:
        assert "'Listen' claim" in str(reading.wait_for_error())


def test_eh_121_a_reader_survives_a_change_of_its_hub(new_hub: NewHub) -> None:
    """H-21: it is detached, attaches again by itself and misses nothing."""
    hub = new_hub(PartitionCount=1)
    hub.send("before")
    with Reading(hub.consumer(), partition_id="0") as reading:
        reading.wait_for(1)
        hub.update(UserMetadata="changed")
        hub.send("after")
        assert texts(reading.wait_for(2)) == ["before", "after"]


def test_eh_122_a_disabled_hub(new_hub: NewHub) -> None:
    """H-2, ERR-3: the status closes either door."""
    hub = new_hub(PartitionCount=1)
    hub.send("a")
    hub.update(Status="SendDisabled")
    with hub.producer(retry_total=0) as producer, pytest.raises(EventHubError, match="disabled"):
        producer.send_event(EventData("b"))
    assert texts(hub.read(1)) == ["a"]
    hub.update(Status="ReceiveDisabled")
    hub.send("c")
    with Reading(hub.consumer(retry_total=0), partition_id="0") as reading:
        assert "disabled" in str(reading.wait_for_error())
    hub.update(Status="Active")
    assert texts(hub.read(2)) == ["a", "c"]


def test_eh_123_hubs_and_queues_share_port_and_namespace(
    new_hub: NewHub, new_queue: Callable[..., str], client: ServiceBusClient
) -> None:
    """E-8, A-11: two SDKs, one connection string."""
    hub, queue = new_hub(PartitionCount=1), new_queue()
    hub.send("event")
    send(client, queue, "message")
    assert texts(hub.read(1)) == ["event"]
    assert [str(message) for message in receive_all(client, queue, 1)] == ["message"]


def test_eh_124_a_restart_loses_nothing(tmp_path: Any) -> None:
    """H-16, H-19: numbers go on where they were."""
    with RunningServer(tmp_path) as server:
        hub = Hub(server, "durable", PartitionCount=1)
        hub.send("a", "b")
        server.stop()
        server.start()
        hub.send("c")
        found = hub.read(3)
    assert texts(found) == ["a", "b", "c"]
    assert [event.sequence_number for _, event in found] == [0, 1, 2]
