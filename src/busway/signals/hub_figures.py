"""The figures of event hubs (O-6), copied for one scrape: of each partition, and of what was captured."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from busway.broker.entity_path import path_key
from busway.signals import metric_names as names
from busway.signals.metric_names import Metric
from busway.streams.captures import Captures
from busway.streams.event_hub import EventHub
from busway.streams.hub_descriptions import EventHubDescription

Family = CounterMetricFamily | GaugeMetricFamily


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

    def collect(self) -> Iterator[Family]:
        labels = ["entity", "partition", "store"]
        up = family_of(names.PARTITION_UP, labels)
        for labelled, values in self._partitions:
            up.add_metric(labelled, float(values is not None))
        yield up
        for place, metric in enumerate(names.PARTITION_GAUGES):
            family = family_of(metric, labels)
            for labelled, values in self._partitions:
                if values is not None:
                    family.add_metric(labelled, values[place])
            yield family
        for place, metric in enumerate(names.CAPTURE_METRICS):
            family = family_of(metric, ["entity"])
            for path, figures in self._captures:
                family.add_metric([path], figures[place])
            yield family


def family_of(metric: Metric, labels: list[str]) -> Family:
    if metric.kind == names.COUNTER:
        return CounterMetricFamily(metric.name, metric.meaning, labels=labels)
    return GaugeMetricFamily(metric.name, metric.meaning, labels=labels)
