"""Writing in two phases, for both formats: tasks stage their rows, `commit` has them decided.

Theory of operation. The driver makes a writer (`JobWriter`, `StreamWriter`) and finds out whether the bus can
stage rows. If so each task stages its rows under the name of the write (`write_names`), and `commit` has them
decided about; elsewhere tasks send them at once. What a format brings is how it does either with its rows
(`RowSink`).

Each call of `write` fills a stage of its own, under a random id: whatever an earlier try of the task, or of the
batch, has left behind is never mixed with it. Rows go in parts of about two mebibytes, one under way while the
next is encoded. Whatever can refuse a row refuses it then. Nobody sees staged rows.

`commit` names the stages that count, and the bus decides about all of them at once. An answer that is lost is
asked for again. Once `commit` has raised, Spark calls `abort`, though the decision may have been made: the bus
drops only what no decision names, so that does no harm; when Spark repeats the batch it is known. A batch that is
known is not even staged again.

The bus is asked by Busway's routes of two-phase writes (`busway.gateway.http.bulk.staging_route`). Every request
may be made again: none does anything twice. One that is not answered, or that a busy server puts off, is made
again until its time is over (`limit_s`); a part says then that it may have come before (`again`), so that its rows
are looked for where the first try may have left them.

What whoever runs a job should know although it goes on is said by Spark's own logger (`say_loudly`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, Self
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Refused, Unreachable
from busway_spark.amqp_arrays.encoding import EncodedRows, pieces
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.wire.bus import BUSWAY, Bus, BusFailure, failing
from busway_spark.wire.http_client import BUSY, HttpAnswer, HttpClient, Question, refusal_sentence
from busway_spark.wire.patience import OPERATION_S, Patience, meet
from busway_spark.writing.write_names import (
    STREAM,
    GivenName,
    SinkWrite,
    of_job,
    of_stream,
    repeats_warning,
    running,
)

#: How long a decision waits for its rows to be seen by everybody.
PUBLISHED_WAIT_S: Final = 30
_ROOT: Final = "/$staging"
#: A server that does not speak HTTP is asked once more after this: Busway opens its ports one after the other.
_SECOND_LOOK_S: Final = 0.5

#: Who spoke AMQP alone at both looks, for the life of the process.
_silent: set[str] = set()


class PartRefused(ClientError):
    """A row of a part is refused, and nothing of the part is staged."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        #: Its place in the part.
        self.at = at


class PartTooLarge(ClientError):
    """Nothing of it is staged."""


