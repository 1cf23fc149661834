"""Claims by Busway's own operations (`busway.gateway.http.bulk.claims_route`): whole batches with one request each.

The steps are those of `claim_steps`, with the same stamps and the same offsets, so a query may go on with either. The
server remembers what is taken, under the stamp; sessions stay locked there until they are settled, as long as they
are renewed.

Each request may be made again: none does anything twice. Taking under a stamp that has taken gives the same messages;
holding happens once and then tells what is held; what is settled or released is gone the second time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import StructType

from busway.client.errors import ClientError, Refused, Unreachable
from busway.message.claimed_run import LENGTH
from busway_spark.servicebus.claim import Claim, Held, runs_of
from busway_spark.servicebus.claimed_columns import ClaimedColumns, gathered_runs
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpClient, Question
from busway_spark.wire.patience import OPERATION_S, Patience, meet

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
