"""A cluster: a master and two workers whose interpreter has nothing of ours, over TLS."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from tests.harness.running_server import RunningServer
from tests.spark.cluster import EXECUTOR_SETTINGS, Driver, StandaloneCluster, bare_python
from tests.spark.faults import KILL_EXECUTOR, ROWS, TASK
from tests.spark.flows import HUB, QUEUE, Flow, hub_bodies, write_plan
from tests.spark.hub_traffic import expected
from tests.spark.scene import COUNT, Scene
from tests.spark.servicebus_rig import ServiceBusRig, numbers

#: What a competitor may take before the batch is planned that the fault is in.
LEFT_FOR_SECOND = 30
pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_cluster_without_our_code_loses_executors_and_no_row(
    cluster: StandaloneCluster, spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Our code and the certificate authority travel. Executors die by kill -9 among the rows of a hub and behind the
    rows of a claim, while somebody else receives from the claimed queue: planned rows come again, sinks get them
    once, the queue ends empty. Then commands of the pipeline run on the same cluster."""
    scene = Scene(ServiceBusRig(spark, server.connection_string), tmp_path)
    flows = [
        replace(flow, ca_file=server.ca_file)
        for flow in (scene.flow(HUB, QUEUE, ROWS, KILL_EXECUTOR), scene.flow(QUEUE, HUB, TASK, KILL_EXECUTOR))
    ]
    encrypted = server.connection_string.replace(";UseDevelopmentEmulator=true", "")
    copy, lake = scene.empty(HUB), tmp_path / "lake"
    commands = [
        ["pipeline", "capture", flows[0].origin, "--to", str(lake)],
        ["pipeline", "replay", str(lake), "--entity", flows[0].origin, "--into", copy],
    ]
    plan = write_plan(
        tmp_path / "plan.json",
        cluster.url,
        EXECUTOR_SETTINGS,
        encrypted,
        flows,
        [
            [*command, "--master", cluster.url, "--connection-string", encrypted, "--ca-file", server.ca_file]
            for command in commands
        ],
    )
    with Driver(plan, PYSPARK_PYTHON=str(bare_python(tmp_path / "bare"))) as driver:
        taken = compete(scene, flows[1], driver)
        ended = driver.wait()
    assert ended.returncode == 0, ended
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["ended"] == [None, None]
    assert result["code"].endswith(".zip/busway/__init__.py pure Python (not compiled)")
    assert len(list(scene.faults.glob("*.reached"))) == 2
    scene.check(flows[0])
    assert scene.found(flows[1]) + taken == Counter(numbers(COUNT))
    assert scene.rig.peek(flows[1].origin) == []
    assert taken.total() > 0
    assert result["statuses"] == [0, 0], ended
    captured = ds.dataset(lake, partitioning="hive").to_table(columns=["body"])
    assert sorted(body.decode() for body in captured["body"].to_pylist() if body) == expected(COUNT // 2)
    assert hub_bodies(server.connection_string, copy) == Counter(expected(COUNT // 2))


def compete(scene: Scene, flow: Flow, driver: Driver) -> Counter[str]:
    """Takes messages away from the claim stream while it runs."""
    taken: Counter[str] = Counter()
    first, second = (Path(flow.checkpoint, "offsets", name) for name in "01")
    while driver.is_running and not first.exists():
        time.sleep(0.02)
    while driver.is_running and scene.rig.peek(flow.origin):
        if taken.total() < LEFT_FOR_SECOND or second.exists():
            taken.update(message.body.decode() for message in scene.rig.receive(flow.origin, 5))
        time.sleep(0.1)
    return taken
