"""The second look of a backfill, in tasks of Spark: matches become copies, and copies are sent, each once.

Theory of operation. Matches come sorted by number, one task for a fragment. Their rows are read out of the captured
files, whole row groups of which something matched and no others. Verdicts that say *ask* are settled by the broker's
evaluator, actions are carried out, and copies go out in lots. The id of a copy is the number of the message and the
rule, so a task that Spark repeats, or a backfill that is started again, sends nothing that the subscription has.

A queue (`into`) knows no such ids. On Busway tasks stage what is for it, and the driver has it decided about for a
step at once (`writing.two_phase`), under a name that the same step has again. Elsewhere the message id tells
repeats where the queue detects duplicates.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from busway.client.errors import ClientError
from busway.client.sender import ServiceBusSender, batches
from busway.message.bare import MESSAGE_ID, with_properties
from busway.message.message import Message
from busway.rules.rule import Rule
from busway_spark.amqp_arrays.encoded_rows import EncodedRows
from busway_spark.pipeline.backfill.backfill_door import BackfillDoor, SentCopy
from busway_spark.pipeline.backfill.backfill_matches import FILE, FRAGMENT, NUMBER, PLACE
from busway_spark.pipeline.captured.captured import SCHEMA, fitted_batches
from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.capture_root import CaptureRoot
from busway_spark.property_types import UnknownProperties
from busway_spark.rules.row_evaluator import Copy, Failure, RowEvaluator, captured_message, payload_of
from busway_spark.rules.rule_columns import NOT_SELECTED, SELECTED, sets_name, verdict_name
from busway_spark.wire.bus import Bus, BusFailure
from busway_spark.writing.two_phase import Stage
from busway_spark.writing.write_names import WriteName

_BATCH_ROWS: Final = 64 * 1024
_LOT_COPIES: Final = 1_000
_LOT_BYTES: Final = 2 * 1024 * 1024
_ID_CHARACTERS_MAX: Final = 128
_SENTENCE_MAX: Final = 2_000
_EXPIRES: Final = "expiresAt"
_ENQUEUED: Final = "enqueuedTime"

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
    write: WriteName | None = None

    def send(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: for `mapInArrow`."""
        rows = _RowReader(CaptureRoot(self.location), self.paths)
        copies = _Copies(self, RowEvaluator(self.rules))
        target = self._target()
        lots = _Lots(target)
        try:
            for batch in found:
                for match, row in rows.read(batch.to_pylist()):
                    for copy in copies.of(match, row):
                        lots.add(match[FRAGMENT], copy)
            lots.flush()
            staged = target.finish()
        finally:
            rows.close()
            lots.close()
            target.close()
        counted: list[list[Any]] = [[lots.new], [lots.known], [copies.failed], [staged]]
        yield pa.RecordBatch.from_pydict(dict(zip(COUNTS.names, counted, strict=True)), schema=COUNTS)

    def _target(self) -> _Target:
        if self.into is None:
            return _SubscriptionTarget(self)
        if self.write is None:
            return _QueueTarget(self, self.into)
        return _StagedTarget(self, self.into, self.write)


