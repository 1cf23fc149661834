"""Writing in two phases, for both formats: tasks stage their rows, `commit` has them decided.

Theory of operation. Each call of `write` fills a stage of its own, under a random id: whatever an earlier try of
the task, or of the batch, has left behind is never mixed with it. Rows go in parts of about two mebibytes, one under
way while the next is encoded. Whatever can refuse a row refuses it then. Nobody sees staged rows.

`commit` names the stages that count, and the bus decides about all of them at once (`staging`). An answer that is
lost is asked for again. Once `commit` has raised, Spark calls `abort`, though the decision may have been made: the
bus drops only what no decision names, so that does no harm; when Spark repeats the batch it is known. A batch that
is known is not even staged again.

What whoever runs a job should know although it goes on is said by Spark's own logger (`say_loudly`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Final, Self

import numpy as np
from pyspark.logger import PySparkLogger
from pyspark.sql.datasource import WriterCommitMessage

from busway.client.errors import ClientError, Refused
from busway_spark.amqp_arrays.encoded_rows import EncodedRows
from busway_spark.amqp_arrays.message_cut import Longs
from busway_spark.wire.bus import Bus, BusFailure, failing
from busway_spark.wire.patience import OPERATION_S, meet
from busway_spark.writing.staging import PartRefused, PartTooLarge, StagingRoutes
from busway_spark.writing.write_names import STREAM, WriteName

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

    name: WriteName
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
        return cls(**{**told, "name": WriteName(**told["name"])})


class Stage:
    """`with Stage(bus, name) as stage:` gathers the rows of one task. Dropped when the block is left by an error."""

    def __init__(
        self, bus: Bus, name: WriteName, limit_s: float = OPERATION_S, warning: str | None = None
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
