"""`busway pipeline capture`: hubs, topics and queues into Parquet files or a Delta table.

Each entity is a stream of its own, with its own checkpoint. A hub is read and keeps its events. A topic is
captured through a subscription made for that, whose messages are taken as they are captured. A queue, or
somebody's subscription, would be emptied the same way, so it must be asked for (`takes`).

A capture that goes on after its checkpoint was lost begins where the captured files of the hub end.

Many streams are many Python processes on the driver; those of a capture share their memory (`shared_python`).

A stream of a capture that follows is started again after it has failed (`Retry`): each entity by itself, with
pauses that double up to PAUSE_MAX_S, while the others go on; a batch that it captures, or STEADY_S without a
failure, begins the pauses anew. The formats are patient themselves, so what gets here has lasted, or is no outage:
data that is lost, a full disk, an entity that was deleted. Somebody may mend that meanwhile. Only when all
entities have failed, each FAILURES_MAX times in a row, nothing is left to follow, and the job ends with the
sentence.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from busway.client.entity_properties import Value
from busway.client.errors import ClientError, EntityExists, EntityMissing, NotAuthorised
from busway_spark.pipeline.capture.capture_commit import check_source
from busway_spark.pipeline.capture.capture_sink import (
    CAPTURED_HUB,
    CAPTURED_QUEUE,
    DELTA,
    PARQUET,
    SINK,
    CapturedHub,
    CapturedQueue,
    CaptureSink,
    ledger_of,
)
from busway_spark.pipeline.capture.captured_writer import ZSTD
from busway_spark.pipeline.captured.capture_root import CHECKPOINTS, CaptureRoot, spark_location
from busway_spark.pipeline.captured.captured import SCHEMA, entity_folder, notes_of
from busway_spark.pipeline.captured.captured_files import last_numbers
from busway_spark.pipeline.captured.delta_table import require_delta
from busway_spark.pipeline.job import (
    HUB,
    SUBSCRIPTION_KIND,
    TOPIC_KIND,
    EntityFacts,
    JobFailed,
    JobPlace,
    JobProgress,
    driver_sentence,
    find_entity,
    job_session,
)
from busway_spark.servicebus.options import JSON
from busway_spark.shared_python.lent_python import shared_python
from busway_spark.start.session import small_java
from busway_spark.watching.watched import sentence_of
from busway_spark.wire.bus import BUSWAY, Bus, administration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
STEADY_S: Final = 600.0
FAILURES_MAX: Final = 10


class Retry:
    """Of one entity."""

    def __init__(self) -> None:
        self._failures = 0
        self._due_s = 0.0
        self._since_s = time.monotonic()
        #: It has failed and was not started again yet.
        self.is_waiting = False

    def failed(self) -> float:
        """It has: after how many seconds it is started again."""
        if time.monotonic() - self._since_s > STEADY_S:
            self._failures = 0
        pause_s: float = min(PAUSE_FIRST_S * 2**self._failures, PAUSE_MAX_S)
        self._failures += 1
        self._due_s = time.monotonic() + pause_s
        self.is_waiting = True
        return pause_s

    def is_due(self) -> bool:
        return self.is_waiting and time.monotonic() >= self._due_s

    def started(self) -> None:
        self.is_waiting = False
        self._since_s = time.monotonic()

    def went_on(self) -> None:
        """It has captured something."""
        self._failures = 0

    @property
    def is_hopeless(self) -> bool:
        return self.is_waiting and self._failures >= FAILURES_MAX


CAPTURE_SUBSCRIPTION: Final = "busway-capture"
FIRST: Final = "first"
LATEST: Final = "latest"
#: Messages that one batch takes of a queue or subscription.
_BATCH_MESSAGES: Final = 20_000
_TASK_MESSAGES: Final = 5_000
_WATCH_S: Final = 0.2
#: The sentence is for people, and for servers of earlier versions: they know a captured subscription by its words.
_SUBSCRIPTION: Final[Mapping[str, Value]] = {
    "LockDuration": "PT5M",
    "MaxDeliveryCount": 2000,
    "UserMetadata": "Messages of this subscription are taken by busway pipeline capture.",
}
#: What Busway is told besides. Another service need not know it.
_CAPTURED: Final[Mapping[str, Value]] = {"CapturesHistory": True}
_SERVICEBUS_COLUMNS: Final = ",".join(
    ["fragment", *(name for name in SCHEMA.names if name not in ("offset", "publisher"))]
)
#: As operating systems say it, through Java.
_NO_ROOM: Final = re.compile("No space left on device|Disk quota exceeded")
_ELSEWHERE: Final = "Or keep checkpoints elsewhere, with --checkpoint."


@dataclass(frozen=True)
class CaptureOptions:
    entities: tuple[str, ...]
    #: A directory or a URI.
    root: str
    #: Until somebody stops it; else what is there now.
    follows: bool = False
    layout: str = PARQUET
    compression: str = ZSTD
    #: Of topics.
    subscription: str = CAPTURE_SUBSCRIPTION
    #: Queues and subscriptions of others may be emptied.
    takes: bool = False
    #: Where the first capture of a hub begins: first, latest, or a time (ISO 8601).
    start: str = FIRST
    consumer_group: str = "$Default"
    #: None: what the formats find right.
    batch_rows: int | None = None
    #: Between batches, when it follows.
    every_s: float = 30.0
    #: Where checkpoints lie; None: in the root.
    checkpoint: str | None = None
    allows_loss: bool = False


@dataclass
class CaptureResult:
    #: By entity.
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def capture(place: JobPlace, options: CaptureOptions, progress: JobProgress) -> CaptureResult:
    """Raises JobFailed."""
    root = CaptureRoot(options.root)
    if options.layout == DELTA:
        require_delta()
    entities = [_captured_entity(place.bus, name, options) for name in dict.fromkeys(options.entities)]
    with root.telling(), ExitStack() as stack:
        for entity in entities:
            _begin(stack, root, entity, options)
        spark = job_session("capture", place.master, small_java(place.config))
        with shared_python(spark):
            for source in (CaptureSink, CapturedHub, CapturedQueue):
                spark.dataSource.register(source)
        started = time.monotonic()
        captures: list[_Capture] = []
        try:
            for entity in entities:
                captures.append(
                    _Capture(
                        _start(spark, place, root, entity, options),
                        entity,
                        _checkpoint(root, entity.name, options),
                    )
                )
            _watch(
                captures,
                progress,
                partial(_started_again, spark, place, root, options) if options.follows else None,
            )
        finally:
            for each in captures:
                each.query.stop()
        seconds = time.monotonic() - started
    return CaptureResult({each.entity.name: each.rows for each in captures}, seconds)


# -- what is captured


def _captured_entity(bus: Bus, name: str, options: CaptureOptions) -> EntityFacts:
    entity = find_entity(bus, name.strip("/"))
    if entity.kind == TOPIC_KIND:
        _make_subscription(bus, entity.name, options.subscription)
    elif entity.kind != HUB and not options.takes:
        raise JobFailed(
            f"'{name}' is a {entity.kind}: capturing would take its messages away from those who receive them."
            " Capture a topic instead, which costs nobody a message, or say --take to empty it into files."
        )
    return entity


def _make_subscription(bus: Bus, topic: str, name: str) -> None:
    try:
        with administration(bus) as client:
            try:
                client.get_subscription(topic, name)
            except EntityMissing:
                ours = _CAPTURED if bus.kind() == BUSWAY else {}
                client.create_subscription(topic, name, {**_SUBSCRIPTION, **ours})
    except EntityExists:
        return  # somebody else was quicker
    except NotAuthorised as error:
        raise JobFailed(
            f"The key may not make or see the subscription '{name}' of '{topic}' (it needs the right Manage)."
            f" Make it and capture '{topic}/Subscriptions/{name}' with --take."
        ) from error
    except ClientError as error:
        raise JobFailed(f"The subscription '{name}' of '{topic}' cannot be made: {error}") from error


def _begin(stack: ExitStack, root: CaptureRoot, entity: EntityFacts, options: CaptureOptions) -> None:
    sentence = f"Another capture of '{entity.name}' into {root.location} is running."
    stack.enter_context(root.locked(notes_of(entity.name) / "lock", sentence))
    facts: dict[str, object] = {"kind": entity.kind, "layout": options.layout}
    if entity.kind == HUB:
        facts["createdAt"] = entity.created_at_ms
    check_source(root, entity.name, facts)
    ledger_of(root, entity.name, options.layout).recover()


# -- streams


def _start(
    spark: SparkSession, place: JobPlace, root: CaptureRoot, entity: EntityFacts, options: CaptureOptions
) -> StreamingQuery:
    checkpoint = _checkpoint(root, entity.name, options)
    if entity.kind == HUB:
        rows = _events(spark, place, root, entity, options)
    else:
        rows = _messages(spark, place, entity, options)
    writer = (
        rows.writeStream.format(SINK)
        .queryName(f"capture {entity.name}")
        .option("checkpointLocation", checkpoint)
        .option("root", root.location)
        .option("owner", root.owner or "")
        .option("entity", entity.name)
        .option("layout", options.layout)
        .option("compression", options.compression)
    )
    if options.follows:
        writer = writer.trigger(processingTime=f"{options.every_s} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    try:
        return writer.start()
    except Exception as error:
        raise _stopped(entity.name, checkpoint, error) from error


def _started_again(
    spark: SparkSession, place: JobPlace, root: CaptureRoot, options: CaptureOptions, entity: EntityFacts
) -> StreamingQuery:
    """As a new start of the job would: what was half done is done first. Raises JobFailed."""
    try:
        ledger_of(root, entity.name, options.layout).recover()
    except JobFailed:
        raise
    except Exception as error:
        raise _stopped(entity.name, _checkpoint(root, entity.name, options), error) from error
    return _start(spark, place, root, entity, options)


def _checkpoint(root: CaptureRoot, entity: str, options: CaptureOptions) -> str:
    parent = f"{root.location}/{CHECKPOINTS}" if options.checkpoint is None else options.checkpoint
    return f"{spark_location(parent)}/{entity_folder(entity)}"


def _events(
    spark: SparkSession, place: JobPlace, root: CaptureRoot, entity: EntityFacts, options: CaptureOptions
) -> DataFrame:
    given = {
        **place.eventhubs_options(entity.name),
        "eventhubs.consumerGroup": options.consumer_group,
        "eventhubs.startingPosition": json.dumps(_position(options.start)),
        "eventhubs.failOnDataLoss": "false" if options.allows_loss else "true",
    }
    positions = _captured_positions(root, entity.name)
    if positions:
        given["eventhubs.startingPositions"] = json.dumps(positions)
    if options.batch_rows is not None:
        given["eventhubs.maxEventsPerTrigger"] = str(options.batch_rows)
    return spark.readStream.format(CAPTURED_HUB).options(**given).load()


def _position(start: str) -> dict[str, object]:
    if start == FIRST:
        return {"offset": "-1"}
    return {"offset": "@latest"} if start == LATEST else {"enqueuedTime": start}


def _captured_positions(root: CaptureRoot, entity: str) -> dict[str, object]:
    """Behind the last captured number of each partition. Counts only where there is no checkpoint."""
    last = last_numbers(root, entity)
    return {str(partition): {"seqNo": number + 1, "isInclusive": True} for partition, number in last.items()}


def _messages(
    spark: SparkSession, place: JobPlace, entity: EntityFacts, options: CaptureOptions
) -> DataFrame:
    if entity.kind == TOPIC_KIND:
        where = {"topic": entity.name, "subscription": options.subscription}
    elif entity.kind == SUBSCRIPTION_KIND:
        where = {"entity": entity.name}
    else:
        where = {"queue": entity.name}
    given = place.servicebus_options(
        **where,
        columns=_SERVICEBUS_COLUMNS,
        properties=JSON,
        maxMessagesPerTrigger=str(options.batch_rows or _BATCH_MESSAGES),
        messagesPerPartition=str(_TASK_MESSAGES),
        failOnDataLoss="false" if options.allows_loss else "true",
    )
    return spark.readStream.format(CAPTURED_QUEUE).options(**given).load()


# -- progress


class _Capture:
    """One stream and what it has captured so far."""

    def __init__(self, query: StreamingQuery, entity: EntityFacts, checkpoint: str) -> None:
        self.query = query
        self.entity = entity
        self.retry = Retry()
        self.last_failure = JobFailed("It has not failed yet.")
        self._checkpoint = checkpoint
        self.rows = 0
        self._seen = -1

    def tell(self, progress: JobProgress) -> None:
        for batch in self.query.recentProgress:
            found = json.loads(batch.json)
            number, rows = int(found["batchId"]), int(found["numInputRows"])
            if number <= self._seen or not rows:
                continue
            self._seen = number
            self.rows += rows
            self.retry.went_on()
            rate, lag = found.get("processedRowsPerSecond", 0.0), _lag(found)
            behind = "" if lag is None else f", {lag:,} behind"
            progress.tell(
                f"{self.entity.name}: {self.rows:,} captured, {rate:,.0f}/s{behind}",
                entity=self.entity.name,
                captured=self.rows,
                batch=number,
                rows_per_second=round(rate),
                behind=lag,
            )

    def check(self) -> None:
        """Raises JobFailed."""
        error = self.query.exception()
        if error is not None:
            raise _stopped(self.entity.name, self._checkpoint, error) from error

    def is_over(self) -> bool:
        """It has ended, and not by a failure."""
        return not self.query.isActive and self.query.exception() is None

    def failed(self, failure: JobFailed, progress: JobProgress) -> None:
        """It is started again later; the others go on."""
        self.last_failure = failure
        pause_s = self.retry.failed()
        sentence = f"{failure} It is started again in {pause_s:g} s."
        progress.tell(sentence, entity=self.entity.name, failed=str(failure), again_in_seconds=pause_s)


#: Starts the stream of an entity again. Raises JobFailed.
StartAgain = Callable[[EntityFacts], "StreamingQuery"]


def _watch(captures: list[_Capture], progress: JobProgress, start_again: StartAgain | None) -> None:
    """Until all have ended, or somebody stops them. One that fails ends the job, or is started again where there is
    a way. Raises JobFailed."""
    while True:
        is_over = all(each.is_over() for each in captures)  # before the look at their last batches
        for each in captures:
            each.tell(progress)
            if start_again is None:
                each.check()
            else:
                _retried(each, progress, start_again)
        if start_again is not None and all(each.retry.is_hopeless for each in captures):
            raise captures[0].last_failure
        if is_over or progress.is_stopping:
            return
        progress.wait(_WATCH_S)


def _retried(capture: _Capture, progress: JobProgress, start_again: StartAgain) -> None:
    try:
        if capture.retry.is_due():
            capture.query = start_again(capture.entity)
            capture.retry.started()
        elif not capture.retry.is_waiting:
            capture.check()
    except JobFailed as failure:
        capture.failed(failure, progress)


def _lag(progress: dict[str, Any]) -> int | None:
    """Of a hub: events behind the end of the batch."""
    sources = progress.get("sources") or [{}]
    end, latest = sources[0].get("endOffset"), sources[0].get("latestOffset")
    if not isinstance(end, dict) or not isinstance(latest, dict) or "partitions" not in latest:
        return None
    done = end.get("partitions", {})
    return sum(max(int(number) - int(done.get(name, 0)), 0) for name, number in latest["partitions"].items())


def _stopped(entity: str, checkpoint: str, error: Exception) -> JobFailed:
    no_driver = driver_sentence(str(error))
    sentence = f"{no_driver} {_ELSEWHERE}" if no_driver else sentence_of(error)
    if _NO_ROOM.search(sentence):
        sentence = (
            f"There is no room left at {checkpoint}, where progress is kept, or in the temporary folder of Spark."
            " Nothing is lost: when there is room start the capture again."
        )
    return JobFailed(f"The capture of '{entity}' stopped: {sentence}")