class _RowReader:
    """Rows of captured files by place. Keeps one row group of one file: matches come in the order of their places."""

    def __init__(self, root: CaptureRoot, paths: Mapping[str, str]) -> None:
        self._root = root
        self._paths = paths
        self._open: dict[str, tuple[Any, pq.ParquetFile, list[int]]] = {}
        self._group: tuple[str, int] | None = None
        self._table: pa.Table | None = None

    def read(self, found: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """In their order."""
        run: list[dict[str, Any]] = []
        key: tuple[str, int] | None = None
        for match in found:
            group = self._group_of(match[FILE], match[PLACE])
            if run and group != key:
                yield from self._rows(key, run)
                run = []
            key = group
            run.append(match)
        if run:
            yield from self._rows(key, run)

    def close(self) -> None:
        for source, _, _ in self._open.values():
            source.close()
        self._open.clear()

    def _group_of(self, name: str, place: int) -> tuple[str, int]:
        return name, bisect_right(self._file(name)[2], place) - 1

    def _file(self, name: str) -> tuple[Any, pq.ParquetFile, list[int]]:
        if name not in self._open:
            if len(self._open) >= 16:
                self.close()
            source = self._root.filesystem.open_input_file(self._root.full(PurePosixPath(self._paths[name])))
            file = pq.ParquetFile(source)
            starts, at = [], 0
            for index in range(file.metadata.num_row_groups):
                starts.append(at)
                at += file.metadata.row_group(index).num_rows
            self._open[name] = (source, file, starts)
        return self._open[name]

    def _rows(
        self, key: tuple[str, int] | None, run: Sequence[dict[str, Any]]
    ) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
        assert key is not None
        starts = self._file(key[0])[2]
        if self._group != key:
            self._table, self._group = self._whole_group(key), key
        assert self._table is not None
        taken = self._table.take(pa.array([match[PLACE] - starts[key[1]] for match in run], pa.int64()))
        return zip(run, _told(taken).to_pylist(), strict=True)

    def _whole_group(self, key: tuple[str, int]) -> pa.Table:
        name, group = key
        file = self._file(name)[1]
        batches = fitted_batches(file, self._paths[name], _BATCH_ROWS, row_groups=[group])
        return pa.Table.from_batches(list(batches), SCHEMA)


def _told(rows: pa.Table) -> pa.Table:
    """Without columns that tell nothing: most are null for most topics, and each costs as much as one that is not.
    The time of arrival is asked for only to tell how long a message had to live."""
    silent = {name for name in rows.column_names if rows[name].null_count == rows.num_rows}
    if _EXPIRES in silent:
        silent.add(_ENQUEUED)
    return rows.select([name for name in rows.column_names if name not in silent])


@dataclass(frozen=True, slots=True)
class _Sent:
    """A copy on its way. `rule` is empty for that of all rules without an action."""

    number: int
    rule: str
    message: Message
    failure: Failure | None = None


class _Copies:
    def __init__(self, sending: Sending, evaluator: RowEvaluator) -> None:
        self._sending = sending
        self._evaluator = evaluator
        self._acts = [rule.action is not None for rule in sending.rules]
        #: Filters and actions that failed.
        self.failed = 0

    def of(self, match: dict[str, Any], row: dict[str, Any]) -> list[_Sent]:
        """T-4: one for all rules without an action, unless one of those has seen it; one for each other rule."""
        number = match[NUMBER]
        try:
            message = captured_message(row)
        except UnknownProperties as error:
            raise JobFailed(f"Message {number} in {match[FILE]}: {error}.") from error
        sent: list[_Sent] = []
        is_plain = False
        for at in range(len(self._acts)):
            if not self._is_unseen(at, match):
                continue
            verdict = self._evaluator.verdict(at, message, match[verdict_name(at)])
            if isinstance(verdict, Failure):
                sent.append(self._failed(number, message, verdict))
            elif verdict == SELECTED and self._acts[at]:
                copy = self._evaluator.copy(at, message, match.get(sets_name(at)))
                sent.append(
                    _Sent(number, copy.rule, copy.message)
                    if isinstance(copy, Copy)
                    else self._failed(number, message, copy)
                )
            elif verdict == SELECTED:
                is_plain = True
        if is_plain and not self._was_selected(match, message):
            sent.insert(0, _Sent(number, "", message))
        return sent

    def _failed(self, number: int, message: Message, failure: Failure) -> _Sent:
        self.failed += 1
        return _Sent(number, f"!{failure.rule}", message, failure)

    def _is_unseen(self, at: int, match: dict[str, Any]) -> bool:
        cut = self._sending.cuts[at]
        fragment = match[FRAGMENT]
        return not cut or (fragment < len(cut) and match[NUMBER] <= cut[fragment])

    def _was_selected(self, match: dict[str, Any], message: Message) -> bool:
        """By a rule without an action that has seen it: the subscription got it when it was published."""
        for at, acts in enumerate(self._acts):
            if acts or self._is_unseen(at, match) or match[verdict_name(at)] == NOT_SELECTED:
                continue
            if self._evaluator.verdict(at, message, match[verdict_name(at)]) == SELECTED:
                return True
        return False


# -- targets


class _Target(Protocol):
    def send(self, fragment: int, copies: Sequence[_Sent]) -> tuple[int, int]:
        """(new, known)."""

    def finish(self) -> str | None:
        """What the driver must know of it."""

    def close(self) -> None: ...


class _Lots:
    """Gathers copies of one fragment until they are worth a request. One is under way while the next is gathered."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._sending = ThreadPoolExecutor(1, "busway-backfill")
        self._under_way: Future[tuple[int, int]] | None = None
        self._waiting: list[_Sent] = []
        self._fragment = 0
        self._bytes = 0
        self.new = 0
        self.known = 0

    def add(self, fragment: int, copy: _Sent) -> None:
        size = copy.message.size()
        is_full = len(self._waiting) >= _LOT_COPIES or self._bytes + size > _LOT_BYTES
        if self._waiting and (is_full or fragment != self._fragment):
            self._post()
        self._fragment = fragment
        self._waiting.append(copy)
        self._bytes += size

    def _post(self) -> None:
        """In order: a lot goes when the one before it was answered."""
        self._join()
        self._under_way = self._sending.submit(self._target.send, self._fragment, self._waiting)
        self._waiting, self._bytes = [], 0

    def _join(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            new, known = under_way.result()
            self.new += new
            self.known += known

    def flush(self) -> None:
        if self._waiting:
            self._post()
        self._join()

    def close(self) -> None:
        """Nothing is under way when it returns."""
        self._sending.shutdown(cancel_futures=True)


class _SubscriptionTarget:
    def __init__(self, sending: Sending) -> None:
        self._door = BackfillDoor(sending.bus, sending.subscription_path)
        self._through = sending.through.lower()

    def send(self, fragment: int, copies: Sequence[_Sent]) -> tuple[int, int]:
        return self._door.store(fragment, [self._sent(copy) for copy in copies])

    def _sent(self, copy: _Sent) -> SentCopy:
        failure = copy.failure
        why = "" if failure is None else _failure_json(failure)
        return f"{self._through}/{copy.number}/{copy.rule}", why, payload_of(copy.message)

    def finish(self) -> str | None:
        return None

    def close(self) -> None:
        """Connections are kept for the process."""


class _StagedTarget:
    """What failed is not sent: it would be a dead letter."""

    def __init__(self, sending: Sending, queue: str, write: WriteName) -> None:
        self._sending = sending
        self._queue = queue
        self._stage = Stage(sending.bus, write)
        self._rows = 0
        self._is_whole = False

    def send(self, fragment: int, copies: Sequence[_Sent]) -> tuple[int, int]:
        del fragment
        payloads = [_queued(self._sending, copy) for copy in copies if copy.failure is None]
        rows = np.arange(self._rows, self._rows + len(payloads))
        self._rows += len(payloads)
        if payloads:
            with _told_by_job():
                encoded = EncodedRows.framed(rows, pa.array(payloads, pa.binary()))
                self._stage.put(self._queue, None, encoded)
        return 0, 0

    def finish(self) -> str | None:
        with _told_by_job():
            staged = self._stage.finish()
        self._is_whole = True
        return staged.to_json()

    def close(self) -> None:
        self._stage.end(drops=not self._is_whole)


@contextmanager
def _told_by_job() -> Iterator[None]:
    try:
        yield
    except BusFailure as error:
        raise JobFailed(str(error)) from error


class _QueueTarget:
    """The same by AMQP alone."""

    def __init__(self, sending: Sending, queue: str) -> None:
        self._sending = sending
        self._queue = queue
        self._runner = asyncio.Runner()
        self._client = sending.bus.client()
        self._sender: ServiceBusSender | None = None

    def send(self, fragment: int, copies: Sequence[_Sent]) -> tuple[int, int]:
        del fragment
        payloads = [_queued(self._sending, copy) for copy in copies if copy.failure is None]
        try:
            self._runner.run(self._send(payloads))
        except ClientError as error:
            raise JobFailed(f"Sending to '{self._queue}' failed: {error}") from error
        return len(payloads), 0

    async def _send(self, payloads: list[bytes]) -> None:
        if self._sender is None:
            self._sender = self._client.get_queue_sender(self._queue)
            await self._sender.open()
        for part in batches(payloads, self._sender.batch_bytes_max):
            await self._sender.send_encoded(part)

    def finish(self) -> str | None:
        return None

    def close(self) -> None:
        try:
            self._runner.run(self._client.close())
        finally:
            self._runner.close()


def _queued(sending: Sending, copy: _Sent) -> bytes:
    if sending.detects_duplicates:
        new_id = repeat_id(copy.message, copy.number, copy.rule)
        copy.message.bare = with_properties(copy.message.bare, {MESSAGE_ID: new_id})
    return payload_of(copy.message)


def repeat_id(message: Message, number: int, rule: str) -> str:
    """The original id, and what tells this copy from every other one."""
    from busway.subject.message_subject import MessageSubject

    tail = f"~{number}" + (f"~{rule}" if rule else "")
    original = MessageSubject(message).system("MessageId")
    head = original if isinstance(original, str) else ""
    return head[: _ID_CHARACTERS_MAX - len(tail)] + tail


def _failure_json(failure: Failure) -> str:
    import json

    return json.dumps({"reason": failure.reason, "description": failure.sentence[:_SENTENCE_MAX]})
