"""What a write is known by: the one place where query and batch are read.

Seen on Spark 4.3, classic and Connect. What a sink can know, and where:

- Tasks of a stream have the query's id and the batch's number among their local properties, whatever stands before
  the sink (shuffle, aggregation, AQE). The process that makes a writer and the one that commits have no properties
  at all.
- `commit` and `abort` of a stream get a writer that was made anew: of the tasks they know what the commit messages
  say, and the batch's number. Those of a batch job get a copy of the writer that the tasks had. Of tasks that
  failed `abort` gets None.
- There is always at least one task, also for a frame without rows or partitions.
- In `foreachBatch` an inner `save` is a batch job. Classic: its tasks have the outer query's id and batch.
  Connect: they have neither, because it comes as a request of another session; that it belongs to a stream shows
  in the settings of that session, which tasks see as properties too (`_OF_STREAMS`). From a thread of its own, an
  inner `save` does not find any format that is written in Python.
- The number of an attempt begins anew with each attempt of a stage and with each driver, and both tries of a task
  that Spark speculates on may write to their ends. So no number of Spark's is part of the name of what a task leaves
  behind.

A stream is known by its query, so each batch is decided once. A batch job has a random name unless `writeId` gives
it one. Inside of `foreachBatch` a query may write several times in a batch; there `writeId` says which of its
writes this is, the query and the target are added to it, and the batch is read or given as `batchId`. The target
is part of names that people give: one name used for two entities means two writes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from busway_spark.wire.bus import BusFailure

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
#: Spark sets it in the session of each stream, and nobody else does.
_OF_STREAMS: Final = "spark.sql.streaming.internal.stateStore.partitions"

#: Kinds of writes: batches that follow each other; one alone that somebody named; one alone with a name made by
#: chance, which nobody will come with again once the job has its answer.
STREAM: Final = "stream"
NAMED: Final = "write"
JOB: Final = "job"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SHOWN_CHARACTERS: Final = 40
WRITE_ID_CHARACTERS_MAX: Final = 64
BATCH_MAX: Final = 1 << 62
_DIGEST_CHARACTERS: Final = 20


@dataclass(frozen=True)
class SinkWrite:
    """What a decision is about. The same in all tasks of a write and in each repetition that counts as it."""

    write: str
    batch: int
    kind: str


@dataclass(frozen=True)
class GivenName:
    """What options say, and what is written to."""

    target: str
    write_id: str | None = None
    batch_id: int | None = None


@dataclass(frozen=True)
class Running:
    """The stream that a task belongs to, as far as Spark tells."""

    query: str | None = None
    batch: int | None = None
    #: Of an inner write: also where Spark does not tell which stream.
    is_in_stream: bool = False


def running() -> Running:
    """In a task."""
    context = TaskContext.get()
    if context is None:
        return Running()
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return Running(is_in_stream=context.getLocalProperty(_OF_STREAMS) is not None)
    return Running(query, int(batch), True)


def of_stream(given: GivenName, at: Running) -> SinkWrite:
    """For `writeStream`. Raises BusFailure."""
    if at.query is None or at.batch is None:
        raise BusFailure("Spark does not tell which batch of which query this task belongs to.")
    if given.batch_id is not None:
        raise BusFailure("batchId is for writes inside of foreachBatch: of a stream Spark tells it.")
    own = "" if given.write_id is None else f"-{_shown(given.write_id, given.write_id)}"
    return SinkWrite(f"query-{_fit(at.query)}{own}", at.batch, STREAM)


def of_job(given: GivenName, random_name: str, at: Running) -> SinkWrite:
    """For `write`, also inside of `foreachBatch`. Raises BusFailure."""
    if given.write_id is None:
        if given.batch_id is not None:
            raise BusFailure("batchId is the number of a batch of the write that writeId names; give both.")
        return SinkWrite(f"job-{random_name}", 0, JOB)
    shown = _shown(given.write_id, f"{given.write_id}\n{given.target}")
    batch = at.batch if given.batch_id is None else given.batch_id
    if batch is not None:
        return SinkWrite(
            f"{'named' if at.query is None else f'query-{_fit(at.query)}'}-{shown}", batch, STREAM
        )
    if at.is_in_stream:
        raise BusFailure(
            "This write belongs to a stream and is named by writeId, but Spark does not tell its batch here (Spark"
            " Connect never does): without it, every batch but the first would pass for a repetition. Add"
            ' .option("batchId", batch_id) with the number that foreachBatch hands to its function.'
        )
    return SinkWrite(f"job-{shown}", 0, NAMED)


def repeats_warning(given: GivenName, at: Running) -> str | None:
    """What is said about a write inside of `foreachBatch` that has no name."""
    if given.write_id is not None or not at.is_in_stream:
        return None
    return (
        f"A write to {given.target} inside of foreachBatch has no name: when Spark repeats its batch, its rows are"
        " written once more. For exactly once give each write of the function a name of its own, the option writeId,"
        " and on Spark Connect the number of the batch beside it, the option batchId."
    )


def _shown(text: str, identity: str) -> str:
    """For people to recognise, and for the bus to tell apart."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_fit(text)[:_SHOWN_CHARACTERS]}-{digest}"


def _fit(text: str) -> str:
    return _UNFIT.sub("-", text)
