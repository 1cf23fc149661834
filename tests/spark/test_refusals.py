"""What a bus refuses, or cannot do at all: Spark's error names it, and what is in the bus stays as it was."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from busway.amqp.sections import AmqpMessage, encode_message
from busway.client.atom_entries import KeyRule
from busway_spark.eventhubs.offsets import read_hub
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.faults import ROWS, WAIT
from tests.spark.flows import HUB, QUEUE, Flow, committed, hub_bodies, register_faults, run_flows
from tests.spark.hub_traffic import bodies, expected, publish, stream
from tests.spark.scene import COUNT, Scene
from tests.spark.servicebus_rig import ServiceBusRig, Sink

SIZE_BYTES_MAX = 200_000
SECRET = re.compile(r"SharedAccessKey=[^*;\s]")
REFUSAL = re.compile(r"Could not .+: the key does not allow it\. .+")
ANOTHER_KEY = "b3RoZXIta2V5LW90aGVyLWtleS1vdGhlci1rZXktb3Q="


class SparkScene(Scene):
    rig: ServiceBusRig


@pytest.fixture
def scene(spark: SparkSession, server: RunningServer, tmp_path: Path) -> SparkScene:
    return SparkScene(ServiceBusRig(spark, server.connection_string), tmp_path)


def failure(scene: SparkScene, flow: Flow, connection: str | None = None) -> str:
    [said] = run_flows(scene.rig.spark, connection or scene.connection, [flow])
    assert said is not None, "nothing failed"
    assert not SECRET.search(said), "a key is in the error"
    return said


def elsewhere(connection: str) -> str:
    """A port of this machine where nobody listens."""
    return re.sub(r"(Endpoint=sb://[^:;/]+:)\d+", r"\g<1>1", connection)


@pytest.mark.parametrize(("source", "sink"), [(HUB, QUEUE), (QUEUE, HUB)])
def test_a_stream_that_may_not_or_cannot_is_told_so_and_goes_on_later(
    scene: SparkScene, source: str, sink: str
) -> None:
    """A-9: one flow meets, in turn, a bus that nobody can reach, a missing target, a key that may only send and one
    that may only listen; then, with everything in order, it writes every row once from the same checkpoint."""
    flow = Flow(source, sink, scene.filled(source), scene.empty(sink), str(scene.folder / "checkpoint"))
    missing = replace(flow, target="there-is-none")
    assert re.search(r"127\.0\.0\.1:1 cannot be reached", failure(scene, flow, elsewhere(scene.connection)))
    assert "there-is-none" in failure(scene, missing)
    for right in ("Send", "Listen"):
        said = failure(scene, flow, scene.rig.key(right)[1])
        assert REFUSAL.search(said), said
    assert counted(scene, flow) == (COUNT, 0)
    assert run_flows(scene.rig.spark, scene.connection, [flow]) == [None]
    scene.check(flow)


@pytest.mark.parametrize("transport", ["bulk", "amqp"])
def test_a_key_that_is_deleted_while_a_hub_is_read_stops_the_stream_where_it_is(
    scene: SparkScene, transport: str
) -> None:
    """A-9: the batch that was planned gets no rows and is not committed; with a good key it gets exactly its rows."""
    hub, checkpoint = scene.filled(HUB), str(scene.folder / "checkpoint")
    name, listening = scene.rig.key("Listen")
    options = {
        "startingPosition": json.dumps({"offset": "-1"}),
        "maxEventsPerTrigger": "100",
        "transport": transport,
    }

    def revoke(batch_id: int) -> None:
        if batch_id == 1:
            with scene.rig.administration() as administration:
                administration.delete_key_rule(name)

    sink = Sink()
    sink.before = revoke
    for _ in range(2):  # in the middle of a batch, and before anything
        with pytest.raises(StreamingQueryException) as caught:
            scene.rig.run_now(stream(scene.rig.spark, listening, hub, **options).load(), checkpoint, sink)
        said = str(caught.value)
        assert REFUSAL.search(said), said
        assert not SECRET.search(said), "a key is in the error"
        assert (sink.seen, positions(checkpoint)) == ([0], ["commits/0", "offsets/0", "offsets/1"])
        sink.before = lambda _: None
    logged = (scene.folder / "checkpoint/offsets/1").read_text()
    scene.rig.run_now(stream(scene.rig.spark, scene.connection, hub, **options).load(), checkpoint, sink)
    assert (scene.folder / "checkpoint/offsets/1").read_text() == logged
    assert sink.bodies == expected(COUNT // 2)


def positions(checkpoint: str) -> list[str]:
    """What Spark has noted: batches that are planned, and those that are done."""
    found = [path for name in ("commits", "offsets") for path in Path(checkpoint, name).glob("[0-9]*")]
    return sorted(str(path.relative_to(checkpoint)) for path in found)


@dataclass(frozen=True)
class TwoKeys(Flow):
    """Writes by a key of its own."""

    writing: str = ""

    def _entity(self, kind: str, connection: str, name: str) -> dict[str, str]:
        return super()._entity(kind, self.writing if kind == self.sink else connection, name)


def test_a_key_that_is_changed_while_a_hub_is_written_stops_the_stream_where_it_is(scene: SparkScene) -> None:
    """A-9: in the middle of a batch. It fails until it has the new key, and then every row is in the hub once."""
    register_faults(scene.rig.spark)
    name, sending = scene.rig.key("Send")
    plain = scene.flow(QUEUE, HUB, ROWS, WAIT)
    flow = TwoKeys(**vars(plain), writing=sending)

    def change() -> None:
        while not any(scene.faults.glob("*.reached")):
            time.sleep(0.02)
        with scene.rig.administration() as administration:
            administration.put_key_rule(KeyRule(name, ("Send",), ANOTHER_KEY, ANOTHER_KEY))
        (scene.faults / "go-on").touch()

    changing = threading.Thread(target=change)
    changing.start()
    said = failure(scene, flow)
    changing.join()
    assert REFUSAL.search(said), said
    found, logged = hub_bodies(scene.connection, flow.target), logs(flow)
    assert 0 < found.total() < COUNT
    assert {0} <= committed(flow) < {0, 1, 2}
    assert REFUSAL.search(failure(scene, replace(flow, fault=None)))
    assert (hub_bodies(scene.connection, flow.target), logs(flow)) == (found, logged)
    good = replace(
        flow, fault=None, writing=re.sub(r"(SharedAccessKey=)[^;]+", rf"\g<1>{ANOTHER_KEY}", sending)
    )
    assert run_flows(scene.rig.spark, scene.connection, [good]) == [None]
    scene.check(flow)


def test_a_stream_that_retention_has_overtaken_says_which_events_are_gone(scene: SparkScene) -> None:
    """H-30: more came than the hub keeps. The checkpoint stays where it was."""
    hub = f"hub-{uuid4().hex[:8]}"
    with scene.rig.administration() as administration:
        small = {"PartitionSizeInBytes": SIZE_BYTES_MAX}
        administration.hubs.create(hub, {"PartitionCount": 1, "RetentionDescription": small})
    flow = Flow(HUB, QUEUE, hub, scene.empty(QUEUE), str(scene.folder / "checkpoint"))
    publish(scene.connection, hub, 0, bodies(0, 10))
    assert run_flows(scene.rig.spark, scene.connection, [flow]) == [None]
    logged = logs(flow)
    large = encode_message(AmqpMessage([bytes(100_000)], 0x75))
    deadline = time.monotonic() + 60
    while read_hub(Bus(scene.connection), hub).partitions["0"].first_number < 12:
        assert time.monotonic() < deadline, "retention does nothing"
        publish(scene.connection, hub, 0, [large] * 20)
        time.sleep(0.5)  # retention is a matter of seconds
    said = failure(scene, flow)
    assert re.search(rf"Events 10 to \d+ of partition 0 .*'{hub}'.* retention", said), said
    assert logs(flow) == logged
    assert scene.found(flow).total() == 10


def logs(flow: Flow) -> dict[str, str]:
    """What Spark's checkpoint says of positions."""
    folders = [Path(flow.checkpoint, name) for name in ("offsets", "commits")]
    return {str(path): path.read_text() for folder in folders for path in folder.glob("[0-9]*")}


def counted(scene: SparkScene, flow: Flow) -> tuple[int, int]:
    """In the source and in the sink; what a stream has claimed is still in the source."""
    kinds: dict[str, Callable[[str], int]] = {
        HUB: lambda name: hub_bodies(scene.connection, name).total(),
        QUEUE: lambda name: scene.rig.read(queue=name, columns="sequenceNumber").count(),
    }
    return kinds[flow.source](flow.origin), kinds[flow.sink](flow.target)
