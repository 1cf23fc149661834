"""Streams of messages: each micro-batch is a claim (see `stock_claims` for the protocol).

Spark asks the driver's process for offsets and partitions, in this order: `latestOffset(start)` on every trigger,
where `start` is the end of the last batch that Spark has committed; then it logs what it got, and asks for
`partitions`. After a crash a logged batch is planned again by `partitions` alone. `commit` comes late or never, so
settling does not depend on it. Executors only look.

Against Busway a claim is taken, held, read and settled by operations of its own (`bulk_claims`), elsewhere by
those that every Service Bus has (`stock_claims`). Both leave the same marks, so a query may change between them.

A query with `availableNow` reads what was there when it began, however much comes meanwhile. Sequence numbers
ascend within a fragment, so Busway tells the newest number of each, and what is above it came later. Other servers
do not tell: there the time counts, by the server's clock, which its answers over HTTP tell to the second. A
message of that very second may have come later and is read too. A server whose HTTP cannot be reached has the
clock of this machine, or one close to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway_spark.servicebus.bulk_claims import BulkClaims, BulkReading
from busway_spark.servicebus.claim import Claim, Held
from busway_spark.servicebus.columns import check_readable
from busway_spark.servicebus.message_columns import FRAGMENT_SHIFT, fragment_of
from busway_spark.servicebus.options import BULK, STOCK, ServiceBusOptions
from busway_spark.servicebus.stock_claims import StockClaims, StockReading
from busway_spark.wire.bus import BUSWAY, Bus, BusFailure, failing
from busway_spark.wire.http_client import HttpClient

_SECOND_MS: Final = 1000
#: How far clocks may be apart without the query ending too early.
_SKEW_MS: Final = 2_000
#: A micro-batch costs Spark a few tenths of a second whatever is in it; stock operations cost so much more that locks
#: would not last for larger ones.
_BULK_PER_TRIGGER: Final = 20_000
_STOCK_PER_TRIGGER: Final = 5_000
_BULK_PER_PARTITION: Final = 5_000
_STOCK_PER_PARTITION: Final = 1_000


@dataclass(frozen=True)
class ReadingTarget:
    #: When the query began, by the server's clock.
    at_ms: int
    #: The newest number of each fragment by then; None where the server does not tell.
    last_numbers: dict[int, int] | None = None

    def was_there(self, number: int) -> bool:
        if self.last_numbers is None:
            return True
        return number <= self.last_numbers.get(number >> FRAGMENT_SHIFT, 0)

    def is_behind(self, oldest_ms: int) -> bool:
        """Whether a claim whose oldest message came then is the last one, as far as times can tell."""
        return self.last_numbers is None and oldest_ms > self.at_ms

    @classmethod
    def by_numbers(cls, last_numbers: Sequence[int]) -> ReadingTarget:
        return cls(0, {number >> FRAGMENT_SHIFT: number for number in last_numbers})

    @classmethod
    def by_clock(cls, bus: Bus) -> ReadingTarget:
        told_ms = _server_ms(bus)
        return cls(int(time.time() * 1000) + _SKEW_MS if told_ms is None else told_ms + _SECOND_MS - 1)


def _server_ms(bus: Bus) -> int | None:
    """None when nobody answered; it is asked once, since there is another clock."""
    try:
        told = HttpClient(bus, "", limit_s=0.0).date()
        return None if told is None else int(parsedate_to_datetime(told).timestamp()) * _SECOND_MS
    except (ClientError, ValueError):
        return None


class ClaimedMessageMissing(BusFailure):
    """A message that was planned is no longer there."""


@dataclass
class ClaimedNumbers(InputPartition):
    stamp: str
    numbers: list[int]
    is_bulk: bool = False


class ClaimStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: ServiceBusOptions, *, is_durable: bool) -> None:
        check_readable(schema, options)
        self._schema = schema
        self._options = options
        self._address = options.source_address()
        self._is_durable = is_durable
        self._claims: BulkClaims | StockClaims | None = None
        #: The newest claim that this process has taken or planned, and what of it is held.
        self._claim = Claim(self._address)
        self._held: Held | None = None
        self._settled = 0
        #: What "available now" reads; what came after it is for a later run.
        self._target: ReadingTarget | None = None
        self._is_over = False

    # -- on the driver

    def initialOffset(self) -> dict[str, object]:
        return Claim(self._address).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._per_trigger())

    def prepareForTriggerAvailableNow(self) -> None:
        claims = self._opened()
        with failing(f"find the end of '{self._address}'"):
            last_numbers = claims.last_numbers() if isinstance(claims, BulkClaims) else []
        self._target = (
            ReadingTarget.by_numbers(last_numbers)
            if last_numbers
            else ReadingTarget.by_clock(self._options.bus)
        )

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        done = Claim.of_offset(start, self._address)
        with failing(f"read the stream of '{self._address}'"):
            self._settle(done)
            if self._claim.number > done.number:
                return self._claim.offset()
            claim = None if self._is_over else self._take(done, limit)
        if claim is None:
            return start
        self._claim = claim
        self._held = None
        return claim.offset()

    def reportLatestOffset(self) -> dict[str, object] | None:
        """For the progress: how many messages wait behind the claim, as the server told when it was taken."""
        available = None if self._claims is None else self._claims.available
        if available is None:
            return None
        told: dict[str, object] = {"entity": self._address, "claim": self._claim.number}
        return {**told, "available": available, "bus": self._options.bus.target.authority}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        claim = Claim.of_offset(end, self._address)
        if claim.number == Claim.of_offset(start, self._address).number:
            return []
        with failing(f"claim messages of '{self._address}'"):
            held = self._hold(claim)
        is_bulk = self._is_bulk()
        default = _BULK_PER_PARTITION if is_bulk else _STOCK_PER_PARTITION
        shares = _shares(held, self._options.messages_per_partition or default)
        return [ClaimedNumbers(claim.stamp, numbers, is_bulk) for numbers in shares]

    def commit(self, end: dict[str, object]) -> None:
        with failing(f"settle messages of '{self._address}'"):
            self._settle(Claim.of_offset(end, self._address))

    def stop(self) -> None:
        if self._claims is not None:
            self._claims.close()

    def _take(self, done: Claim, limit: ReadLimit) -> Claim | None:
        count = self._per_trigger()
        if isinstance(limit, ReadMaxRows):
            count = min(count, limit.max_rows)
        claims, target = self._opened(), self._target
        take = claims.adopt if done.number == 0 and self._options.adopts_claims else claims.take
        claim = take(done, count, self._options.wait_s)
        if claim is None or target is None:
            return claim
        self._is_over = target.is_behind(claims.oldest_ms)
        wanted = claim.only(target.was_there)
        if isinstance(claims, BulkClaims) and not wanted.held:
            self._is_over = True
            claims.give_back(claim)
            return None
        # What came later is available again when the rest is held.
        return wanted

    def _hold(self, claim: Claim) -> Held:
        """What the batch consists of; the same whenever it is planned."""
        if claim.stamp == self._claim.stamp and self._held is not None:
            return self._held
        self._held = self._opened().hold(claim)
        self._claim = claim
        return self._held

    def _settle(self, done: Claim) -> None:
        """Everything up to a batch that Spark has committed. Earlier ones were settled before it was taken."""
        if done.number > self._settled:
            self._opened().settle(done)
            self._settled = done.number

    def _per_trigger(self) -> int:
        default = _BULK_PER_TRIGGER if self._is_bulk() else _STOCK_PER_TRIGGER
        return self._options.messages_per_trigger_max or default

    def _is_bulk(self) -> bool:
        return isinstance(self._opened(), BulkClaims)

    def _opened(self) -> BulkClaims | StockClaims:
        if self._claims is None:
            self._claims = self._chosen()
        return self._claims

    def _chosen(self) -> BulkClaims | StockClaims:
        wanted, bus = self._options.claim_operations, self._options.bus
        if self._is_durable and (
            wanted == BULK or (wanted != STOCK and bus.kind(self._options.operation_s) == BUSWAY)
        ):
            return BulkClaims(bus, self._address, self._options.operation_s)
        return StockClaims(self._options, self._address, is_durable=self._is_durable)

    # -- on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ClaimedNumbers)
        missing = set(partition.numbers)
        with failing(f"read messages of '{self._address}'"):
            yield from self._reading(partition).batches(partition.stamp, partition.numbers, missing)
        if missing and self._is_durable and self._options.fail_on_data_loss:
            raise ClaimedMessageMissing(
                f"{len(missing)} message(s) of '{self._address}' that this batch had claimed are gone, the first is "
                f"{min(missing)}: somebody else received them by their numbers. Set failOnDataLoss=false to go on."
            )

    def _reading(self, partition: ClaimedNumbers) -> BulkReading | StockReading:
        if partition.is_bulk:
            return BulkReading(self._options.bus, self._address, self._schema, self._options)
        return StockReading(self._address, self._schema, self._options, is_durable=self._is_durable)

    def __getstate__(self) -> dict[str, object]:
        """Executors get what reading needs; the claim and its locks stay on the driver."""
        return {**self.__dict__, "_claims": None, "_held": None, "_claim": Claim(self._address)}


def _shares(held: Held, per_partition: int) -> list[list[int]]:
    """Tasks of about so many messages; a session is never cut, a task without sessions stays in one fragment."""
    shares: list[list[int]] = []
    fill: list[int] = []
    for session_id, numbers in held.items():
        if session_id is None:
            shares += _cut(numbers, per_partition)
            continue
        fill += numbers
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
