"""Capturing a partition: its events go to files, window by window (H-40…H-45).

Theory of operation. Once a second somebody looks whether the open window is over: by time, or because what it holds
is larger than a file may be. Then a file is planned, written and the next window begins (`capture_window` says why
nothing is captured twice or left out). A destination that fails is tried again for ever, with a growing pause; events
wait in the log meanwhile, as long as they are retained. Capturing begins with the events that come after it was
enabled, and goes on where it was after a restart.

Capturing reads the log like everybody else, counts as no reader, and writes in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from busway.message.event_chunk import Chunk
from busway.model.errors import BrokerError
from busway.store.contract import StoreError
from busway.streams.capture_files import SUFFIXES, write_capture
from busway.streams.capture_window import CaptureState, CaptureWindow, FilePlan, file_name
from busway.streams.hub_descriptions import CaptureDescription, EventHubDescription
from busway.streams.partition_log import PartitionLog
from busway.timers import Timer

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
        """A partition is away, or shall not be captured any more. What was planned is done when it is back."""
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