class WriteRefused(ClientError):
    """The write cannot go on as it is; `code` says why to programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class StagingRoutes:
    """May be used by several threads."""

    def __init__(self, bus: Bus, limit_s: float = OPERATION_S) -> None:
        self._bus = bus
        self._limit_s = limit_s

    # -- what can be asked; each raises ClientError

    def stage(
        self, name: SinkWrite, stage: str, part: int, entity: str, partition: str | None, body: bytes
    ) -> bool:
        """False when the batch was decided before: nothing is staged then."""
        query = {"entity": entity, "part": str(part), "kind": name.kind}
        if partition is not None:
            query["partition"] = partition
        found = self._ask("POST", f"{_batch(name)}/{stage}?{urlencode(query)}", entity, body, "&again=1")
        return found.get("known") is not True

    def decide(self, name: SinkWrite, stages: Mapping[str, int], entity: str) -> Mapping[str, Any]:
        """Everything of these stages is seen by everybody from now on, or nothing ever."""
        body = json.dumps({"kind": name.kind, "stages": stages}, separators=(",", ":")).encode()
        target = f"{_batch(name)}?wait={PUBLISHED_WAIT_S}{_of(entity, '&')}"
        return self._ask("POST", target, entity, body, wait_s=PUBLISHED_WAIT_S)

    def decided(self, write: str) -> Mapping[str, Any] | None:
        """The last batch of the write that was decided; None when there is none."""
        try:
            return self._ask("GET", f"{_ROOT}/{write}", "")
        except EntityMissing:
            return None

    def drop(self, name: SinkWrite, stage: str, entity: str) -> None:
        self._ask("DELETE", f"{_batch(name)}/{stage}{_of(entity, '?')}", entity)

    # -- how

    def _ask(
        self,
        method: str,
        target: str,
        entity: str,
        body: bytes = b"",
        when_again: str = "",
        wait_s: float = 0.0,
    ) -> Mapping[str, Any]:
        """Until there is an answer that is not put off, or no time is left."""
        client = HttpClient(self._bus, entity)
        patience = Patience(self._bus.target.authority, self._limit_s)
        failure: ClientError
        again = ""
        while True:
            pause_s = 0.0
            try:
                answer = client.ask(Question(method, target + again, body, wait_s=wait_s))
            except Unreachable as error:
                failure = error
            else:
                if answer.status == 200:
                    return _object(answer.body)
                failure, pause_s = _error(answer), answer.retry_after_s
                if answer.status not in BUSY:
                    raise failure
            if not patience.pause(pause_s):
                raise patience.over(failure) from failure
            again = when_again


def can_stage(bus: Bus, limit_s: float = OPERATION_S) -> bool:
    """Whether this is a Busway; asked on the driver when a writer is made, and its tasks do as it says. Raises
    Unreachable. One that is just being started must not pass for another service, whose rows can come twice: who
    answers by AMQP alone is asked again."""
    if bus.kind(limit_s) == BUSWAY:
        return True
    if bus.is_azure_host() or bus.target.authority in _silent:
        return False
    time.sleep(_SECOND_LOOK_S)
    if bus.kind(limit_s) == BUSWAY:
        return True
    _silent.add(bus.target.authority)
    return False


def _batch(name: SinkWrite) -> str:
    return f"{_ROOT}/{quote(name.write, safe='')}/{name.batch}"


def _of(entity: str, before: str) -> str:
    """Whose key signs, where it is not the namespace's."""
    return f"{before}entity={quote(entity, safe='')}" if entity else ""


def _object(text: bytes) -> Mapping[str, Any]:
    """Empty where it is no object of JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error(answer: HttpAnswer) -> ClientError:
    found = _object(answer.body)
    named = (found.get(name) for name in ("reason", "detail", "message", "error"))
    sentence = next((each for each in named if isinstance(each, str) and each), None)
    if sentence is None:
        sentence = refusal_sentence(answer.status, answer.body)
    row, code = found.get("row"), found.get("code")
    if answer.status == 400 and isinstance(row, int):
        return PartRefused(row, sentence)
    if answer.status == 409:
        return WriteRefused(str(code), sentence)
    kinds: dict[int, type[ClientError]] = {401: NotAuthorised, 404: EntityMissing, 413: PartTooLarge}
    return kinds.get(answer.status, Refused)(sentence)


LOGGER: Final = "busway_spark"
PART_BYTES: Final = 2 * 1024 * 1024
PART_ROWS: Final = 10_000
#: What a task holds back while it gathers parts for several targets.
_GATHERED_BYTES_MAX: Final = 32 * 1024 * 1024
#: Dropping is a favour: what is not dropped goes when its time is over.
_DROP_S: Final = 5.0
#: An entity, and the partition that rows name.
Target = tuple[str, str | None]


@lru_cache(maxsize=256)
def say_loudly(sentence: str) -> None:
    PySparkLogger.getLogger(LOGGER).warning(sentence)


class RowsRefused(BusFailure):
    """Some rows cannot be written; the sentence names them."""

    #: The first of them and why, where it was the bus that refused it.
    row: int | None = None
    reason: str = ""


@dataclass
class RowsStaged(WriterCommitMessage):
    """What a task tells `commit` and `abort`, which know nothing else of it."""

    name: SinkWrite
    stage: str
    #: By entity.
    rows: dict[str, int] = field(default_factory=dict)
    #: The batch was decided before: nothing was staged.
    is_known: bool = False
    #: Of a write inside of a stream that has no name: the sentence that is said then.
    warning: str | None = None

    @property
    def count(self) -> int:
        return sum(self.rows.values())

    def to_json(self) -> str:
        """For jobs whose tasks answer in rows."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> RowsStaged:
        told = json.loads(text)
        return cls(**{**told, "name": SinkWrite(**told["name"])})


