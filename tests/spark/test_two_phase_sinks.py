"""Sinks in two phases: tasks stage their rows, one decision of the bus makes them visible."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.running_server import RunningServer
from tests.spark.hub_traffic import expected, fill, stream
from tests.spark.servicebus_rig import BusRig
from tests.spark.targets import KINDS, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 50


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, server: RunningServer) -> Target:
    return Target.made(request.param, BusRig(server.connection_string))


def copy(spark: SparkSession, hub: str, target: Target, checkpoint: str, tasks: int, body: str) -> None:
    """Everything of the hub in one batch, by so many tasks."""
    source = stream(
        spark,
        target.rig.connection_string,
        hub,
        startingPosition=json.dumps({"offset": "-1"}),
        minPartitions=str(tasks),
    )
    rows = source.load().selectExpr(f"{body} as body")
    writer = rows.writeStream.format(target.format).options(**target.options())
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def forget_last_commit(checkpoint: str) -> None:
    """As a crash between the sink's work and Spark's log leaves it."""
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_comes_again_in_another_layout_arrives_once(
    spark: SparkSession, server: RunningServer, hub: str, target: Target, checkpoint: str
) -> None:
    """Two-phase sinks: `minPartitions` is changed at a restart, row k of task p is another row then. The first try
    failed in half of its tasks, the second was done and Spark did not note it."""
    fill(server.connection_string, hub, COUNT)
    fuse = "case when partition = '1' then raise_error('the task dies') else body end"
    with pytest.raises(Exception, match="the task dies"):
        copy(spark, hub, target, checkpoint, 4, fuse)
    seen_early = target.seen()
    copy(spark, hub, target, checkpoint, 2, "body")
    forget_last_commit(checkpoint)
    copy(spark, hub, target, checkpoint, 2, "body")
    found, wanted = target.seen(), Counter(expected(COUNT))
    assert found == wanted, (f"{(wanted - found).total()} lost", f"{(found - wanted).total()} double")
    assert not seen_early, "rows of a batch that was not decided"
