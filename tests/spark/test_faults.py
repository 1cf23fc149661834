"""Kills in the middle of a batch: of the driver, of an executor, of the bus. Nothing is lost, nothing comes twice."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway_spark.watching.watched import sentence_of
from tests.harness.running_server import RunningServer
from tests.spark.cluster import EXECUTOR_SETTINGS, Driver, bare_python, told
from tests.spark.command_scene import CommandScene
from tests.spark.faults import COMMIT, KILL_DRIVER, ROWS, TASK, WAIT
from tests.spark.flows import HUB, QUEUE, Flow, committed, register_faults, run_flows, write_plan
from tests.spark.scene import Scene
from tests.spark.servicebus_rig import BusRig

#: Two executors; the cores are for four streams at once, whose tasks wait for each other.
LOCAL_CLUSTER = "local-cluster[2,3,700]"
pytestmark = pytest.mark.fault


@dataclass(frozen=True)
class Killed:
    """A driver that died in the middle of its batches."""

    scene: Scene
    flows: list[Flow]
    ended: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def killed(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Each source and each sink is killed between the sink's commit and Spark's, and among the rows of a batch: all
    at once, by kill -9 of a driver whose executors are processes of their own."""
    folder = tmp_path_factory.mktemp("killed")
    scene = Scene(BusRig(server.connection_string), folder)
    flows = [
        scene.flow(HUB, QUEUE, COMMIT, KILL_DRIVER, 4),
        scene.flow(QUEUE, HUB, COMMIT, KILL_DRIVER, 4),
        scene.flow(HUB, HUB, ROWS, KILL_DRIVER, 4),
        scene.flow(QUEUE, QUEUE, TASK, KILL_DRIVER, 4),
    ]
    plan = write_plan(folder / "plan.json", LOCAL_CLUSTER, EXECUTOR_SETTINGS, scene.connection, flows)
    with Driver(plan, PYSPARK_PYTHON=str(bare_python(folder / "bare"))) as driver:
        return Killed(scene, flows, driver.wait())


@pytest.mark.long
def test_every_command_runs_on_a_cluster_within_this_machine(server: RunningServer, tmp_path: Path) -> None:
    """`busway pipeline` with `--master local-cluster[…]`: executors are processes without our code, over TLS."""
    scene = Scene(BusRig(server.connection_string), tmp_path)
    commands = CommandScene(scene)
    calls = commands.calls(LOCAL_CLUSTER, server)
    plan = write_plan(tmp_path / "plan.json", LOCAL_CLUSTER, EXECUTOR_SETTINGS, scene.connection, [], calls)
    with Driver(plan, PYSPARK_PYTHON=str(bare_python(tmp_path / "bare"))) as driver:
        commands.check(told(driver.wait()))


@pytest.mark.long
def test_a_killed_driver_goes_on_from_its_checkpoint(killed: Killed, spark: SparkSession) -> None:
    """Another driver takes over the checkpoints: every row is in the sinks once."""
    scene, flows = killed.scene, killed.flows
    assert len(list(scene.faults.glob("*.reached"))) == 4, killed.ended
    assert killed.ended.returncode == -signal.SIGKILL
    assert all(committed(flow) == {0} for flow in flows)
    assert run_flows(spark, scene.connection, [flow.healthy() for flow in flows]) == [None] * 4
    for flow in flows:
        scene.check(flow)


def test_a_killed_bus_that_comes_back_has_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """Each source and each sink in the middle of a batch when the bus dies by kill -9. A query goes on by itself or
    fails with a sentence that names the bus; after that it ends as if nothing had been."""
    register_faults(spark)
    with RunningServer(tmp_path / "bus") as server:
        scene = Scene(BusRig(server.connection_string), tmp_path)
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
        # The queue's sender had a connection open. Everybody else makes a new one, at the latest at the second try.
        said = [each and sentence_of(RuntimeError(each)) for each in ended]
        place = re.escape(f"The server at 127.0.0.1:{server.port} ")
        told_so = rf"Could not .+: the bus cannot be reached\. {place}(closed the connection|cannot be reached: .+)\."
        assert all(each is None or re.fullmatch(told_so, each) for each in said), said
        assert run_flows(spark, scene.connection, [flow.healthy() for flow in flows]) == [None, None]
        for flow in flows:
            scene.check(flow)
