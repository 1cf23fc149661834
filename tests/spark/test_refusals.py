"""What a bus refuses, or cannot do at all: Spark's error names it, and what is in the bus stays as it was."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from busway.amqp.sections import AmqpMessage, encode_message
from busway_spark.bus import Bus
from busway_spark.eventhubs.facts import read_hub
from tests.harness.running_server import RunningServer
from tests.spark.flows import HUB, QUEUE, Flow, hub_bodies, run_flows
from tests.spark.hub_traffic import bodies, publish
from tests.spark.scene import COUNT, Scene
from tests.spark.servicebus_rig import ServiceBusRig

SIZE_BYTES_MAX = 200_000
SECRET = re.compile(r"SharedAccessKey=[^*;\s]")


@pytest.fixture
def scene(spark: SparkSession, server: RunningServer, tmp_path: Path) -> Scene:
    return Scene(ServiceBusRig(spark, server.connection_string), tmp_path)


def failure(scene: Scene, flow: Flow, connection: str | None = None) -> str:
    [said] = run_flows(scene.rig.spark, connection or scene.connection, [flow])
    assert said is not None, "nothing failed"
    assert not SECRET.search(said), "a key is in the error"
    return said


def elsewhere(connection: str) -> str:
    """A port of this machine where nobody listens."""
    return re.sub(r"(Endpoint=sb://[^:;/]+:)\d+", r"\g<1>1", connection)


@pytest.mark.parametrize(("source", "sink"), [(HUB, QUEUE), (QUEUE, HUB)])
def test_a_stream_that_may_not_or_cannot_is_told_so_and_goes_on_later(
    scene: Scene, source: str, sink: str
) -> None:
    """A-9: one flow meets, in turn, a bus that nobody can reach, a missing target, a key that may only send and one
    that may only listen; then, with everything in order, it writes every row once from the same checkpoint."""
    flow = Flow(source, sink, scene.filled(source), scene.empty(sink), str(scene.folder / "checkpoint"))
    missing = replace(flow, target="there-is-none")
    assert re.search(r"127\.0\.0\.1:1 cannot be reached", failure(scene, flow, elsewhere(scene.connection)))
    assert "there-is-none" in failure(scene, missing)
    for right in ("Send", "Listen"):
        said = failure(scene, flow, scene.rig.key(right)[1])
        assert re.search(r"does not allow|nauthori[sz]ed|claim\(s\) are required", said), said
    assert counted(scene, flow) == (COUNT, 0)
    assert run_flows(scene.rig.spark, scene.connection, [flow]) == [None]
    scene.check(flow)


def test_a_stream_that_retention_has_overtaken_says_which_events_are_gone(scene: Scene) -> None:
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
    said = failure(scene, flow)
    assert re.search(rf"Events 10 to \d+ of partition 0 .*'{hub}'.* retention", said), said
    assert logs(flow) == logged
    assert scene.found(flow).total() == 10


def logs(flow: Flow) -> dict[str, str]:
    """What Spark's checkpoint says of positions."""
    folders = [Path(flow.checkpoint, name) for name in ("offsets", "commits")]
    return {str(path): path.read_text() for folder in folders for path in folder.glob("[0-9]*")}


def counted(scene: Scene, flow: Flow) -> tuple[int, int]:
    """In the source and in the sink; what a stream has claimed is still in the source."""
    kinds: dict[str, Callable[[str], int]] = {
        HUB: lambda name: hub_bodies(scene.connection, name).total(),
        QUEUE: lambda name: scene.rig.read(queue=name, columns="sequenceNumber").count(),
    }
    return kinds[flow.source](flow.origin), kinds[flow.sink](flow.target)
