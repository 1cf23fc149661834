"""Replay: captured history back into hubs, queues and topics of a real server; Spark only for conditions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from busway.amqp.types import Int, Timestamp
from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import RECEIVE_AND_DELETE
from busway.client.service_bus_client import ServiceBusClient
from busway.streams.key_hash import partition_of_key
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.eventhubs.ranges import BulkReader
from busway_spark.pipeline import replay as replay_module
from busway_spark.pipeline.capture.capture_commit import BatchName
from busway_spark.pipeline.capture.capture_sink import PARQUET, CaptureStreamWriter
from busway_spark.pipeline.capture.captured_writer import ZSTD, captured_batch
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import History, Mark
from busway_spark.pipeline.job import JobFailed, JobPlace, JobProgress
from busway_spark.pipeline.replay import (
    MAX,
    REPLAYS,
    ReplayOptions,
    ReplayResult,
    ReplayState,
    load_state,
    replay,
)
from busway_spark.property_types import types_of
from busway_spark.servicebus.variant import json_of
from busway_spark.wire.bus import Bus
from busway_spark.writing.two_phase import StagingRoutes
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import NINE, Crash, batch, event, events, writer
from tests.spark.s3_server import BUCKET, S3Server, s3, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3", "s3_server"]
COUNT = 60


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two partitions, three files each over a full hour; every third event has a key, every fourth properties."""
    root = tmp_path / "lake"
    sink = writer(root)
    for number in range(3):
        name = BatchName("query", number)
        tasks = [
            sink.write_batch(
                name, iter([batch([rich(at, part) for at in range(20 * number, 20 * number + 20)])])
            )
            for part in range(2)
        ]
        sink.commit(list(tasks), number)
    return root


def rich(number: int, partition: int) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if number % 3 == 0:
        more["partitionKey"] = f"key-{number % 5}"
    if number % 4 == 0:
        more["properties"] = [("n", str(number)), ("text", '"ä"'), ("ratio", "0.5")]
        more["systemProperties"] = [
            ("subject", f'"s{number % 2}"'),
            ("message-id", f'"m-{partition}-{number}"'),
        ]
    return event(number, NINE + timedelta(minutes=58, seconds=3 * number), partition, **more)


def run(
    server: RunningServer, root: Path | str, into: str, progress: JobProgress | None = None, **more: Any
) -> ReplayResult:
    place = JobPlace(Bus(server.connection_string), "local[2]")
    options = ReplayOptions(str(root), "clicks", into, **{"speed": MAX, **more})
    return replay(place, options, progress or JobProgress())


def hub_rows(server: RunningServer, hub: str) -> dict[int, list[dict[str, Any]]]:
    reader = BulkReader(Bus(server.connection_string), hub)
    found: dict[int, list[dict[str, Any]]] = {}
    for partition in range(2):
        batches = reader.batches(EventRange(str(partition), 0, 10_000))
        found[partition] = [row for each in batches for row in captured_batch(each).to_pylist()]
    return found


def expected(partition: int) -> list[bytes]:
    """Bodies of a partition of the new hub: by key, else as they were, in the order of their times."""
    rows = sorted(
        ((number, source) for number in range(COUNT) for source in range(2)),
        key=lambda pair: (pair[0], pair[1]),
    )
    return [
        b"%d-%d" % (source, number)
        for number, source in rows
        if (source if number % 3 else partition_of_key(f"key-{number % 5}", 2)) == partition
    ]


def received(server: RunningServer, queue: str) -> list[ServiceBusReceivedMessage]:
    async def work() -> list[ServiceBusReceivedMessage]:
        async with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_receiver(queue, receive_mode=RECEIVE_AND_DELETE) as receiver,
        ):
            return await receiver.receive_messages(1_000, 0.3)

    return asyncio.run(work())


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small lots, each noted."""
    monkeypatch.setattr(replay_module, "_LOT_ROWS", 7)
    monkeypatch.setattr(replay_module, "_NOTE_EVERY_S", 0.0)


def without_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another service: by AMQP alone."""
    monkeypatch.setattr(replay_module, "can_stage", lambda _: False)


class Dying:
    """The process dies before or behind one of its calls to the bus or to its note: nothing of it runs any more."""

    def __init__(self, call: int, *, comes_after: bool = False) -> None:
        self.left = call
        self.comes_after = comes_after

    def arm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for kind, names in ((ReplayState, ("save",)), (StagingRoutes, ("stage", "decide", "drop"))):
            for name in names:
                monkeypatch.setattr(kind, name, self.mortal(getattr(kind, name)))

    def mortal(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.comes_after):
                raise Crash
            found = method(*args)
            if self.left == 0:
                raise Crash
            return found

        return call


