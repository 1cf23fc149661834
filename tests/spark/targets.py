"""What the tests of sinks write to: a hub, a queue or a topic, and which bodies can be seen there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import uuid4

from tests.spark.flows import hub_bodies
from tests.spark.servicebus_rig import BusRig

HUB = "hub"
QUEUE = "queue"
TOPIC = "topic"
KINDS = (HUB, QUEUE, TOPIC)
_PARTITIONS = 2


@dataclass(frozen=True)
class Target:
    kind: str
    name: str
    rig: BusRig

    @classmethod
    def made(cls, kind: str, rig: BusRig) -> Target:
        name = f"{kind}-{uuid4().hex[:10]}"
        with rig.administration() as administration:
            if kind == HUB:
                administration.hubs.create(name, {"PartitionCount": _PARTITIONS})
            elif kind == QUEUE:
                administration.create_queue(name)
            else:
                administration.create_topic(name)
                administration.create_subscription(name, "all")
        return cls(kind, name, rig)

    @property
    def format(self) -> str:
        return "eventhubs" if self.kind == HUB else "servicebus"

    def options(self, **more: object) -> dict[str, str]:
        entity = "name" if self.kind == HUB else self.kind
        given = {"connectionString": self.rig.connection_string, entity: self.name, **more}
        return {name: str(value) for name, value in given.items()}

    def seen(self) -> Counter[str]:
        """What everybody can see; of queues and topics nothing is taken away."""
        if self.kind == HUB:
            return hub_bodies(self.rig.connection_string, self.name, _PARTITIONS)
        address = self.name if self.kind == QUEUE else f"{self.name}/Subscriptions/all"
        return Counter(message.body.decode() for message in self.rig.peek_all(address))
