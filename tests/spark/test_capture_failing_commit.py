"""A commit that fails through Spark, which calls `abort` then: real hubs, topics and queues, and the next start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway_spark.pipeline.capture.capture import CaptureOptions, capture
from busway_spark.pipeline.capture.capture_sink import DELTA, PARQUET
from busway_spark.pipeline.job import JobFailed, JobPlace, JobProgress
from busway_spark.wire.bus import Bus
from tests.harness.running_server import RunningServer
from tests.spark.capture_rig import captured
from tests.spark.failing_sink import DeadlySink, FailingSink, struck_file
from tests.spark.hub_traffic import fill
from tests.spark.servicebus_rig import ServiceBusRig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 60


@pytest.mark.parametrize(
    ("kind", "layout", "sink"),
    [
        ("hub", PARQUET, FailingSink),
        ("topic", PARQUET, FailingSink),
        ("queue", PARQUET, DeadlySink),
        ("queue", DELTA, FailingSink),
        ("hub", DELTA, DeadlySink),
    ],
)
def test_a_commit_that_fails_loses_nothing_and_tells_the_truth(
    spark: SparkSession,
    server: RunningServer,
    hub: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    layout: str,
    sink: type[FailingSink],
) -> None:
    """Capture: an input/output error in the first batch, or the death of the process that commits it, then the same
    command again."""
    monkeypatch.setattr("busway_spark.pipeline.capture.capture.CaptureSink", sink)
    root = tmp_path / "lake"
    rig = ServiceBusRig(spark, server.connection_string)
    entity = hub if kind == "hub" else f"failing-{uuid4().hex[:8]}"
    place = ""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        if kind == "topic":
            admin.create_topic(entity)
            admin.create_subscription(entity, "busway-capture")
            place = f"{entity}/Subscriptions/busway-capture"
        elif kind == "queue":
            admin.create_queue(entity)
            place = entity
    if kind == "hub":
        fill(server.connection_string, hub, MESSAGES // 2)
    else:
        rig.send(entity, [ServiceBusMessage(b"%d" % at) for at in range(MESSAGES)])
    told: list[int] = []

    def run() -> dict[str, int]:
        options = CaptureOptions((entity,), str(root), layout=layout, takes=True, batch_rows=MESSAGES // 2)
        progress = JobProgress(lambda _, figures: told.append(int(str(figures["captured"]))))
        return capture(JobPlace(Bus(server.connection_string), "local[2]"), options, progress).rows

    with pytest.raises(JobFailed, match="Input/output error" if sink is FailingSink else "stopped"):
        run()
    assert struck_file(root).exists()
    assert told == []
    assert run() == {entity: MESSAGES}
    rows = DeltaTable(str(root)).to_pyarrow_table().to_pylist() if layout == DELTA else captured(root)
    keys = {(row["partition"], row["sequenceNumber"]) for row in rows}
    assert (len(rows), len(keys)) == (MESSAGES, MESSAGES)
    if place:
        assert rig.peek(place) == []
    assert told[-1] == MESSAGES
