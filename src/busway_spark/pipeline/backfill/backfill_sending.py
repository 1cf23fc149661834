"""The second look of a backfill, in tasks of Spark: matches become copies, and copies are sent, each once.

Matches come sorted by number, one task for a fragment. Their rows are read out of the captured files
(`backfill_rows`), verdicts and rows become copies (`backfill_copies`), and these go where they are for
(`backfill_targets`), some at a time, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from busway.rules.rule import Rule
from busway_spark.pipeline.backfill.backfill_copies import Copying
from busway_spark.pipeline.backfill.backfill_rows import CapturedRows
from busway_spark.pipeline.backfill.backfill_targets import (
    QueueTarget,
    StagedTarget,
    SubscriptionTarget,
    Target,
)
from busway_spark.pipeline.places.capture_root import CaptureRoot
from busway_spark.wire.bus import Bus
from busway_spark.writing.write_names import WriteName

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

    def _target(self) -> Target:
        if self.into is None:
            return SubscriptionTarget(self.bus, self.subscription_path, self.through)
        if self.write is None:
            return QueueTarget(self.bus, self.into)
        return StagedTarget(self.bus, self.into, self.write)