class TaskStage:
    """`with Stage(bus, name) as stage:` gathers the rows of one task. Dropped when the block is left by an error."""

    def __init__(
        self, bus: Bus, name: SinkWrite, limit_s: float = OPERATION_S, warning: str | None = None
    ) -> None:
        meet(bus.target.authority)  # by the driver
        self.name = name
        self._warning = warning
        self.id = secrets.token_hex(16)
        self.is_known = False
        self._bus = bus
        self._routes = StagingRoutes(bus, limit_s)
        self._rows: dict[str, int] = {}
        self._parts = 0
        self._waiting: dict[Target, _Gathered] = {}
        self._bytes = 0
        self._uploading = ThreadPoolExecutor(1, "busway-stage")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(drops=kind is not None)

    def end(self, *, drops: bool) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
        self._uploading.shutdown()
        if drops and self._parts and not self.is_known:
            drop_stages(self._bus, [self._message()])

    def put(self, entity: str, partition: str | None, rows: EncodedRows) -> None:
        """In order, as far as they are for one target. Raises RowsRefused, BusFailure; so does `finish`."""
        target = (entity, partition)
        for first, end in rows.cut(PART_BYTES, PART_ROWS):
            piece = rows.batch(first, end)
            if target in self._waiting and not self._waiting[target].fits(len(piece), end - first):
                self._send(target)
            self._waiting.setdefault(target, _Gathered()).add(rows.rows[first:end], piece)
            self._bytes += len(piece)
        if self._bytes > _GATHERED_BYTES_MAX:
            self._send_all()

    def finish(self) -> RowsStaged:
        self._send_all()
        self._join()
        return self._message()

    def _message(self) -> RowsStaged:
        return RowsStaged(self.name, self.id, dict(self._rows), self.is_known, self._warning)

    def _send_all(self) -> None:
        for target in list(self._waiting):
            self._send(target)

    def _send(self, target: Target) -> None:
        """Part follows part: the next one goes when this one was answered."""
        gathered = self._waiting.pop(target)
        self._bytes -= gathered.size
        self._join()
        if not self.is_known:
            self._rows.setdefault(target[0], 0)
            self._under_way = self._uploading.submit(self._upload, self._parts, target, gathered)
            self._parts += 1

    def _join(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _upload(self, part: int, target: Target, gathered: _Gathered) -> None:
        entity, partition = target
        body = b"".join(gathered.pieces)
        with failing(f"write to '{entity}'"):
            try:
                is_new = self._routes.stage(self.name, self.id, part, entity, partition, body)
            except (PartRefused, PartTooLarge) as error:
                raise _refusal(entity, gathered, error) from error
            except Refused as error:
                if partition is None:
                    raise
                raise _refusal(entity, gathered, error) from error  # there may be no such partition
        if is_new:
            self._rows[entity] += gathered.count
        else:
            self.is_known = True


def _refusal(entity: str, gathered: _Gathered, error: ClientError) -> RowsRefused:
    """Names the row that is at fault, or the first of those that are."""
    at = gathered.row(error.at if isinstance(error, PartRefused) else 0)
    refused = RowsRefused(f"Could not write to '{entity}': row {at} of its task: {error}")
    refused.row, refused.reason = at, str(error)
    return refused


class _Gathered:
    """Rows for one target that are not worth a request yet."""

    def __init__(self) -> None:
        self._rows: list[Longs] = []
        self.pieces: list[bytes] = []
        self.size = 0
        self.count = 0

    def fits(self, size: int, count: int) -> bool:
        return self.size + size <= PART_BYTES and self.count + count <= PART_ROWS

    def add(self, rows: Longs, piece: bytes) -> None:
        self._rows.append(rows)
        self.pieces.append(piece)
        self.size += len(piece)
        self.count += len(rows)

    def row(self, at: int) -> int:
        """Its place in the task."""
        return int(np.concatenate(self._rows)[at])


# -- on the driver


def decide(bus: Bus, messages: Sequence[WriterCommitMessage | None], limit_s: float = OPERATION_S) -> int:
    """What all tasks have staged, once and for all: how many rows. Raises BusFailure."""
    told = _told(messages)
    for warning in {each.warning for each in told if each.warning}:
        say_loudly(warning)
    stages = {each.stage: each.count for each in told if each.count}
    if not stages:
        _tell_known(told)
        return 0
    names = {each.name for each in told}
    if len(names) != 1:
        raise BusFailure("The tasks of this write belong to several batches; nothing was decided.")
    entities = {entity for each in told for entity in each.rows}
    with failing(f"decide about the rows for {_listed(entities)}"):
        StagingRoutes(bus, limit_s).decide(names.pop(), stages, _signed_for(entities))
    return sum(stages.values())


def _tell_known(told: Sequence[RowsStaged]) -> None:
    """A job that has a name does nothing the second time, which may surprise. Batches of streams come again."""
    for write in {each.name.write for each in told if each.is_known and each.name.kind != STREAM}:
        say_loudly(f"The write '{write}' was made before, under the same writeId: nothing is written again.")


def drop_stages(bus: Bus, messages: Sequence[WriterCommitMessage | None]) -> None:
    """As far as no decision names them. Never raises what the bus says: they go with time, too."""
    routes = StagingRoutes(bus, _DROP_S)
    for each in _told(messages):
        if each.is_known:
            continue
        try:
            routes.drop(each.name, each.stage, _signed_for(each.rows))
        except ClientError:
            return


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[RowsStaged]:
    return [each for each in messages if isinstance(each, RowsStaged)]


def _signed_for(entities: Iterable[str] | Mapping[str, int]) -> str:
    """A key may be that of the one entity; for several it is that of the namespace."""
    found = list(entities)
    return found[0] if len(found) == 1 else ""


def _listed(entities: set[str]) -> str:
    return ", ".join(f"'{entity}'" for entity in sorted(entities))


class WriteOptions(Protocol):
    """Of either format."""

    @property
    def bus(self) -> Bus: ...

    @property
    def operation_s(self) -> float: ...

    @property
    def given_name(self) -> GivenName: ...


class RowSink(Protocol):
    """Travels to executors."""

    @property
    def options(self) -> WriteOptions: ...

    @property
    def stages(self) -> bool:
        """Whether the bus can; otherwise rows are sent."""

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: SinkWrite, warning: str | None = None
    ) -> WriterCommitMessage: ...

    def send(self, rows: Iterator[pa.RecordBatch]) -> WriterCommitMessage: ...


