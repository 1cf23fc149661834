"""Events in files: windows by time and size, nothing twice, nothing left out."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.broker.namespace.namespace import Namespace
from busway.message.event_record import event_of
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.streams.cursor import EventReader
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import CaptureDescription, EventHubDescription
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore

EVERY_MINUTE = CaptureDescription(interval_s=60, skip_empty_archives=True, destination="out")


class Bus:
    def __init__(self, folder: Path, store: MemoryStore, clock: ManualClock) -> None:
        self.clock = clock
        self.folder = folder
        self.namespace = Namespace("bus", [store], clock, SeededEntropy(), Limits())
        self.hubs = EventHubs(self.namespace, clock, SeededEntropy(2), folder)

    async def publish(
        self, *bodies: bytes, key: str | None = None, properties: dict[str, object] | None = None
    ) -> None:
        ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        annotations: dict[object, object] | None = None if key is None else {"x-opt-partition-key": key}
        events = [
            event_of(
                encode_message(
                    AmqpMessage(
                        [body], DATA, message_annotations=annotations, application_properties=properties
                    )
                )
            )
            for body in bodies
        ]
        self.hubs.hub("h").partition("0").append(events, ended.set_result)
        assert await ended is None

    async def pass_time(self, seconds: float) -> None:
        """Second by second, each with all the work it brings."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            await self.settle()

    async def settle(self) -> None:
        """Until nothing is under way any more: threads among it."""
        self.namespace.tick()
        await self.namespace.background.idle()

    def files(self, suffix: str = ".avro") -> list[Path]:
        return sorted(self.folder.rglob(f"*{suffix}"))

    def captured(self) -> list[bytes]:
        return [record["Body"] for path in self.files() for record in records(path)]


def records(path: Path) -> list[dict[str, Any]]:
    return [record for record in fastavro.reader(io.BytesIO(path.read_bytes())) if isinstance(record, dict)]


def run(
    folder: Path, work: Callable[[Bus], Awaitable[None]], capture: CaptureDescription = EVERY_MINUTE
) -> None:
    async def whole() -> None:
        bus = Bus(folder, MemoryStore("store-0"), ManualClock())
        await bus.namespace.open()
        await bus.hubs.create(EventHubDescription("h", 1, capture=capture))
        await bus.settle()
        try:
            await work(bus)
        finally:
            await bus.namespace.close()

    asyncio.run(whole())


def test_a_window_becomes_a_file_in_the_service_s_own_form(tmp_path: Path) -> None:
    """H-40, H-41, H-44: names by tokens, the schema of the service, values with their types."""

    async def work(bus: Bus) -> None:
        await bus.publish(b"one", key="k", properties={"n": 7, "d": 1.5, "s": "text", "b": b"raw", "t": True})
        await bus.pass_time(62)
        (path,) = bus.files()
        # The clock of the tests begins at 22:13:20 on the 14th of November 2023.
        assert path.relative_to(tmp_path).as_posix() == "out/bus/h/0/2023/11/14/22/13/20.avro"
        assert b"Microsoft.ServiceBus.Messaging.EventData" in path.read_bytes()
        (record,) = records(path)
        assert (record["SequenceNumber"], record["Offset"], record["Body"]) == (0, "0", b"one")
        assert record["EnqueuedTimeUtc"] == "11/14/2023 10:13:20 PM"
        assert record["Properties"] == {"n": 7, "d": 1.5, "s": "text", "b": b"raw", "t": "true"}
        assert record["SystemProperties"]["x-opt-partition-key"] == "k"

    run(tmp_path, work)


def test_every_event_is_in_exactly_one_file(tmp_path: Path) -> None:
    """H-41: window after window."""

    async def work(bus: Bus) -> None:
        for minute in range(3):
            await bus.publish(*(b"%d-%d" % (minute, each) for each in range(5)))
            await bus.pass_time(61)
        assert len(bus.files()) == 3
        assert bus.captured() == [b"%d-%d" % (minute, each) for minute in range(3) for each in range(5)]
        figures = bus.hubs.captures.figures("h")
        assert figures is not None
        assert (figures.files, figures.events, bus.hubs.captures.backlog("h")) == (3, 15, 0)

    run(tmp_path, work)


def test_a_window_ends_when_it_is_large_enough(tmp_path: Path) -> None:
    """H-41: the first limit that is reached."""

    async def work(bus: Bus) -> None:
        for _ in range(12):
            await bus.publish(b"x" * 1_000_000)
        await bus.pass_time(2)
        assert len(bus.files()) == 1
        assert len(bus.captured()) == 11

    run(tmp_path, work, replace(EVERY_MINUTE, size_limit_bytes=10_485_760))


