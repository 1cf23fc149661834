"""The second look of a backfill, in tasks of Spark: matches become copies, and copies are sent, each once.

Theory of operation. Matches come sorted by number, one task for a fragment. Their rows are read out of the
captured files (`backfill_rows`), verdicts and rows become copies (`backfill_copies`), and these go where they are
for, the subscription itself or a queue instead, some at a time, in their order.

The subscription keeps the ids of its copies: the number of the message and the rule, so what a task sends again,
or a backfill that is started again, it has already. Copies are put one behind the other until they are worth a
request, by columns; one request is under way while the next is gathered, never two, so that copies arrive in their
order.

A queue knows no such ids. On Busway tasks stage what is for it, and the driver has it decided about for a step at
once (`writing.two_phase`), under a name that the same step has again. Elsewhere the message id tells repeats where
the queue detects duplicates. What failed is not sent to a queue: it would be a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from busway.client.errors import ClientError
from busway.client.sender import ServiceBusSender, batches
from busway.rules.rule import Rule
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.encoding import EncodedRows
from busway_spark.amqp_arrays.message_cut import Column
from busway_spark.pipeline.backfill.backfill_copies import CopyColumns, Copying
from busway_spark.pipeline.backfill.backfill_plan import BackfillClient
from busway_spark.pipeline.backfill.backfill_rows import CapturedRows
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.job import JobFailed
from busway_spark.wire.bus import Bus, BusFailure, bridge
from busway_spark.writing.two_phase import TaskStage
from busway_spark.writing.write_names import SinkWrite

_LOT_COPIES: Final = 2_000
_LOT_BYTES: Final = 2 * 1024 * 1024


@dataclass
class SentCopies:
    """What a target says at the end: copies that are new, those that were there, and what the driver must decide."""

    new: int = 0
    known: int = 0
    staged: str | None = None


class CopyTarget(Protocol):
    def put(self, copies: CopyColumns) -> None:
        """Raises JobFailed."""

    def finish(self) -> SentCopies:
        """All were sent. Raises JobFailed."""

    def close(self) -> None: ...


class SubscriptionTarget:
    def __init__(self, bus: Bus, subscription_path: str, through: str) -> None:
        self._client = BackfillClient(bus, subscription_path)
        self._through = through.lower()
        self._sending = ThreadPoolExecutor(1, "busway-backfill")
        self._under_way: Future[tuple[int, int]] | None = None
        self._waiting: list[bytes] = []
        self._fragment = 0
        self._count = 0
        self._bytes = 0
        self._told = SentCopies()

    def put(self, copies: CopyColumns) -> None:
        if not len(copies.numbers):
            return
        if copies.fragment != self._fragment:
            self._post()
            self._fragment = copies.fragment
        found = EncodedRows(copies.numbers, *encoding.bounds_of(_framed(copies, self._through)))
        first = 0
        while first < len(found):
            end = self._end(found, first)
            if end == first and not self._waiting:  # larger than a lot should be: it stands alone
                end += 1
            if end == first:
                self._post()
                continue
            lot = found.batch(first, end)
            self._waiting.append(lot)
            self._count, self._bytes, first = self._count + end - first, self._bytes + len(lot), end

    def _end(self, found: EncodedRows, first: int) -> int:
        """Of those that have room beside what waits."""
        limit = int(found.bounds[first]) + _LOT_BYTES - self._bytes
        end = int(np.searchsorted(found.bounds, limit, "right")) - 1
        return min(max(end, first), first + _LOT_COPIES - self._count, len(found))

    def _post(self) -> None:
        """In order: a lot goes when the one before it was answered."""
        if not self._waiting:
            return
        lot = b"".join(self._waiting)
        self._waiting, self._count, self._bytes = [], 0, 0
        self._join()
        self._under_way = self._sending.submit(self._client.store, self._fragment, lot)

    def _join(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            new, known = under_way.result()
            self._told.new += new
            self._told.known += known

    def finish(self) -> SentCopies:
        self._post()
        self._join()
        return self._told

    def close(self) -> None:
        """Nothing is under way when it returns. Connections are kept for the process."""
        self._sending.shutdown(cancel_futures=True)


def _framed(copies: CopyColumns, through: str) -> Column:
    """As the server's route takes them: each piece behind its length."""
    numbers = pa.array(copies.numbers).cast(pa.string())
    ids = encoding.as_binary(arrow.joined_texts(f"{through}/", numbers, "/", copies.rules))
    failures = encoding.as_binary(copies.failures)
    return arrow.joined(
        *(part for piece in (ids, failures, copies.payloads) for part in (_length(piece), piece))
    )


