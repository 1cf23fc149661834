"""The columns of `format("servicebus")`: which there are, of which type, and which a query wants."""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from busway_spark.bodies.body_columns import BODY, CORRUPT, NUMBER
from busway_spark.servicebus import rare_columns
from busway_spark.servicebus.options import JSON, ServiceBusOptions, WrongOption

_TEXT: Final = StringType()
_TYPES: Final[dict[str, DataType]] = {
    "body": BinaryType(),
    "messageId": _TEXT,
    "sessionId": _TEXT,
    "partitionKey": _TEXT,
    "subject": _TEXT,
    "contentType": _TEXT,
    "correlationId": _TEXT,
    "to": _TEXT,
    "replyTo": _TEXT,
    "replyToSessionId": _TEXT,
    "sequenceNumber": LongType(),
    "enqueuedSequenceNumber": LongType(),
    "enqueuedTime": TimestampType(),
    "expiresAt": TimestampType(),
    "scheduledEnqueueTime": TimestampType(),
    "deliveryCount": IntegerType(),
    "state": _TEXT,
    "fragment": IntegerType(),
    "deadLetterReason": _TEXT,
    "deadLetterErrorDescription": _TEXT,
    "deadLetterSource": _TEXT,
    "properties": MapType(_TEXT, VariantType()),
    "entity": _TEXT,
}
#: Only where option `columns` names them: the AMQP types of the properties whose JSON does not tell them, and fields
#: that few senders set.
_ON_REQUEST: Final[dict[str, DataType]] = {"propertyTypes": _TEXT, **rare_columns.TYPES}
#: What a sender may set as text.
TEXT_COLUMNS: Final = (
    "messageId", "sessionId", "partitionKey", "subject", "contentType", "correlationId", "to", "replyTo",
    "replyToSessionId",
)  # fmt: skip
_WRITABLE: Final = frozenset(
    {
        "body",
        "properties",
        "propertyTypes",
        "entity",
        "scheduledEnqueueTime",
        *rare_columns.TYPES,
        *TEXT_COLUMNS,
    }
)


class WrongColumns(ValueError):
    """The rows do not have the columns they need; the sentence names the first that is wrong."""


def readable_schema(options: ServiceBusOptions) -> StructType:
    """What a query gets: all columns, or those of option `columns` in their order. Raises WrongOption."""
    types = _types(options)
    names = tuple(types) if options.columns is None else options.columns
    types |= _ON_REQUEST
    by_lower = {name.lower(): name for name in types}
    fields: list[StructField] = []
    for name in names:
        proper = by_lower.get(name.lower())
        if proper is None:
            raise WrongOption("columns", f"'{name[:60]}' is not a column. There are {', '.join(types)}.")
        fields.append(StructField(proper, types[proper]))
    if not fields or len({each.name for each in fields}) < len(fields):
        raise WrongOption("columns", "must name at least one column, and none twice.")
    return StructType(fields)


def check_readable(schema: StructType, options: ServiceBusOptions) -> None:
    """A schema that the query brought may leave columns out and order them. Raises WrongColumns."""
    types = {**_types(options), **_ON_REQUEST}
    for each in schema.fields:
        expected = types.get(each.name)
        if expected is None:
            raise WrongColumns(
                f"'{each.name}' is not a column of 'servicebus'. There are {', '.join(types)}."
            )
        if each.dataType != expected:
            raise WrongColumns(
                f"Column '{each.name}' of 'servicebus' is {expected.simpleString()}, "
                f"not {each.dataType.simpleString()}."
            )


def check_writable(schema: StructType, options: ServiceBusOptions) -> None:
    """Columns that only a server sets may be there, they are not sent; unknown ones may not. Raises WrongColumns."""
    types = {each.name: each.dataType for each in schema.fields}
    for name in types:
        if name not in _WRITABLE and name not in _TYPES:
            raise WrongColumns(
                f"'{name}' is not a column that can be written to 'servicebus'. "
                f"There are {', '.join(sorted(_WRITABLE))}."
            )
    if "body" not in types:
        raise WrongColumns("Writing to 'servicebus' needs a column 'body', binary or string.")
    if options.address is None and "entity" not in types:
        raise WrongOption("queue", "is missing; say 'queue' or 'topic', or give each row a column 'entity'.")
    for name, kind in types.items():
        if name in _WRITABLE:
            _check_type(name, kind)


def _check_type(name: str, kind: DataType) -> None:
    allowed: tuple[type[DataType], ...] = (StringType,)
    if name == "body":
        allowed = (BinaryType, StringType)
    elif name == "scheduledEnqueueTime":
        allowed = (TimestampType,)
    elif name == "timeToLive":
        allowed = (DayTimeIntervalType, LongType, IntegerType)
    elif name in rare_columns.FIELDS:
        allowed = (type(rare_columns.FIELDS[name][0]),)
        allowed += (IntegerType,) if name == "groupSequence" else ()
    elif name == "properties":
        allowed = (MapType, StringType)
    if not isinstance(kind, allowed):
        words = " or ".join(each.typeName() for each in allowed)
        raise WrongColumns(f"Column '{name}' must be {words} to be written, not {kind.simpleString()}.")
    if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
        raise WrongColumns("Column 'properties' must have keys of type string.")


def binary_schema(schema: StructType) -> StructType:
    """What a reader must give so that bodies can be decoded: they are binary and have their numbers beside them."""
    fields = {each.name: each for each in schema.fields if each.name not in (BODY, CORRUPT)}
    for name in (BODY, NUMBER):
        fields[name] = StructField(name, _TYPES[name])
    return StructType(list(fields.values()))


def _types(options: ServiceBusOptions) -> dict[str, DataType]:
    """Of the columns that a query gets unless it names others, as its options want them."""
    types = dict(_TYPES)
    if options.properties == JSON:
        types["properties"] = _TEXT
    if not options.bodies.is_binary:
        types[BODY] = options.bodies.body_type()
    if options.bodies.keeps_corrupt:
        types[CORRUPT] = BinaryType()
    return types
