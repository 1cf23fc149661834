"""Writing to `format("servicebus")`, in batches and in streams."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from busway_spark.servicebus.options import read_options
from busway_spark.servicebus.writer import RowsSent, send_rows
from busway_spark.writing.two_phase import RowsRefused
from tests.harness.running_server import RunningServer
from tests.spark.servicebus_rig import ServiceBusRig, numbers


@pytest.fixture
def rig(spark: SparkSession, server: RunningServer) -> ServiceBusRig:
    return ServiceBusRig(spark, server.connection_string)


def _rows(rig: ServiceBusRig, count: int, tasks: int = 2) -> DataFrame:
    return rig.spark.range(0, count, 1, tasks).selectExpr("cast(id as string) body")


def test_a_message_has_everything_that_its_row_has(rig: ServiceBusRig) -> None:
    queue = rig.queue()
    row = rig.spark.sql(
        """select 'hello' body, 'id-1' messageId, 's' sessionId, 's' partitionKey, 'sub' subject,
        'text/plain' contentType, 'c' correlationId, 'there' `to`, 'here' replyTo, 'rs' replyToSessionId,
        interval 90 seconds timeToLive,
        map('n', 7::variant, 'x', 'ü'::variant, 'd', 1.5D::variant, 'b', true::variant, 'z', x'01'::variant)
          properties"""
    )
    rig.write(row, queue=queue)
    [message] = rig.receive(queue)
    assert message.body == b"hello"
    assert (message.message_id, message.session_id, message.partition_key) == ("id-1", "s", "s")
    assert (message.subject, message.content_type, message.correlation_id) == ("sub", "text/plain", "c")
    assert (message.to, message.reply_to, message.reply_to_session_id) == ("there", "here", "rs")
    assert message.time_to_live_ms == 90_000
    assert message.application_properties == {"n": 7, "x": "ü", "d": 1.5, "b": True, "z": b"\x01"}


def test_properties_may_be_a_map_of_one_type_or_json(rig: ServiceBusRig) -> None:
    queue = rig.queue()
    rig.write(rig.spark.sql("select 'a' body, map('k', 5L, 'none', null) properties"), queue=queue)
    rig.write(rig.spark.sql("""select 'b' body, '{"k": "v", "f": 0.5}' properties"""), queue=queue)
    found = {message.body: message.application_properties for message in rig.receive(queue)}
    assert found == {b"a": {"k": 5, "none": None}, b"b": {"k": "v", "f": 0.5}}


def test_a_row_can_be_scheduled(rig: ServiceBusRig) -> None:
    """S-30: the time is the row's."""
    queue = rig.queue()
    rig.write(
        rig.spark.sql("select 'x' body, timestamp'2099-01-01 00:00:00Z' scheduledEnqueueTime"), queue=queue
    )
    [message] = rig.peek(queue)
    assert message.state == "scheduled"
    due = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.scheduled_enqueue_time_ms or 0)
    assert due == datetime(2099, 1, 1, tzinfo=UTC)


def test_many_rows_arrive_each_with_an_id_of_its_own(rig: ServiceBusRig) -> None:
    queue = rig.queue()
    rig.write(_rows(rig, 5000), queue=queue, writeId="job")
    rows = rig.read(queue=queue, columns="body,messageId").collect()
    assert sorted(bytes(row.body).decode() for row in rows) == numbers(5000)
    assert len({row.messageId for row in rows}) == 5000
    assert len({row.messageId.rpartition("/")[0] for row in rows}) == 2, "one stage for each task"


def test_a_write_that_is_repeated_under_its_id_adds_nothing(rig: ServiceBusRig) -> None:
    """Two-phase sinks: a name makes a repeated job harmless, also in another layout; for another queue it is
    another write."""
    queue, other = rig.queue(), rig.queue()
    for tasks in (2, 3):
        rig.write(_rows(rig, 300, tasks), queue=queue, writeId="nightly")
    assert len(rig.peek_all(queue)) == 300
    rig.write(_rows(rig, 300), queue=other, writeId="nightly")
    assert len(rig.peek_all(other)) == 300


def test_each_row_may_name_its_entity(rig: ServiceBusRig) -> None:
    first, second = rig.queue(), rig.queue()
    rows = rig.spark.range(10).selectExpr(
        "cast(id as string) body", f"if(id % 2 = 0, '{first}', '{second}') entity"
    )
    rig.write(rows)
    assert sorted(message.body for message in rig.receive(first)) == [b"0", b"2", b"4", b"6", b"8"]
    assert sorted(message.body for message in rig.receive(second)) == [b"1", b"3", b"5", b"7", b"9"]
    rig.write(rows, queue=first)  # an option is for all rows
    assert len(rig.receive(first)) == 10


