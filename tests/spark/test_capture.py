"""Capture through Spark: real hubs, topics and queues into files, each message once, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from deltalake import DeltaTable

from busway.amqp.types import Int, Timestamp
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway_spark.pipeline.capture.capture import CaptureOptions, capture
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import DELTA
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import last_numbers
from busway_spark.pipeline.job import JobFailed, JobPlace, JobProgress
from busway_spark.property_types import properties_of
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import NINE, captured, data_files, events, writer
from tests.spark.hub_traffic import bodies, fill, publish, rich
from tests.spark.servicebus_rig import ServiceBusRig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    """A connection of its own: a server ends one that rests for the length of a test here."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


def run(
    server: RunningServer,
    root: Path,
    *entities: str,
    told: list[Mapping[str, object]] | None = None,
    **more: Any,
) -> dict[str, int]:
    place = JobPlace(Bus(server.connection_string), "local[2]")
    progress = JobProgress(lambda _, figures: None if told is None else told.append(figures))
    return capture(place, CaptureOptions(entities, str(root), **more), progress).rows


def forget_commit(root: Path, entity: str) -> None:
    """As if Spark had died between the commit of the sink and its own."""
    commits = root / f"_checkpoints/entity={entity}/commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


def of_hub(root: Path) -> list[str]:
    return [row["body"].decode() for row in captured(root)]


def sent(count: int) -> list[str]:
    return [f"{partition}-{number}" for partition in range(2) for number in range(count)]