def _length(piece: Column) -> Column:
    return encoding.fixed(piece, encoding.lengths(piece).astype(">u4"), b"")


class StagedTarget:
    def __init__(self, bus: Bus, queue: str, write: SinkWrite) -> None:
        self._queue = queue
        self._stage = TaskStage(bus, write)
        self._rows = 0
        self._is_whole = False

    def put(self, copies: CopyColumns) -> None:
        payloads = _good(copies)
        rows = np.arange(self._rows, self._rows + len(payloads))
        self._rows += len(payloads)
        if len(payloads):
            with _told_by_job():
                self._stage.put(self._queue, None, EncodedRows.framed(rows, payloads))

    def finish(self) -> SentCopies:
        with _told_by_job():
            staged = self._stage.finish()
        self._is_whole = True
        return SentCopies(staged=staged.to_json())

    def close(self) -> None:
        self._stage.end(drops=not self._is_whole)


@contextmanager
def _told_by_job() -> Iterator[None]:
    try:
        yield
    except BusFailure as error:
        raise JobFailed(str(error)) from error


class QueueTarget:
    """The same by AMQP alone."""

    def __init__(self, bus: Bus, queue: str) -> None:
        self._queue = queue
        self._work = bridge()
        self._client = self._work.client(bus)
        self._sender: ServiceBusSender | None = None
        self._told = SentCopies()

    def put(self, copies: CopyColumns) -> None:
        payloads: list[Any] = _good(copies).to_pylist()
        try:
            self._work.run(self._send(payloads))
        except ClientError as error:
            raise JobFailed(f"Sending to '{self._queue}' failed: {error}") from error
        self._told.new += len(payloads)

    async def _send(self, payloads: list[bytes]) -> None:
        if self._sender is None:
            self._sender = self._client.get_queue_sender(self._queue)
            await self._sender.open()
        for part in batches(payloads, self._sender.batch_bytes_max):
            await self._sender.send_encoded(part)

    def finish(self) -> SentCopies:
        return self._told

    def close(self) -> None:
        """The connection is the process's, and stays."""
        if self._sender is not None:
            self._work.run(self._sender.close())


def _good(copies: CopyColumns) -> Column:
    """Payloads of those whose rule did not fail."""
    return arrow.filtered(copies.payloads, arrow.byte_lengths(copies.failures) == 0)


_COUNTS: Final[dict[str, pa.DataType]] = {
    "new": pa.int64(), "known": pa.int64(), "failed": pa.int64(), "staged": pa.string(),
}  # fmt: skip
#: What a task tells at its end.
COUNTS: Final = pa.schema(_COUNTS)
COUNTS_DDL: Final = "new BIGINT, known BIGINT, failed BIGINT, staged STRING"


@dataclass(frozen=True)
class Sending:
    """Travels to executors."""

    bus: Bus = field(repr=False)
    location: str
    subscription_path: str
    through: str
    rules: tuple[Rule, ...]
    #: See `BackfillPlan.cuts`.
    cuts: tuple[tuple[int, ...], ...]
    #: Name → path below the root.
    paths: Mapping[str, str]
    into: str | None = None
    #: The queue keeps a message that comes twice once.
    detects_duplicates: bool = False
    #: What is staged for the queue is known by; None where it cannot be staged.
    write: SinkWrite | None = None

    def send(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: for `mapInArrow`."""
        rows = CapturedRows(CaptureRoot(self.location), self.paths)
        copying = Copying(self.rules, self.cuts, tells_repeats=self.detects_duplicates)
        target = self._target()
        try:
            for batch in found:
                for matched in rows.read(batch):
                    target.put(copying.copies(matched))
            told = target.finish()
        finally:
            rows.close()
            target.close()
        counted: list[list[Any]] = [[told.new], [told.known], [copying.failed], [told.staged]]
        yield pa.RecordBatch.from_pydict(dict(zip(COUNTS.names, counted, strict=True)), schema=COUNTS)

    def _target(self) -> CopyTarget:
        if self.into is None:
            return SubscriptionTarget(self.bus, self.subscription_path, self.through)
        if self.write is None:
            return QueueTarget(self.bus, self.into)
        return StagedTarget(self.bus, self.into, self.write)
