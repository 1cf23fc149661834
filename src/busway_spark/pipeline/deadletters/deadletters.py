"""`busway pipeline deadletters`: what lies in dead-letter queues and why, and the way back for what is chosen.

Theory of operation. The dead letters are browsed, which touches nothing, and kept by Spark so that groups, plan
and report speak of the same ones. Kept means that they cannot be computed again: a cache whose block is lost with
its executor would silently browse once more and find others. When a block is lost here, everything begins anew,
which it may, because nothing was moved yet. Behind the groups the rows are read once more, into the plan and what
the report wants of them (files beside the job); from then on Spark is not asked for them any more. Without
`resubmits` that is all: what would be done is told. With it the plan is moved one source after the other, each once:
on Busway by tasks (`tasks`), elsewhere by the driver (`move`). The report is written last.

Stopping and starting again, kill -9 included: a new run browses anew, finds what is still dead-lettered, and goes
on.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql.types import VariantVal

from busway.client.errors import ClientError
from busway.message.changed_payload import MESSAGE_ID
from busway_spark.pipeline.deadletters import columns
from busway_spark.pipeline.deadletters.columns import BODY, SCHEDULED, TIME_TO_LIVE, Fix
from busway_spark.pipeline.deadletters.move import Mover
from busway_spark.pipeline.deadletters.plan import (
    AT_LEAST_ONCE,
    LOCKED,
    PLANNED,
    REFUSED,
    TRANSACTION,
    LetterRoute,
    Plan,
    find_route,
    source_of,
)
from busway_spark.pipeline.deadletters.plan import Row as PlanRow
from busway_spark.pipeline.deadletters.report import USUAL_KEYS, LetterFile, Survey, survey, write_page
from busway_spark.pipeline.deadletters.tasks import TaskMover, packed_numbers
from busway_spark.pipeline.job import JobFailed, JobPlace, JobProgress, failing
from busway_spark.servicebus.variant import amqp_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows that come to the driver together.
_ROWS_PER_PART: Final = 10_000
_MOVES: Final = "isChosen and not isHeld"
_PLANNED: Final = ("source", "sequenceNumber", "state", "messageId", "isChosen", "isHeld")
#: What is browsed where no report and no expression of the user wants more.
_BROWSED: Final = (*columns.COUNTED, "body", "properties")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REFUSALS_TOLD: Final = 3
_TRIES: Final = 3
#: What Spark says when a block of what it kept is gone.
_LOST_BLOCK: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@dataclass(frozen=True)
class DeadLetters:
    """What to look at and what to do."""

    #: Queues and subscriptions (`news/Subscriptions/all`); `/$DeadLetterQueue` at the end is allowed.
    entities: tuple[str, ...]
    #: SQL over the columns of format `servicebus`, and `fingerprint` and `age`; None chooses all.
    where: str | None = None
    fixes: tuple[Fix, ...] = ()
    resubmits: bool = False
    #: Another queue or topic; None: the queue itself, the subscription's topic.
    into: str | None = None
    #: Words of `report.KEYS`.
    by: tuple[str, ...] = USUAL_KEYS
    samples: int = 3
    #: How long to wait for dead letters that somebody, or a run that was killed, holds locked.
    wait_s: float = 75.0
    #: A folder of this machine.
    report: Path | None = None


@dataclass
class Triage:
    """What was found, and what was done."""

    survey: Survey
    routes: list[LetterRoute]
    is_dry: bool
    #: Outcome (`plan`) → how many of the chosen; empty in a dry run.
    outcomes: dict[str, int] = field(default_factory=dict)
    #: Sentences.
    warnings: list[str] = field(default_factory=list)
    page: Path | None = None

    @property
    def is_complete(self) -> bool:
        return not any(self.outcomes.get(each) for each in (REFUSED, LOCKED, PLANNED))


def run(place: JobPlace, options: DeadLetters, progress: JobProgress | None = None) -> Triage:
    """Raises JobFailed."""
    told = progress or JobProgress()
    sources = _sources(options.entities)
    routes = [find_route(place.bus, source, options.into) for source in sources]
    spark = place.session("deadletters")
    now = datetime.now(UTC)
    table = columns.described(columns.empty(spark, place), now)
    columns.check_expressions(table, options.where, options.fixes)
    names = None if options.report is not None else columns.names_for(table, _BROWSED, _expressions(options))
    for tries_left in reversed(range(_TRIES)):
        try:
            with _failing():
                letters = columns.described(columns.browse(spark, place, sources, names), now)
                kept = columns.chosen(
                    letters, options.where, options.fixes, reports=options.report is not None
                )
                kept = kept.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
                return _Work(place, options, routes, told).run(kept, now)
        except JobFailed as error:
            if not tries_left or _LOST_BLOCK not in str(error.__cause__):
                raise
            told.tell("Spark lost some of what it kept, with an executor perhaps; beginning anew.")
    raise AssertionError("the last try returns or raises")


def _sources(entities: Sequence[str]) -> list[str]:
    sources = list(dict.fromkeys(source_of(entity) for entity in entities))
    if not sources or not all(sources):
        raise JobFailed("Name at least one queue, or TOPIC/Subscriptions/NAME.")
    return sources


def _expressions(options: DeadLetters) -> list[str]:
    return [*([] if options.where is None else [options.where]), *(fix.expression for fix in options.fixes)]


@contextmanager
def _failing() -> Iterator[None]:
    """What Spark and the bus say, as a sentence."""
    try:
        with failing():
            yield
    except ClientError as error:
        raise JobFailed(str(error)) from error


class _Work:
    def __init__(
        self, place: JobPlace, options: DeadLetters, routes: list[LetterRoute], progress: JobProgress
    ) -> None:
        self._place = place
        self._spark: SparkSession | None = None
        self._options = options
        self._routes = routes
        self._progress = progress

    def run(self, kept: DataFrame, now: datetime) -> Triage:
        self._spark = kept.sparkSession
        sources = [route.source for route in self._routes]
        draws = self._options.report is not None
        found = survey(kept, sources, self._options.by, self._options.samples, draws=draws)
        self._progress.tell(
            f"{found.total} dead letters, {found.chosen} chosen.", total=found.total, chosen=found.chosen
        )
        triage = Triage(found, self._routes, not self._options.resubmits)
        triage.warnings += _warnings(found, self._routes, triage.is_dry)
        with (
            tempfile.TemporaryDirectory(prefix="busway-deadletters-") as folder,
            Plan(Path(folder) / "plan") as plan,
        ):
            aside = Path(folder) / "rows"
            self._read(kept, found.total, plan, aside)
            if self._options.resubmits:
                self._move(plan, triage)
                triage.outcomes = {name: count for name, count in plan.counts().items() if count}
                triage.warnings += plan.refusals(_REFUSALS_TOLD)
            self._report(aside, plan, triage, now)
        return triage

    def _read(self, kept: DataFrame, total: int, plan: Plan, aside: Path) -> None:
        """The rows for the last time: what is to be moved, and all of them for the report."""
        wants_all = self._options.report is not None
        if not wants_all and not self._options.resubmits:
            return
        if wants_all:
            with aside.open("w", encoding="ascii") as file:
                plan.add(self._planned(_rows(kept, total), file))
        elif self._options.fixes or any(route.derives_id for route in self._routes):
            plan.add(self._planned(self._rows_to_move(kept, total), None))
        else:
            going = kept.where(_MOVES).withColumn("isDeferred", kept["state"] == "deferred")
            for some in packed_numbers(going.select("source", "sequenceNumber", "isDeferred")):
                plan.add_plain(some)

    def _rows_to_move(self, kept: DataFrame, total: int) -> Iterator[Any]:
        """Only what the plan wants of them. It has an order of its own; without fixes, which may be large, the rows
        are so small that Spark's own parts will do."""
        fixes = [f"fix{at}" for at in range(len(self._options.fixes))]
        wanted = kept.where(_MOVES).select(*_PLANNED, *fixes)
        return _rows(wanted, total) if fixes else iter(wanted.toLocalIterator(prefetchPartitions=True))

    def _planned(self, rows: Iterator[Any], aside: IO[str] | None) -> Iterator[PlanRow]:
        for row in rows:
            if aside is not None:
                aside.write(_aside_line(row))
            if self._options.resubmits and row["isChosen"] and not row["isHeld"]:
                yield row["source"], row["sequenceNumber"], row["state"] == "deferred", self._changes(row)

    def _changes(self, row: Any) -> dict[str, Any]:
        changes = {fix.part: _plain(fix.part, row[f"fix{at}"]) for at, fix in enumerate(self._options.fixes)}
        new_id = self._routes[row["source"]].message_id(row["messageId"], row["sequenceNumber"])
        if new_id is not None:
            changes.setdefault(MESSAGE_ID, new_id)
        return changes

    def _move(self, plan: Plan, triage: Triage) -> None:
        for at, route in enumerate(self._routes):
            if not plan.has_left(at):
                continue
            mover = self._moved(at, plan)
            self._routes[at] = mover.route
            self._progress.tell(
                f"{mover.moved} dead letters of {route.source} went to {route.destination}.",
                entity=route.source,
                resubmitted=mover.moved,
            )
            if mover.ended_early is not None:
                triage.warnings.append(f"Not all of {route.source} were tried: {mover.ended_early}.")

    def _moved(self, at: int, plan: Plan) -> Mover | TaskMover:
        """By tasks where the server takes a letter and its new form in one step, else by the driver over AMQP."""
        route, bus, wait_s = self._routes[at], self._place.bus, self._options.wait_s
        if route.guarantee == TRANSACTION:
            assert self._spark is not None, "it browsed them"
            tasks = TaskMover(self._spark, bus, route, at, plan, self._progress, wait_s=wait_s)
            if tasks.is_possible():
                tasks.run()
                return tasks
        return asyncio.run(self._moved_by_driver(at, plan))

    async def _moved_by_driver(self, at: int, plan: Plan) -> Mover:
        async with self._place.bus.client() as client:
            mover = Mover(client, self._routes[at], at, plan, self._progress, wait_s=self._options.wait_s)
            await mover.run()
        return mover

    def _report(self, aside: Path, plan: Plan, triage: Triage, now: datetime) -> None:
        folder = self._options.report
        if folder is None:
            return
        with LetterFile(folder / f"deadletters-{now:%Y%m%dT%H%M%S%f}.parquet") as file:
            for row in _put_aside(aside):
                file.add(_letter_row(row, self._routes, plan, triage.is_dry, self._options.by))
        triage.page = write_page(folder / "deadletters.html", triage.survey, self._facts(triage), now)

    def _facts(self, triage: Triage) -> dict[str, Any]:
        return {
            "routes": triage.routes,
            "is_dry": triage.is_dry,
            "outcomes": triage.outcomes,
            "warnings": triage.warnings,
            "where": self._options.where,
            "fixes": self._options.fixes,
            "by": self._options.by,
        }