def test_idle_windows_leave_empty_files_unless_they_are_skipped(tmp_path: Path) -> None:
    """H-42: idle windows leave empty files unless they are skipped."""

    async def work(bus: Bus) -> None:
        await bus.pass_time(125)
        assert [records(path) for path in bus.files()] == [[], []]

    run(tmp_path / "with", work, replace(EVERY_MINUTE, skip_empty_archives=False))

    async def none(bus: Bus) -> None:
        await bus.pass_time(125)
        assert bus.files() == []

    run(tmp_path / "without", none)


def test_capture_begins_when_it_is_enabled(tmp_path: Path) -> None:
    """H-43: what was there before is not captured."""

    async def work(bus: Bus) -> None:
        hub = bus.hubs.description("h")
        await bus.hubs.update(replace(hub, capture=None))
        await bus.publish(b"before")
        await bus.hubs.update(replace(hub, capture=replace(EVERY_MINUTE, destination="later")))
        await bus.settle()
        await bus.publish(b"after")
        await bus.pass_time(62)
        assert bus.captured() == [b"after"]

    run(tmp_path, work)


def test_a_destination_that_fails_is_tried_until_it_works(tmp_path: Path) -> None:
    """H-43: events wait in the log meanwhile."""

    async def work(bus: Bus) -> None:
        await bus.publish(b"one")
        blocked = tmp_path / "out" / "bus"
        blocked.write_bytes(b"a file where a directory must be")
        await bus.pass_time(70)
        assert bus.files() == []
        figures = bus.hubs.captures.figures("h")
        assert figures is not None
        assert figures.failures > 0
        blocked.unlink()
        await bus.pass_time(130)
        assert bus.captured() == [b"one"]

    run(tmp_path, work)


@pytest.mark.parametrize("lost", ["nothing", "file", "state"])
def test_a_restart_goes_on_where_it_was(tmp_path: Path, lost: str) -> None:
    """H-43: a planned file that was not finished is written again with the same events; one that was is not."""

    async def whole() -> None:
        store, clock = MemoryStore("store-0"), ManualClock()
        first = Bus(tmp_path, store, clock)
        await first.namespace.open()
        await first.hubs.create(EventHubDescription("h", 1, capture=EVERY_MINUTE))
        await first.settle()
        await first.publish(b"one")
        await first.pass_time(61)
        await first.publish(b"two")
        await first.namespace.close()
        (path,) = first.files()
        (state,) = first.files(".json")
        if lost == "file":  # as if the crash had come after the plan and before the file
            path.unlink()
        if lost != "nothing":  # as if it had come before the end of the file was noted
            name = path.relative_to(tmp_path / "out").as_posix()
            plan = {"first": 0, "end": 1, "began_at_ms": 1_700_000_000_000, "name": name}
            noted = {"next_number": 1, "began_at_ms": clock.wall_ms(), "plan": plan}
            state.write_text(json.dumps(noted))
        second = Bus(tmp_path, store, clock)
        await second.namespace.open()
        await second.pass_time(62)
        assert second.captured() == [b"one", b"two"]
        await second.namespace.close()

    asyncio.run(whole())


def test_capturing_takes_no_reader_s_place(tmp_path: Path) -> None:
    """H-45, H-23: five readers may read besides, and capture goes on with all of them there."""

    class Reader(EventReader):
        def wake(self) -> None: ...

    async def work(bus: Bus) -> None:
        readers = bus.hubs.hub("h").partition("0").readers
        for _ in range(5):
            readers.add("$default", Reader())
        await bus.publish(b"one")
        await bus.pass_time(62)
        assert bus.captured() == [b"one"]

    run(tmp_path, work)


def test_parquet_files_have_the_same_columns(tmp_path: Path) -> None:
    """H-40: parquet files have the same columns."""

    async def work(bus: Bus) -> None:
        await bus.publish(b"one", b"two", properties={"n": 7})
        await bus.pass_time(62)
        (path,) = bus.files(".parquet")
        table = pq.read_table(io.BytesIO(path.read_bytes()))
        assert table.column("Body").to_pylist() == [b"one", b"two"]
        assert table.column("SequenceNumber").to_pylist() == [0, 1]
        assert table.column("Properties").to_pylist() == [[("n", "7")]] * 2

    run(tmp_path, work, replace(EVERY_MINUTE, encoding="Parquet"))
