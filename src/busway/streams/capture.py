"""Capturing a partition: its events go to files, window by window (H-40…H-45).

Theory of operation. Once a second somebody looks whether the open window is over: by time, or because what it
holds is larger than a file may be. Then a file is planned, written and the next window begins. A destination that
fails is tried again for ever, with a growing pause; events wait in the log meanwhile, as long as they are
retained. Capturing begins with the events that come after it was enabled, and goes on where it was after a
restart.

The durable side (`CaptureWindow`): which file comes next, and what it holds. A file is *planned* before it is
written: its range of numbers, its name and the beginning of the next window go into a small state file, safely on
the disk, then the file itself is written beside its place and moved there whole. After a crash the plan says what
to do: the file is there and the plan is done, or it is written again with exactly the same events under the same
name. So no event is captured twice and none is left out, whatever happens between. Nobody ever sees half a file.

Files are in the formats of a hub's capture (H-40, H-44). Each is written from whole chunks, one after the other,
in a thread: memory holds one chunk.

Capturing reads the log like everybody else, counts as no reader, and writes in a thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

from busway.amqp.sections import DATA, decode_message
from busway.message.event_chunk import Chunk
from busway.model.errors import BrokerError
from busway.store.contract import StoreError
from busway.streams.hub_descriptions import (
    AVRO,
    AVRO_DEFLATE,
    PARQUET,
    CaptureDescription,
    EventHubDescription,
)
from busway.streams.partition_log import PartitionLog
from busway.timers import Timer

_STATE_FOLDER: Final = ".busway"


@dataclass(frozen=True)
class FilePlan:
    """A file to be written: events `first` to before `end`, of the window that began at `began_at_ms`."""

    first: int
    end: int
    began_at_ms: int
    #: Below the destination.
    name: str


@dataclass(frozen=True)
class CaptureState:
    #: The first event that no file has.
    next_number: int
    #: When the window that is open began.
    began_at_ms: int
    plan: FilePlan | None = None


class CaptureWindow:
    """Blocking: called in a thread."""

    def __init__(self, destination: Path, state_name: str) -> None:
        self._destination = destination
        self._state_file = destination / _STATE_FOLDER / f"{state_name}.json"

    def load(self) -> CaptureState | None:
        """None when this partition was never captured. Raises OSError, ValueError."""
        try:
            data = json.loads(self._state_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        plan = data.get("plan")
        return CaptureState(
            int(data["next_number"]), int(data["began_at_ms"]), None if plan is None else FilePlan(**plan)
        )

    def save(self, state: CaptureState) -> None:
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(state))
        _replace(self._state_file, lambda stream: stream.write(text.encode()))

    def free_name(self, wanted: Callable[[int], str], began_at_ms: int) -> str:
        """Windows that end by size may be shorter than the second that names tell: a later one is free."""
        at_ms = began_at_ms
        while (self._destination / wanted(at_ms)).exists():
            at_ms += 1_000
        return wanted(at_ms)

    def exists(self, name: str) -> bool:
        return (self._destination / name).exists()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> int:
        """The file as a whole or not at all. Returns its size."""
        path = self._destination / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, write)
        return path.stat().st_size


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def file_name(name_format: str, namespace: str, hub: str, partition: int, at_ms: int, suffix: str) -> str:
    """H-41: the name of a file, from the tokens of the format."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    tokens = {
        "{Namespace}": namespace,
        "{EventHub}": hub,
        "{PartitionId}": str(partition),
        "{Year}": f"{at.year:04}",
        "{Month}": f"{at.month:02}",
        "{Day}": f"{at.day:02}",
        "{Hour}": f"{at.hour:02}",
        "{Minute}": f"{at.minute:02}",
        "{Second}": f"{at.second:02}",
    }
    for token, text in tokens.items():
        name_format = name_format.replace(token, text)
    return name_format + suffix


Value = int | float | str | bytes

_LONG_MAX: Final = (1 << 63) - 1
#: Annotations that have columns of their own.
_OWN_COLUMNS: Final = ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time")
_PROPERTIES: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)
_VALUES: Final = ["long", "double", "string", "bytes"]
AVRO_SCHEMA: Final = {
    "type": "record",
    "name": "EventData",
    "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": _VALUES}},
        {"name": "Properties", "type": {"type": "map", "values": _VALUES}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}
