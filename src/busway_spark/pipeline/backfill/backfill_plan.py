"""What a backfill has to do: which rules, out of which files, what is missing, and the first look at messages.

A plan says up to which captured message each rule goes. A rule has seen everything behind its *cut*, the number
that the captured subscription had reached when the rule began (`broker.namespace.rule_changes`). That
subscription numbers its messages without gaps, so what has a number up to the cut and is in no file is missing,
and how much that is can be told before anything is sent.

The server's route for history (`gateway.http.bulk.backfill_route`) tells when rules began, and stores copies, each
once. A request that failed on its way is made again: what it had stored is known by its ids.

The first look, at which captured messages may be for the subscription, goes by columns alone. Only the columns
that the rules read are read, never bodies. A message stays when a rule that has not seen it selects it, or when
the broker's evaluator must be asked (`rule_columns`). Of those only the place in their file, the verdicts and what
actions set go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow.parquet as pq

from busway.client.errors import ClientError, Unreachable
from busway.rules.rule import Rule
from busway_spark.pipeline.captured.capture_root import CaptureRoot
from busway_spark.pipeline.captured.captured_files import SpannedFile, listed_files, spanned
from busway_spark.pipeline.job import JobFailed, JobPlace
from busway_spark.rules.rule_columns import (
    NOT_SELECTED,
    SELECTED,
    RuleColumns,
    not_captured,
    sets_name,
    verdict_name,
)
from busway_spark.wire.bus import BUSWAY, Bus, administration
from busway_spark.wire.http_client import HttpClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class BackfillClient:
    """Of one subscription."""

    def __init__(self, bus: Bus, subscription_path: str) -> None:
        self._client = HttpClient(bus, subscription_path)
        self._path = subscription_path
        self._target = f"/$backfill/{quote(subscription_path, safe='/$')}"

    def beginnings(self) -> dict[str, Any]:
        """Raises JobFailed."""
        found = self._exchange(lambda: self._client.get(self._target))
        if not isinstance(found.get("rules"), list) or not isinstance(found.get("captured"), dict):
            raise JobFailed("The server does not tell when rules began; is it an older Busway?")
        return found

    def store(self, fragment: int, copies: bytes) -> tuple[int, int]:
        """Encoded copies: (new ones, those that were there). Raises JobFailed."""
        target = f"{self._target}?fragment={fragment}"
        answer = self._exchange(lambda: self._client.post(target, copies, is_repeatable=True))
        return int(answer["new"]), int(answer["known"])

    def _exchange(self, ask: Callable[[], bytes]) -> dict[str, Any]:
        try:
            found = json.loads(ask())
        except (ClientError, ValueError) as error:
            raise JobFailed(f"'{self._path}': {error}") from error
        return found if isinstance(found, dict) else {}


FRAGMENT_SHIFT: Final = 48


@dataclass(frozen=True)
class BackfillOptions:
    #: A directory or a URI.
    root: str
    topic: str
    subscription: str
    #: The subscription that the topic is captured through.
    through: str = "busway-capture"
    #: A queue that gets the history instead of the subscription.
    into: str | None = None
    #: History before this moment (microseconds since 1970), instead of before the rules began.
    before_us: int | None = None
    #: Although some of it is missing.
    partial: bool = False
    dry_run: bool = False

    @property
    def path(self) -> str:
        return f"{self.topic}/Subscriptions/{self.subscription}"


@dataclass(frozen=True)
class BackfillPlan:
    """`cuts`: for each rule, by fragment, the last number that the rule has not seen."""

    rules: tuple[Rule, ...]
    cuts: tuple[tuple[int, ...], ...]
    files: tuple[SpannedFile, ...]
    #: Messages before the cuts: wanted, and of these captured. Without cuts (`before`) both are what is captured.
    wanted: int
    captured: int
    #: Why the history is not whole, in sentences.
    faults: tuple[str, ...]


def plan(place: JobPlace, root: CaptureRoot, options: BackfillOptions) -> BackfillPlan:
    """Raises JobFailed."""
    rules = _rules(place, options)
    files = spanned(root, listed_files(root, options.topic))
    if not files:
        raise JobFailed(
            f"{root.location} holds no messages of '{options.topic}': capture them first"
            f" (busway pipeline capture {options.topic} --to {root.location})."
        )
    faults = [
        f"sys.{name}, which a rule reads, is not captured: it counts as null." for name in not_captured(rules)
    ]
    if options.before_us is not None:
        cuts: Sequence[tuple[int, ...]] = [() for _ in rules]
        counted = sum(each.span.rows for each in files if each.span.first_time_us < options.before_us)
        wanted = captured = counted
        files = [each for each in files if each.span.first_time_us < options.before_us]
    else:
        cuts = _cuts(place, options, rules, files)
        reach = [max(numbers) for numbers in zip(*cuts, strict=True)]
        files = [each for each in files if each.span.first_number <= _at(reach, each.file.partition)]
        captured = sum(_rows_up_to(root, each, _at(reach, each.file.partition)) for each in files)
        wanted = sum(number - (index << FRAGMENT_SHIFT) for index, number in enumerate(reach))
        faults += _missing(options, root, wanted, captured)
    return BackfillPlan(tuple(rules), tuple(cuts), tuple(_in_order(files)), wanted, captured, tuple(faults))


def _rules(place: JobPlace, options: BackfillOptions) -> list[Rule]:
    try:
        with administration(place.bus) as client:
            rules = client.list_rules(options.topic, options.subscription)
    except ClientError as error:
        raise JobFailed(f"The rules of '{options.path}' cannot be read: {error}") from error
    if not rules:
        raise JobFailed(f"'{options.path}' has no rules, so it gets nothing: create one first.")
    return rules


def _cuts(
    place: JobPlace, options: BackfillOptions, rules: Sequence[Rule], files: Sequence[SpannedFile]
) -> list[tuple[int, ...]]:
    try:
        kind = place.bus.kind()
    except Unreachable as error:
        raise JobFailed(str(error)) from error
    if kind != BUSWAY:
        raise JobFailed("This server does not tell when rules began: say --before TIME, and --into QUEUE.")
    told = BackfillClient(place.bus, options.path).beginnings()
    captured = {name.lower(): facts for name, facts in told["captured"].items()}
    facts = captured.get(options.through.lower())
    if facts is None:
        known = ", ".join(f"'{name}'" for name in told["captured"]) or "none"
        raise JobFailed(
            f"'{options.topic}' is not captured through a subscription '{options.through}' ({known}):"
            " --through names it."
        )
    first_us = min(each.span.first_time_us for each in files)
    if first_us < int(facts["createdAtMs"]) * 1000:
        raise JobFailed(
            f"The files hold messages of a time before the subscription '{options.through}' was created: its"
            " numbers are not theirs. Capture into an empty directory, or say --before TIME."
        )
    began = {str(rule["name"]).lower(): rule["began"] for rule in told["rules"]}
    return [_cut(rule, began.get(rule.name.lower()), options, int(told["fragments"])) for rule in rules]


def _cut(
    rule: Rule, began: Mapping[str, Any] | None, options: BackfillOptions, fragments: int
) -> tuple[int, ...]:
    if began is None:
        raise JobFailed(
            f"When the rule '{rule.name}' of '{options.path}' began is not known: a failure came between."
            " Delete and create it again, or say --before TIME."
        )
    numbers = {name.lower(): numbers for name, numbers in began.items()}.get(options.through.lower())
    if numbers is None:  # it was there before the capture began: it has seen all of it
        return tuple(index << FRAGMENT_SHIFT for index in range(fragments))
    return tuple(int(number) for number in numbers)


def _at(numbers: Sequence[int], partition: int) -> int:
    return numbers[partition] if partition < len(numbers) else -1


def _rows_up_to(root: CaptureRoot, each: SpannedFile, cut: int) -> int:
    if each.span.last_number <= cut:
        return each.span.rows
    with root.filesystem.open_input_file(root.full(each.path)) as source:
        numbers: Any = pq.ParquetFile(source).read(["sequenceNumber"]).column(0).to_numpy()
    return int((numbers <= cut).sum())


def _missing(options: BackfillOptions, root: CaptureRoot, wanted: int, captured: int) -> list[str]:
    if captured >= wanted:
        return []
    return [
        f"Of {wanted:,} messages before the rules began {wanted - captured:,} are not captured yet, or were never:"
        f" run busway pipeline capture {options.topic} --to {root.location} first."
    ]


def _in_order(files: Sequence[SpannedFile]) -> list[SpannedFile]:
    return sorted(files, key=lambda each: (each.span.first_number & ((1 << FRAGMENT_SHIFT) - 1), each.file))


NUMBER: Final = "sequenceNumber"
FILE: Final = "file"
PLACE: Final = "place"
FRAGMENT: Final = "fragment"
_TIME: Final = "enqueuedTime"


def matches(
    spark: SparkSession,
    root: CaptureRoot,
    files: Sequence[SpannedFile],
    plan: BackfillPlan,
    columns: RuleColumns,
    before_us: int | None,
) -> DataFrame:
    """Columns FILE (its name), PLACE (row in it), NUMBER, FRAGMENT, and of each rule its verdict and sets."""
    paths = [f"{root.spark_location}/{each.path}" for each in files]
    rows = spark.read.schema(_schema(columns)).parquet(*paths)
    rows = rows.selectExpr(
        "*",
        f"_metadata.file_name AS {FILE}",
        f"_metadata.row_index AS {PLACE}",
        f"CAST(shiftright({NUMBER}, {FRAGMENT_SHIFT}) AS INT) AS {FRAGMENT}",
    )
    if before_us is not None and any(each.span.last_time_us >= before_us for each in files):
        rows = rows.where(f"{_TIME} < timestamp_micros({before_us}L)")
    rows = columns.applied(rows)
    wanted = [
        f"({unseen(plan, at)} AND {verdict_name(at)} <> {NOT_SELECTED})" for at in range(len(plan.rules))
    ]
    verdicts = [verdict_name(at) for at in range(len(plan.rules))]
    sets = [sets_name(at) for at, rule in enumerate(columns.rules) if rule.sets is not None]
    return rows.where(" OR ".join(wanted)).select(FILE, PLACE, NUMBER, FRAGMENT, *verdicts, *sets)


def unseen(plan: BackfillPlan, at: int) -> str:
    """The rule has not seen the message."""
    cut = plan.cuts[at]
    if not cut:
        return "true"
    cases = " ".join(f"WHEN {index} THEN {number}L" for index, number in enumerate(cut))
    return f"({NUMBER} <= CASE {FRAGMENT} {cases} ELSE -1L END)"


def counts(found: DataFrame, plan: BackfillPlan) -> list[dict[str, object]]:
    """Of each rule how many it selects, and for how many the evaluator must be asked."""
    sums: list[str] = []
    for at in range(len(plan.rules)):
        is_unseen = unseen(plan, at)
        sums.append(f"count_if({is_unseen} AND {verdict_name(at)} = {SELECTED})")
        sums.append(f"count_if({is_unseen} AND {verdict_name(at)} > {SELECTED})")
    row = found.selectExpr(*sums).collect()[0]
    return [
        {"rule": rule.name, "selected": int(row[2 * at]), "to_be_asked": int(row[2 * at + 1])}
        for at, rule in enumerate(plan.rules)
    ]


def _schema(columns: RuleColumns) -> StructType:
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    names = dict.fromkeys([NUMBER, _TIME, *columns.columns])
    times = (_TIME, "expiresAt", "scheduledEnqueueTime")
    numbers = (NUMBER, "enqueuedSequenceNumber")
    return StructType(
        [
            StructField(
                name, LongType() if name in numbers else TimestampType() if name in times else StringType()
            )
            for name in names
        ]
    )
