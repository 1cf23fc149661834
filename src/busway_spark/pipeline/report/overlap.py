"""Messages that are captured and that the journal tells of as well, so that a report counts each once.

An entity may be captured and journalled, each from a day of its own on. The arrival of a message that the journal
tells of is counted from the journal, which knows more of it; every other captured message is counted from the
capture. A message is the same in both when entity, fragment, sequence number and the time at which it was enqueued
are: numbers alone begin anew when an entity is deleted and made again. A topic is captured through a subscription,
and the journal has rows for the topic and for each subscription: a captured message has the number that it got in
one of these.

The journal tells of a message when it is durable, which is a moment after the time that it was enqueued at. So it is
asked beyond the stretch of time that is reported on: reports of two days that follow each other count a message once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from busway.journal import columns as journal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY: Final = timedelta(days=1)
_SUBSCRIPTION: Final = "^(.+)/subscriptions/[^/]+$"
_KEYS: Final = ("toldOf", "toldFragment", "toldNumber", "toldMs")


def not_told(
    captured: DataFrame, operations: DataFrame, since: datetime | None, until: datetime | None
) -> DataFrame:
    """Captured messages whose arrival is not among the operations. Those have the column `date` of their folders."""
    is_arrival = F.col("operation").isin(journal.SEND, journal.PUBLISH)
    arrivals = operations.where(is_arrival & F.col("sequenceNumber").isNotNull())
    if since is not None:
        arrivals = arrivals.where(F.col("date") >= _day(since - _DAY))
    if until is not None:
        arrivals = arrivals.where(F.col("date") <= _day(until + _DAY))
    name = F.lower("entity")
    topic = F.regexp_extract(name, _SUBSCRIPTION, 1)
    names = F.when(topic == "", F.array(name)).otherwise(F.array(name, topic))
    told = arrivals.select(F.explode(names).alias(_KEYS[0]), *_identity())
    rows = captured.select("*", name.alias(_KEYS[0]), *_identity())
    return rows.join(told, list(_KEYS), "left_anti").select(*captured.columns)


def _identity() -> list[Column]:
    found = (F.coalesce("fragment", F.lit(0)), F.col("sequenceNumber"), F.unix_millis("enqueuedTime"))
    return [column.alias(name) for column, name in zip(found, _KEYS[1:], strict=True)]


def _day(moment: datetime) -> Column:
    return F.lit(f"{moment.astimezone(UTC):%Y-%m-%d}")