SUFFIXES: Final = {AVRO: ".avro", AVRO_DEFLATE: ".avro", PARQUET: ".parquet"}


class CapturedEvent:
    """Files of captured events in the formats of a hub's capture (H-40, H-44). Each is written from whole chunks,
    one after the other, in a thread: memory holds one chunk."""

    __slots__ = ("at_ms", "body", "number", "properties", "system_properties")

    def __init__(self, chunk: Chunk, index: int) -> None:
        self.number = chunk.number(index)
        self.at_ms = chunk.at_ms(index)
        message = decode_message(chunk.record(index))
        self.body: bytes | None = _body(message.body_kind, message.body)
        self.properties = {
            str(name): _value(value) for name, value in (message.application_properties or {}).items()
        }
        annotations = message.message_annotations or {}
        self.system_properties = {
            str(name): _value(value) for name, value in annotations.items() if name not in _OWN_COLUMNS
        }
        if message.properties is not None:
            for name in _PROPERTIES:
                value = getattr(message.properties, name)
                if value is not None:
                    self.system_properties[name.replace("_", "-")] = _value(value)


def enqueued_text(at_ms: int) -> str:
    """As the service writes it: `3/27/2017 6:16:35 PM`."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    hour = at.hour % 12 or 12
    return (
        f"{at.month}/{at.day}/{at.year} {hour}:{at.minute:02}:{at.second:02} {'AM' if at.hour < 12 else 'PM'}"
    )


def _body(kind: int, body: object) -> bytes | None:
    """Data sections as they are; an AMQP value as its text."""
    if kind == DATA and isinstance(body, list):
        return b"".join(body)
    if body is None or isinstance(body, bytes):
        return body
    return str(body).encode()


def _value(value: object) -> Value:
    """long, double, string or bytes: what does not fit is its text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and -_LONG_MAX - 1 <= value <= _LONG_MAX:
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, UUID):
        return str(value)
    return "" if value is None else str(value)


def write_capture(stream: BinaryIO, encoding: str, chunks: Iterable[Chunk], first: int, end: int) -> int:
    """The events with numbers from `first` to before `end`. Returns how many there were."""
    if encoding == PARQUET:
        return _write_parquet(stream, _batches(chunks, first, end))
    return _write_avro(stream, "deflate" if encoding == AVRO_DEFLATE else "null", chunks, first, end)


def _write_avro(stream: BinaryIO, codec: str, chunks: Iterable[Chunk], first: int, end: int) -> int:
    import fastavro

    count = 0

    def rows() -> Iterator[dict[str, object]]:
        nonlocal count
        for events in _batches(chunks, first, end):
            count += len(events)
            yield from (_avro_row(event) for event in events)

    fastavro.writer(stream, fastavro.parse_schema(AVRO_SCHEMA), rows(), codec=codec)
    return count


def _avro_row(event: CapturedEvent) -> dict[str, object]:
    return {
        "SequenceNumber": event.number,
        "Offset": str(event.number),
        "EnqueuedTimeUtc": enqueued_text(event.at_ms),
        "SystemProperties": event.system_properties,
        "Properties": event.properties,
        "Body": event.body,
    }


def _write_parquet(stream: BinaryIO, batches: Iterable[list[CapturedEvent]]) -> int:
    """A row group for each chunk. Needs the `arrow` extra."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.map_(pa.string(), pa.string())
    kinds: dict[str, pa.DataType] = {
        "SequenceNumber": pa.int64(),
        "Offset": pa.string(),
        "EnqueuedTimeUtc": pa.timestamp("ms", tz="UTC"),
        "SystemProperties": texts,
        "Properties": texts,
        "Body": pa.binary(),
    }
    schema = pa.schema(kinds)
    count = 0
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for events in batches:
            writer.write_table(pa.Table.from_pydict(_parquet_columns(events), schema=schema))
            count += len(events)
    return count


def _parquet_columns(events: list[CapturedEvent]) -> dict[str, list[object]]:
    return {
        "SequenceNumber": [event.number for event in events],
        "Offset": [str(event.number) for event in events],
        "EnqueuedTimeUtc": [event.at_ms for event in events],
        "SystemProperties": [_texts(event.system_properties) for event in events],
        "Properties": [_texts(event.properties) for event in events],
        "Body": [event.body for event in events],
    }


def _texts(values: dict[str, Value]) -> list[tuple[str, str]]:
    """Parquet's maps have values of one type: their text, bytes in hexadecimal."""
    return [(name, value.hex() if isinstance(value, bytes) else str(value)) for name, value in values.items()]


