"""Claims by operations that every Service Bus has (`claim_steps`), from Spark's blocking calls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from busway.client.errors import ClientError, Unreachable
from busway.client.messages import ServiceBusReceivedMessage
from busway_spark.given_options import NUMBER_MAX
from busway_spark.servicebus.claim import Claim, Held
from busway_spark.servicebus.claim_steps import ClaimSteps, Kept, Taken, by_session, is_stamped
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY, MessageColumns
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.peek import by_numbers, number_of, walk
from busway_spark.wire.bridge import bridge
from busway_spark.wire.patience import Patience, may_pass, meet, patiently

T = TypeVar("T")


class StockClaims:
    """On the driver. One that is not durable (`mode=peekLock`) keeps locks and holds nothing."""

    #: Nobody tells.
    available: int | None = None

    def __init__(self, options: ServiceBusOptions, address: str, *, is_durable: bool) -> None:
        self._options = options
        self._address = address
        self._is_durable = is_durable
        self._steps: ClaimSteps | None = None
        #: What the newest claim has locked, and what of it is held.
        self._stamp = ""
        self._taken: list[Taken] = []
        self._kept: Kept | None = None
        #: Of the newest claim: when its oldest message was enqueued.
        self.oldest_ms = 0

    def take(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        return self._claimed(done, self._run(lambda steps: steps.take(count, wait_s)))

    def adopt(self, done: Claim, count: int, wait_s: float) -> Claim | None:
        left_behind = patiently(self._options.target.authority, self._options.operation_s, self._left_behind)
        adopted = self._claimed(done, self._run(lambda steps: steps.adopt(left_behind)))
        return self.take(done, count, wait_s) if adopted is None else adopted

    def hold(self, claim: Claim) -> Held:
        return by_session(self._held(claim))

    def settle(self, claim: Claim) -> None:
        is_ours = claim.stamp == self._stamp
        found = self._kept if is_ours else None
        if found is None:
            found = self._run(lambda steps: steps.kept(claim)) if self._is_durable else {}
        kept, taken = found, self._taken if is_ours else []
        self._run(lambda steps: steps.settle(claim, kept, taken))

    def close(self) -> None:
        if self._steps is not None:
            bridge().run(self._steps.close())

    def _claimed(self, done: Claim, taken: list[Taken]) -> Claim | None:
        if not taken:
            return None
        claim = done.next_of((each.session_id, each.number) for each in taken)
        self._stamp, self._taken, self._kept = claim.stamp, taken, None
        self.oldest_ms = min(each.enqueued_ms for each in taken)
        return claim

    def _held(self, claim: Claim) -> Kept:
        is_ours = claim.stamp == self._stamp
        if is_ours and self._kept is not None:
            return self._kept
        if is_ours and self._taken:
            kept = self._run(lambda steps: steps.hold(claim, self._taken))
        else:
            kept = self._run(lambda steps: steps.kept(claim))
            self._stamp, self._taken = claim.stamp, []
        self._kept = kept
        return kept

    def _run(self, step: Callable[[ClaimSteps], Coroutine[Any, Any, T]]) -> T:
        """Each step may be made again, as after a crash: what was locked over a connection that broke is lost to it,
        and comes again."""
        steps = self._opened()

        def run() -> T:
            try:
                return bridge().run(step(steps))
            except Unreachable:
                bridge().run(steps.close())
                raise

        return patiently(self._options.target.authority, self._options.operation_s, run)

    def _left_behind(self) -> list[ServiceBusReceivedMessage]:
        work = bridge()
        pages = walk(work, work.client(self._options.bus), self._address, 0, NUMBER_MAX)
        return [
            message
            for page in pages
            for message in page
            if message.state == "deferred" and CLAIM_PROPERTY in message.application_properties
        ]

    def _opened(self) -> ClaimSteps:
        if self._steps is None:
            client = bridge().client(self._options.bus)
            self._steps = ClaimSteps(client, self._address, is_durable=self._is_durable)
        return self._steps


class StockReading:
    """On executors: by peeking."""

    def __init__(
        self, address: str, schema: StructType, options: ServiceBusOptions, *, is_durable: bool
    ) -> None:
        self._address = address
        self._options = options
        self._is_durable = is_durable
        self._columns = MessageColumns(schema, options, address, hides_claim=is_durable)

    def batches(self, stamp: str, numbers: list[int], missing: set[int]) -> Iterator[pa.RecordBatch]:
        """Takes what comes out of `missing`, which holds all of the numbers at first."""
        authority, operation_s = self._options.target.authority, self._options.operation_s
        meet(authority)  # the driver has
        patience = Patience(authority, operation_s)
        while True:
            try:
                for page in by_numbers(bridge(), bridge().client(self._options.bus), self._address, numbers):
                    found = [each for each in page if not self._is_durable or is_stamped(each, stamp)]
                    missing.difference_update(number_of(each) for each in found)
                    if found:
                        yield self._columns.batch(found)
                    patience = Patience(authority, operation_s)  # it goes on
                return
            except ClientError as error:
                if not may_pass(error):
                    raise
                if not patience.pause():
                    raise patience.over(error) from error
                numbers = [number for number in numbers if number in missing]
