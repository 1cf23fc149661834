"""Batch reading of `format("servicebus")`: browsing, and receiving that deletes."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.running_server import RunningServer
from tests.spark.servicebus_rig import ServiceBusRig, numbers


@pytest.fixture
def rig(spark: SparkSession, server: RunningServer) -> ServiceBusRig:
    return ServiceBusRig(spark, server.connection_string)


def _bodies(rows: list[Row]) -> list[str]:
    return sorted(bytes(row.body).decode() for row in rows)


def test_a_row_has_everything_that_the_message_has(rig: ServiceBusRig) -> None:
    """R-60: browsing shows a message with all that its sender and the bus gave it."""
    queue = rig.queue()
    message = ServiceBusMessage(
        b"hello",
        {"n": 7, "text": "ü", "ratio": 1.5, "yes": True, "raw": b"\x01", "none": None},
        message_id="id-1",
        session_id="s",
        partition_key="s",
        subject="sub",
        content_type="text/plain",
        correlation_id="c",
        to="there",
        reply_to="here",
        reply_to_session_id="rs",
        time_to_live_ms=60_000,
    )
    rig.send(queue, [message])
    read = rig.read(queue=queue)
    extracted = read.selectExpr(
        "*",
        "properties['n']::int n", "properties['ratio']::double ratio", "properties['yes']::boolean yes",
        "properties['raw']::binary raw", "properties['text']::string text",
        "is_variant_null(properties['none']) isNull",
    )  # fmt: skip
    [row] = extracted.collect()
    given = ("messageId", "sessionId", "partitionKey", "subject", "contentType", "correlationId", "to")
    assert [row[name] for name in given] == ["id-1", "s", "s", "sub", "text/plain", "c", "there"]
    assert (row.replyTo, row.replyToSessionId, bytes(row.body)) == ("here", "rs", b"hello")
    assert (row.sequenceNumber, row.fragment, row.state, row.deliveryCount) == (1, 0, "active", 0)
    assert (row.n, row.ratio, row.yes, bytes(row.raw), row.text) == (7, 1.5, True, b"\x01", "ü")
    assert row.isNull
    assert row.entity == queue
    assert (row.expiresAt - row.enqueuedTime).total_seconds() == 60
    assert abs(row.enqueuedTime.timestamp() - time.time()) < 3600
    assert row.deadLetterReason is None


def test_browsing_changes_nothing_and_sees_every_state(rig: ServiceBusRig) -> None:
    """R-60, R-61: active, deferred and scheduled messages; afterwards all are as they were."""
    queue = rig.queue()
    rig.send_numbered(queue, 3)

    async def defer_one_schedule_one(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver(queue) as receiver:
            [message] = await receiver.receive_messages(1)
            await receiver.defer_message(message)
        async with client.get_queue_sender(queue) as sender:
            await sender.schedule_messages(ServiceBusMessage(b"later"), int(time.time() * 1000) + 3_600_000)

    rig.on_bus(defer_one_schedule_one)
    for _ in range(2):
        rows = rig.read(queue=queue, columns="body,state,scheduledEnqueueTime").collect()
        states = {bytes(row.body).decode(): row.state for row in rows}
        assert states == {"0": "deferred", "1": "active", "2": "active", "later": "scheduled"}
        later = next(row for row in rows if row.state == "scheduled").scheduledEnqueueTime
        assert later > datetime.now(UTC).replace(tzinfo=None)
    assert [message.delivery_count for message in rig.receive(queue)] == [0, 0]


def test_a_walk_of_many_pages_sees_each_message_once(rig: ServiceBusRig) -> None:
    """R-63, R-65: pages go on after the last number."""
    queue = rig.queue()
    rig.send(queue, [ServiceBusMessage(str(at).encode() + b" " * 2000) for at in range(700)])
    rows = rig.read(queue=queue, columns="body").collect()
    assert sorted(bytes(row.body).decode().strip() for row in rows) == numbers(700)
    part = rig.read(
        queue=queue, columns="sequenceNumber", startingSequenceNumber=100, endingSequenceNumber=420
    )
    assert sorted(row.sequenceNumber for row in part.collect()) == list(range(100, 421))


def test_a_partitioned_queue_has_a_task_for_each_fragment(rig: ServiceBusRig) -> None:
    """P-53: sixteen walks, together every message once; the fragment is in the number."""
    queue = rig.queue({"EnablePartitioning": True})
    for at in range(40):
        rig.send_numbered(queue, 5, at * 5)
    read = rig.read(queue=queue)
    assert read.rdd.getNumPartitions() == 16
    rows = read.collect()
    assert _bodies(rows) == numbers(200)
    assert len({row.fragment for row in rows}) > 8
    assert all(row.sequenceNumber >> 48 == row.fragment for row in rows)


def test_a_key_that_only_listens_can_browse_a_partitioned_queue(rig: ServiceBusRig) -> None:
    """A-9: browsing needs Listen; without Manage it is one walk."""
    queue = rig.queue({"EnablePartitioning": True})
    for at in range(10):
        rig.send_numbered(queue, 2, at * 2)
    read = rig.read(connectionString=rig.key("Listen")[1], queue=queue)
    assert _bodies(read.collect()) == numbers(20)
    assert read.rdd.getNumPartitions() == 1


def test_subscriptions_and_dead_letters_can_be_browsed(rig: ServiceBusRig) -> None:
    """R-61, D-16: what was dead-lettered tells why."""
    topic = rig.queue().replace("queue", "topic")
    with rig.administration() as administration:
        administration.create_topic(topic)
        administration.create_subscription(topic, "all")
    rig.send_numbered(topic, 2)
    assert _bodies(rig.read(topic=topic, subscription="all").collect()) == ["0", "1"]

    async def dead_letter_one(client: ServiceBusClient) -> None:
        async with client.get_subscription_receiver(topic, "all") as receiver:
            [message] = await receiver.receive_messages(1)
            await receiver.dead_letter_message(message, "Broken", "cannot be read")

    rig.on_bus(dead_letter_one)
    [dead] = rig.read(topic=topic, subscription="all", subQueue="deadLetter").collect()
    assert (bytes(dead.body), dead.deadLetterReason) == (b"0", "Broken")
    assert dead.deadLetterErrorDescription == "cannot be read"
    assert dead.entity == f"{topic}/Subscriptions/all/$DeadLetterQueue"
    assert _bodies(rig.read(topic=topic, subscription="all").collect()) == ["1"]


def test_bodies_can_be_left_out_and_properties_be_json(rig: ServiceBusRig) -> None:
    queue = rig.queue()
    rig.send(queue, [ServiceBusMessage(b"x", {"a": 1, "b": "two"})])
    [row] = rig.read(queue=queue, includeBody="false", properties="json").collect()
    assert row.body is None
    assert row.properties == '{"a": 1, "b": "two"}'
    [short] = rig.spark.read.format("servicebus").schema("subject string, sequenceNumber long").options(
        **rig.options(queue=queue)
    ).load().collect()  # fmt: skip
    assert short == Row(subject=None, sequenceNumber=1)


def test_an_empty_queue_is_no_rows(rig: ServiceBusRig) -> None:
    assert rig.read(queue=rig.queue()).collect() == []


def test_reading_that_deletes_must_be_asked_for_twice(rig: ServiceBusRig) -> None:
    queue = rig.queue()
    rig.send_numbered(queue, 1200)
    with pytest.raises(PySparkException, match="allowDestructive"):
        rig.read(queue=queue, mode="receiveAndDelete").collect()
    assert rig.read(queue=queue).count() == 1200
    wanted = {"queue": queue, "mode": "receiveAndDelete", "allowDestructive": "true", "columns": "body"}
    first = rig.read(**wanted, maxMessages=700).collect()
    assert len(first) == 700
    assert _bodies(first + rig.read(**wanted).collect()) == numbers(1200)
    assert rig.peek(queue) == []


def test_sessions_are_drained_one_after_the_other(rig: ServiceBusRig) -> None:
    queue = rig.queue({"RequiresSession": True})
    rig.send(queue, [ServiceBusMessage(str(at).encode(), session_id=f"s{at % 3}") for at in range(30)])
    rows = rig.read(queue=queue, mode="receiveAndDelete", allowDestructive="true").collect()
    assert _bodies(rows) == numbers(30)
    assert [row.sessionId for row in rows] == sorted(row.sessionId for row in rows)
    assert rig.peek(queue) == []


Wrong = Callable[[ServiceBusRig], dict[str, str]]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda _: {"queue": "there-is-none"}, "there is no such entity"),
        (lambda rig: {"queue": rig.queue(), "mode": "claim"}, "Option 'mode'"),
        (lambda rig: {"queue": rig.queue(), "colour": "red"}, "Option 'colour'"),
        (lambda _: {}, "Option 'queue'"),
        (lambda rig: {"queue": rig.queue(), "connectionString": rig.key("Send")[1]}, "does not allow"),
    ],
    ids=["missing entity", "mode of streams", "unknown option", "no entity", "no right"],
)
def test_what_is_wrong_is_said_in_sparks_error(rig: ServiceBusRig, wrong: Wrong, sentence: str) -> None:
    with pytest.raises(PySparkException, match=sentence):
        rig.read(**wrong(rig)).collect()
