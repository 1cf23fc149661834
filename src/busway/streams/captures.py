"""Who captures what: one `PartitionCapture` for each partition that is there, of each hub that captures."""

from __future__ import annotations

from pathlib import Path

from busway.streams.capture import CaptureFigures, PartitionCapture
from busway.streams.hub_descriptions import EventHubDescription
from busway.streams.partition_log import PartitionLog


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
