"""Streams of `format("servicebus")`: every message once, whatever falls over and whoever else receives.

Against Busway they claim by its own operations; `BUSWAY_TEST_CLAIMS=stock` plays everything by stock ones. Tests that
show the protocol are played in both ways always.
"""

import json
import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.harness.running_server import RunningServer
from tests.spark.servicebus_rig import ServiceBusRig, Sink, numbers

both_ways = pytest.mark.parametrize("rig", ["bulk", "stock"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, spark: SparkSession, server: RunningServer) -> ServiceBusRig:
    operations = getattr(request, "param", os.environ.get("BUSWAY_TEST_CLAIMS", "auto"))
    return ServiceBusRig(spark, server.connection_string, operations)


def test_each_message_is_in_one_batch_and_then_gone(rig: ServiceBusRig, tmp_path: Path) -> None:
    """R-50, R-51: held by deferral, read by number, deleted when Spark has committed."""
    queue = rig.queue()
    rig.send_numbered(queue, 1000)
    sink = Sink()
    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=300, messagesPerPartition=100)
    rig.run_now(rows, str(tmp_path), sink)
    assert sink.bodies == numbers(1000)
    assert [len(batch) for batch in sink.batches.values()] == [300, 300, 300, 100]
    assert rig.peek(queue) == []


def test_a_row_does_not_show_the_claim(rig: ServiceBusRig, tmp_path: Path) -> None:
    queue = rig.queue()
    rig.send(queue, [ServiceBusMessage(b"x", {"a": 1})])
    seen: list[tuple[object, ...]] = []

    def keep(rows: DataFrame, _: int) -> None:
        seen.extend(tuple(row) for row in rows.selectExpr("state", "map_keys(properties)").collect())

    rig.run_now(rig.read_stream(queue=queue), str(tmp_path), keep)
    assert seen == [("active", ["a"])]


@both_ways
def test_a_sink_that_falls_over_after_its_commit_gets_the_same_batch_again(
    rig: ServiceBusRig, tmp_path: Path
) -> None:
    """Exactly once: a crash between the sink's commit and Spark's repeats the batch, the same rows."""
    queue = rig.queue()
    rig.send_numbered(queue, 900)
    sink = Sink()
    sink.fails_after = {0, 2}
    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=200)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="fell over"):
            rig.run_now(rows, str(tmp_path), sink)
    rig.run_now(rows, str(tmp_path), sink)
    assert sink.seen == [0, 0, 1, 2, 2, 3, 4]
    assert sink.bodies == numbers(900)
    assert rig.peek(queue) == []


def test_receivers_that_compete_get_other_messages(rig: ServiceBusRig, tmp_path: Path) -> None:
    """Between batches another receiver takes and deletes; nobody gets what the other has."""
    queue = rig.queue()
    rig.send_numbered(queue, 600)
    taken: list[str] = []

    def compete(_: int) -> None:
        taken.extend(message.body.decode() for message in rig.receive(queue, 37))

    sink = Sink()
    sink.before = compete
    sink.fails_after = {1}
    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=100)
    with pytest.raises(StreamingQueryException, match="fell over"):
        rig.run_now(rows, str(tmp_path), sink)
    rig.run_now(rows, str(tmp_path), sink)
    assert len(taken) > 100
    assert sorted(sink.bodies + taken) == numbers(600)
    assert rig.peek(queue) == []


def test_a_stream_goes_on_where_it_was(rig: ServiceBusRig, tmp_path: Path) -> None:
    queue = rig.queue()
    sink = Sink()
    for at in range(3):
        rig.send_numbered(queue, 10, at * 10)
        rig.run_now(rig.read_stream(queue=queue), str(tmp_path), sink)
    assert sink.bodies == numbers(30)
    assert rig.peek(queue) == []