def _aside_line(row: Any) -> str:
    """What the report wants of a row: texts, numbers, and one time."""
    kept = {name: row[name] for name in (*columns.KEPT, *columns.COMPUTED)}
    moment: datetime | None = kept["enqueuedTime"]
    kept["enqueuedTime"] = None if moment is None else moment.astimezone(UTC).isoformat()
    return json.dumps(kept) + "\n"


def _put_aside(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="ascii") as file:
        for line in file:
            kept = json.loads(line)
            moment: str | None = kept["enqueuedTime"]
            kept["enqueuedTime"] = None if moment is None else datetime.fromisoformat(moment)
            yield kept


def _rows(letters: DataFrame, total: int) -> Iterator[Any]:
    """In the order of numbers, some thousands at a time: the driver never holds them all."""
    parts = max(1, -(-total // _ROWS_PER_PART))
    ordered = (
        letters.repartitionByRange(parts, "source", "sequenceNumber") if parts > 1 else letters.coalesce(1)
    )
    return iter(ordered.sortWithinPartitions("source", "sequenceNumber").toLocalIterator())


def _plain(part: str, value: Any) -> Any:
    """What Spark computed, as AMQP has it."""
    if isinstance(value, VariantVal):
        value = value.toPython()
    if isinstance(value, timedelta) and part == TIME_TO_LIVE:
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        value = value.astimezone(UTC)
        if part == SCHEDULED:
            return (value - _EPOCH) // timedelta(milliseconds=1)
    if part == BODY:
        return bytes(value) if isinstance(value, bytearray) else value
    try:
        return amqp_value(value)
    except TypeError:
        return str(value)


def _letter_row(
    row: Any, routes: Sequence[LetterRoute], plan: Plan, is_dry: bool, by: Sequence[str]
) -> dict[str, Any]:
    """A row of the report: what was known, its group, and what was done."""
    found = {name: row[name] for name in (*columns.KEPT, *columns.COMPUTED) if name != "source"}
    route = routes[row["source"]]
    found["entity"] = route.source
    values = {"entity": route.source, "reason": row["deadLetterReason"], "subject": row["subject"],
              "description": row["deadLetterErrorDescription"], "fingerprint": row["fingerprint"],
              "age": row["age"]}  # fmt: skip
    found["group"] = " · ".join(str(values[word] or "–") for word in by)
    found["done"], found["detail"] = _done(row, plan, is_dry)
    found["destination"] = route.destination if row["isChosen"] else None
    return found


def _done(row: Any, plan: Plan, is_dry: bool) -> tuple[str, str | None]:
    if row["isHeld"]:
        return "held by a stream", None
    if not row["isChosen"]:
        return "untouched", None
    if is_dry:
        return "would be resubmitted", None
    outcome = plan.outcome_of(row["source"], row["sequenceNumber"])
    return (PLANNED, None) if outcome is None else outcome


def _warnings(found: Survey, routes: Sequence[LetterRoute], is_dry: bool) -> list[str]:
    sentences: list[str] = []
    if found.held:
        sentences.append(
            f"{found.held} are held by a stream that reads this dead-letter queue; they are left to it."
        )
    kinds = Counter(route.guarantee for route in routes)
    if kinds[AT_LEAST_ONCE] and found.chosen:
        names = ", ".join(route.destination for route in routes if route.guarantee == AT_LEAST_ONCE)
        sentences.append(
            f"{names}: at least once. There are neither transactions nor duplicate detection, so"
            f" {'a crash would' if is_dry else 'a crash may'} leave a message in both places."
        )
    return sentences
