"""Claims by Busway's own operations (`busway.gateway.http.bulk.claims_route`): whole batches with one request each.

The steps are those of `stock_claims`, with the same stamps and the same offsets, so a query may go on with either.
The server remembers what is taken, under the stamp; sessions stay locked there until they are settled, as long as
they are renewed.

Each request may be made again: none does anything twice. Taking under a stamp that has taken gives the same
messages; holding happens once and then tells what is held; what is settled or released is gone the second time.

Claimed messages become columns straight from the frames of the bulk route (`busway.message.claimed_run`). What the
server knows of messages lies in a frame as columns already. What their senders said is found in the bare messages
as in any others (`message_columns`). Both are done with one operation for all messages that are there, so several
frames are made one run first.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from busway.client.errors import ClientError, Refused, Unreachable
from busway.message.claimed_run import (
    COLUMNS_BYTES,
    DEAD_LETTER_SOURCE,
    FIRST_NUMBER,
    HEAD,
    LENGTH,
    MAGIC,
    PARTITION_KEY,
    SCHEDULED_TIME,
)
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import BYTES_MAX, Column, Longs, MessageCut
from busway_spark.servicebus.claim import Claim, Held, runs_of
from busway_spark.servicebus.message_columns import FRAGMENT_SHIFT, STRING, MessageColumns, instants
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpClient, Question
from busway_spark.wire.patience import OPERATION_S, Patience, meet

#: What is gathered of small frames. A larger one stands alone.
_GATHERED_BYTES: Final = 8 * 1024 * 1024


class ClaimedFrameDamaged(ValueError):
    """An answer is not what it says to be."""


@dataclass
class ClaimedRun:
    """A frame, taken apart; positions are offsets in `data`."""

    data: bytes
    numbers: Longs
    enqueued_ms: Longs
    life_ms: Longs
    deliveries: NDArray[np.int32]
    details: dict[str, Any]
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.numbers)


def claimed_run(frame: bytes) -> ClaimedRun:
    """Of a frame without its length. Raises ClaimedFrameDamaged."""
    if not HEAD.size <= len(frame) <= BYTES_MAX:
        raise ClaimedFrameDamaged("a frame is shorter than its head, or larger than two gigabytes")
    magic, count, details_bytes = HEAD.unpack_from(frame)
    details_at = HEAD.size + COLUMNS_BYTES * count
    first = details_at + details_bytes
    if magic != MAGIC or count == 0 or first > len(frame):
        raise ClaimedFrameDamaged("the head of a frame does not fit its length")
    longs = np.frombuffer(frame, "<i8", 4 * count, HEAD.size).astype(np.int64).reshape(4, count)
    ends = longs[3] + first
    starts = np.empty(count, np.int64)
    starts[0], starts[1:] = first, ends[:-1]
    if int(ends[-1]) != len(frame) or not bool((starts <= ends).all()):
        raise ClaimedFrameDamaged("the messages of a frame overlap, or end outside of it")
    deliveries = np.frombuffer(frame, "<i4", count, HEAD.size + 32 * count)
    details = _details(frame[details_at:first], count)
    return ClaimedRun(frame, longs[0], longs[1], longs[2], deliveries, details, starts, ends)


def gathered_runs(frames: Iterator[bytes]) -> Iterator[ClaimedRun]:
    """Frames, without their lengths, as fewer and longer runs. When the frames break off, what had come comes before
    the error. Raises ClaimedFrameDamaged."""
    waiting: list[bytes] = []
    try:
        for frame in frames:
            if waiting and sum(map(len, waiting)) + len(frame) > _GATHERED_BYTES:
                yield _joined(waiting)
                waiting = []
            waiting.append(frame)
    except Unreachable:
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _joined(frames: list[bytes]) -> ClaimedRun:
    runs = [claimed_run(frame) for frame in frames]
    if len(runs) == 1:
        return runs[0]
    before = np.cumsum([0, *map(len, frames)])
    return ClaimedRun(
        b"".join(frames),
        np.concatenate([run.numbers for run in runs]),
        np.concatenate([run.enqueued_ms for run in runs]),
        np.concatenate([run.life_ms for run in runs]),
        np.concatenate([run.deliveries for run in runs]),
        {
            name: [item for run in runs for item in run.details.get(name) or [None] * len(run)]
            for name in {name for run in runs for name in run.details}
        },
        np.concatenate([run.starts + shift for run, shift in zip(runs, before, strict=False)]),
        np.concatenate([run.ends + shift for run, shift in zip(runs, before, strict=False)]),
    )


def _details(data: bytes, count: int) -> dict[str, Any]:
    try:
        details = json.loads(data) if data else {}
    except ValueError:
        details = None
    if not isinstance(details, dict):
        raise ClaimedFrameDamaged("the details of a frame cannot be read")
    if any(not isinstance(column, list) or len(column) != count for column in details.values()):
        raise ClaimedFrameDamaged("the details of a frame do not fit its messages")
    return details


class ClaimedColumns:
    """Builds record batches of one schema; rows show their messages as they were before the claim."""

    def __init__(self, schema: StructType, options: ServiceBusOptions, entity: str) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        said = StructType([each for each in schema.fields if each.name not in _OF_FRAME])
        self._said = MessageColumns(said, options, entity)

    def batch(self, run: ClaimedRun) -> pa.RecordBatch:
        """Raises DecodeError for a message that is none."""
        columns = {name: read(run) for name, read in _OF_FRAME.items() if name in self.schema.names}
        if len(columns) < len(self.schema.names):
            said = self._said.batch_of_cut(MessageCut(run.data, run.starts, run.ends))
            columns.update(zip(said.schema.names, said.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _expiry(run: ClaimedRun) -> Column:
    """M-17: from the time it was enqueued and the life that it has."""
    return instants(run.enqueued_ms + run.life_ms, run.life_ms >= 0)


def _scheduled(run: ClaimedRun) -> Column:
    at_ms = _detail(SCHEDULED_TIME, pa.int64())(run)
    return instants(arrow.longs(at_ms), arrow.is_valid(at_ms))


def _detail(name: str, kind: pa.DataType) -> Callable[[ClaimedRun], Column]:
    def read(run: ClaimedRun) -> Column:
        column = run.details.get(name)
        return arrow.nulls(kind, len(run)) if column is None else pa.array(column, kind)

    return read


#: Columns that a frame has, or that are the same for all that is claimed.
_OF_FRAME: Final[dict[str, Callable[[ClaimedRun], Column]]] = {
    "partitionKey": _detail(PARTITION_KEY, STRING),
    "deadLetterSource": _detail(DEAD_LETTER_SOURCE, STRING),
    "enqueuedSequenceNumber": _detail(FIRST_NUMBER, pa.int64()),
    "sequenceNumber": lambda run: pa.array(run.numbers),
    "fragment": lambda run: pa.array((run.numbers >> FRAGMENT_SHIFT).astype(np.int32)),
    "enqueuedTime": lambda run: instants(run.enqueued_ms),
    "expiresAt": _expiry,
    "timeToLive": lambda run: pa.array(run.life_ms, mask=run.life_ms < 0),
    "scheduledEnqueueTime": _scheduled,
    "deliveryCount": lambda run: pa.array(run.deliveries.astype(np.int32)),
    "state": lambda run: arrow.repeated("active", STRING, len(run)),
}


FRAMES_TYPE: Final = "application/vnd.busway.claimed"
#: The most that is asked for at once, and waited for.
COUNT_MAX: Final = 100_000
WAIT_S_MAX: Final = 30.0
#: How large a frame may be: a page of the server and its largest message.
_FRAME_BYTES_MAX: Final = 1 << 31

Runs = list[tuple[int, int]]
#: First, count, and the session where there are sessions.
SessionRun = tuple[int, int, str | None]
_RENEWAL_S_MIN: Final = 1.0
_RENEWAL_S_MAX: Final = 20.0


@dataclass(frozen=True)
class TakenRuns:
    """What was locked."""

    runs: list[SessionRun]
    #: When the oldest of them was enqueued, by the server's clock.
    oldest_ms: int
    locked_until_ms: int
    #: Messages that nobody has taken yet, about.
    available: int


class ClaimRoutes:
    def __init__(self, bus: Bus, address: str, operation_s: float = OPERATION_S) -> None:
        self._http = HttpClient(bus, address, operation_s)
        self._root = "/" + "/".join(quote(part, safe="$") for part in address.split("/")) + "/$claims"

    # -- what can be asked; each raises ClientError

    def take(self, stamp: str, count: int, wait_s: float) -> TakenRuns:
        wait_s = min(wait_s, WAIT_S_MAX)
        answer = self._post(f"/{stamp}/take?count={min(count, COUNT_MAX)}&wait={wait_s:.3f}", wait_s=wait_s)
        return TakenRuns(
            _session_runs(answer), answer["oldest_ms"], answer["locked_until_ms"], answer["available"]
        )

    def renew(self, stamp: str) -> None:
        self._post(f"/{stamp}/renew")

    def hold(self, stamp: str, runs: Runs, *, with_sessions: bool = False) -> list[SessionRun]:
        """Those of them that the claim holds from now on."""
        return _session_runs(self._post(f"/{stamp}/hold" + "?sessions=true" * with_sessions, runs))

    def settle(self, stamp: str, runs: Runs) -> int:
        """How many could not be deleted, because somebody else has locked them."""
        return int(self._post(f"/{stamp}/settle", runs)["locked"])

    def release(self, stamp: str) -> int:
        return int(self._post(f"/{stamp}/release")["released"])

    def stamps(self) -> dict[str, int]:
        """Claims that hold messages, and how many."""
        return {
            str(each["stamp"]): int(each["messages"]) for each in _json(self._http.get(self._root))["claims"]
        }

    def last_numbers(self) -> list[int]:
        """The newest number of each fragment; none where the server does not tell."""
        return [int(number) for number in _json(self._http.get(self._root)).get("last", ())]

    def read(self, stamp: str, runs: Runs) -> Iterator[bytes]:
        """Frames, without their lengths. A connection that breaks on the way is for the caller to take up again."""
        question = Question(
            "POST", f"{self._root}/{stamp}/read", _body(runs), FRAMES_TYPE, is_repeatable=True
        )
        with self._http.reading(question) as answer:
            while head := _exactly(answer, LENGTH.size, is_end_allowed=True):
                size: int = LENGTH.unpack(head)[0]
                if size > _FRAME_BYTES_MAX:
                    raise Refused(f"The server announced a frame of {size} bytes.")
                yield _exactly(answer, size)

    def _post(self, path: str, runs: Runs | None = None, wait_s: float = 0.0) -> Mapping[str, Any]:
        body = None if runs is None else _body(runs)
        return _json(self._http.post(self._root + path, body, is_repeatable=True, wait_s=wait_s))


def _session_runs(answer: Mapping[str, Any]) -> list[SessionRun]:
    return [(int(run[0]), int(run[1]), str(run[2]) if len(run) > 2 else None) for run in answer["held"]]


def _body(runs: Runs) -> bytes:
    return json.dumps({"held": runs}, separators=(",", ":")).encode()


def _exactly(answer: http.client.HTTPResponse, size: int, *, is_end_allowed: bool = False) -> bytes:
    data = answer.read(size)
    if len(data) < size and not (is_end_allowed and not data):
        raise http.client.IncompleteRead(data, size - len(data))
    return data


def _json(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("The server's answer about a claim cannot be read.")
    return found


class BulkClaims:
    """On the driver."""

    def __init__(self, bus: Bus, address: str, operation_s: float = OPERATION_S) -> None:
        self._address = address
        self._routes = ClaimRoutes(bus, address, operation_s)
        self._renewal: _Renewal | None = None
        #: Of the newest claim: when its oldest message was enqueued.
        self.oldest_ms = 0
        #: Messages that were left behind by the last taking; None before it.
        self.available: int | None = None

    def take(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        stamp = uuid4().hex
        taken = self._routes.take(stamp, count, wait_s)
        self.available = taken.available
        held = _by_session(taken.runs)
        if not held:
            return None
        self.oldest_ms = taken.oldest_ms
        if None not in held:
            self._renewal = _Renewal(self._routes, stamp, taken.locked_until_ms)
        # What an offset has no room for is available again when the rest is held.
        return done.next_holding(stamp, held).fitting()

    def adopt(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        """What streams that are no more have left behind is available again, and taken with the rest."""
        for stamp in self._routes.stamps():
            self._routes.release(stamp)
        return self.take(done, count, wait_s)

    def hold(self, claim: Claim) -> Held:
        runs = runs_of(claim.numbers())
        if not claim.knows_sessions:
            return _by_session(self._routes.hold(claim.stamp, runs, with_sessions=True))
        kept = {
            number
            for first, count, _ in self._routes.hold(claim.stamp, runs)
            for number in range(first, first + count)
        }
        return {session_id: [n for n in numbers if n in kept] for session_id, numbers in claim.held.items()}

    def settle(self, claim: Claim) -> None:
        self._stop_renewing()
        locked = self._routes.settle(claim.stamp, runs_of(claim.numbers()))
        if locked:
            raise Refused(
                f"{locked} message(s) that the stream has processed cannot be completed: somebody else has locked"
                " them by their numbers. Start the query again when they are free."
            )

    def give_back(self, claim: Claim) -> None:
        """Taken, and not wanted after all."""
        self._stop_renewing()
        self._routes.release(claim.stamp)

    def last_numbers(self) -> list[int]:
        """The newest number of each fragment; none where the server does not tell."""
        return self._routes.last_numbers()

    def close(self) -> None:
        self._stop_renewing()

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None


class BulkReading:
    """On executors."""

    def __init__(self, bus: Bus, address: str, schema: StructType, options: ServiceBusOptions) -> None:
        self._authority, self._operation_s = bus.target.authority, options.operation_s
        meet(self._authority)  # the driver has
        self._routes = ClaimRoutes(bus, address, self._operation_s)
        self._columns = ClaimedColumns(schema, options, address)

    def batches(self, stamp: str, numbers: list[int], missing: set[int]) -> Iterator[pa.RecordBatch]:
        """Takes what comes out of `missing`, which holds all of the numbers at first."""
        left = numbers
        patience = Patience(self._authority, self._operation_s)
        while True:
            try:
                for run in gathered_runs(self._routes.read(stamp, runs_of(left))):
                    missing.difference_update(run.numbers.tolist())
                    yield self._columns.batch(run)
                    patience = Patience(self._authority, self._operation_s)  # it goes on
                return
            except Unreachable as error:
                if not patience.pause():
                    raise patience.over(error) from error
                left = [number for number in left if number in missing]


class _Renewal:
    """Keeps sessions locked, until it is stopped or they are lost."""

    def __init__(self, routes: ClaimRoutes, stamp: str, locked_until_ms: int) -> None:
        left_s = locked_until_ms / 1000 - time.time()
        self._every_s = max(_RENEWAL_S_MIN, min(left_s / 3, _RENEWAL_S_MAX))
        self._routes = routes
        self._stamp = stamp
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="busway-renewal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ClientError):
            while not self._is_over.wait(self._every_s):
                with contextlib.suppress(Unreachable):  # it may be back before the lock ends
                    self._routes.renew(self._stamp)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def _by_session(runs: list[SessionRun]) -> Held:
    held: Held = {}
    for first, count, session_id in runs:
        held.setdefault(session_id, []).extend(range(first, first + count))
    return held
