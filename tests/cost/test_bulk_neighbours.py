"""What many bulk requests together may cost the others: no long turn of the loop, bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from busway.message.event_record import Event
from busway.model.descriptions import LISTEN
from busway.streams.hub_descriptions import EventHubDescription
from tests.cost.http_client import HttpClient
from tests.cost.instruments import Bytes, Turns
from tests.cost.machine import slowness
from tests.cost.row import MIB
from tests.cost.world import World

READERS: Final = 64
PARTITIONS: Final = 4
TURN_S_MAX: Final = 0.010
MEMORY_BYTES_MAX: Final = 128 * MIB
TRIES: Final = 3
_EVENT: Final = Event(b"\x00Su\xb0\x00\x00\x04\x00" + bytes(1_024), 8)
_EVENTS: Final = 4 * 1_024


@pytest.fixture(scope="module")
def hub(world: World) -> str:
    """Four MiB in each partition."""
    world.run(world.hubs.create(EventHubDescription("read-by-many", partition_count=PARTITIONS), []))
    world.run(_fill(world))
    return "read-by-many"


async def _fill(world: World) -> None:
    for log in world.hubs.hub("read-by-many").logs():
        for _ in range(_EVENTS // 256):
            log.append([_EVENT] * 256, lambda _: None)
            await log.durable()


@contextlib.contextmanager
def _asked(world: World, hub: str) -> Iterator[list[HttpClient]]:
    """So many clients that have asked for a partition each."""
    clients = [HttpClient(world, LISTEN) for _ in range(READERS)]
    requests = [
        client.request("GET", f"{hub}/partitions/{number % PARTITIONS}/events")
        for number, client in enumerate(clients)
    ]
    try:
        for client, request in zip(clients, requests, strict=True):
            client._socket.sendall(request)
        yield clients
    finally:
        for client in clients:
            client.close()


def test_no_turn_of_the_loop_is_long_beside_many_bulk_readers(world: World, hub: str) -> None:
    """A good neighbour: 64 readers at once, no turn above ten milliseconds of CPU."""
    seen, allowed_s = [], TURN_S_MAX
    for _ in range(TRIES):
        turns = Turns()
        world.settle()
        turns.begin(world)
        with _asked(world, hub) as clients:
            threads = [threading.Thread(target=client.hear) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert {client.size // MIB for client in clients} == {4}
        turns.end(world)
        seen.append(f"{turns.longest_s * 1000:.1f} ms in {turns.what_ran}")
        allowed_s = TURN_S_MAX * slowness()
        if turns.longest_s <= allowed_s:
            print(seen[-1])
            return
    raise AssertionError(f"longest turns: {'; '.join(seen)}; allowed are {allowed_s * 1000:.0f} ms")


def test_many_bulk_readers_that_take_nothing_hold_little(world: World, hub: str) -> None:
    """Attack: 64 clients ask and take nothing; nobody else has to pay for it with memory."""
    held = Bytes(1, reads=False)
    held.begin(world)
    with _asked(world, hub):
        world.settle()
        held.end(world)
    world.run(asyncio.sleep(0))
    assert held.most <= MEMORY_BYTES_MAX, f"{held.most / MIB:.0f} MiB"
    print(f"{held.most / MIB:.0f} MiB")