class JobWriter(DataSourceArrowWriter):
    def __init__(self, sink: RowSink, job: str) -> None:
        """`job`: a random name, the same in all tasks, because the writer is made once."""
        self._sink = sink
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self._sink.stages:
            return self._sink.send(iterator)
        given, at = self._sink.options.given_name, running()
        return self._sink.stage(iterator, of_job(given, self._job, at), repeats_warning(given, at))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        decide(self._sink.options.bus, messages, self._sink.options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop_stages(self._sink.options.bus, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if not self._sink.stages:
            return self._sink.send(iterator)
        return self._sink.stage(iterator, of_stream(self._sink.options.given_name, running()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        decide(self._sink.options.bus, messages, self._sink.options.operation_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        drop_stages(self._sink.options.bus, messages)


def stage_pieces(
    record_batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    name: SinkWrite,
    warning: str | None,
    put: Callable[[TaskStage, pa.RecordBatch, int], None],
) -> RowsStaged:
    """In a task: all rows in pieces, each put into the stage with the place of its first row. Raises RowsRefused,
    BusFailure, and what `put` raises."""
    first_row = 0
    with TaskStage(options.bus, name, options.operation_s, warning) as stage:
        for record_batch in record_batches:
            if stage.is_known:
                continue  # Spark wants to be read to the end
            for piece in pieces(record_batch):
                put(stage, piece, first_row)
                first_row += piece.num_rows
        return stage.finish()
