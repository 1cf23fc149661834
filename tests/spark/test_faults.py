"""Kills in the middle of a batch: of the driver, of an executor, of the bus. Nothing is lost, nothing comes twice."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.running_server import RunningServer
from tests.spark.cluster import EXECUTOR_SETTINGS, Driver
from tests.spark.faults import COMMIT, KILL_DRIVER, ROWS, TASK, WAIT
from tests.spark.flows import HUB, QUEUE, committed, register_faults, run_flows, write_plan
from tests.spark.scene import Scene
from tests.spark.servicebus_rig import ServiceBusRig

pytestmark = pytest.mark.fault


def test_a_killed_driver_goes_on_from_its_checkpoint(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Each source and each sink is killed between the sink's commit and Spark's, and among the rows of a batch: all
    at once, by kill -9 of a driver whose executors are processes of their own. Another driver takes over the
    checkpoints."""
    scene = Scene(ServiceBusRig(spark, server.connection_string), tmp_path)
    flows = [
        scene.flow(HUB, QUEUE, COMMIT, KILL_DRIVER, 4),
        scene.flow(QUEUE, HUB, COMMIT, KILL_DRIVER, 4),
        scene.flow(HUB, HUB, ROWS, KILL_DRIVER, 4),
        scene.flow(QUEUE, QUEUE, TASK, KILL_DRIVER, 4),
    ]
    plan = write_plan(
        tmp_path / "plan.json", "local-cluster[2,3,700]", EXECUTOR_SETTINGS, scene.connection, flows
    )
    with Driver(plan) as driver:
        ended = driver.wait()
    assert len(list(scene.faults.glob("*.reached"))) == 4, ended
    assert ended.returncode == -signal.SIGKILL
    assert all(committed(flow) == {0} for flow in flows)
    assert run_flows(spark, scene.connection, [flow.healthy() for flow in flows]) == [None] * 4
    for flow in flows:
        scene.check(flow)


def test_a_killed_bus_that_comes_back_has_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """Each source and each sink in the middle of a batch when the bus dies by kill -9. A query goes on by itself or
    fails with a sentence about the bus; after that it ends as if nothing had been."""
    register_faults(spark)
    with RunningServer(tmp_path / "bus") as server:
        scene = Scene(ServiceBusRig(spark, server.connection_string), tmp_path)
        flows = [scene.flow(HUB, QUEUE, ROWS, WAIT), scene.flow(QUEUE, HUB, TASK, WAIT)]

        def kill_bus() -> None:
            while len(list(scene.faults.glob("*.reached"))) < len(flows):
                time.sleep(0.02)
            server.kill()
            server.start()
            (scene.faults / "go-on").touch()

        killer = threading.Thread(target=kill_bus)
        killer.start()
        ended = run_flows(spark, scene.connection, flows)
        killer.join()
        for failure in ended:
            assert failure is None or re.search(r"cannot be reached|connection|sent no event", failure), (
                failure
            )
        assert run_flows(spark, scene.connection, [flow.healthy() for flow in flows]) == [None, None]
        for flow in flows:
            scene.check(flow)
