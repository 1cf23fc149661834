"""Claims by Busway's own operations: whole batches with one request each.

The steps are those of `claim_desk`, with the same stamps and the same offsets, so a query may go on with either. The
server remembers what is taken, under the stamp; sessions stay locked there until they are settled, as long as they
are renewed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import StructType

from busway.client.errors import ClientError, Refused, Unreachable
from busway_spark.servicebus.claim import Claim, Held, runs_of
from busway_spark.servicebus.claim_routes import ClaimRoutes, SessionRun
from busway_spark.servicebus.claimed_columns import ClaimedColumns, gathered_runs
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.wire.bus import Bus
from busway_spark.wire.patience import OPERATION_S, Patience, meet

_RENEWAL_S_MIN: Final = 1.0
_RENEWAL_S_MAX: Final = 20.0


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
