"""Dead letters as a table: browsed, with a fingerprint of the error, their age, who is chosen, and what fixes give.

Expressions of the user are tried on an empty table with the same columns first: what is wrong with them is known
before the bus is asked for anything, and said in a sentence.

A fix is what a dead letter is changed into before it is sent again. It names a part of the message and a SQL
expression of Spark over the columns of format `servicebus`. Spark computes the values while it browses, and they
are put into the message when it is moved. What no fix names stays byte for byte as it was, bodies of AMQP values
and properties of any type included.

Many dead letters of one queue are browsed by several tasks: each walks a span of sequence numbers. Numbers of dead
letters have gaps and no known end. A peek from a number on tells whether there is one, so the end is found by
halving, with some forty questions; a queue with few dead letters costs two. Spans reach from nothing to the last
number there can be: whatever comes meanwhile is in one of them. A partitioned entity is left to the format, which
has a task for each fragment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    NullType,
    StringType,
    TimestampType,
    VariantType,
)

from busway.client.errors import ClientError
from busway.client.messages import ServiceBusReceivedMessage
from busway.message.changed_payload import (
    BODY,
    MESSAGE_ID,
    PARTS,
    PROPERTY_MARK,
    SCHEDULED,
    TIME_TO_LIVE,
    changed_payload,
)
from busway_spark.given_options import NUMBER_MAX
from busway_spark.pipeline.deadletters.plan import DEAD_LETTER
from busway_spark.pipeline.job import JobFailed, JobPlace
from busway_spark.servicebus.columns import readable_schema
from busway_spark.servicebus.entity_reading import number_of
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY, FRAGMENT_SHIFT
from busway_spark.servicebus.options import read_options
from busway_spark.watching.watched import sentence_of
from busway_spark.wire.bus import Bus

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["BODY", "PARTS", "PROPERTY_MARK", "SCHEDULED", "TIME_TO_LIVE", "Fix", "WrongFix", "encode_fixed"]

_BY_LOWER: Final = {name.lower(): name for name in PARTS}
#: What only a dead letter, or one that a stream holds, bears.
LEFT_OUT: Final = ("DeadLetterReason", "DeadLetterErrorDescription", CLAIM_PROPERTY)


class WrongFix(ValueError):
    """The fix cannot be understood; a sentence."""


@dataclass(frozen=True)
class Fix:
    """What a dead letter is changed into before it is sent again."""

    #: One of PARTS, or `properties.NAME`.
    part: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> Fix:
        """`subject='new'`, `properties.tenant=concat('t-', sessionId)`. Raises WrongFix."""
        name, mark, expression = text.partition("=")
        if not mark or not expression.strip():
            raise WrongFix(f"--set {text[:80]}: write it as NAME=EXPRESSION, such as subject=\"'new'\".")
        return cls(_part(name.strip()), expression.strip())


def _part(name: str) -> str:
    if name.lower().startswith(PROPERTY_MARK) and len(name) > len(PROPERTY_MARK):
        return PROPERTY_MARK + name[len(PROPERTY_MARK) :]
    proper = _BY_LOWER.get(name.lower())
    if proper is None:
        raise WrongFix(
            f"--set {name[:80]}: there is no such part of a message. There are {', '.join(PARTS)},"
            " and properties.NAME."
        )
    return proper


def encode_fixed(
    message: ServiceBusReceivedMessage, changes: Mapping[str, Any], message_id: str | None
) -> bytes:
    """The dead letter as it is sent again. `changes`: part → value, None takes the part away; `message_id` replaces
    the message's own, unless a fix gives one."""
    payload = message.encode_again(LEFT_OUT)
    if message_id is not None and MESSAGE_ID not in changes:
        changes = {**changes, MESSAGE_ID: message_id}
    return changed_payload(payload, changes) if changes else payload


#: Numbers of one span, and spans, at most: then they are wider.
WIDTH: Final = 100_000
SPANS_MAX: Final = 32
WHOLE: Final = (0, NUMBER_MAX)