def test_a_hub_is_captured_once_through_crashes_and_restarts(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Capture: a crash between both commits, compaction of names, a lost checkpoint: every event once."""
    root = tmp_path / "lake"
    fill(server.connection_string, hub, 100)
    told: list[Mapping[str, object]] = []
    assert run(server, root, hub, batch_rows=60, told=told) == {hub: 200}
    assert of_hub(root) == sent(100)
    assert [(step["captured"], step["behind"]) for step in told] == [
        (60, 140),
        (120, 80),
        (180, 20),
        (200, 0),
    ]
    before = data_files(root)
    assert len(before) >= 8
    forget_commit(root, hub)
    fill(server.connection_string, hub, 30, first=100)
    run(server, root, hub)
    assert of_hub(root) == sent(130)
    assert set(data_files(root)) > set(before)
    shutil.rmtree(root / "_checkpoints")
    fill(server.connection_string, hub, 5, first=130)
    assert run(server, root, hub) == {hub: 10}
    assert of_hub(root) == sent(135)
    table = spark.read.parquet(str(root))
    assert table.count() == 270
    assert {"entity", "date", "hour", "partition"} <= set(table.columns)


def test_events_keep_what_they_brought(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Capture: keys, properties and the properties section, beside events that have none."""
    message = rich(7, subject="s", message_id="m-7", partition_key="k", content_type="text/plain")
    publish(server.connection_string, hub, 0, [*bodies(0, 2), message])
    run(server, tmp_path, hub)
    plain, _, one = captured(tmp_path)
    assert (plain["properties"], plain["messageId"], plain["offset"]) == ("{}", None, "0")
    assert json.loads(one["properties"]) == {"number": 7, "text": "ä", "flag": True}
    assert [one[name] for name in ("subject", "messageId", "partitionKey", "contentType", "sequenceNumber")] == [
        "s", "m-7", "k", "text/plain", 2,
    ]  # fmt: skip
    assert spark.version


def test_a_topic_is_captured_through_a_subscription_of_its_own(
    spark: SparkSession, server: RunningServer, admin: ServiceBusAdministrationClient, tmp_path: Path
) -> None:
    """Capture: the subscription is made, other subscriptions lose nothing, types of properties are kept, and a crash
    between both commits doubles nothing."""
    rig = ServiceBusRig(spark, server.connection_string)
    topic = f"topic-{uuid4().hex[:8]}"
    admin.create_topic(topic)
    admin.create_subscription(topic, "other")
    assert run(server, tmp_path, topic) == {topic: 0}
    made = admin.get_subscription(topic, "busway-capture").properties
    assert made["CapturesHistory"] is True
    assert "busway pipeline capture" in str(made["UserMetadata"]), (
        "servers of earlier versions know it by that"
    )
    properties = {
        "id": UUID(int=5),
        "at": Timestamp(1_700_000_000_000),
        "small": Int(7),
        "raw": b"\x00",
        "n": 5,
    }
    rig.send(
        topic, [ServiceBusMessage(b"%d" % at, {}, session_id=f"s{at % 3}", subject="x") for at in range(40)]
    )
    rig.send(topic, [ServiceBusMessage(b"typed", properties, message_id="m", time_to_live_ms=60_000)])
    assert run(server, tmp_path, topic, batch_rows=25) == {topic: 41}
    forget_commit(tmp_path, topic)
    run(server, tmp_path, topic)
    rows = captured(tmp_path)
    assert [row["body"] for row in rows] == [*(b"%d" % at for at in range(40)), b"typed"]
    assert {row["sessionId"] for row in rows} == {"s0", "s1", "s2", None}
    assert properties_of(rows[-1]["properties"], rows[-1]["propertyTypes"]) == properties
    assert rows[-1]["expiresAt"] - rows[-1]["enqueuedTime"] == timedelta(minutes=1)
    assert all(row["entity"] == topic and row["partition"] == 0 for row in rows)
    assert len(rig.receive(f"{topic}/Subscriptions/other")) == 41
    assert rig.peek(f"{topic}/Subscriptions/busway-capture") == []


def test_a_queue_is_only_taken_when_asked(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Capture: draining a queue silently would be theft; several entities are captured together."""
    rig = ServiceBusRig(spark, server.connection_string)
    queue = rig.queue()
    rig.send_numbered(queue, 12)
    fill(server.connection_string, hub, 3)
    with pytest.raises(JobFailed, match=r"is a queue.*--take"):
        run(server, tmp_path, queue)
    assert len(rig.peek(queue)) == 12
    assert run(server, tmp_path, queue, hub, takes=True) == {queue: 12, hub: 6}
    assert rig.peek(queue) == []
    assert len(captured(tmp_path)) == 18


def test_a_delta_table_gets_each_event_once(
    spark: SparkSession, server: RunningServer, hub: str, tmp_path: Path
) -> None:
    """Capture: query and batch are in the table's log, so a repeated batch adds nothing."""
    fill(server.connection_string, hub, 20)
    run(server, tmp_path, hub, layout=DELTA, batch_rows=25)
    forget_commit(tmp_path, hub)
    fill(server.connection_string, hub, 4, first=20)
    run(server, tmp_path, hub, layout=DELTA)
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted(row["body"].decode() for row in rows) == sorted(sent(24))
    assert {row["entity"] for row in rows} == {hub}
    shutil.rmtree(tmp_path / "_checkpoints")
    fill(server.connection_string, hub, 1, first=24)
    assert run(server, tmp_path, hub, layout=DELTA) == {hub: 2}
    assert spark.version


def test_a_delta_table_takes_any_name(tmp_path: Path) -> None:
    """Capture: a repeated batch leaves no file behind, and stranger names are columns as they are."""
    sink = writer(tmp_path, "a/b c%ä", DELTA)
    for number in (0, 1, 1):
        name = BatchName("query", number)
        rows = events(range(10 * number, 10 * number + 10), NINE + timedelta(minutes=59, seconds=55))
        sink.commit([sink.write_batch(name, iter([rows]))], number)
    table = DeltaTable(str(tmp_path))
    found = table.to_pyarrow_table(filters=[("sequenceNumber", ">=", 5)]).to_pylist()
    assert sorted(row["sequenceNumber"] for row in found) == list(range(5, 20))
    assert {(row["entity"], row["hour"]) for row in found} == {("a/b c%ä", "10")}
    assert len(list(tmp_path.rglob("*.parquet"))) == len(table.file_uris()) == 3
    assert last_numbers(CaptureRoot(str(tmp_path)), "a/b c%ä") == {0: 19}
    assert last_numbers(CaptureRoot(str(tmp_path)), "other") == {}
    aborted = sink.write_batch(BatchName("query", 7), iter([events([99])]))
    sink.abort([aborted, None], 7)
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def test_what_goes_wrong_is_one_sentence(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    hub: str,
    tmp_path: Path,
) -> None:
    """Capture: a missing entity, a hub made again, a place that is none; no key in any of it."""
    with pytest.raises(JobFailed, match="no hub, queue or topic 'nobody'"):
        run(server, tmp_path / "a", "nobody")
    fill(server.connection_string, hub, 2)
    for day in range(2):
        date = f"{datetime.now(UTC) + timedelta(days=day):%Y-%m-%d}"
        in_the_way = tmp_path / "c" / f"entity={hub}" / f"date={date}"
        in_the_way.parent.mkdir(parents=True, exist_ok=True)
        in_the_way.write_text("in the way")
    with pytest.raises(JobFailed, match=r"stopped: .*cannot be written to") as failure:
        run(server, tmp_path / "c", hub)
    assert "SharedAccessKey" not in str(failure.value)
    assert "Traceback" not in str(failure.value)
    (tmp_path / "d").write_text("no directory")
    with pytest.raises(JobFailed, match="cannot be used"):
        run(server, tmp_path / "d", hub)
    run(server, tmp_path / "b", hub)
    admin.hubs.delete(hub)
    admin.hubs.create(hub, {"PartitionCount": 2})
    with pytest.raises(JobFailed, match="made again"):
        run(server, tmp_path / "b", hub)
    assert spark.version


def test_a_stream_that_cannot_start_stops_those_before_it(
    spark: SparkSession,
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    hub: str,
    tmp_path: Path,
) -> None:
    """Capture: nobody goes on in the background when the job has failed."""
    admin.hubs.create(f"{hub}-2", {"PartitionCount": 1})
    in_the_way = tmp_path / "_checkpoints" / f"entity={hub}-2"
    in_the_way.parent.mkdir()
    in_the_way.write_text("no directory")
    with pytest.raises(JobFailed, match=f"^The capture of '{hub}-2' stopped: ") as failure:
        run(server, tmp_path, hub, f"{hub}-2", follows=True)
    assert "\tat " not in str(failure.value)
    assert f"capture {hub}" not in [query.name for query in spark.streams.active]
