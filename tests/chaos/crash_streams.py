"""F2, F15: the disk fails at every write while events are appended, producers are remembered, retention and
compaction work, and hubs change. The machinery is that of `crash_points`; what is compared are the records of every
partition, its figures and its producers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from busway.message.event_chunk import Chunk
from busway.message.event_record import Event, event_of
from busway.model.errors import BrokerError, ServerBusy
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import (
    COMPACT,
    ConsumerGroupDescription,
    EventHubDescription,
    RetentionDescription,
)
from busway.streams.partition_log import PartitionLog
from tests.chaos.crash_picture import Picture
from tests.chaos.crash_points import WAYS, Trial, _quiet, fast_folder
from tests.chaos.crash_scenarios import Act, CrashScenario, Step
from tests.chaos.crash_world import CrashWorld, _until
from tests.chaos.scenario import Outcome
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.store_contract.faulty_disk import FaultyDisk

NAME: Final = "crash in event hubs"
HUB: Final = "clicks"
_PRODUCER: Final = 77
_PAGE_BYTES: Final = 64 << 20
#: Longer than the time between two looks at old events.
_LOOK_S: Final = 61.0
_SIZE_BYTES_MAX: Final = 20_000


class StreamWorld(CrashWorld):
    """With event hubs."""

    def __init__(self, folder: Path, clock: ManualClock, disk: FaultyDisk | None, store_count: int) -> None:
        super().__init__(folder, clock, disk, store_count)
        self.hubs = EventHubs(self.namespace, clock, SeededEntropy(4))

    def log(self, partition: int = 0) -> PartitionLog:
        return self.hubs.hub(HUB).partition(str(partition))

    async def publish(self, events: list[Event], partition: int = 0) -> None:
        answer = _Answer()
        self.log(partition).append(events, answer)
        await answer.wait()

    async def produce(self, first_sequence: int, names: list[str], epoch: int = 0) -> None:
        """As a producer that comes back with what it was."""
        log, answer = self.log(), _Answer()
        producer = await log.producers.attach(_PRODUCER, epoch, _REMEMBERED if epoch else 0)
        log.append_as(producer, _numbered(names, first_sequence), answer)
        await answer.wait()

    async def look(self, happened: Callable[[PartitionLog], bool]) -> None:
        """Time brings the next look at old events; what is stored bears the wall's."""
        log = self.log()
        self.clock.advance(_LOOK_S)
        self.clock.step_wall(-_LOOK_S)

        def is_over() -> bool:
            self.namespace.tick()
            return self.has_failed() or happened(log)

        await _until(is_over, "old events are never looked at")
        if self.has_failed():
            raise ServerBusy("the store failed meanwhile")
        await log.durable()

    async def picture(self, *, loosely: bool = False) -> Picture:
        """Loosely without the first number: compaction says it in a commit of its own."""
        picture = await super().picture(loosely=loosely)
        shown, bodies = list(picture.shown), Counter(picture.bodies)
        for description in self.hubs.hubs():
            shown += [description, self.hubs.groups(description.path)]
            for log in self.hubs.hub(description.path).logs():
                shown.append(await _partition(log, loosely=loosely, bodies=bodies))
        return Picture(shown, bodies)


async def _partition(
    log: PartitionLog, *, loosely: bool, bodies: Counter[tuple[str, bytes]]
) -> tuple[object, ...]:
    info, number = log.info(), 0
    records: list[tuple[int, int, bytes]] = []
    more = True
    while more:
        page = await log.page(number, _PAGE_BYTES)
        assert not page.damaged, "a chunk is damaged"
        for chunk in map(Chunk, page.chunks):
            records += [(chunk.number(at), chunk.at_ms(at), chunk.record(at)) for at in range(chunk.count)]
            number = chunk.last_number + 1
        more = page.more
    numbers = [each[0] for each in records]
    assert numbers == sorted(set(numbers)), "a number was given out twice"
    assert len(records) == info.events, "the count is wrong"
    bodies.update((log.name, record) for _, _, record in records)
    begin = None if loosely else info.begin_number
    producers = [(row.producer_id, row.epoch, row.last_sequence) for row in await log.read_producers()]
    return log.name, begin, info.last_number, info.last_at_ms, info.bytes, records, producers


class _Answer:
    """An `AppendDone` that somebody waits for."""

    def __init__(self) -> None:
        self._told: list[BrokerError | None] = []

    def __call__(self, outcome: BrokerError | None) -> None:
        assert not self._told, "told twice"
        self._told.append(outcome)

    async def wait(self) -> None:
        await _until(lambda: bool(self._told), "an append was never answered")
        if self._told[0] is not None:
            raise self._told[0]


