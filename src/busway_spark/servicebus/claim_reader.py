"""Streams of messages: each micro-batch is a claim (see `claim_desk` for the protocol).

Spark asks the driver's process for offsets and partitions, in this order: `latestOffset(start)` on every trigger,
where `start` is the end of the last batch that Spark has committed; then it logs what it got, and asks for
`partitions`. After a crash a logged batch is planned again by `partitions` alone. `commit` comes late or never, so
settling does not depend on it. Executors only peek.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from busway.client.messages import ServiceBusReceivedMessage
from busway_spark.servicebus.bridge import bridge
from busway_spark.servicebus.claim import Claim
from busway_spark.servicebus.claim_desk import ClaimDesk, Taken, is_stamped
from busway_spark.servicebus.columns import check_readable
from busway_spark.servicebus.failure import BusFailure, failing
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY, MessageColumns, fragment_of
from busway_spark.servicebus.options import NUMBER_MAX, ServiceBusOptions
from busway_spark.servicebus.peek import by_numbers, number_of, walk

#: How far the clocks of the bus and of the driver may be apart without "available now" ending too early.
_SKEW_MS: Final = 60_000


class ClaimedMessageMissing(BusFailure):
    """A message that was planned is no longer there."""


@dataclass
class ClaimedNumbers(InputPartition):
    stamp: str
    numbers: list[int]


class ClaimStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: ServiceBusOptions, *, is_durable: bool) -> None:
        check_readable(schema, options)
        self._schema = schema
        self._options = options
        self._address = options.source_address()
        self._is_durable = is_durable
        self._desk: ClaimDesk | None = None
        #: The newest claim that this process has taken, what it has locked, and what of it is held.
        self._claim = Claim(self._address)
        self._taken: list[Taken] = []
        self._kept: set[int] | None = None
        self._settled = 0
        #: Messages enqueued after this are for a later run; None without "available now".
        self._target_ms: int | None = None
        self._is_over = False

    # -- on the driver

    def initialOffset(self) -> dict[str, object]:
        return Claim(self._address).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.messages_per_trigger_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target_ms = int(time.time() * 1000) + _SKEW_MS

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        done = Claim.of_offset(start, self._address)
        with failing(f"read the stream of '{self._address}'"):
            self._settle(done)
            if self._claim.number > done.number:
                return self._claim.offset()
            taken = [] if self._is_over else self._take(done, limit)
        if not taken:
            return start
        self._claim = done.next_of((each.session_id, each.number) for each in taken)
        self._taken = taken
        self._kept = None
        self._is_over = self._target_ms is not None and all(
            each.enqueued_ms > self._target_ms for each in taken
        )
        return self._claim.offset()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        claim = Claim.of_offset(end, self._address)
        if claim.number == Claim.of_offset(start, self._address).number:
            return []
        with failing(f"claim messages of '{self._address}'"):
            kept = self._held(claim)
        per_partition = self._options.messages_per_partition
        return [ClaimedNumbers(claim.stamp, numbers) for numbers in _shares(claim, kept, per_partition)]

    def commit(self, end: dict[str, object]) -> None:
        with failing(f"settle messages of '{self._address}'"):
            self._settle(Claim.of_offset(end, self._address))

    def stop(self) -> None:
        if self._desk is not None:
            bridge().run(self._desk.close())

    def _take(self, done: Claim, limit: ReadLimit) -> list[Taken]:
        work = bridge()
        if done.number == 0 and self._options.adopts_claims:
            adopted = work.run(self._opened().adopt(self._left_behind()))
            if adopted:
                return adopted
        count = self._options.messages_per_trigger_max
        if isinstance(limit, ReadMaxRows):
            count = min(count, limit.max_rows)
        return work.run(self._opened().take(count, self._options.wait_s))

    def _left_behind(self) -> list[ServiceBusReceivedMessage]:
        work = bridge()
        pages = walk(work, work.client(self._options), self._address, 0, NUMBER_MAX)
        return [
            message
            for page in pages
            for message in page
            if message.state == "deferred" and CLAIM_PROPERTY in message.application_properties
        ]

    def _held(self, claim: Claim) -> set[int]:
        """What the batch consists of; the same whenever it is planned."""
        is_ours = claim.stamp == self._claim.stamp
        if is_ours and self._kept is not None:
            return self._kept
        desk, work = self._opened(), bridge()
        if is_ours and self._taken:
            self._kept = work.run(desk.hold(claim, self._taken))
        else:
            self._kept = work.run(desk.kept(claim))
            self._claim, self._taken = claim, []
        return self._kept

    def _settle(self, done: Claim) -> None:
        """Everything up to a batch that Spark has committed. Earlier ones were settled before it was taken."""
        if done.number <= self._settled:
            return
        desk, work = self._opened(), bridge()
        is_ours = done.stamp == self._claim.stamp
        kept = self._kept if is_ours else None
        if kept is None:
            kept = work.run(desk.kept(done)) if self._is_durable else set()
        work.run(desk.settle(done, kept, self._taken if is_ours else []))
        self._settled = done.number

    def _opened(self) -> ClaimDesk:
        if self._desk is None:
            client = bridge().client(self._options)
            self._desk = ClaimDesk(client, self._address, is_durable=self._is_durable)
        return self._desk

    # -- on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ClaimedNumbers)
        columns = MessageColumns(self._schema, self._options, self._address, hides_claim=self._is_durable)
        work = bridge()
        missing = set(partition.numbers)
        with failing(f"read messages of '{self._address}'"):
            client = work.client(self._options)
            for page in by_numbers(work, client, self._address, partition.numbers):
                found = [each for each in page if self._is_of(partition, each)]
                missing.difference_update(number_of(each) for each in found)
                if found:
                    yield columns.batch(found)
        if missing and self._is_durable and self._options.fail_on_data_loss:
            raise ClaimedMessageMissing(
                f"{len(missing)} message(s) of '{self._address}' that this batch had claimed are gone, the first is "
                f"{min(missing)}: somebody else received them by their numbers. Set failOnDataLoss=false to go on."
            )

    def _is_of(self, partition: ClaimedNumbers, message: ServiceBusReceivedMessage) -> bool:
        return not self._is_durable or is_stamped(message, partition.stamp)

    def __getstate__(self) -> dict[str, object]:
        """Executors get what reading needs; the claim and its locks stay on the driver."""
        return {
            **self.__dict__,
            "_desk": None,
            "_taken": [],
            "_kept": None,
            "_claim": Claim(self._address),
        }


def _shares(claim: Claim, kept: set[int], per_partition: int) -> list[list[int]]:
    """Tasks of about so many messages; a session is never cut, a task without sessions stays in one fragment."""
    shares: list[list[int]] = []
    fill: list[int] = []
    for session_id, numbers in claim.held.items():
        own = [number for number in numbers if number in kept]
        if session_id is None:
            shares += _cut(own, per_partition)
            continue
        fill += own
        if len(fill) >= per_partition:
            shares.append(sorted(fill))
            fill = []
    if fill:
        shares.append(sorted(fill))
    return shares


def _cut(numbers: list[int], per_partition: int) -> list[list[int]]:
    cut: list[list[int]] = []
    for number in numbers:
        if (
            not cut
            or len(cut[-1]) >= per_partition
            or (fragment_of(cut[-1][-1]) != fragment_of(number) and len(numbers) > per_partition)
        ):
            cut.append([])
        cut[-1].append(number)
    return cut