def test_keys_that_cannot_share_a_batch_are_sent_apart(rig: ServiceBusRig) -> None:
    """Whatever the server takes together or not, every row arrives, and a repetition adds nothing."""
    queue = rig.queue({"EnablePartitioning": True, "RequiresDuplicateDetection": True})
    rows = rig.spark.range(0, 500, 1, 1).selectExpr(
        "cast(id as string) body", "concat('k', id % 7) partitionKey"
    )
    rig.write(rows, queue=queue, writeId="w")
    rig.write(rows, queue=queue, writeId="w")
    found = rig.read(queue=queue).collect()
    assert sorted(bytes(row.body).decode() for row in found) == numbers(500)
    assert all(len({row.fragment for row in found if row.partitionKey == f"k{at}"}) == 1 for at in range(7))


def test_a_row_that_cannot_be_sent_is_named_and_nothing_is_sent(rig: ServiceBusRig) -> None:
    """Two-phase sinks: a write is all or nothing."""
    queue = rig.queue()
    rows = rig.spark.range(0, 5, 1, 1).selectExpr(
        "cast(id as string) body", "if(id = 3, repeat('k', 300), concat('k', id)) messageId"
    )
    with pytest.raises(PySparkException, match="row 3 of its task"):
        rig.write(rows, queue=queue)
    assert rig.peek(queue) == []


def test_rows_that_cannot_be_staged_are_sent_at_least_once(rig: ServiceBusRig) -> None:
    """S-20, S-23: by AMQP alone, as other services get them. A row that is refused keeps no other from it; rows
    without ids get new ones each time, so that an entity that detects duplicates never takes one row for another."""
    queue = rig.queue({"RequiresDuplicateDetection": True})
    options = read_options(rig.options(queue=queue))
    ids = [f"k{at}" if at != 3 else "k" * 300 for at in range(5)]
    bodies = pa.array([b"%d" % at for at in range(5)])
    with pytest.raises(RowsRefused, match="row 3 of its task"):
        send_rows(iter([pa.RecordBatch.from_pydict({"body": bodies, "messageId": pa.array(ids)})]), options)
    assert len(rig.receive(queue)) == 4
    for _ in range(2):
        assert send_rows(iter([pa.RecordBatch.from_pydict({"body": bodies})]), options) == RowsSent(5)
    assert len(rig.receive(queue)) == 10


@pytest.mark.parametrize(
    ("select", "sentence"),
    [
        ("select 'x' body, 'red' colour", "'colour'"),
        ("select 'x' subject", "'body'"),
        ("select 'x' body, 0L timeToLive", "timeToLive"),
        ("select 'x' body, 'no json' properties", "properties"),
    ],
)
def test_rows_of_another_shape_are_refused(rig: ServiceBusRig, select: str, sentence: str) -> None:
    queue = rig.queue()
    with pytest.raises(PySparkException, match=sentence):
        rig.write(rig.spark.sql(select), queue=queue)
    assert rig.peek(queue) == []


def test_a_missing_entity_and_a_missing_right_are_said(rig: ServiceBusRig) -> None:
    with pytest.raises(PySparkException, match="there is no such entity"):
        rig.write(_rows(rig, 1), queue="there-is-none")
    with pytest.raises(PySparkException, match="does not allow"):
        rig.write(_rows(rig, 1), queue=rig.queue(), connectionString=rig.key("Listen")[1])
    with pytest.raises(PySparkException, match="append"):
        _rows(rig, 1).write.format("servicebus").mode("overwrite").options(
            **rig.options(queue=rig.queue())
        ).save()


def _stream(rig: ServiceBusRig, source: Path, checkpoint: Path, queue: str) -> None:
    rows = rig.spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).json(str(source))
    writer = rows.writeStream.format("servicebus").options(**rig.options(queue=queue))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_stream_whose_last_commit_was_lost_sends_nothing_twice(rig: ServiceBusRig, tmp_path: Path) -> None:
    """Two-phase sinks: the batch is known, whatever the queue remembers."""
    queue = rig.queue()
    for at in range(3):
        _rows(rig, 40).selectExpr(f"concat('{at}-', body) body").write.json(str(tmp_path / f"part{at}"))
    source = tmp_path / "part*"
    _stream(rig, source, tmp_path / "checkpoint", queue)
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for each in (commits / str(last), commits / f".{last}.crc"):
        each.unlink(missing_ok=True)  # as a crash after the sink's work leaves it
    _stream(rig, source, tmp_path / "checkpoint", queue)
    rows = rig.read(queue=queue, columns="body,messageId").collect()
    assert len(rows) == 120
    assert len({row.messageId for row in rows}) == 120
