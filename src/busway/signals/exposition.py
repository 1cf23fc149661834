"""The figures of a namespace and of its event hubs as Prometheus reads them (O-1…O-5, O-6, O-8).

Theory of operation. A scrape has two halves. On the event loop the numbers are copied, a slice of entities at a
time with a breath in between, so ten thousand entities delay nobody; of hubs those of each partition, and of what
was captured (O-6). The text is then written in a thread, out of that copy alone. Whoever asks while a scrape is
under way gets the same text: however many ask, one is at work.

Nothing is kept between scrapes, and the only label whose values users choose is `entity`; fragments have their
index and their store beside it (O-8). What lies in a store that is away has no gauges: unknown is not zero
(E-104).
"""

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from busway.event_loop import Steps
from busway.model.descriptions import (
    FragmentCounts,
    QueueDescription,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.entity_path import path_key
from busway.model.errors import EntityNotFound
from busway.model.flow import LATENCY_STEPS_S, FlowCounts, FlowTable
from busway.signals import metrics as names
from busway.signals.lease_figures import LeaseFigures
from busway.signals.measured_process import (
    LONG_TURNS_S,
    MeasuredDatabase,
    MeasuredProcess,
    cpu_seconds,
    resident_bytes,
)
from busway.signals.metrics import ExpositionText, labels_text
from busway.signals.pipelines import MeasuredPipelines, PipelineFigures
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
    """The figures of event hubs (O-6), copied for one scrape: of each partition, and of what was captured."""

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


class DatabasesCopied:
    """The figures of PostgreSQL databases, copied for one scrape."""

    def __init__(self) -> None:
        #: Labels; number or, of commits, counts by step and their sum.
        self._resends: list[tuple[str, float]] = []
        self._commits: list[tuple[str, list[int], float]] = []
        self._skews: list[tuple[str, float]] = []
        self._oldest: list[tuple[str, float]] = []
        self._dead_rows: list[tuple[str, float]] = []

    def copy(self, database: MeasuredDatabase) -> None:
        labels = labels_text(["database"], [database.name])
        self._resends.append((labels, database.resends))
        self._commits.append((labels, list(database.commit_steps), database.commit_s))
        if (looked := database.looked) is not None:
            self._skews.append((labels, looked.skew_s))
            self._oldest.append((labels, looked.oldest_s))
            for table, count in looked.dead_rows.items():
                self._dead_rows.append((labels_text(["database", "table"], [database.name, table]), count))

    def write(self, text: ExpositionText) -> None:
        if not self._resends:
            return
        text.add(names.COMMIT_RESENDS, self._resends)
        text.add_histogram(names.POSTGRES_COMMITS, _LATENCY_LIMITS, self._commits)
        text.add(names.POSTGRES_CLOCK_SKEW, self._skews)
        text.add(names.POSTGRES_OLDEST, self._oldest)
        text.add(names.POSTGRES_DEAD_ROWS, self._dead_rows)


#: Entities looked at before others get their turn.
_SLICE_ENTITIES: Final = 200
_ENTITY: Final = ("entity",)
_FRAGMENT: Final = ("entity", "fragment", "store")
_LATENCY_LIMITS: Final = (*map(str, LATENCY_STEPS_S), "+Inf")


class MeasuredStores(Protocol):
    def shown(self) -> list[dict[str, object]]: ...


class MeasuredNamespace(Protocol):
    """The part of the namespace that is measured."""

    @property
    def flows(self) -> FlowTable: ...
    def queues(self) -> list[QueueDescription]: ...
    def topics(self) -> list[TopicDescription]: ...
    def subscriptions(self, topic_path: str) -> list[SubscriptionDescription]: ...
    async def counts_of(self, paths: list[str]) -> list[RuntimeCounts]: ...
    @property
    def stores(self) -> MeasuredStores: ...
    def fragment_counts(self, path: str) -> list[FragmentCounts]: ...


class Exposition:
    """The figures of a namespace as Prometheus reads them (O-1…O-5, O-8)."""

    def __init__(
        self,
        namespace: MeasuredNamespace,
        hubs: MeasuredHubs | None = None,
        process: MeasuredProcess | None = None,
        pipelines: MeasuredPipelines | None = None,
    ) -> None:
        self._namespace = namespace
        self._hubs = hubs
        self._pipelines = pipelines
        self._process = process
        self._scrape: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """The figures as they are now."""
        if self._scrape is None:
            named = Steps(self._written(), lambda: "a scrape of the figures")
            self._scrape = asyncio.get_running_loop().create_task(named)
            self._scrape.add_done_callback(self._ended)
        return await asyncio.shield(self._scrape)

    def _ended(self, scrape: asyncio.Task[bytes]) -> None:
        self._scrape = None
        if not scrape.cancelled():
            scrape.exception()  # it was given to whoever waited; perhaps nobody did

    async def _written(self) -> bytes:
        snapshot = Snapshot()
        if self._process is not None:
            snapshot.copy_process(self._process)
        await snapshot.fill(self._namespace, self._hubs)
        if self._pipelines is not None:
            await snapshot.pipelines.copy(self._pipelines)
        return await asyncio.to_thread(snapshot.written)


class Snapshot:
    """The numbers of one moment, or nearly so."""

    def __init__(self) -> None:
        #: Metric → value of its field, in the order of the metrics' table.
        self._flows: list[tuple[str, list[float]]] = []
        self._latencies: list[tuple[str, list[int], float]] = []
        self._counts: list[tuple[str, list[float]]] = []
        self._namespace: list[float] = []
        self._stores: dict[str, int] = {}
        #: Labels; epochs where there are some, and lost commits.
        self._epochs: list[tuple[str, float]] = []
        self._lost_commits: list[tuple[str, float]] = []
        self._databases = DatabasesCopied()
        #: Of partitioned entities: the labels' values, and the fragment.
        self._fragments: list[tuple[list[str], FragmentCounts]] = []
        self._hubs = HubFigures()
        #: In the order of JOURNAL_METRICS; None where no journal is kept.
        self._journal: list[float] | None = None
        #: The longest turn by both clocks, then how many were longer than each bound.
        self._turns: list[float] = []
        self._held_bytes: int | None = None
        self._leases: LeaseFigures | None = None
        #: In the order of STAGING_METRICS.
        self._staging: list[float] | None = None
        self.pipelines = PipelineFigures()

    def copy_process(self, process: MeasuredProcess) -> None:
        if process.journal is not None:
            self._journal = [process.journal.rows, process.journal.rows_left_out]
        if process.turns is not None:
            self._turns = [*process.turns.longest_s(), *process.turns.long_turns]
        if process.connections is not None:
            self._held_bytes = process.connections.held_bytes
        if process.staging is not None:
            self._staging = process.staging.figures()
        if process.leases is not None:
            self._leases = LeaseFigures(process.leases)
        for database in process.databases:
            self._databases.copy(database)

    async def fill(self, namespace: MeasuredNamespace, hubs: MeasuredHubs | None = None) -> None:
        described: list[QueueDescription | TopicDescription] = [*namespace.queues()]
        await asyncio.sleep(0)
        described += namespace.topics()
        await asyncio.sleep(0)
        weights = await _weights(namespace, described)
        paths = list(weights)
        hub_paths = [] if hubs is None else [hub.path for hub in hubs.hubs()]
        namespace.flows.keep([*paths, *hub_paths])
        self._copy_namespace(namespace)
        flows = namespace.flows.all()
        for first in range(0, len(flows), _SLICE_ENTITIES):
            for flow in flows[first : first + _SLICE_ENTITIES]:
                self._copy_flow(flow)
            await asyncio.sleep(0)
        for path in [each.path for each in described if each.enable_partitioning]:
            self._copy_fragments(namespace, path)
            await asyncio.sleep(0)
        for some in _slices(weights):
            await self._copy_counts(namespace, some)
            await asyncio.sleep(0)
        if hubs is not None:
            for path in hub_paths:
                self._hubs.copy(hubs, path)
                await asyncio.sleep(0)

    def _copy_namespace(self, namespace: MeasuredNamespace) -> None:
        connections = namespace.flows.connections
        self._namespace = [
            connections.active,
            connections.opened,
            connections.closed,
            cpu_seconds(),
            resident_bytes(),
        ]
        for store in namespace.stores.shown():
            state = str(store["state"])
            self._stores[state] = self._stores.get(state, 0) + 1
            labels = labels_text(["store"], [str(store["name"])])
            self._lost_commits.append((labels, float(str(store["lost_commits"]))))
            if store["epoch"] is not None:
                self._epochs.append((labels, float(str(store["epoch"]))))

    def _copy_flow(self, flow: FlowCounts) -> None:
        self._flows.append((flow.path, [getattr(flow, metric.field) for metric in names.FLOW_COUNTERS]))
        if flow.messages_in:
            self._latencies.append((flow.path, list(flow.latency_steps), flow.latency_s))

    def _copy_fragments(self, namespace: MeasuredNamespace, path: str) -> None:
        try:
            fragments = namespace.fragment_counts(path)
        except EntityNotFound:  # deleted meanwhile
            return
        for each in fragments:
            self._fragments.append(([path, str(each.index), each.store], each))

    async def _copy_counts(self, namespace: MeasuredNamespace, paths: list[str]) -> None:
        for path, counts in await _counted(namespace, paths):
            if counts.availability != "Unknown":
                values = [getattr(counts, metric.field) for metric in names.COUNT_GAUGES]
                self._counts.append((path, values))

    def written(self) -> bytes:
        """In a thread: nothing else looks at this copy."""
        text = ExpositionText()
        flows = [(labels_text(_ENTITY, [path]), values) for path, values in self._flows]
        for place, metric in enumerate(names.FLOW_COUNTERS):
            text.add(metric, [(labels, values[place]) for labels, values in flows])
        latencies = [(labels_text(_ENTITY, [path]), steps, sum_s) for path, steps, sum_s in self._latencies]
        text.add_histogram(names.SEND_LATENCY, _LATENCY_LIMITS, latencies)
        counts = [(labels_text(_ENTITY, [path]), values) for path, values in self._counts]
        for place, metric in enumerate(names.COUNT_GAUGES):
            samples = [(labels, values[place]) for labels, values in counts]
            if metric.service_name == "Size":
                samples += [(labels_text(_ENTITY, [path]), size) for path, size in self._hubs.sizes]
            text.add(metric, samples)
        for value, metric in zip(self._namespace, names.NAMESPACE_METRICS, strict=True):
            text.add(metric, [("", value)])
        self._write_process(text)
        stores = sorted(self._stores.items())
        text.add(names.STORES, [(labels_text(["state"], [state]), count) for state, count in stores])
        text.add(names.STORE_EPOCH, self._epochs)
        text.add(names.STORE_LOST_COMMITS, self._lost_commits)
        self._databases.write(text)
        self._write_fragments(text)
        self._hubs.write(text)
        if self._journal is not None:
            for value, metric in zip(self._journal, names.JOURNAL_METRICS, strict=True):
                text.add(metric, [("", value)])
        if self._leases is not None:
            self._leases.write(text)
        if self._staging is not None:
            for value, metric in zip(self._staging, names.STAGING_METRICS, strict=True):
                text.add(metric, [("", value)])
        self.pipelines.write(text)
        return text.text()

    def _write_process(self, text: ExpositionText) -> None:
        if self._turns:
            clocks = [labels_text(["clock"], [clock]) for clock in ("wall", "cpu")]
            bounds = [labels_text(["above"], [str(bound)]) for bound in LONG_TURNS_S]
            text.add(names.LONGEST_TURN, zip(clocks, self._turns[:2], strict=True))
            text.add(names.LONG_TURNS, zip(bounds, self._turns[2:], strict=True))
        if self._held_bytes is not None:
            text.add(names.HELD_BYTES, [("", self._held_bytes)])

    def _write_fragments(self, text: ExpositionText) -> None:
        labelled = [(labels_text(_FRAGMENT, values), fragment) for values, fragment in self._fragments]
        text.add(names.FRAGMENT_UP, [(labels, _is_up(fragment)) for labels, fragment in labelled])
        present = [(labels, fragment.counts) for labels, fragment in labelled if _is_up(fragment)]
        for metric in names.FRAGMENT_GAUGES:
            text.add(metric, [(labels, getattr(counts, metric.field)) for labels, counts in present])


async def _weights(
    namespace: MeasuredNamespace, described: list[QueueDescription | TopicDescription]
) -> dict[str, int]:
    """Every path, and how many entities are looked at to count it: a topic has the bytes of its subscriptions."""
    weights: dict[str, int] = {}
    for place, entity in enumerate(described):
        if place % _SLICE_ENTITIES == _SLICE_ENTITIES - 1:
            await asyncio.sleep(0)
        weights[entity.path] = 1
        if isinstance(entity, TopicDescription):
            try:
                subscriptions = namespace.subscriptions(entity.path)
            except EntityNotFound:  # deleted meanwhile
                del weights[entity.path]
                continue
            weights[entity.path] += len(subscriptions)
            weights.update((subscription.path, 1) for subscription in subscriptions)
            if subscriptions:
                await asyncio.sleep(0)
    return weights


def _slices(weights: dict[str, int]) -> Iterator[list[str]]:
    """Paths that are counted before others get their turn."""
    paths: list[str] = []
    weight = 0
    for path, more in weights.items():
        if paths and weight + more > _SLICE_ENTITIES:
            yield paths
            paths, weight = [], 0
        paths.append(path)
        weight += more
    if paths:
        yield paths


def _is_up(fragment: FragmentCounts) -> bool:
    return fragment.counts.availability != "Unknown"


async def _counted(namespace: MeasuredNamespace, paths: list[str]) -> list[tuple[str, RuntimeCounts]]:
    """Without those that were deleted since the list was made."""
    try:
        return list(zip(paths, await namespace.counts_of(paths), strict=True))
    except EntityNotFound:
        if len(paths) == 1:
            return []
        found = [await _counted(namespace, [path]) for path in paths]
        return [entry for entries in found for entry in entries]
