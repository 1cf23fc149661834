"""The figures of pipelines, copied for one scrape."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from busway.signals import metric_names as names
from busway.signals.exposition_text import ExpositionText, labels_text
from busway.signals.pipeline_lag import LagMeter, Reads, SourceLag
from busway.signals.pipelines import Pipelines

_PIPELINE: Final = ("pipeline",)
_PARTITION: Final = ("pipeline", "entity", "consumer_group", "partition")


@dataclass(frozen=True)
class MeasuredPipelines:
    table: Pipelines
    meter: LagMeter


class PipelineFigures:
    def __init__(self) -> None:
        #: In the order of PIPELINE_METRICS.
        self._pipelines: list[tuple[str, list[float]]] = []
        #: Labels' values; events, bytes, seconds.
        self._partitions: list[tuple[list[str], tuple[float, float, float | None]]] = []

    async def copy(self, measured: MeasuredPipelines) -> None:
        table, reads = measured.table, Reads()
        for pipeline in table.all():
            report = pipeline.report
            self._pipelines.append(
                (
                    pipeline.name,
                    [
                        table.is_alive(pipeline),
                        table.age_s(pipeline),
                        report.rows,
                        report.rows_per_s,
                        report.batch_ms / 1000,
                        report.failures,
                    ],
                )
            )
            for lag in await measured.meter.of(pipeline, reads):
                self._copy_lag(pipeline.name, lag)
            await asyncio.sleep(0)

    def _copy_lag(self, name: str, lag: SourceLag) -> None:
        for each in lag.partitions:
            labels = [name, lag.source.entity, lag.source.consumer_group, each.partition]
            self._partitions.append((labels, (each.events, each.bytes, each.seconds)))

    def write(self, text: ExpositionText) -> None:
        labelled = [(labels_text(_PIPELINE, [name]), values) for name, values in self._pipelines]
        for place, metric in enumerate(names.PIPELINE_METRICS):
            text.add(metric, [(labels, values[place]) for labels, values in labelled])
        partitions = [(labels_text(_PARTITION, labels), values) for labels, values in self._partitions]
        for place, metric in enumerate(names.PIPELINE_LAG_METRICS):
            known = [(labels, values[place]) for labels, values in partitions]
            text.add(metric, [(labels, value) for labels, value in known if value is not None])