def _event(name: str, size: int = 40, key: str | None = None) -> Event:
    body = ((name.encode() + b"-") * (size // (len(name) + 1) + 1))[:size]
    made = event_of(b"\x00Su\xb0" + len(body).to_bytes(4, "big") + body)
    if key is not None:
        made.set_partition_key(key)
    return made


def _events(prefix: str, count: int, size: int = 40) -> list[Event]:
    return [_event(f"{prefix}{number}", size) for number in range(count)]


def _numbered(names: list[str], first_sequence: int) -> list[Event]:
    made = [_event(name) for name in names]
    for place, event in enumerate(made):
        event.producer_number = first_sequence + place
    return made


def _world(world: CrashWorld) -> StreamWorld:
    assert isinstance(world, StreamWorld)
    return world


# -- steps


def _publishes(*events: Event, partition: int = 0) -> Act:
    async def act(world: CrashWorld) -> None:
        await _world(world).publish(list(events), partition)

    return act


def _produces(first_sequence: int, names: tuple[str, ...], epoch: int) -> Act:
    async def act(world: CrashWorld) -> None:
        await _world(world).produce(first_sequence, list(names), epoch)

    return act


def _creates(description: EventHubDescription) -> Act:
    async def act(world: CrashWorld) -> None:
        await _world(world).hubs.create(description)

    return act


def _updates(description: EventHubDescription) -> Act:
    async def act(world: CrashWorld) -> None:
        await _world(world).hubs.update(description)

    return act


async def _take_over(world: CrashWorld) -> None:
    await _world(world).log().producers.attach(_PRODUCER, 1, _REMEMBERED)


async def _create_group(world: CrashWorld) -> None:
    await _world(world).hubs.create_group(ConsumerGroupDescription(HUB, "readers"))


async def _delete_hub(world: CrashWorld) -> None:
    await _world(world).hubs.delete(HUB)


async def _repeat_what_was_produced(world: CrashWorld, steps: int) -> None:
    """Groups that are stored are recognised, whenever they come again, also from whoever has taken over."""
    stored = _GROUPS[: steps if steps <= _TAKEN_OVER_AFTER else steps - 1]
    for first, names, _ in stored:
        await _world(world).produce(first, list(names), 1 if steps > _TAKEN_OVER_AFTER else 0)


#: (first sequence number, events, epoch): the second repeats the first and goes on, the last has taken over.
_GROUPS: Final = ((1, ("a", "b", "c"), 0), (1, ("a", "b", "c", "d", "e"), 0), (6, ("f",), 1))
_TAKEN_OVER_AFTER: Final = 2
#: What whoever takes over knows of the numbers before: less than the log does (H-19).
_REMEMBERED: Final = 3
_HUB: Final = EventHubDescription(HUB, partition_count=1)
_WIDE: Final = EventHubDescription(HUB, partition_count=4)
_CLOSED: Final = EventHubDescription(HUB, partition_count=4, status="SendDisabled")
_SMALL: Final = EventHubDescription(
    HUB, partition_count=1, retention=RetentionDescription(partition_bytes_max=_SIZE_BYTES_MAX)
)
_COMPACTED: Final = EventHubDescription(
    HUB, partition_count=1, retention=RetentionDescription(cleanup_policy=COMPACT, retention_hours=-1)
)
_KEYED: Final = [
    _event(f"{key}-{number}", 900, key) for number in range(12) for key in ("red", "green", "blue")
]


async def _make_room(world: CrashWorld) -> None:
    await _world(world).look(lambda log: log.info().bytes <= _SIZE_BYTES_MAX)


async def _compact(world: CrashWorld) -> None:
    await _world(world).look(
        lambda log: log.info().events == 3 and log.counters.compacted_to == log.durable_end
    )


STREAM_SCENARIOS: Final = (
    CrashScenario(
        "append",
        (
            Step(_publishes(*_events("few", 3))),
            Step(_publishes(*_events("large", 40, 3000))),
            Step(_publishes(_event("one", 90_000), partition=1)),
            Step(_publishes(*_events("last", 2), partition=2)),
        ),
        prepare=_creates(_WIDE),
        store_count=2,
    ),
    CrashScenario(
        "producers",
        (
            Step(_produces(*_GROUPS[0])),
            Step(_produces(*_GROUPS[1])),
            Step(_take_over),
            Step(_produces(*_GROUPS[2])),
        ),
        prepare=_creates(_HUB),
        probe=_repeat_what_was_produced,
    ),
    CrashScenario(
        "retention",
        (
            Step(_publishes(*_events("old", 20, 900))),
            Step(_publishes(*_events("new", 16, 900))),
            Step(_make_room, by_time=True),
            Step(_publishes(*_events("more", 3))),
        ),
        prepare=_creates(_SMALL),
    ),
    CrashScenario(
        "compaction",
        (
            Step(_publishes(*_KEYED[:18])),
            Step(_publishes(*_KEYED[18:])),
            Step(_compact, by_time=True),
        ),
        prepare=_creates(_COMPACTED),
        is_loose=True,
    ),
    CrashScenario(
        "hubs",
        (
            Step(_creates(_WIDE)),
            Step(_create_group),
            Step(_publishes(*_events("few", 3), partition=1)),
            Step(_updates(_CLOSED)),
            Step(_delete_hub),
        ),
        store_count=2,
    ),
)


class StreamTrial(Trial):
    def _world(self, folder: Path, clock: ManualClock, disk: FaultyDisk | None = None) -> CrashWorld:
        return StreamWorld(folder, clock, disk, self._scenario.store_count)


def crash_in_streams(folder: Path, rounds: int, seed: int) -> Outcome:
    """`rounds`: how many scenarios; all of them in a whole run."""
    return crash_scenarios(STREAM_SCENARIOS[:rounds], folder, seed)


def crash_scenarios(scenarios: tuple[CrashScenario, ...], folder: Path, seed: int, every: int = 1) -> Outcome:
    """`every`: only each so-many-th point, beginning with the first."""
    violations: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    planned = 0
    with _quiet(), fast_folder(folder) as quick:
        for scenario in scenarios:
            trial = StreamTrial(scenario, quick / scenario.name, random.Random(seed))
            trial.prepare()
            points = trial.points_of_steps[::every]
            planned += len(points) * len(WAYS)
            for step in points:
                for way in WAYS:
                    reached[way] += trial.play(step, way, violations)
    note = ", ".join(f"{reached[way]} {way}" for way in WAYS)
    return Outcome(
        NAME,
        sum(reached.values()),
        planned,
        violations=dict(violations),
        note=f"({len(scenarios)} scenarios: {note})",
    )
