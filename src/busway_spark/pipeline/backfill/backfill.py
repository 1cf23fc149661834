"""`busway pipeline backfill`: a new subscription gets its history, each message once.

Theory of operation. The rules of the subscription become columns and run over the captured files of its topic; what
they select goes into the subscription itself, behind the cut of each rule nothing (`backfill_plan`). Files are taken
some at a time, in the order of their numbers, so progress can be told and a stop is heeded between them. Nothing is
noted on our side: what was sent the subscription knows by its ids, so the same call can be made again at any time,
after a stop or after a kill, and sends what is left. Into a queue of Busway each step is one write with a name of its
own, made of what it looks at: for a day the bus knows that it was made.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from busway_spark.pipeline.backfill.backfill_plan import (
    FRAGMENT,
    NUMBER,
    BackfillOptions,
    BackfillPlan,
    counts,
    matches,
    plan,
)
from busway_spark.pipeline.backfill.backfill_sending import COUNTS_DDL, Sending
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import SpannedFile
from busway_spark.pipeline.job import QUEUE_KIND, JobFailed, JobPlace, JobProgress, find_entity
from busway_spark.rules.rule_columns import RuleColumns
from busway_spark.wire.bus import BusFailure
from busway_spark.writing.two_phase import RowsStaged, can_stage, decide
from busway_spark.writing.write_names import GivenName, Running, SinkWrite, of_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Files of one step.
_STEP_FILES: Final = 256
_STEP_ROWS: Final = 2_000_000
#: Of a step that is staged: it lies on the bus twice for a while.
_STAGED_ROWS: Final = 200_000
_WORDS_MAX: Final = 600


@dataclass
class BackfillResult:
    """Messages before the rules began: wanted, captured, looked at; copies sent, and those that were there before."""

    wanted: int = 0
    captured: int = 0
    looked_at: int = 0
    sent: int = 0
    known: int = 0
    #: Filters and actions that failed.
    failed: int = 0
    seconds: float = 0.0
    is_done: bool = False
    #: Which way each rule is evaluated.
    ways: list[str] = field(default_factory=list)
    #: Of a dry run: by rule.
    rules: list[dict[str, object]] = field(default_factory=list)


def backfill(place: JobPlace, options: BackfillOptions, progress: JobProgress) -> BackfillResult:
    """Raises JobFailed."""
    root = CaptureRoot(options.root)
    found = plan(place, root, options)
    for fault in found.faults:
        progress.tell(fault, fault=fault)
    if found.faults and not options.partial and not options.dry_run:
        raise JobFailed(f"{found.faults[0]} Or say --partial to go on without.")
    columns = RuleColumns(found.rules, skips=True)
    result = BackfillResult(found.wanted, found.captured, ways=columns.explain())
    progress.tell(
        f"{options.path}: {found.captured:,} captured messages of before its rules, in {len(found.files):,} files.",
        captured=found.captured,
        files=len(found.files),
    )
    if found.files:
        running = _Backfill(place, root, options, found, columns, result, progress)
        running.run()
    else:
        result.is_done = True
    return result


class _Backfill:
    def __init__(
        self,
        place: JobPlace,
        root: CaptureRoot,
        options: BackfillOptions,
        found: BackfillPlan,
        columns: RuleColumns,
        result: BackfillResult,
        progress: JobProgress,
    ) -> None:
        self._place = place
        self._root = root
        self._options = options
        self._plan = found
        self._columns = columns
        self._result = result
        self._progress = progress
        self._stages = options.into is not None and can_stage(place.bus)
        self._detects_duplicates = self._check_queue()

    def run(self) -> None:
        spark = self._place.session("backfill")
        started = time.monotonic()
        for files in _steps(self._plan.files, _STAGED_ROWS if self._stages else _STEP_ROWS):
            if self._progress.is_stopping:
                break
            if self._options.dry_run:
                self._look(spark, files)
            else:
                self._send(spark, files)
            self._result.looked_at += sum(each.span.rows for each in files)
            self._result.seconds = time.monotonic() - started
            self._tell()
        else:
            self._result.is_done = True

    def _tell(self) -> None:
        result = self._result
        self._progress.tell(
            f"{result.looked_at:,} looked at, {result.sent:,} sent, {result.known:,} were there before.",
            looked_at=result.looked_at,
            sent=result.sent,
            known=result.known,
        )

    def _check_queue(self) -> bool:
        into = self._options.into
        if into is None:
            return False
        queue = find_entity(self._place.bus, into)
        if queue.kind != QUEUE_KIND:
            raise JobFailed(f"--into: '{into}' is a {queue.kind}, not a queue.")
        if not queue.detects_duplicates and not self._stages:
            sentence = f"'{into}' does not detect duplicates: started again, this sends everything again."
            self._progress.tell(sentence, detects_duplicates=False)
        return queue.detects_duplicates

    def _look(self, spark: SparkSession, files: Sequence[SpannedFile]) -> None:
        found = counts(self._matches(spark, files), self._plan)
        before = {str(each["rule"]): each for each in self._result.rules}
        for each in found:
            known = before.get(str(each["rule"]))
            for name in ("selected", "to_be_asked"):
                each[name] = _number(each[name]) + (0 if known is None else _number(known[name]))
        self._result.rules = found

    def _send(self, spark: SparkSession, files: Sequence[SpannedFile]) -> None:
        fragments = len({each.file.partition for each in files})
        found = (
            self._matches(spark, files)
            .repartition(fragments, FRAGMENT)
            .sortWithinPartitions(FRAGMENT, NUMBER)
        )
        try:
            told = found.mapInArrow(self._sending(files).send, COUNTS_DDL).collect()
        except Exception as error:
            raise _failure(error) from error
        self._result.sent += sum(row["new"] for row in told) + self._decide(told)
        self._result.known += sum(row["known"] for row in told)
        self._result.failed += sum(row["failed"] for row in told)

    def _decide(self, told: Sequence[Any]) -> int:
        """About what tasks have staged: how many are new."""
        staged = [RowsStaged.of_json(row["staged"]) for row in told if row["staged"] is not None]
        try:
            return decide(self._place.bus, staged)
        except BusFailure as error:
            raise JobFailed(f"{error} Start the same backfill again to go on.") from error

    def _write(self, files: Sequence[SpannedFile]) -> SinkWrite | None:
        """The same for the same files, rules and target."""
        if not self._stages:
            return None
        options, plan = self._options, self._plan
        looked_at = (options.path.lower(), options.through.lower(), plan.rules, plan.cuts, options.before_us)
        facts = repr((*looked_at, [(each.path.name, each.span) for each in files]))
        given = GivenName(f"'{str(options.into).lower()}'", f"backfill {_digest(facts)}")
        return of_job(given, "", Running())

    def _matches(self, spark: SparkSession, files: Sequence[SpannedFile]) -> Any:
        return matches(spark, self._root, files, self._plan, self._columns, self._options.before_us)

    def _sending(self, files: Sequence[SpannedFile]) -> Sending:
        return Sending(
            self._place.bus,
            self._root.location,
            self._options.path,
            self._options.through,
            self._plan.rules,
            self._plan.cuts,
            {each.path.name: str(each.path) for each in files},
            self._options.into,
            self._detects_duplicates,
            self._write(files),
        )


def _digest(facts: str) -> str:
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def _steps(files: Sequence[SpannedFile], rows_max: int) -> Iterator[list[SpannedFile]]:
    step: list[SpannedFile] = []
    rows = 0
    for each in files:
        if step and (len(step) >= _STEP_FILES or rows + each.span.rows > rows_max):
            yield step
            step, rows = [], 0
        step.append(each)
        rows += each.span.rows
    if step:
        yield step


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _failure(error: Exception) -> JobFailed:
    """The sentence out of Spark's report of an error in a task."""
    text = str(error)
    mark = f"{JobFailed.__module__}.{JobFailed.__name__}: "
    if mark in text:
        return JobFailed(text.partition(mark)[2].splitlines()[0][:_WORDS_MAX])
    return JobFailed(f"Spark could not carry the backfill out: {text.strip()[:_WORDS_MAX]}")