@both_ways
def test_partitioned_queues_and_subscriptions_stream_too(rig: ServiceBusRig, tmp_path: Path) -> None:
    """R-55: numbers lead to their fragments."""
    queue = rig.queue({"EnablePartitioning": True})
    topic = queue.replace("queue", "topic")
    with rig.administration() as administration:
        administration.create_topic(topic)
        administration.create_subscription(topic, "all")
    for at in range(20):
        rig.send_numbered(queue, 10, at * 10)
    rig.send_numbered(topic, 50)
    sink = Sink()
    rig.run_now(rig.read_stream(queue=queue, maxMessagesPerTrigger=90), str(tmp_path / "a"), sink)
    assert sink.bodies == numbers(200)
    sink = Sink()
    rig.run_now(rig.read_stream(topic=topic, subscription="all"), str(tmp_path / "b"), sink)
    assert sink.bodies == numbers(50)
    assert rig.peek(queue) == rig.peek(f"{topic}/Subscriptions/all") == []


@both_ways
def test_a_session_is_claimed_whole_and_in_order(rig: ServiceBusRig, tmp_path: Path) -> None:
    """X-12, R-54: all that a session has is in one batch and one task, in order, after a crash too."""
    queue = rig.queue({"RequiresSession": True})
    for at in range(60):
        rig.send(queue, [ServiceBusMessage(str(at).encode(), session_id=f"s{at % 4}")])
    batches: list[list[tuple[str, str, int]]] = []

    def keep(rows: DataFrame, batch_id: int) -> None:
        found = rows.selectExpr("sessionId", "string(body) body", "spark_partition_id() task").collect()
        batches.append([(row.sessionId, row.body, row.task) for row in found])
        if batch_id == 0 and len(batches) == 1:
            raise RuntimeError("the sink fell over after it had kept the batch")

    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=20, messagesPerPartition=1)
    with pytest.raises(StreamingQueryException, match="fell over"):
        rig.run_now(rows, str(tmp_path), keep)
    rig.run_now(rows, str(tmp_path), keep)
    assert sorted(batches.pop(0)) == sorted(batches[0])
    everything = [each for batch in batches for each in batch]
    assert sorted(body for _, body, _ in everything) == numbers(60)
    for batch in batches:
        for session in {session for session, _, _ in batch}:
            own = [(int(body), task) for session_id, body, task in batch if session_id == session]
            assert len(own) == 15
            assert own == sorted(own)
            assert len({task for _, task in own}) == 1
    assert rig.peek(queue) == []


def test_peek_lock_streams_complete_what_is_committed(rig: ServiceBusRig, tmp_path: Path) -> None:
    """R-10: without claims, what Spark has committed is completed."""
    queue = rig.queue()
    rig.send_numbered(queue, 250)
    sink = Sink()
    rig.run_now(rig.read_stream(queue=queue, mode="peekLock", maxMessagesPerTrigger=100), str(tmp_path), sink)
    assert sink.bodies == numbers(250)
    assert rig.peek(queue) == []


