"""The first look of a backfill: which captured messages may be for the subscription, by columns alone.

Only the columns that the rules read are read, never bodies. A message stays when a rule that has not seen it selects
it, or when the broker's evaluator must be asked (`rule_columns`). Of those only the place in their file, the verdicts
and what actions set go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from busway_spark.pipeline.backfill.backfill_plan import FRAGMENT_SHIFT, BackfillPlan
from busway_spark.pipeline.captured.captured_files import SpannedFile
from busway_spark.pipeline.places.capture_root import CaptureRoot
from busway_spark.rules.rule_columns import (
    NOT_SELECTED,
    SELECTED,
    RuleColumns,
    sets_name,
    verdict_name,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