def _batches(chunks: Iterable[Chunk], first: int, end: int) -> Iterator[list[CapturedEvent]]:
    for chunk in chunks:
        start, stop = chunk.index_of(first), chunk.index_of(end)
        if start < stop:
            yield [CapturedEvent(chunk, index) for index in range(start, stop)]


_log = logging.getLogger("busway.capture")

_LOOK_EVERY_S: Final = 1.0
_PAUSE_LAST_S: Final = 60.0
_PAGE_BYTES: Final = 4 * 1024 * 1024
#: Heads looked at in one go; a window with more chunks is looked at again a second later.
_HEADS_MAX: Final = 10_000


class CaptureFigures:
    """O-6: what was captured of a hub since the start, over all partitions."""

    __slots__ = ("bytes", "events", "failures", "files")

    def __init__(self) -> None:
        self.files = 0
        self.events = 0
        self.bytes = 0
        self.failures = 0


class PartitionCapture:
    """See the head of this file. `start` and `stop` once each."""

    def __init__(
        self,
        log: PartitionLog,
        namespace: str,
        hub: str,
        incarnation: int,
        capture: CaptureDescription,
        folder: Path,
        figures: CaptureFigures,
    ) -> None:
        self._log = log
        self._namespace = namespace
        self._hub = hub
        self._capture = capture
        self._figures = figures
        self._window = CaptureWindow(
            folder / capture.destination, f"{namespace}-{hub}-{incarnation}-{log.index}"
        )
        #: None until it was read, or made.
        self._state: CaptureState | None = None
        self._is_busy = False
        self._is_stopped = False
        self._pause_s = _LOOK_EVERY_S
        self._timer: Timer | None = None

    @property
    def backlog(self) -> int:
        """Events that no file has yet."""
        state = self._state
        return 0 if state is None else max(0, self._log.durable_end - state.next_number)

    def start(self) -> None:
        """What comes from now on is captured."""
        self._is_busy = True
        self._log.runtime.spawn(self._open(self._log.durable_end))

    def stop(self) -> None:
        self._is_stopped = True
        self._log.runtime.timers.cancel(self._timer)

    def _arm(self, delay_s: float) -> None:
        if not self._is_stopped:
            runtime = self._log.runtime
            self._timer = runtime.timers.at(runtime.clock.monotonic() + delay_s, self._look)

    def _look(self) -> None:
        if not self._is_busy and not self._is_stopped and self._log.is_usable():
            self._is_busy = True
            self._log.runtime.spawn(self._step())

    async def _open(self, from_number: int) -> None:
        try:
            state = await asyncio.to_thread(self._window.load)
            if state is None:
                state = CaptureState(from_number, self._log.runtime.clock.wall_ms())
                await asyncio.to_thread(self._window.save, state)
            self._state = state
            self._pause_s = _LOOK_EVERY_S
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._failed(error)
            if not self._is_stopped:
                runtime = self._log.runtime
                deadline = runtime.clock.monotonic() + self._pause_s
                self._timer = runtime.timers.at(deadline, lambda: self._open_again(from_number))
            return
        self._is_busy = False
        self._arm(0.0)

    def _open_again(self, from_number: int) -> None:
        self._log.runtime.spawn(self._open(from_number))

    async def _step(self) -> None:
        try:
            await self._proceed()
            self._pause_s = _LOOK_EVERY_S
        except (OSError, StoreError, BrokerError) as error:
            self._failed(error)
        finally:
            self._is_busy = False
            self._arm(self._pause_s)

    def _failed(self, error: Exception) -> None:
        self._figures.failures += 1
        self._pause_s = min(self._pause_s * 2, _PAUSE_LAST_S)
        _log.warning(
            "Capturing partition %d of %s failed and is tried again: %s", self._log.index, self._hub, error
        )

    async def _proceed(self) -> None:
        state = self._state
        assert state is not None, "it was opened"
        if state.plan is None:
            end = await self._end_of_window(state)
            if end is None:
                return
            state = await self._planned(state, end)
        if state.plan is not None:
            await self._carry_out(state.plan)

    async def _end_of_window(self, state: CaptureState) -> int | None:
        """Where the file ends; None while the window is open."""
        log, capture = self._log, self._capture
        durable_end = log.durable_end
        heads = await log.store.chunk_heads(log.key, state.next_number, _HEADS_MAX)
        size_bytes = 0
        for head in heads:
            size_bytes += head.size_bytes
            if size_bytes >= capture.size_limit_bytes and head.last_number < durable_end:
                return head.last_number + 1
        is_over = log.runtime.clock.wall_ms() >= state.began_at_ms + capture.interval_s * 1000
        return durable_end if is_over else None

    async def _planned(self, state: CaptureState, end: int) -> CaptureState:
        """H-42: a window without events is a file without events, unless those are skipped."""
        now_ms = self._log.runtime.clock.wall_ms()
        plan: FilePlan | None = None
        if end > state.next_number or not self._capture.skip_empty_archives:
            name = await asyncio.to_thread(self._window.free_name, self._name_at, state.began_at_ms)
            plan = FilePlan(state.next_number, end, state.began_at_ms, name)
        planned = CaptureState(end, now_ms, plan)
        await asyncio.to_thread(self._window.save, planned)
        self._state = planned
        return planned

    def _name_at(self, at_ms: int) -> str:
        capture = self._capture
        suffix = SUFFIXES[capture.encoding]
        return file_name(capture.name_format, self._namespace, self._hub, self._log.index, at_ms, suffix)

    async def _carry_out(self, plan: FilePlan) -> None:
        if not await asyncio.to_thread(self._window.exists, plan.name):
            pages = _Pages(self._log, plan, asyncio.get_running_loop())
            size_bytes = await asyncio.to_thread(
                self._window.write, plan.name, lambda stream: self._write(stream, pages)
            )
            self._figures.files += 1
            self._figures.events += pages.count
            self._figures.bytes += size_bytes
        assert self._state is not None
        done = CaptureState(self._state.next_number, self._state.began_at_ms)
        await asyncio.to_thread(self._window.save, done)
        self._state = done

    def _write(self, stream: BinaryIO, pages: _Pages) -> None:
        plan = pages.plan
        pages.count = write_capture(stream, self._capture.encoding, pages, plan.first, plan.end)


