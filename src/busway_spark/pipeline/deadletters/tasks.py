"""Dead letters moved by tasks of Spark: exactly those of a plan, each once, whatever is killed meanwhile.

Theory of operation. The plan lies with the driver (`deadletters_plan`). It is handed out in parcels, some at a time,
as a small table whose rows are bodies of requests (`door`). A task posts its rows one after the other and tells of
each parcel, named by its first letter, only what was not moved; that comes into the plan before more is handed out:
the driver holds no more than that. A move is one step of the server's, so a task that Spark repeats or speculates
with, an executor that is lost, a driver or a bus that is killed and started again neither lose nor double a letter.
What somebody holds locked is tried again, with pauses, as long as `wait_s`.

Tasks work at the same time, so letters of different parcels may arrive in another order. Where the destination needs
sessions, whose messages have an order, one task moves everything, in the order of numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException

from busway.client.errors import ClientError
from busway_spark.pipeline.deadletters.blobs import column_of_blobs
from busway_spark.pipeline.deadletters.door import (
    BYTES_MAX,
    LETTERS_MAX,
    Letter,
    LettersDoor,
    Told,
    first_number,
    packed,
)
from busway_spark.pipeline.deadletters.plan import LOCKED, PLANNED, REFUSED, RESUBMITTED, Plan
from busway_spark.pipeline.deadletters.route import Route
from busway_spark.pipeline.job import JobFailed, Progress
from busway_spark.pipeline.spark_sentence import failing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from busway_spark.wire.bus import Bus

#: Parcels that are under way together, at least and at most; and for each core, and their bytes.
_PARCELS_MIN, _PARCELS_MAX = 64, 512
_PARCELS_OF_CORE: Final = 16
_ROUND_BYTES: Final = 32 * 1024 * 1024
_PAUSE_S: Final = 1.0
#: So many refusals with nothing taken between them are not the messages' fault.
_REFUSALS_MAX: Final = 100
_GIVEN: Final = "letters"
_RETURNED: Final = "told binary"

_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Parcel:
    """What one request moves: everything of the plan that is left from the first number to the last."""

    first: int
    last: int
    #: Packed.
    letters: bytes

    @classmethod
    def of(cls, letters: list[Letter]) -> Parcel:
        return cls(letters[0][0], letters[-1][0], packed(letters))


#: What became of those letters of a parcel that were not moved.
ParcelTold = tuple[Parcel, list[Told]]


class TaskMover:
    """Moves what a plan names of one source. `run` may be called once."""

    def __init__(
        self,
        spark: SparkSession,
        bus: Bus,
        route: Route,
        source: int,
        plan: Plan,
        progress: Progress,
        *,
        wait_s: float,
    ) -> None:
        self.route = route
        self._spark = spark
        self._bus = bus
        self._source = source
        self._plan = plan
        self._progress = progress
        self._wait_s = wait_s
        self._parcels_max = min(max(_PARCELS_MIN, _PARCELS_OF_CORE * _parallelism(spark)), _PARCELS_MAX)
        self._refusals = 0
        self.moved = 0
        #: Why it ended before everything was tried; None when it did not.
        self.ended_early: str | None = None

    def is_possible(self) -> bool:
        """Whether the server has a door for it. Raises JobFailed."""
        try:
            return LettersDoor(self._bus, self.route.source, self.route.destination).is_there()
        except ClientError as error:
            raise JobFailed(str(error)) from error

    def run(self) -> None:
        """Raises JobFailed."""
        quiet_until = time.monotonic() + self._wait_s
        while True:
            moved = self.moved
            for parcels in self._rounds():
                if not self._goes_on():
                    return
                with failing():
                    self._note(self._moved(parcels))
            now = time.monotonic()
            if self.moved > moved:
                quiet_until = now + self._wait_s
            if not self._goes_on() or not self._plan.has_left(self._source):
                return
            if now >= quiet_until:
                break
            self._progress.wait(min(_PAUSE_S, quiet_until - now))
        for page in self._plan.pages_left(self._source):
            self._plan.mark(self._source, [number for number, _ in page], LOCKED)

    def _goes_on(self) -> bool:
        if self._progress.is_stopping:
            self.ended_early = "it was asked to stop"
        elif self._refusals >= _REFUSALS_MAX:
            self.ended_early = (
                f"'{self.route.destination}' refused {_REFUSALS_MAX} messages one after the other"
            )
        return self.ended_early is None

    def _rounds(self) -> Iterator[list[Parcel]]:
        """What is left, in order: as much at a time as may be under way."""
        some: list[Parcel] = []
        size = 0
        for parcel in parcels_left(self._plan, self._source):
            some.append(parcel)
            size += len(parcel.letters)
            if len(some) == self._parcels_max or size >= _ROUND_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _moved(self, parcels: list[Parcel]) -> list[ParcelTold]:
        table = pa.Table.from_batches([column_of_blobs(_GIVEN, [each.letters for each in parcels])])
        frame = self._spark.createDataFrame(table)  # as many tasks as there are cores, each with neighbours
        if self.route.needs_session:
            frame = frame.coalesce(1)
        speculates = self._spark.conf.get("spark.speculation", "false") == "true"
        work = _task(self._bus, self.route.source, self.route.destination, not speculates)
        rows: list[Any] = frame.mapInArrow(work, _RETURNED).collect()
        return paired(parcels, [bytes(row[0]) for row in rows])

    def _note(self, told: list[ParcelTold]) -> None:
        moved = 0
        for parcel, others in told:
            stay = {number for each in others for number in each.numbers}
            moved += self._plan.mark_between(self._source, parcel.first, parcel.last, RESUBMITTED, stay)
            for each in others:
                if each.outcome in (LOCKED, PLANNED):
                    continue  # tried again
                self._plan.mark(self._source, each.numbers, each.outcome, each.detail)
                if each.outcome == REFUSED:
                    self._refusals += len(each.numbers)
        self.moved += moved
        if moved:
            self._refusals = 0
        self._progress.tell(
            f"Resubmitted {self.moved} dead letters of {self.route.source}.",
            entity=self.route.source,
            resubmitted=self.moved,
        )


def parcels_left(plan: Plan, source: int) -> Iterator[Parcel]:
    """What is still to be moved, ascending. It may be marked meanwhile."""
    some: list[Letter] = []
    size = 0
    for letter in plan.letters_left(source):
        if some and (len(some) == LETTERS_MAX or size + len(letter[1]) > BYTES_MAX):
            yield Parcel.of(some)
            some, size = [], 0
        some.append(letter)
        size += len(letter[1])
    if some:
        yield Parcel.of(some)


def _task(bus: Bus, source: str, destination: str, is_certain: bool) -> Callable[[_Batches], _Batches]:
    """`is_certain`: Spark runs one try at a time, so that the first one is told from others."""

    def work(batches: _Batches) -> _Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        is_first = is_certain and (context is None or context.attemptNumber() == 0)
        door = LettersDoor(bus, source, destination)
        for batch in batches:
            told = [_told(door, letters.as_py(), is_first) for letters in batch.column(0)]
            yield column_of_blobs(_RETURNED.split()[0], told)

    return work


def _told(door: LettersDoor, letters: bytes, is_first: bool) -> bytes:
    """Of one parcel, under the number of its first letter."""
    told = door.move(letters, is_first=is_first)
    return json.dumps([first_number(letters), [astuple(each) for each in told]]).encode()


def paired(parcels: list[Parcel], answers: list[bytes]) -> list[ParcelTold]:
    """Each answer with the parcel whose first letter it names, in whatever order they come."""
    by_first = {parcel.first: parcel for parcel in parcels}
    pairs: list[ParcelTold] = []
    for answer in answers:
        first, told = json.loads(answer)
        pairs.append((by_first.pop(first), [Told(*each) for each in told]))
    assert not by_first, "Spark ends a job without some of its rows"
    return pairs


def _parallelism(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not tell
        return 1
