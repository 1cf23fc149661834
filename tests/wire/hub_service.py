"""The gateway with one event hub in memory, under a clock that stands still: what it writes depends only on what it
reads, so conversations of SDKs with it are recorded (`record_events`) and replayed.

A conversation is text, one line for each step:

  C1 HEX   connection 1 wrote this; a number that is new is a new connection
  S1 HEX   and was answered with this
  P HEX    somebody else published an event with this body to partition 0
  E HEX    somebody else attached a reader of partition 0 with this epoch
"""

from __future__ import annotations

from pathlib import Path

from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.partition_log import PartitionLog
from tests.unit.gateway.amqp_peer import MemoryTransport
from tests.unit.gateway.event_room import EventRoom, event, publish, reader

FOLDER = Path(__file__).parent / "event_transcripts"
HUB = "hub"

#: What happens, the connection (0 where there is none), the bytes.
Step = tuple[str, int, bytes]


class HubService:
    """Of one conversation."""

    def __init__(self) -> None:
        self.room = EventRoom()
        self._transports: list[MemoryTransport] = []

    async def open(self) -> None:
        await self.room.open_hubs(EventHubDescription(HUB, partition_count=2))

    async def close(self) -> None:
        await self.room.close()

    def log(self, index: int = 0) -> PartitionLog:
        return self.room.hubs.hub(HUB).partition(str(index))

    async def do(self, step: Step) -> list[Step]:
        """What the gateway writes because of it, by connection."""
        kind, number, data = step
        if kind == "C":
            self._connection(number).data_received(data)
        elif kind == "P":
            await publish(await self.room.client(), f"{HUB}/Partitions/0", event(data))
        else:
            await reader(await self.room.client(), 0, epoch=int.from_bytes(data, "big"))
        await self.room.turns(60)
        answers = [("S", at, transport.take()) for at, transport in enumerate(self._transports, 1)]
        return [answer for answer in answers if answer[2]]

    def is_closed(self, number: int) -> bool:
        return self._transports[number - 1].is_closed

    def _connection(self, number: int) -> _Connection:
        if number > len(self._transports):
            self._transports.append(_Connection(self.room))
        transport = self._transports[number - 1]
        assert isinstance(transport, _Connection)
        return transport


class _Connection(MemoryTransport):
    """Both ends of a client's connection."""

    def __init__(self, room: EventRoom) -> None:
        super().__init__()
        self.data_received = room.gateway.connect(self, "127.0.0.1").data_received


def load(path: Path) -> list[Step]:
    lines = [line for line in path.read_text("ascii").splitlines() if not line.startswith("#")]
    heads = [line.split(" ") for line in lines]
    return [(head[0], int(head[1:] or "0"), bytes.fromhex(data)) for head, data in heads]


def save(path: Path, title: str, steps: list[Step]) -> None:
    lines = [f"{kind}{number or ''} {data.hex()}" for kind, number, data in steps]
    path.write_text("\n".join([f"# {title}", *lines]) + "\n", "ascii")