class _Pages:
    """The chunks of a plan, for a thread: each page is asked for on the loop."""

    def __init__(self, log: PartitionLog, plan: FilePlan, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self.plan = plan
        self._loop = loop
        self.count = 0

    def __iter__(self) -> Iterator[Chunk]:
        number = self.plan.first
        while number < self.plan.end:
            page = asyncio.run_coroutine_threadsafe(self._log.page(number, _PAGE_BYTES), self._loop).result()
            for lost in page.damaged:
                _log.error(
                    "Events %d to %d of partition %d are damaged and not captured.",
                    lost.first_number,
                    lost.last_number,
                    self._log.index,
                )
            if not page.chunks:
                return
            for data in page.chunks:
                chunk = Chunk(data)
                number = chunk.last_number + 1
                yield chunk


class Captures:
    """`folder`: where destinations lie. Without one nothing is captured (a namespace in a test)."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._running: dict[tuple[str, int], PartitionCapture] = {}
        self._figures: dict[str, CaptureFigures] = {}

    def begin(
        self, namespace: str, key: str, hub: EventHubDescription, incarnation: int, log: PartitionLog
    ) -> None:
        """A partition is there, or its hub captures in another way."""
        self.end(key, log.index)
        capture = hub.capture
        if self._folder is None or capture is None or not capture.enabled:
            return
        figures = self._figures.setdefault(key, CaptureFigures())
        running = PartitionCapture(log, namespace, hub.path, incarnation, capture, self._folder, figures)
        self._running[key, log.index] = running
        running.start()

    def end(self, key: str, index: int) -> None:
        """A partition is away, or is not to be captured any more. What was planned is done when it is back."""
        running = self._running.pop((key, index), None)
        if running is not None:
            running.stop()

    def forget(self, key: str) -> None:
        """The hub is gone."""
        for hub_key, index in list(self._running):
            if hub_key == key:
                self.end(key, index)
        self._figures.pop(key, None)

    def figures(self, key: str) -> CaptureFigures | None:
        """None for a hub that was not captured since the start."""
        return self._figures.get(key)

    def backlog(self, key: str) -> int:
        """Events of a hub that no file has yet."""
        return sum(each.backlog for (hub_key, _), each in self._running.items() if hub_key == key)