#: The lowest number from this one on; None when there is none.
Look = Callable[[int], Awaitable[int | None]]
#: In this order: what stands for a kind of thing must not be taken for another.
_MASKS: Final = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<id>"),
    (r"(?i)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<id>"),
    (r"(?i)\b[\w.+-]+@[\w-]+\.[\w.-]+\b", "<address>"),
    (r"(?<![A-Za-z<])[+-]?\d+([.,]\d+)*", "<n>"),
    (r"\s+", " "),
)
#: What one of the masks may find something in: a digit, an address, a space of another kind or more than one, an id
#: of letters alone. Most descriptions that the server itself writes have none, and are not searched seven times.
_MASKABLE: Final = r"[0-9@\t\n\x0B\f\r]|  |-[a-fA-F]{4}-"
_FINGERPRINT_LETTERS: Final = 200
#: Upper ends in hours, and names.
AGES: Final = ((1, "< 1 hour"), (24, "< 1 day"), (168, "< 1 week"), (720, "< 30 days"))
OLDEST: Final = "older"
AGE_NAMES: Final = (*(name for _, name in AGES), OLDEST)
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_START_LETTERS: Final = 160
#: What groups and plan want of a dead letter.
COUNTED: Final = (
    "sequenceNumber", "enqueuedTime", "messageId", "subject", "deliveryCount", "state", "deadLetterReason",
    "deadLetterErrorDescription",
)  # fmt: skip
#: What is kept of it for a report, beside what is computed.
KEPT: Final = (
    "sequenceNumber", "enqueuedTime", "messageId", "sessionId", "partitionKey", "subject", "contentType",
    "correlationId", "to", "replyTo", "deliveryCount", "state", "fragment", "deadLetterReason",
    "deadLetterErrorDescription", "deadLetterSource",
)  # fmt: skip
COMPUTED: Final = (
    "source",
    "fingerprint",
    "age",
    "bodyBytes",
    "bodyStart",
    "properties",
    "isHeld",
    "isChosen",
)


def spans_of(bus: Bus, address: str) -> list[tuple[int, int]]:
    """(first, last) of each, ascending, without a gap. What is wrong with the address is told by whoever browses."""
    try:
        return asyncio.run(_spans_of(bus, address))
    except ClientError:
        return [WHOLE]


async def _spans_of(bus: Bus, address: str) -> list[tuple[int, int]]:
    async with bus.client() as client:
        management = client.get_management(address)

        async def look(number: int) -> int | None:
            found = await management.peek_messages(1, number)
            return number_of(found[0]) if found else None

        return await spans(look)


