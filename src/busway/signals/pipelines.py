"""Which streams read this bus, and how far they are, as they report it themselves.

Theory of operation. A bus keeps no position for its readers: a stream's is in Spark's checkpoint. So whoever watches
a stream (`busway_spark.watching`) reports it here every few seconds under the stream's name: which entities it reads,
and of each partition the number of the event that it will read next. What the bus knows itself, where each partition
ends, how large and how old its events are, is not in a report: that is looked at when somebody asks (`pipeline_lag`),
so the lag is right at that moment, also while a stream hangs or its driver is dead.

A report replaces the one before it. One that was not renewed three times in a row is *stale*; an hour after its last
report a pipeline is forgotten, whatever it said. Nothing of this is stored: after a restart of the bus the next
reports bring everything back.

Everything is bounded: pipelines, those of one entity, positions of all together. When all places are taken, the ended
or stale pipeline that was silent for longest makes room; one that lives never does. A name belongs to the query that
reports under it for as long as that lives, so two streams cannot take turns in overwriting each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.clock import Clock
from busway.model.entity_path import path_key
from busway.model.errors import QuotaExceeded

RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
STATES: Final = (RUNNING, STOPPED, FAILED)

PIPELINES_MAX: Final = 1_000
#: Whoever may listen to one entity only cannot take all places.
ENTITY_PIPELINES_MAX: Final = 100
#: Partitions of all sources of all pipelines.
POSITIONS_MAX: Final = 20_000
#: So many times a report may be late.
STALE_AFTER: Final = 3
FORGOTTEN_AFTER_S: Final = 3_600.0


class NameTaken(Exception):
    """Another query that lives reports under this name."""


@dataclass(frozen=True)
class ReadSource:
    """One entity that a stream reads."""

    entity: str
    #: Of a hub; "" elsewhere.
    consumer_group: str = ""
    #: Of a hub: which one of this name the numbers are of. 0: not told.
    created_at_ms: int = 0
    #: Of a hub: partition → number of the event that is read next.
    next_numbers: Mapping[int, int] = field(default_factory=dict)
    #: Of a queue or subscription: messages that the stream's claim holds.
    held: int = 0


@dataclass(frozen=True)
class Report:
    """What a stream says of itself."""

    #: The same after a restart from its checkpoint.
    query: str
    #: Another one with each start.
    run: str
    state: str = RUNNING
    #: How often it reports.
    every_s: float = 10.0
    sources: tuple[ReadSource, ...] = ()
    batch: int = -1
    #: Since the driver began to watch.
    rows: int = 0
    batches: int = 0
    #: Of the last batch.
    rows_per_s: float = 0.0
    batch_ms: int = 0
    failures: int = 0
    failed_at_ms: int = 0
    #: The last failure, for people.
    sentence: str = ""

    @property
    def positions(self) -> int:
        return sum(len(source.next_numbers) for source in self.sources)

    def entity_keys(self) -> set[str]:
        return {path_key(source.entity) for source in self.sources}


class Pipeline:
    """A name, and the last report under it."""

    __slots__ = ("came_at_s", "event_times", "name", "report", "reported_at_ms")

    def __init__(self, name: str, report: Report, came_at_s: float, reported_at_ms: int) -> None:
        self.name = name
        self.report = report
        self.came_at_s = came_at_s
        self.reported_at_ms = reported_at_ms
        #: Hub and partition → log, number, and when that event was enqueued, which never changes (`pipeline_lag`).
        self.event_times: dict[tuple[str, int], tuple[int, int, int]] = {}


class Pipelines:
    """See the head of this file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The one that has been silent for longest comes first.
        self._by_name: dict[str, Pipeline] = {}
        self._of_entity: Counter[str] = Counter()
        self._positions = 0

    # -- asking

    def get(self, name: str) -> Pipeline | None:
        self._forget_old()
        return self._by_name.get(name)

    def all(self) -> list[Pipeline]:
        """By name."""
        self._forget_old()
        return sorted(self._by_name.values(), key=lambda each: each.name)

    def age_s(self, pipeline: Pipeline) -> float:
        """Since its last report."""
        return max(self._clock.monotonic() - pipeline.came_at_s, 0.0)

    def is_stale(self, pipeline: Pipeline) -> bool:
        """It says that it runs, but not often enough."""
        report, now = pipeline.report, self._clock.monotonic()
        return report.state == RUNNING and now - pipeline.came_at_s > STALE_AFTER * report.every_s

    def is_alive(self, pipeline: Pipeline) -> bool:
        return pipeline.report.state == RUNNING and not self.is_stale(pipeline)

    # -- reporting

    def put(self, name: str, report: Report) -> Pipeline:
        """Raises NameTaken, QuotaExceeded; what was known stays then."""
        self._forget_old()
        known = self._by_name.get(name)
        if known is not None and known.report.query != report.query and self.is_alive(known):
            raise NameTaken
        self._make_room(report, known)
        fresh = Pipeline(name, report, self._clock.monotonic(), self._clock.wall_ms())
        if known is not None:
            if known.report.entity_keys() == report.entity_keys():  # else it might grow
                fresh.event_times = known.event_times
            self._drop(known)
        self._add(fresh)
        return fresh

    def delete(self, name: str) -> bool:
        """False when there is none."""
        known = self._by_name.get(name)
        if known is not None:
            self._drop(known)
        return known is not None

    def clear(self) -> None:
        """The bus is as new."""
        self._by_name.clear()
        self._of_entity.clear()
        self._positions = 0

    def _make_room(self, report: Report, known: Pipeline | None) -> None:
        """For a report that takes the place of `known`."""
        before = set[str]() if known is None else known.report.entity_keys()
        for key in report.entity_keys() - before:
            if self._of_entity[key] >= ENTITY_PIPELINES_MAX and not self._drop_silent(known, key):
                raise QuotaExceeded(f"At most {ENTITY_PIPELINES_MAX} pipelines report about one entity.")
        more = report.positions - (0 if known is None else known.report.positions)
        while self._is_full(known) or self._positions + more > POSITIONS_MAX:
            if self._drop_silent(known):
                continue
            if self._is_full(known):
                raise QuotaExceeded(f"At most {PIPELINES_MAX} pipelines are known at once.")
            raise QuotaExceeded(f"All pipelines together report about at most {POSITIONS_MAX} partitions.")

    def _is_full(self, known: Pipeline | None) -> bool:
        return known is None and len(self._by_name) >= PIPELINES_MAX

    def _drop_silent(self, known: Pipeline | None, key: str | None = None) -> bool:
        """The one that was silent for longest, of those that do not live, and are about this entity. False when
        there is none but `known`."""
        for each in self._by_name.values():
            is_about = key is None or key in each.report.entity_keys()
            if is_about and each is not known and not self.is_alive(each):
                self._drop(each)
                return True
        return False

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        while self._by_name:
            oldest = next(iter(self._by_name.values()))
            if now - oldest.came_at_s <= FORGOTTEN_AFTER_S:
                return
            self._drop(oldest)

    def _add(self, pipeline: Pipeline) -> None:
        self._by_name[pipeline.name] = pipeline
        self._of_entity.update(pipeline.report.entity_keys())
        self._positions += pipeline.report.positions

    def _drop(self, pipeline: Pipeline) -> None:
        del self._by_name[pipeline.name]
        for key in pipeline.report.entity_keys():
            self._of_entity[key] -= 1
            if self._of_entity[key] <= 0:
                del self._of_entity[key]
        self._positions -= pipeline.report.positions
