"""Sinks in two phases: tasks stage their rows, one decision of the bus makes them visible."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.harness.running_server import RunningServer
from tests.spark import plans, speculation
from tests.spark.cluster import StandaloneCluster
from tests.spark.hub_traffic import expected, fill, stream
from tests.spark.plans import Plan, PlayedPlan, Playground
from tests.spark.servicebus_rig import BusRig
from tests.spark.targets import HUB, KINDS, QUEUE, Target

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


def test_a_write_inside_of_a_stream_without_a_name_comes_again(
    spark: SparkSession, server: RunningServer, hub: str, checkpoint: str
) -> None:
    """Two-phase sinks: at least once over repetitions of its batch; beside it a write with a name, once."""
    fill(server.connection_string, hub, COUNT)
    plain, named = (Target.made(QUEUE, BusRig(server.connection_string)) for _ in range(2))

    def each(rows: DataFrame, _: int) -> None:
        for target, options in ((plain, {}), (named, {"writeId": "named"})):
            writer = rows.select("body").write.format(target.format).mode("append")
            writer.options(**target.options(**options)).save()

    for _ in range(2):
        start = json.dumps({"offset": "-1"})
        rows = stream(spark, server.connection_string, hub, startingPosition=start).load()
        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        forget_last_commit(checkpoint)
    once = Counter(expected(COUNT))
    assert named.seen() == once
    assert plain.seen() == once + once


@pytest.mark.long
def test_a_task_that_spark_speculates_on_counts_once(server: RunningServer, tmp_path: Path) -> None:
    """Two-phase sinks: two tries of a task side by side, each with a stage of its own, on two hosts."""
    target = Target.made(QUEUE, BusRig(server.connection_string))
    with StandaloneCluster(tmp_path / "cluster", cores=2, are_apart=True) as cluster:
        program = [sys.executable, "-m", "tests.spark.speculation"]
        done = subprocess.run(
            [*program, cluster.url, server.connection_string, target.name, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.splitlines()[-1]) == 2, "Spark did not speculate"
    assert target.seen() == Counter(str(at) for at in range(speculation.ROWS))


# -- random plans

#: In `make test`, with one fault each: every target, way and fault among them, in about a minute of CPU.
PLANS = 20
#: Of the long part.
LONG_PLANS = 308


@pytest.fixture(scope="module")
def source(server: RunningServer) -> str:
    """A hub with the events that plans read."""
    name = Target.made(HUB, BusRig(server.connection_string)).name
    fill(server.connection_string, name, plans.COUNT)
    return name


@pytest.fixture
def plain_settings(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.usefixtures("plain_settings")
@pytest.mark.parametrize("seed", range(PLANS))
def test_a_random_plan_writes_each_row_once(
    spark: SparkSession, server: RunningServer, source: str, tmp_path: Path, seed: int
) -> None:
    """Two-phase sinks: whatever shuffles the rows and whatever fails, nothing is lost, nothing double, and nothing of
    a batch that was not decided is seen."""
    plan = Plan.drawn(seed, faults_max=1)
    target = Target.made(plan.kind, BusRig(server.connection_string))
    PlayedPlan(plan, Playground(spark, source, tmp_path), target).play()


@dataclass(frozen=True)
class MortalBus:
    server: RunningServer
    hub: str


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalBus]:
    """A bus of its own, to be killed."""
    with RunningServer(tmp_path_factory.mktemp("mortal")) as server:
        hub = Target.made(HUB, BusRig(server.connection_string)).name
        fill(server.connection_string, hub, plans.COUNT)
        yield MortalBus(server, hub)


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.usefixtures("plain_settings")
@pytest.mark.parametrize("seed", range(PLANS, PLANS + LONG_PLANS))
def test_a_random_plan_writes_each_row_once_though_the_bus_dies(
    spark: SparkSession, mortal: MortalBus, tmp_path: Path, seed: int
) -> None:
    """Two-phase sinks: the same, on a bus that is killed in the middle of batches, too."""
    threads: list[threading.Thread] = []
    is_over = threading.Event()

    def restart(when: Callable[[], bool], then: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=_restart, args=(mortal.server, when, then, is_over)))
        threads[-1].start()

    plan = Plan.drawn(seed, may_kill=True)
    target = Target.made(plan.kind, BusRig(mortal.server.connection_string))
    try:
        PlayedPlan(plan, Playground(spark, mortal.hub, tmp_path, restart), target).play()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def _restart(
    server: RunningServer, when: Callable[[], bool], then: Callable[[], None], is_over: threading.Event
) -> None:
    """Gives up when the fault is never reached."""
    deadline = time.monotonic() + 120
    while not when():
        if is_over.is_set() or time.monotonic() > deadline:
            return
        time.sleep(0.02)
    server.kill()
    server.start()
    then()
