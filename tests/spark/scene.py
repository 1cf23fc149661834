"""Entities of one server that flows run between, and whether every row arrived once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

from tests.spark.flows import HUB, QUEUE, Flow, fault, hub_bodies
from tests.spark.hub_traffic import expected, fill
from tests.spark.servicebus_rig import BusRig, numbers

COUNT = 300


class Scene:
    def __init__(self, rig: BusRig, folder: Path, count: int = COUNT) -> None:
        self.rig = rig
        self.connection = rig.connection_string
        self.folder = folder
        self.count = count
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)

    def flow(self, source: str, sink: str, place: str, act: str, together: int = 1) -> Flow:
        name = f"{source}-{sink}-{place}"
        return Flow(
            source,
            sink,
            self.filled(source),
            self.empty(sink),
            str(self.folder / f"checkpoint-{name}"),
            fault(name, place, act, self.faults, together),
        )

    def filled(self, kind: str) -> str:
        if kind == HUB:
            hub = self.empty(HUB)
            fill(self.connection, hub, self.count // 2)
            return hub
        queue = self.rig.queue()
        self.rig.send_numbered(queue, self.count)
        return queue

    def empty(self, kind: str) -> str:
        if kind == HUB:
            name = f"hub-{uuid4().hex[:8]}"
            with self.rig.administration() as administration:
                administration.hubs.create(name, {"PartitionCount": 2})
            return name
        return self.rig.queue()

    def check(self, flow: Flow) -> None:
        """Every row once in the sink; a queue that was read is empty."""
        found = self.found(flow)
        wanted = self.wanted(flow)
        assert found == wanted, (flow, "lost", wanted - found, "twice", found - wanted)
        if flow.source == QUEUE:
            assert self.rig.peek(flow.origin) == []

    def wanted(self, flow: Flow) -> Counter[str]:
        return Counter(expected(self.count // 2) if flow.source == HUB else numbers(self.count))

    def found(self, flow: Flow) -> Counter[str]:
        if flow.sink == HUB:
            return hub_bodies(self.connection, flow.target)
        bodies: list[str] = []
        while messages := self.rig.receive(flow.target):
            bodies += [message.body.decode() for message in messages]
        return Counter(bodies)
