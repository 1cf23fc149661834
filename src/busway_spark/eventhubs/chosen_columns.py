"""The columns of `format("eventhubs")`: which there are, and which of them a query wants.

Spark does not tell a source which columns a query needs, so the options `columns` and `includeBody` do. What nobody
wants is not made, and where a server offers that it is not fetched: without bodies, or with numbers and times alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from busway.message.event_chunk import ALL, HEADS, NUMBERS
from busway_spark.bodies.body_columns import BODY, CORRUPT, NUMBER, with_bodies
from busway_spark.eventhubs.options import BadOption, EventHubsOptions
from busway_spark.given_options import COLUMNS, WrongColumns

#: In the metadata of a column of maps, which selections keep: each value is the JSON text of what was sent. So a sink
#: can tell a frame that was read from texts that somebody wrote.
JSON_VALUES: Final = "busway.jsonValues"
#: Likewise: what stands there is where the row came from, not where it shall go.
WAS_READ: Final = "busway.wasRead"
_TEXTS: Final = MapType(StringType(), StringType())
#: As in azure-event-hubs-spark.
SCHEMA: Final = StructType(
    [
        StructField("body", BinaryType()),
        StructField("partition", StringType(), True, {WAS_READ: True}),
        StructField("offset", StringType()),
        StructField("sequenceNumber", LongType()),
        StructField("enqueuedTime", TimestampType()),
        StructField("publisher", StringType()),
        StructField("partitionKey", StringType()),
        StructField("properties", _TEXTS, True, {JSON_VALUES: True}),
        StructField("systemProperties", _TEXTS, True, {JSON_VALUES: True}),
    ]
)
#: Only where option `columns` names it: the AMQP types of the properties whose JSON does not tell them.
_ON_REQUEST: Final = (StructField("propertyTypes", StringType()),)
#: They need the records, not only the columns of numbers and times.
_OF_HEADS: Final = frozenset({"publisher", "partitionKey", "properties", "systemProperties", "propertyTypes"})


@dataclass(frozen=True)
class WantedColumns:
    """What is to be made of events, before bodies are decoded."""

    names: tuple[str, ...]
    has_bodies: bool = True
    is_decoded: bool = False

    @property
    def wants_heads(self) -> bool:
        return not _OF_HEADS.isdisjoint(self.names)

    @property
    def parts(self) -> str:
        """What must be fetched of an event."""
        if self.has_bodies and BODY in self.names:
            return ALL
        return HEADS if self.wants_heads else NUMBERS

    @classmethod
    def of(cls, names: Sequence[str], options: EventHubsOptions) -> WantedColumns:
        """Decoding needs binary bodies, and their numbers and partitions for what it says of bad ones."""
        if options.bodies.is_binary or {BODY, CORRUPT}.isdisjoint(names):
            return cls(tuple(names), options.includes_body)
        needed = dict.fromkeys([*(name for name in names if name != CORRUPT), BODY, NUMBER, "partition"])
        return cls(tuple(needed), options.includes_body, is_decoded=True)


ALL_COLUMNS: Final = WantedColumns(tuple(SCHEMA.names))


def readable_schema(options: EventHubsOptions) -> StructType:
    """What a query gets: all columns, or those of option `columns` in their order. Raises BadOption."""
    usual = with_bodies(SCHEMA, options.bodies)
    if options.columns is None:
        return usual
    by_lower = {field.name.lower(): field for field in (*usual.fields, *_ON_REQUEST)}
    for name in options.columns:
        if name.lower() not in by_lower:
            there = ", ".join(field.name for field in by_lower.values())
            raise BadOption(COLUMNS, f"{name[:60]!r} is not a column. There are {there}.")
    fields = [by_lower[name.lower()] for name in options.columns]
    if not fields or len({field.name for field in fields}) < len(fields):
        raise BadOption(COLUMNS, "at least one column must be named, and none twice.")
    return StructType(fields)


def check_readable(schema: StructType, options: EventHubsOptions) -> None:
    """A schema that the query brought may leave columns out and order them. Raises WrongColumns."""
    types: dict[str, DataType] = {
        field.name: field.dataType for field in (*with_bodies(SCHEMA, options.bodies).fields, *_ON_REQUEST)
    }
    for each in schema.fields:
        expected = types.get(each.name)
        if expected is None:
            raise WrongColumns(f"'{each.name}' is not a column of 'eventhubs'. There are {', '.join(types)}.")
        if each.dataType.simpleString() != expected.simpleString():
            raise WrongColumns(
                f"Column '{each.name}' of 'eventhubs' is {expected.simpleString()}, "
                f"not {each.dataType.simpleString()}."
            )
