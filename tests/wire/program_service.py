"""The gateway with one entity in memory, under a clock that stands still, for conversations with the programs of
tests/sdk: recorded by `record_programs`, replayed by `test_program_transcripts`, written as `hub_service` says."""

from __future__ import annotations

import re
from pathlib import Path

from busway.model.descriptions import NewEntity, QueueDescription
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.amqp_peer import MemoryTransport
from tests.unit.gateway.event_room import EventRoom
from tests.wire.hub_service import Step

FOLDER = Path(__file__).parent / "program_transcripts"
_TITLE = re.compile(r"# ([a-z-]+) at (\d+): ")
ENTITY = "entity"
KINDS = ("queue", "session-queue", "hub")


class ProgramService:
    """Of one conversation, with an entity of a kind, at the time of the recording: SDKs compare it with theirs."""

    def __init__(self, kind: str, wall_ms: int) -> None:
        assert kind in KINDS
        self.kind = kind
        self.room = EventRoom()
        self.room.clock.step_wall((wall_ms - self.room.clock.wall_ms()) / 1000)
        self._connections: list[_Connection] = []

    async def open(self) -> None:
        hub = EventHubDescription(ENTITY, partition_count=2)
        await self.room.open_hubs(*([hub] if self.kind == "hub" else []))
        if self.kind != "hub":
            queue = QueueDescription(ENTITY, requires_session=self.kind == "session-queue")
            await self.room.namespace.create([NewEntity(queue)])

    async def close(self) -> None:
        await self.room.close()

    async def do(self, step: Step) -> list[Step]:
        """What the gateway writes because of what a connection wrote."""
        _, number, data = step
        if number > len(self._connections):
            self._connections.append(_Connection(self.room))
        self._connections[number - 1].data_received(data)
        await self.room.turns(60)
        answers = [("S", at, each.take()) for at, each in enumerate(self._connections, 1)]
        return [answer for answer in answers if answer[2]]

    def is_closed(self, number: int) -> bool:
        return self._connections[number - 1].is_closed


def title(kind: str, wall_ms: int, told: str) -> str:
    return f"{kind} at {wall_ms}: {told}"


def service_of(path: Path) -> ProgramService:
    """The same as when it was recorded."""
    found = _TITLE.match(path.read_text("ascii"))
    assert found is not None
    return ProgramService(found[1], int(found[2]))


class _Connection(MemoryTransport):
    def __init__(self, room: EventRoom) -> None:
        super().__init__()
        self.data_received = room.gateway.connect(self, "127.0.0.1").data_received