@both_ways
def test_what_a_lost_checkpoint_left_behind_can_be_adopted(rig: ServiceBusRig, tmp_path: Path) -> None:
    """Claims are found by their stamp; deferred messages that bear none are somebody else's."""
    queue = rig.queue()
    rig.send_numbered(queue, 40)

    async def defer_one(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver(queue) as receiver:
            [message] = await receiver.receive_messages(1)
            await receiver.defer_message(message)

    rig.on_bus(defer_one)
    sink = Sink()
    sink.fails_after = {0}
    with pytest.raises(StreamingQueryException, match="fell over"):
        rig.run_now(rig.read_stream(queue=queue, maxMessagesPerTrigger=25), str(tmp_path / "lost"), sink)
    lost = set(sink.bodies)
    sink = Sink()
    rig.run_now(rig.read_stream(queue=queue, adoptClaims="true"), str(tmp_path / "new"), sink)
    assert set(sink.batches[0]) >= lost
    assert sink.bodies == sorted(set(numbers(40)) - {"0"})
    assert [(message.body, message.state) for message in rig.peek(queue)] == [(b"0", "deferred")]


def test_a_lost_permission_stops_the_stream_and_loses_nothing(rig: ServiceBusRig, tmp_path: Path) -> None:
    """A-9: the next trigger says so; with a key that may, the stream goes on, each message once."""
    queue = rig.queue()
    rig.send_numbered(queue, 300)
    name, listening = rig.key("Listen")

    def revoke(batch_id: int) -> None:
        if batch_id == 1:
            with rig.administration() as administration:
                administration.delete_key_rule(name)

    sink = Sink()
    sink.before = revoke
    wanted = {"queue": queue, "maxMessagesPerTrigger": 100}
    with pytest.raises(StreamingQueryException, match=r"does not allow|cannot be reached"):
        rig.run_now(rig.read_stream(connectionString=listening, **wanted), str(tmp_path), sink)
    sink.before = lambda _: None
    rig.run_now(rig.read_stream(**wanted), str(tmp_path), sink)
    assert sink.bodies == numbers(300)
    assert rig.peek(queue) == []


def test_a_claimed_message_that_somebody_fetches_by_number_stops_the_stream(
    rig: ServiceBusRig, tmp_path: Path
) -> None:
    queue = rig.queue()
    rig.send_numbered(queue, 10)

    def steal(_: int) -> None:
        async def fetch(client: ServiceBusClient) -> None:
            await client.get_management(queue).receive_deferred_messages([4], deletes=True)

        if any(message.sequence_number == 4 for message in rig.peek(queue)):
            rig.on_bus(fetch)

    sink = Sink()
    sink.before = steal
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        rig.run_now(rig.read_stream(queue=queue), str(tmp_path), sink)
    rig.run_now(rig.read_stream(queue=queue, failOnDataLoss="false"), str(tmp_path), sink)
    assert sink.bodies == sorted(set(numbers(10)) - {"3"})
    assert rig.peek(queue) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "there-is-none"}, "there is no such entity"),
        ({"queue": "any", "mode": "receiveAndDelete"}, "Option 'mode'"),
        ({"queue": "any", "mode": "browse"}, "Option 'mode'"),
    ],
)
def test_what_is_wrong_stops_the_query(
    rig: ServiceBusRig, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        rig.run_now(rig.read_stream(**options), str(tmp_path), Sink())


def test_a_checkpoint_of_another_entity_is_refused(rig: ServiceBusRig, tmp_path: Path) -> None:
    first, second = rig.queue(), rig.queue()
    rig.send_numbered(first, 1)
    rig.send_numbered(second, 1)
    rig.run_now(rig.read_stream(queue=first), str(tmp_path), Sink())
    with pytest.raises(StreamingQueryException, match=f"belongs to '{first}'"):
        rig.run_now(rig.read_stream(queue=second), str(tmp_path), Sink())
    assert [message.state for message in rig.peek(second)] == ["active"]


@pytest.mark.parametrize("rig", ["bulk"], indirect=True)  # stock operations do not tell
def test_the_progress_tells_how_many_messages_wait(rig: ServiceBusRig, tmp_path: Path) -> None:
    """What is behind the claim of each batch."""
    queue = rig.queue()
    rig.send_numbered(queue, 250)
    rows = rig.read_stream(queue=queue, maxMessagesPerTrigger=100)
    query = rig.run_now(rows, str(tmp_path), Sink())
    latest = [json.loads(each["sources"][0]["latestOffset"]) for each in query.recentProgress]
    assert [each["available"] for each in latest][:3] == [150, 50, 0]


def test_a_bus_that_is_killed_in_the_middle_of_a_batch_has_everything_afterwards(
    spark: SparkSession, tmp_path: Path
) -> None:
    """R-50: held messages are read and settled after kill -9 of the broker as before it."""
    with RunningServer(tmp_path / "bus") as bus:
        rig = ServiceBusRig(spark, bus.connection_string)
        queue = rig.queue()
        rig.send_numbered(queue, 300)

        def fall_over(batch_id: int) -> None:
            if batch_id == 1:
                bus.kill()
                bus.start()

        sink = Sink()
        sink.before = fall_over
        rig.run_now(rig.read_stream(queue=queue, maxMessagesPerTrigger=100), str(tmp_path / "log"), sink)
        assert sink.bodies == numbers(300)
        assert rig.peek(queue) == []
