"""The figures of event hubs (O-6), copied for one scrape: of each partition, and of what was captured."""

from typing import Final, Protocol

from busway.model.entity_path import path_key
from busway.signals import metric_names as names
from busway.signals.exposition_text import ExpositionText, labels_text
from busway.streams.capture import Captures
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import EventHubDescription

_PARTITION: Final = ("entity", "partition", "store")


class MeasuredHubs(Protocol):
    captures: Captures

    def hubs(self) -> list[EventHubDescription]: ...
    def hub(self, path: str) -> EventHub: ...
    def exists(self, path: str) -> bool: ...
    def store_names(self, path: str) -> list[str]: ...


class HubFigures:
    def __init__(self) -> None:
        #: Labels' values; events, bytes, last number of a partition, None while its store is away.
        self._partitions: list[tuple[list[str], tuple[float, float, float] | None]] = []
        #: Hub → size.
        self.sizes: list[tuple[str, float]] = []
        #: Hub → files' events, bytes, failures, events that wait.
        self._captures: list[tuple[str, tuple[float, ...]]] = []

    def copy(self, hubs: MeasuredHubs, path: str) -> None:
        if not hubs.exists(path):  # deleted meanwhile
            return
        hub = hubs.hub(path)
        size = 0.0
        for index, store in enumerate(hubs.store_names(path)):
            log = hub.present_partition(index)
            values: tuple[float, float, float] | None = None
            if log is not None:
                info = log.info()
                values = (info.events, info.bytes, info.last_number)
                size += info.bytes
            self._partitions.append(([path, str(index), store], values))
        self.sizes.append((path, size))
        self._copy_capture(hubs.captures, path)

    def _copy_capture(self, captures: Captures, path: str) -> None:
        key = path_key(path)
        figures = captures.figures(key)
        if figures is not None:
            values = (figures.events, figures.bytes, figures.failures, captures.backlog(key))
            self._captures.append((path, values))

    def write(self, text: ExpositionText) -> None:
        labelled = [(labels_text(_PARTITION, labels), values) for labels, values in self._partitions]
        text.add(names.PARTITION_UP, [(labels, values is not None) for labels, values in labelled])
        present = [(labels, values) for labels, values in labelled if values is not None]
        for place, metric in enumerate(names.PARTITION_GAUGES):
            text.add(metric, [(labels, values[place]) for labels, values in present])
        captures = [(labels_text(["entity"], [path]), figures) for path, figures in self._captures]
        for place, metric in enumerate(names.CAPTURE_METRICS):
            text.add(metric, [(labels, figures[place]) for labels, figures in captures])
