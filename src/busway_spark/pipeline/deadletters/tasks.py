"""Dead letters moved by tasks of Spark: exactly those of a plan, each once, whatever is killed meanwhile.

Theory of operation. The plan lies with the driver (`plan`). It is handed out in parcels, some at a time, as a small
table whose rows are bodies of requests. A task posts its rows one after the other and tells of each parcel, named by
its first letter, only what was not moved; that comes into the plan before more is handed out: the driver holds no
more than that. A move is one step of the server's, so a task that Spark repeats or speculates with, an executor that
is lost, a driver or a bus that is killed and started again neither lose nor double a letter. What somebody holds
locked is tried again, with pauses, as long as `wait_s`.

Tasks work at the same time, so letters of different parcels may arrive in another order. Where the destination needs
sessions, whose messages have an order, one task moves everything, in the order of numbers.

The server's route (`busway.gateway.http.bulk.letters_route`): a dead letter leaves the dead-letter queue in the
commit that stores it where it goes, so it is its own token: a request may be made again, by this task or another, and
moves only what is still there. What is gone when a request is made again was moved by the one before, whose answer
was lost; what is gone at the first request somebody else took. Letters are packed by the driver as the request wants
them, and only what is asked for again is unpacked here: a task does nothing for each letter that goes well.

Driver and tasks hand each other bytes in a column, not a row for each letter. Spark turns a row into an object of
Java, of the pickler and of Python one after the other, which costs more than all the rest; bytes pass as they are.
The column is built from memory: Arrow's usual way from a list of Python asks pandas whether it is one of its own, and
loads it for that, which takes a fresh worker longer than a thousand letters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from busway.client.errors import ClientError, EntityMissing, Refused, Unreachable
from busway_spark.pipeline.deadletters.plan import (
    GONE,
    LOCKED,
    PLANNED,
    REFUSED,
    RESUBMITTED,
    LetterRoute,
    Plan,
)
from busway_spark.pipeline.job import JobFailed, JobProgress, failing
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpClient
from busway_spark.wire.patience import OPERATION_S, Patience

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

_Batches = Iterator[pa.RecordBatch]
_PACKED: Final = "letters binary"
_NUMBER_WORDS: Final = 2
#: Of one request.
LETTERS_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
_LETTER: Final = Struct(">QI")
#: A number, and what is changed as an encoded map, or nothing.
Letter = tuple[int, bytes]
#: Parcels that are under way together, at least and at most; and for each core, and their bytes.
_PARCELS_MIN, _PARCELS_MAX = 64, 512
_PARCELS_OF_CORE: Final = 16
_ROUND_BYTES: Final = 32 * 1024 * 1024
_PAUSE_S: Final = 1.0
#: So many refusals with nothing taken between them are not the messages' fault.
_REFUSALS_MAX: Final = 100
_GIVEN: Final = "letters"
_RETURNED: Final = "told binary"


def blobs(values: Sequence[bytes]) -> pa.Array[Any]:
    """Of type binary."""
    offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int32, len(values) + 1)
    memory = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), memory)


def column_of_blobs(name: str, values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([blobs(values)], names=[name])


# -- numbers of dead letters


def packed_numbers(letters: DataFrame) -> Iterator[Iterable[tuple[int, int, bool]]]:
    """(source, number, is it deferred) of all rows, which have the columns `source`, `sequenceNumber` and
    `isDeferred`: some thousands at a time, in the order of the rows."""
    for row in letters.mapInArrow(_pack, _PACKED).toLocalIterator(prefetchPartitions=True):
        words: NDArray[np.int64] = np.frombuffer(row[0], np.int64).reshape(-1, _NUMBER_WORDS)
        places, numbers = words[:, 0], words[:, 1]
        yield zip((places >> 1).tolist(), numbers.tolist(), (places & 1).tolist(), strict=True)


def _pack(batches: _Batches) -> _Batches:
    for batch in batches:
        if batch.num_rows:
            words = np.empty((batch.num_rows, _NUMBER_WORDS), np.int64)
            sources = batch.column("source").to_numpy()
            words[:, 0] = sources * 2 + batch.column("isDeferred").to_numpy(zero_copy_only=False)
            words[:, 1] = batch.column("sequenceNumber").to_numpy()
            yield column_of_blobs("letters", [words.tobytes()])


def packed(letters: Iterable[Letter]) -> bytes:
    """The body of a request."""
    pack = _LETTER.pack
    return b"".join([pack(number, len(changes)) + changes for number, changes in letters])


def first_number(body: bytes) -> int:
    """Of the first letter in a body."""
    number: int = _LETTER.unpack_from(body)[0]
    return number


def unpacked(body: bytes) -> Iterator[Letter]:
    at = 0
    while at < len(body):
        number, length = _LETTER.unpack_from(body, at)
        at += _LETTER.size + length
        yield number, body[at - length : at]


@dataclass(frozen=True)
class LettersOutcome:
    """What became of some letters, all the same: an outcome of `plan`."""

    outcome: str
    numbers: list[int]
    detail: str | None = None


class LettersClient:
    """From one source to one destination."""

    def __init__(self, bus: Bus, source: str, destination: str, limit_s: float = OPERATION_S) -> None:
        self._bus = bus
        self._http = HttpClient(bus, source, limit_s)
        self._destination = destination
        self._target = f"/$deadletters/{quote(source, safe='/$')}?into={quote(destination, safe='')}"
        self._limit_s = limit_s

    def is_there(self) -> bool:
        """False for a server that has none. Raises ClientError, also when the key does not allow it."""
        try:
            return "gone" in self._ask(b"")
        except (EntityMissing, Refused):
            return False

    def move(self, letters: bytes, *, is_first: bool) -> list[LettersOutcome]:
        """What became of those packed letters that were not moved; all others were. `is_first`: nobody has tried them
        before. Raises ClientError."""
        patience = Patience(self._bus.target.authority, self._limit_s)
        left = letters
        are_tried, tried = not is_first, set[int]()
        told: list[LettersOutcome] = []
        while True:
            try:
                answer = self._ask(left)
            except Unreachable as error:
                if not patience.pause():
                    raise patience.over(error) from error
                are_tried = True
                continue
            told += _not_moved(answer)
            if not are_tried:
                told.append(
                    LettersOutcome(GONE, [number for number in answer["gone"] if number not in tried])
                )
            tried.update(answer["unknown"])
            again = {*answer["later"], *answer["unknown"]}
            if not again:
                break
            left = _only(left, again)
            if not patience.pause():
                told.append(LettersOutcome(PLANNED, sorted(again), "the server was busy"))
                break
        return [each for each in told if each.numbers]

    def _ask(self, letters: bytes) -> dict[str, Any]:
        # Not repeated by the client: what was asked twice must be known here.
        found = json.loads(
            self._http.post(self._target, letters, is_repeatable=False, also_for=self._destination)
        )
        return found if isinstance(found, dict) else {}


def _only(letters: bytes, wanted: Container[int]) -> bytes:
    return packed(letter for letter in unpacked(letters) if letter[0] in wanted)


def _not_moved(answer: Mapping[str, Any]) -> list[LettersOutcome]:
    refused = [LettersOutcome(REFUSED, [int(number)], str(why)) for number, why in answer["refused"]]
    return [LettersOutcome(LOCKED, list(answer["locked"])), *refused]


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
ParcelOutcome = tuple[Parcel, list[LettersOutcome]]


class TaskMover:
    """Moves what a plan names of one source. `run` may be called once."""

    def __init__(
        self,
        spark: SparkSession,
        bus: Bus,
        route: LetterRoute,
        source: int,
        plan: Plan,
        progress: JobProgress,
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
        """Whether the server has a route for it. Raises JobFailed."""
        try:
            return LettersClient(self._bus, self.route.source, self.route.destination).is_there()
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

    def _moved(self, parcels: list[Parcel]) -> list[ParcelOutcome]:
        table = pa.Table.from_batches([column_of_blobs(_GIVEN, [each.letters for each in parcels])])
        frame = self._spark.createDataFrame(table)  # as many tasks as there are cores, each with neighbours
        if self.route.needs_session:
            frame = frame.coalesce(1)
        speculates = self._spark.conf.get("spark.speculation", "false") == "true"
        work = _task(self._bus, self.route.source, self.route.destination, not speculates)
        rows: list[Any] = frame.mapInArrow(work, _RETURNED).collect()
        return paired(parcels, [bytes(row[0]) for row in rows])

    def _note(self, told: list[ParcelOutcome]) -> None:
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
        route = LettersClient(bus, source, destination)
        for batch in batches:
            told = [_told(route, letters.as_py(), is_first) for letters in batch.column(0)]
            yield column_of_blobs(_RETURNED.split()[0], told)

    return work


def _told(route: LettersClient, letters: bytes, is_first: bool) -> bytes:
    """Of one parcel, under the number of its first letter."""
    told = route.move(letters, is_first=is_first)
    return json.dumps([first_number(letters), [astuple(each) for each in told]]).encode()


def paired(parcels: list[Parcel], answers: list[bytes]) -> list[ParcelOutcome]:
    """Each answer with the parcel whose first letter it names, in whatever order they come."""
    by_first = {parcel.first: parcel for parcel in parcels}
    pairs: list[ParcelOutcome] = []
    for answer in answers:
        first, told = json.loads(answer)
        pairs.append((by_first.pop(first), [LettersOutcome(*each) for each in told]))
    assert not by_first, "Spark ends a job without some of its rows"
    return pairs


def _parallelism(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect does not tell
        return 1
