"""Streams of Spark, killed again and again on the same checkpoints: the driver, an executor, the bus.

Four streams, each source into each sink, go on from their checkpoints in every round. In each round all of them are
stopped at a place in a batch, and then somebody dies by kill -9. The last driver is left alone to finish.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.chaos.scenario import Outcome
from tests.harness.running_server import RunningServer

if TYPE_CHECKING:
    from tests.spark.cluster import Driver
    from tests.spark.flows import Flow
    from tests.spark.scene import Scene

NAME: Final = "Spark's streams"
MASTER: Final = "local-cluster[2,4,700]"
_FAULT_S_MAX: Final = 300.0
_WORDS_MAX: Final = 1_500


def kill_streams(folder: Path, rounds: int, seed: int) -> Outcome:
    if find_spec("pyspark") is None:
        return Outcome(NAME, 0, rounds, skipped="needs the extra spark")
    with RunningServer(folder / "bus") as server:
        trial = _Trial(folder, server, random.Random(seed), rounds)
        done = sum(trial.play(at) for at in range(rounds))
        trial.finish()
        return Outcome(
            NAME, done, rounds, trial.sent, trial.received, dict(trial.violations), f"({trial.deaths})"
        )


class _Trial:
    def __init__(self, folder: Path, server: RunningServer, chance: random.Random, rounds: int) -> None:
        from tests.spark.flows import HUB, QUEUE, ROWS_PER_BATCH
        from tests.spark.scene import Scene
        from tests.spark.servicebus_rig import BusRig

        self._folder = folder
        self._server = server
        self._chance = chance
        # A round commits one batch at most, or two where nobody dies in time.
        self._scene: Scene = Scene(
            BusRig(server.connection_string), folder, ROWS_PER_BATCH * (2 * rounds + 2)
        )
        kinds = [(source, sink) for source in (HUB, QUEUE) for sink in (HUB, QUEUE)]
        self._flows: list[Flow] = [self._scene.flow(source, sink, "", "") for source, sink in kinds]
        self.violations: Counter[str] = Counter()
        self.deaths: dict[str, int] = {}
        self.sent = self._scene.count * len(kinds)
        self.received = 0

    def play(self, at: int) -> bool:
        """True when the round killed somebody in the middle of four batches."""
        from tests.spark.faults import KILL_DRIVER, KILL_EXECUTOR, WAIT

        act = self._chance.choice([KILL_DRIVER, KILL_DRIVER, KILL_EXECUTOR, WAIT])
        faults = self._folder / f"faults-{at}"
        faults.mkdir()
        flows = [self._faulty(flow, number, act, faults) for number, flow in enumerate(self._flows)]
        with self._driver(at, flows) as driver:
            deadline = time.monotonic() + _FAULT_S_MAX
            while len(list(faults.glob("*.reached"))) < len(flows) and time.monotonic() < deadline:
                if not driver.is_running:
                    break
                time.sleep(0.05)
            reached = len(list(faults.glob("*.reached")))
            if reached < len(flows) and not driver.is_running:
                self._failures(f"round {at}", driver.wait())
            if act == WAIT:
                self._server.kill()
                self._server.start()
                (faults / "go-on").touch()
            if act != KILL_DRIVER:
                time.sleep(self._chance.uniform(0.0, 6.0))  # then this driver dies as well
        death = "kill the bus" if act == WAIT else act
        self.deaths[death] = self.deaths.get(death, 0) + 1
        return reached == len(flows)

    def _faulty(self, flow: Flow, number: int, act: str, faults: Path) -> Flow:
        from tests.spark.faults import COMMIT, KILL_EXECUTOR, ROWS, TASK
        from tests.spark.flows import committed, fault

        place = self._chance.choice([ROWS, TASK] if act == KILL_EXECUTOR else [ROWS, TASK, COMMIT])
        batch = max(committed(flow), default=-1) + 1
        return replace(flow, fault=fault(f"flow-{number}", place, act, faults, len(self._flows), batch))

    def finish(self) -> None:
        with self._driver(-1, [flow.healthy() for flow in self._flows]) as driver:
            ended = driver.wait(600)
        for failure in self._failures("the last driver", ended):
            self.violations[f"the last driver failed: {failure}"] += 1
        for flow in self._flows:
            found, wanted = self._scene.found(flow), self._scene.wanted(flow)
            self.received += found.total()
            self.violations.update({"lost": (wanted - found).total(), "twice": (found - wanted).total()})
            if flow.source == "servicebus" and self._scene.rig.peek(flow.origin):
                self.violations["left in a queue"] += 1
        self.violations = +self.violations

    def _failures(self, who: str, ended: subprocess.CompletedProcess[str]) -> list[str]:
        """What a driver that ended by itself, or its streams, failed with; told at once."""
        from tests.spark.cluster import told

        ends = [str(each) for each in told(ended).get("ended", [ended.stderr]) if each is not None]
        failures = [each.partition("=== Streaming Query")[0][-_WORDS_MAX:] for each in ends]
        for failure in failures:
            print(f"{who}: {failure}", file=sys.stderr, flush=True)
        return failures

    def _driver(self, at: int, flows: list[Flow]) -> Driver:
        from tests.spark.cluster import EXECUTOR_SETTINGS
        from tests.spark.cluster import Driver as DriverProcess
        from tests.spark.flows import write_plan

        plan = self._folder / f"plan-{at}.json"
        return DriverProcess(
            write_plan(plan, MASTER, EXECUTOR_SETTINGS, self._server.connection_string, flows)
        )