def killed(server: RunningServer, root: Path | str, into: str, dying: Dying) -> bool:
    """False when it was done before."""
    with pytest.MonkeyPatch.context() as patch:
        dying.arm(patch)
        try:
            run(server, root, into)
        except Crash:
            return True
    return False


def test_history_comes_back_into_a_hub_as_it_was(server: RunningServer, hub: str, lake: Path) -> None:
    """Replay: every event once, with its key, properties and section, in the order of its partition and key."""
    told: list[Mapping[str, object]] = []
    result = run(server, lake, hub, JobProgress(lambda _, figures: told.append(figures)))
    assert (result.rows, result.is_done) == (2 * COUNT, True)
    rows = hub_rows(server, hub)
    assert {partition: [row["body"] for row in found] for partition, found in rows.items()} == {
        0: expected(0),
        1: expected(1),
    }
    one = next(row for found in rows.values() for row in found if row["body"] == b"1-12")
    assert json.loads(one["properties"]) == {"n": 12, "text": "ä", "ratio": 0.5}
    assert (one["partitionKey"], one["subject"], one["messageId"]) == ("key-2", "s0", "m-1-12")
    assert told[-1]["replayed"] == 2 * COUNT


def test_a_replay_killed_anywhere_stores_each_event_once(
    server: RunningServer, hub: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay: before and behind each of its first calls to the bus and to its note, so that a step is staged, noted
    or decided when it dies; the same call goes on."""
    quick(monkeypatch)
    deaths = [Dying(call, comes_after=after) for call in range(1, 11) for after in (False, True)]
    assert all([killed(server, lake, hub, each) for each in deaths])
    result = run(server, lake, hub)
    assert result.is_done
    assert 0 < result.rows_before < 2 * COUNT
    assert result.rows_before + result.rows == 2 * COUNT
    rows = hub_rows(server, hub)
    assert [row["body"] for row in rows[0]] == expected(0)
    assert [row["body"] for row in rows[1]] == expected(1)
    assert run(server, lake, hub).rows == 0, "done is done"
    assert run(server, lake, hub, again=True).rows == 2 * COUNT
    assert sum(len(found) for found in hub_rows(server, hub).values()) == 4 * COUNT


def test_any_queue_and_topic_gets_each_message_once(
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replay: also without duplicate detection, partitioned or not; nobody is warned."""
    quick(monkeypatch)
    queue, partitioned, topic = (f"target-{uuid4().hex[:8]}" for _ in range(3))
    admin.create_queue(queue)
    admin.create_queue(partitioned, {"EnablePartitioning": True})
    admin.create_topic(topic)
    admin.create_subscription(topic, "all")
    bodies = [b"%d-%d" % (source, number) for number in range(COUNT) for source in range(2)]
    for into, place in ((queue, queue), (partitioned, partitioned), (topic, f"{topic}/Subscriptions/all")):
        deaths = [Dying(3, comes_after=True), Dying(5), Dying(6, comes_after=True), Dying(10)]
        assert all([killed(server, lake, into, each) for each in deaths])
        told: list[str] = []
        assert run(server, lake, into, JobProgress(lambda sentence, _, to=told: to.append(sentence))).is_done
        assert not any("duplicates" in sentence for sentence in told)
        found = [message.body for message in received(server, place)]
        assert found == bodies if place != partitioned else sorted(found) == sorted(bodies), into


def test_a_replay_of_an_earlier_version_goes_on(
    server: RunningServer, hub: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compatibility: begun by producers, whose count is in its note, it ends by them; the next run is staged."""
    quick(monkeypatch)
    with monkeypatch.context() as patch:
        without_staging(patch)
        for saves in (3, 6, 1, 4):
            assert killed(server, lake, hub, Dying(saves))
    (state,) = lake.glob("_capture/replay/*/state.json")
    assert json.loads(state.read_text())["version"] == 1
    assert run(server, lake, hub).is_done
    rows = hub_rows(server, hub)
    assert [row["body"] for row in rows[0]] == expected(0)
    assert [row["body"] for row in rows[1]] == expected(1)
    assert run(server, lake, hub, again=True).is_done
    assert json.loads(state.read_text())["version"] == 2


def test_a_done_replay_is_forgotten_by_the_bus(server: RunningServer, hub: str, lake: Path) -> None:
    """Replay: its write becomes one of those that are forgotten within an hour."""
    run(server, lake, hub)
    (state,) = lake.glob("_capture/replay/*/state.json")
    decided = StagingRoutes(Bus(server.connection_string)).decided(json.loads(state.read_text())["write"])
    assert decided is not None
    assert (decided["kind"], decided["published"]) == ("job", True)


def test_a_message_that_is_refused_is_named(
    server: RunningServer, admin: ServiceBusAdministrationClient, lake: Path
) -> None:
    """Replay: by its number, and nothing of its step is sent."""
    queue = f"queue-{uuid4().hex[:8]}"
    admin.create_queue(queue, {"RequiresSession": True})
    with pytest.raises(JobFailed, match=f"'{queue}' does not take message 0: .*[Ss]ession"):
        run(server, lake, queue)
    assert str(admin.get_queue(queue).numbers["MessageCount"]) == "0"


def test_a_hub_that_was_made_again_is_told(
    server: RunningServer, hub: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay: what it had is gone, so the rest alone would be half a replay."""
    quick(monkeypatch)
    assert killed(server, lake, hub, Dying(6))
    (state,) = lake.glob("_capture/replay/*/state.json")
    note = json.loads(state.read_text())
    state.write_text(json.dumps({**note, "made_ms": note["made_ms"] - 1}))
    with pytest.raises(JobFailed, match="was made again"):
        run(server, lake, hub)
    assert run(server, lake, hub, again=True).is_done


def test_history_comes_out_of_a_store_of_objects(
    server: RunningServer, hub: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay: s3://, killed behind a decision; a process that slept meanwhile cannot note anything any more."""
    quick(monkeypatch)
    root = CaptureRoot(f"s3://{BUCKET}/lake")
    sink, name = CaptureStreamWriter(root, "clicks", PARQUET, ZSTD), BatchName("query", 0)
    sink.commit([sink.write_batch(name, iter([events(range(20))]))], 0)
    assert killed(server, root.location, hub, Dying(4, comes_after=True))
    (folder,) = root.folders(REPLAYS)
    asleep = load_state(root, folder.name)
    assert asleep is not None
    assert run(server, root.location, hub).is_done
    assert [row["body"] for row in hub_rows(server, hub)[0]] == [b"0-%d" % number for number in range(20)]
    with pytest.raises(JobFailed, match="Another process goes on with this replay"):
        asleep.save(root)
    assert s3.requests


def test_a_queue_that_detects_duplicates_gets_each_message_once(
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replay: of another service too: ids tell where a message stands in the history, so what is sent again is
    dropped."""
    quick(monkeypatch)
    without_staging(monkeypatch)
    queue = f"queue-{uuid4().hex[:8]}"
    admin.create_queue(queue, {"RequiresDuplicateDetection": True})
    for saves in (3, 5):
        assert killed(server, lake, queue, Dying(saves))
    assert run(server, lake, queue).is_done
    messages = received(server, queue)
    assert [message.body for message in messages] == [
        b"%d-%d" % (source, number) for number in range(COUNT) for source in range(2)
    ]
    assert messages[24].message_id == "clicks-0-12"
    assert messages[24].application_properties == {"n": 12, "text": "ä", "ratio": 0.5}
    assert (messages[24].subject, messages[24].partition_key) == ("s0", "key-2")


@pytest.mark.parametrize("is_staged", [True, False])
def test_types_ids_and_lives_come_back(
    server: RunningServer,
    admin: ServiceBusAdministrationClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_staged: bool,
) -> None:
    """Replay: AMQP types out of propertyTypes, the life that a message had, its own id where that is asked for; and a
    queue of another service that does not detect duplicates is warned of."""
    if not is_staged:
        without_staging(monkeypatch)
    properties = {"id": UUID(int=5), "at": Timestamp(1_700_000_000_000), "small": Int(7), "raw": b"\x00\x01"}
    rows = pa.RecordBatch.from_pydict(
        {
            "fragment": pa.array([0], pa.int32()),
            "sequenceNumber": [5],
            "enqueuedTime": pa.array([NINE], pa.timestamp("us", tz="UTC")),
            "expiresAt": pa.array([NINE + timedelta(hours=1)], pa.timestamp("us", tz="UTC")),
            "body": [b"x"],
            "messageId": ["mine"],
            "sessionId": ["s-1"],
            "contentType": ["text/plain"],
            "properties": [json_of(properties)],
            "propertyTypes": [types_of(properties)],
        }
    )
    sink, name = writer(tmp_path), BatchName("query", 0)
    sink.commit([sink.write_batch(name, iter([rows]))], 0)
    queue = f"queue-{uuid4().hex[:8]}"
    admin.create_queue(queue)
    told: list[str] = []
    run(server, tmp_path, queue, JobProgress(lambda sentence, _: told.append(sentence)), keeps_ids=True)
    assert ("does not detect duplicates" in told[0]) == (not is_staged)
    (message,) = received(server, queue)
    assert message.application_properties == properties
    assert isinstance(message.application_properties["small"], Int)
    assert isinstance(message.application_properties["at"], Timestamp)
    assert (message.message_id, message.session_id, message.content_type) == ("mine", "s-1", "text/plain")
    assert message.time_to_live_ms == 3_600_000


def test_a_chosen_speed_keeps_the_pauses(server: RunningServer, hub: str, lake: Path) -> None:
    """Replay: 177 s of history 200 times as fast take 0.9 s; a stopped one goes on."""
    started = time.monotonic()
    progress = JobProgress()
    progress.stop()
    assert not run(server, lake, hub, progress, speed=200.0).is_done
    assert run(server, lake, hub, speed=200.0).is_done
    assert time.monotonic() - started >= 0.88
    rows = hub_rows(server, hub)
    assert [row["body"] for row in rows[0]] == expected(0)
    gaps = rows[0][-1]["enqueuedTime"] - rows[0][0]["enqueuedTime"]
    assert timedelta(seconds=0.7) <= gaps <= timedelta(seconds=20)


def test_times_cut_the_history(server: RunningServer, hub: str, lake: Path) -> None:
    """Replay: --from is included, --until is not."""
    since, until = NINE + timedelta(minutes=59), NINE + timedelta(minutes=60)
    times: dict[str, Any] = {
        "since_us": int(since.timestamp() * 1e6),
        "until_us": int(until.timestamp() * 1e6),
    }
    assert run(server, lake, hub, **times).rows == 2 * 20
    bodies = {row["body"] for found in hub_rows(server, hub).values() for row in found}
    assert bodies == {b"%d-%d" % (part, number) for part in range(2) for number in range(20, 40)}


def test_a_condition_chooses(spark: SparkSession, server: RunningServer, hub: str, lake: Path) -> None:
    """Replay: --where is Spark SQL over the captured columns; what it does not take is told."""
    where = "get_json_object(properties, '$.n') % 8 = 0 and partition = 1 and hour = '09'"
    assert run(server, lake, hub, where=where).rows == 5
    bodies = {row["body"] for found in hub_rows(server, hub).values() for row in found}
    assert bodies == {b"1-%d" % number for number in (0, 8, 16, 24, 32)}
    with pytest.raises(JobFailed, match="cannot be used"):
        run(server, lake, hub, where="nothing = 1")
    assert spark.version


def test_overlapping_files_are_read_in_the_order_of_numbers(tmp_path: Path) -> None:
    """Replay: sessions are captured out of their order and replayed in it, from any place on."""
    sink, name = writer(tmp_path), BatchName("query", 0)
    lots = ([1, 4, 9], [2, 3, 20], [30, 31])
    sink.commit([sink.write_batch(name, iter([batch([event(at) for at in lot])])) for lot in lots], 0)
    history = History(CaptureRoot(str(tmp_path)), "clicks")
    assert [row.number for row in history.rows(0)] == [1, 2, 3, 4, 9, 20, 30, 31]
    hour = history.partitions()[0].hour
    assert [row.number for row in history.rows(0, Mark(hour, 3), Mark(hour, 30))] == [4, 9, 20, 30]
    assert history.partitions() == {0: Mark(hour, 31)}


def test_wrong_calls_are_told(server: RunningServer, hub: str, lake: Path, tmp_path: Path) -> None:
    """Replay: missing history, a missing target, a damaged note."""
    with pytest.raises(JobFailed, match="no messages of 'clicks'"):
        run(server, tmp_path / "empty", hub)
    with pytest.raises(JobFailed, match="no hub, queue or topic 'nobody'"):
        run(server, lake, "nobody")
    run(server, lake, hub)
    (state,) = lake.glob("_capture/replay/*/state.json")
    state.write_text('{"run": 1}')
    with pytest.raises(JobFailed, match="damaged"):
        run(server, lake, hub)
