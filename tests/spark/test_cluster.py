"""A cluster: a master and two workers whose interpreter has nothing of ours, over TLS."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.harness.running_server import RunningServer
from tests.spark.cluster import EXECUTOR_SETTINGS, Driver, StandaloneCluster, bare_python, told
from tests.spark.command_scene import CommandScene, encrypted
from tests.spark.faults import KILL_EXECUTOR, ROWS, TASK
from tests.spark.flows import HUB, QUEUE, Flow, write_plan
from tests.spark.scene import COUNT, Scene
from tests.spark.servicebus_rig import BusRig, numbers

#: What a competitor may take before the batch is planned that the fault is in.
LEFT_FOR_SECOND = 30
#: Every day the executors of a cluster within this machine do without our code (test_faults).
pytestmark = [pytest.mark.fault, pytest.mark.long]


@dataclass(frozen=True)
class Played:
    """What a driver did on the cluster."""

    scene: Scene
    flows: list[Flow]
    #: By somebody else, out of the claimed queue.
    taken: Counter[str]
    commands: CommandScene
    ended: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def played(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All in one session: six Javas are enough for this machine."""
    folder = tmp_path_factory.mktemp("cluster")
    scene = Scene(BusRig(server.connection_string), folder)
    flows = [
        replace(flow, ca_file=server.ca_file)
        for flow in (scene.flow(HUB, QUEUE, ROWS, KILL_EXECUTOR), scene.flow(QUEUE, HUB, TASK, KILL_EXECUTOR))
    ]
    commands = CommandScene(scene)
    with StandaloneCluster(folder / "spark") as cluster:
        calls = commands.calls(cluster.url, server)
        plan = write_plan(
            folder / "plan.json", cluster.url, EXECUTOR_SETTINGS, encrypted(server), flows, calls
        )
        with Driver(plan, PYSPARK_PYTHON=str(bare_python(folder / "bare"))) as driver:
            taken = compete(scene, flows[1], driver)
            return Played(scene, flows, taken, commands, driver.wait())


def test_a_cluster_without_our_code_loses_executors_and_no_row(played: Played) -> None:
    """Our code and the certificate authority travel. Executors die by kill -9 among the rows of a hub and behind the
    rows of a claim, while somebody else receives from the claimed queue: planned rows come again, sinks get them
    once, the queue ends empty."""
    scene, flows = played.scene, played.flows
    assert played.ended.returncode == 0, played.ended
    assert told(played.ended)["ended"] == [None, None]
    assert len(list(scene.faults.glob("*.reached"))) == 2
    scene.check(flows[0])
    assert scene.found(flows[1]) + played.taken == Counter(numbers(COUNT))
    assert scene.rig.peek(flows[1].origin) == []
    assert played.taken.total() > 0


def test_every_command_runs_on_a_cluster_without_our_code(played: Played) -> None:
    """`busway pipeline` with `--master spark://…`: a master and two workers, over TLS."""
    played.commands.check(told(played.ended))


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
