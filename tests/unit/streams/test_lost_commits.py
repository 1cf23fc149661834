"""A store that has lost commits which it had reported: its logs give no number out twice."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock
from busway.message.event_chunk import Chunk
from busway.message.event_record import Event
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.store.contract import Counters, LogCounters
from busway.store.sqlite.store import SqliteStore
from busway.streams.cursor import NUMBER, Position
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.hub_table import step_ahead
from busway.streams.partition_log import PartitionLog
from tests.harness.manual_clock import SeededEntropy


class Bus:
    """A namespace over one file."""

    def __init__(self, folder: Path) -> None:
        clock = Clock()
        self.store = SqliteStore("first", folder / "first.db", clock, reserve_bytes=0, space_low_bytes=0)
        self.namespace = Namespace("bus", [self.store], clock, SeededEntropy(), Limits())
        self.hubs = EventHubs(self.namespace, clock, SeededEntropy(2))

    async def __aenter__(self) -> Bus:
        await self.namespace.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.namespace.close()

    def log(self, partition: str = "0") -> PartitionLog:
        return self.hubs.hub("clicks").partition(partition)

    async def publish(self, *bodies: bytes) -> int:
        """Returns the number of the last one."""
        ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        events = [Event(b"\x00Su\xa0" + bytes((len(body),)) + body, 5) for body in bodies]
        self.log().append(events, ended.set_result)
        error = await ended
        assert error is None
        return self.log().info().last_number

    async def read(self, number: int) -> list[tuple[int, bytes]]:
        page = await self.log().page(number, 1 << 20)
        chunks = [Chunk(data) for data in page.chunks]
        return [
            (chunk.number(place), chunk.record(place)[-1:])
            for chunk in chunks
            for place in range(chunk.count)
        ]


async def _lose_two_events(folder: Path) -> None:
    """Events 0 to 2 are there, 3 and 4 were reported and are gone."""
    async with Bus(folder) as bus:
        await bus.hubs.create(EventHubDescription("clicks", 2))
        await bus.publish(b"a", b"b", b"c")
    shutil.copy(folder / "first.db", folder / "earlier")
    async with Bus(folder) as bus:
        assert await bus.publish(b"d") == 3
        assert await bus.publish(b"e") == 4
    shutil.move(folder / "earlier", folder / "first.db")  # a close leaves no log behind


def test_numbers_that_were_lost_are_not_given_out_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """F4, H-16: whoever has read them goes on from its checkpoint and misses nothing that comes."""

    async def scenario() -> None:
        await _lose_two_events(tmp_path)
        async with Bus(tmp_path) as bus:
            assert bus.store.lost_commits > 0
            assert "partition 0 of 'clicks'" in caplog.text
            assert "3 to " in caplog.text
            number = await bus.publish(b"f")
            assert number > 1_000_000
            begin = await bus.log().start_number(Position(NUMBER, 4))
            assert begin == 5
            assert await bus.read(begin) == [(number, b"f")]
            assert await bus.read(0) == [(0, b"a"), (1, b"b"), (2, b"c"), (number, b"f")]
        async with Bus(tmp_path) as bus:
            assert bus.store.lost_commits == 0
            assert await bus.publish(b"g") == number + 1

    asyncio.run(scenario())


def test_the_step_is_stored_though_nobody_publishes(tmp_path: Path) -> None:
    """F4, H-16: the next opening finds nothing lost, and the log where it was put."""

    async def scenario() -> None:
        await _lose_two_events(tmp_path)
        async with Bus(tmp_path) as bus:
            ends = [bus.log(index).durable_end for index in ("0", "1")]
        async with Bus(tmp_path) as bus:
            assert [bus.log(index).durable_end for index in ("0", "1")] == ends
            assert bus.log("1").info().is_empty
            assert not bus.log("0").info().is_empty

    asyncio.run(scenario())


def test_a_hub_made_later_begins_at_zero(tmp_path: Path) -> None:
    """H-16: it has lost nothing."""

    async def scenario() -> None:
        await _lose_two_events(tmp_path)
        async with Bus(tmp_path) as bus:
            await bus.hubs.create(EventHubDescription("orders", 2))
            assert bus.hubs.hub("orders").partition("0").info().last_number == -1

    asyncio.run(scenario())


def test_a_step_is_longer_than_all_that_can_be_lost() -> None:
    """H-16: with each commit a batch of the smallest events, and those of the second that nobody has counted."""
    counters = LogCounters(Counters())
    counters.next_number, counters.first_number, counters.events = 100, 40, 60
    step_ahead("partition 0 of 'clicks'", counters, 1)
    assert counters.next_number - 100 >= 16 << 20
    assert counters.first_number == 40
    before = counters.next_number
    step_ahead("partition 0 of 'clicks'", counters, 1 << 40)
    assert (1 << 43) < counters.next_number - before < (1 << 53)


def test_the_beginning_of_an_empty_log_goes_along() -> None:
    """H-27: the beginning of an empty log goes along."""
    counters = LogCounters(Counters())
    counters.next_number = counters.first_number = 7
    step_ahead("partition 0 of 'clicks'", counters, 1)
    assert counters.first_number == counters.next_number > 7