async def spans(look: Look) -> list[tuple[int, int]]:
    first = await look(0)
    low = None if first is None else await look(first + WIDTH)
    if first is None or low is None or low >> FRAGMENT_SHIFT:
        return [WHOLE]
    high = 1 << FRAGMENT_SHIFT
    if await look(high) is not None:
        return [WHOLE]
    while high - low > WIDTH:  # there is one from `low` on, and none from `high` on
        middle = (low + high) // 2
        found = await look(middle)
        if found is None:
            high = middle
        else:
            low = found
    count = min(SPANS_MAX, -(-(high - first) // WIDTH))
    width = -(-(high - first) // count)
    cuts = [first + at * width for at in range(1, count)]
    return [(begin, end - 1) for begin, end in zip([0, *cuts], [*cuts, NUMBER_MAX + 1], strict=True)]


def browse(
    spark: SparkSession, place: JobPlace, sources: Sequence[str], names: Sequence[str] | None = None
) -> DataFrame:
    """All dead letters, with these columns of the format (all, where none are named) and `source`."""
    narrowing = {} if names is None else {"columns": ",".join(names)}
    frames = [
        spark.read.format("servicebus")
        .options(
            **place.servicebus_options(
                entity=source + DEAD_LETTER,
                startingSequenceNumber=str(first),
                endingSequenceNumber=str(last),
                **narrowing,
            )
        )
        .load()
        .withColumn("source", F.lit(at))
        for at, source in enumerate(sources)
        for first, last in spans_of(place.bus, source + DEAD_LETTER)
    ]
    return reduce(lambda one, other: one.unionByName(other), frames)


def empty(spark: SparkSession, place: JobPlace) -> DataFrame:
    """The same columns without a row."""
    schema = readable_schema(read_options(place.servicebus_options(entity="none")))
    return spark.createDataFrame([], schema).withColumn("source", F.lit(0))


def described(letters: DataFrame, now: datetime) -> DataFrame:
    return letters.withColumns(
        {"fingerprint": fingerprint(F.col("deadLetterErrorDescription")), "age": _age(now)}
    )


def fingerprint(text: Column) -> Column:
    """The description with everything masked that differs from message to message."""
    plain = F.coalesce(text, F.lit(""))
    masked = reduce(lambda done, mask: F.regexp_replace(done, *mask), _MASKS, plain)
    shown = F.when(F.rlike(plain, F.lit(_MASKABLE)), masked).otherwise(plain)
    return F.substring(F.trim(shown), 1, _FINGERPRINT_LETTERS)


def _age(now: datetime) -> Column:
    hours = (F.unix_timestamp(F.lit(now)) - F.unix_timestamp("enqueuedTime")) / 3600

    def younger(done: Column, age: tuple[int, str]) -> Column:
        return F.when(hours < age[0], age[1]).otherwise(done)

    return reduce(younger, reversed(AGES), F.lit(OLDEST))


def names_for(table: DataFrame, names: Sequence[str], expressions: Sequence[str]) -> Sequence[str] | None:
    """These, if they are enough for the expressions of the user, which were checked; None means all there are."""
    narrow = table.select(*names, "source", "fingerprint", "age")
    for expression in expressions:
        if "*" in expression:  # it may stand for all columns
            return None
        try:
            _kind("", narrow, expression)
        except JobFailed:
            return None
    return names


def is_held() -> Column:
    """By a stream that reads this dead-letter queue: it deferred them."""
    held = F.col("properties").getItem(CLAIM_PROPERTY).isNotNull() & (F.col("state") == "deferred")
    return F.coalesce(held, F.lit(False))


def chosen(letters: DataFrame, where: str | None, fixes: Sequence[Fix], *, reports: bool) -> DataFrame:
    """Only what is kept and computed, and a column `fix0`… for each fix, which is computed for the chosen only.
    `reports`: also what only a report shows."""
    matches = F.lit(True) if where is None else F.coalesce(F.expr(where), F.lit(False))
    text = F.col("body").cast("string")
    start = F.when(F.is_valid_utf8(text), F.substring(text, 1, _START_LETTERS))
    marked = letters.withColumns({"isHeld": is_held(), "isChosen": matches})
    return marked.select(
        *(KEPT if reports else COUNTED),
        "source",
        "fingerprint",
        "age",
        F.octet_length("body").alias("bodyBytes"),
        start.alias("bodyStart"),
        *([F.to_json("properties").alias("properties")] if reports else []),
        "isHeld",
        "isChosen",
        *(
            F.when(F.col("isChosen"), _cast(fix, F.expr(fix.expression))).alias(f"fix{at}")
            for at, fix in enumerate(fixes)
        ),
    )


def _cast(fix: Fix, value: Column) -> Column:
    if fix.part in (BODY, SCHEDULED, TIME_TO_LIVE) or fix.part.startswith(PROPERTY_MARK):
        return value
    return value.cast("string")


# -- checking


def check_expressions(table: DataFrame, where: str | None, fixes: Sequence[Fix]) -> None:
    """Raises JobFailed."""
    if where is not None:
        check_condition("--where", table, where)
    for fix in fixes:
        option = "--body" if fix.part == BODY else f"--set {fix.part}"
        _check_fix(option, fix.part, _kind(option, table, fix.expression))


def check_condition(option: str, table: DataFrame, expression: str) -> None:
    """Raises JobFailed."""
    kind = _kind(option, table, expression)
    if not isinstance(kind, BooleanType):
        raise JobFailed(f"{option} must be true or false for each dead letter; it is {kind.simpleString()}.")


def _check_fix(option: str, part: str, kind: DataType) -> None:
    allowed: tuple[type[DataType], ...] = (AtomicType, NullType)
    words = "a simple value"
    if part == BODY:
        allowed, words = (StringType, BinaryType), "string or binary"
    elif part == SCHEDULED:
        allowed, words = (TimestampType, NullType), "timestamp"
    elif part == TIME_TO_LIVE:
        allowed, words = (IntegralType, DayTimeIntervalType, NullType), "milliseconds or an interval"
    elif part.startswith(PROPERTY_MARK):
        allowed = (AtomicType, NullType, VariantType)
    elif isinstance(kind, BinaryType | VariantType):
        raise JobFailed(f"{option} must give text, not {kind.simpleString()}: cast it, as in x::string.")
    if not isinstance(kind, allowed):
        raise JobFailed(f"{option} must give {words}, not {kind.simpleString()}.")


def _kind(option: str, table: DataFrame, expression: str) -> DataType:
    # PySpark logs what a query context says, at length, before it raises: the sentence is enough.
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        return table.select(F.expr(expression).alias("x")).schema["x"].dataType
    except PySparkException as error:
        raise JobFailed(f"{option}: {sentence_of(error)}") from error
    except ValueError as error:
        raise JobFailed(f"{option}: {error}") from error
