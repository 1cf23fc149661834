"""Options of `format("eventhubs")`, and its columns: which there are, and which of them a query wants.

Options have the names of azure-event-hubs-spark, with or without "eventhubs." before them and in any case. A wrong
one is refused when the source is made, by its name; values that may hold a key are never repeated. Some options of
azure-event-hubs-spark steer what there is none of here: threads, receivers, pools (`PORTED`). Jobs that bring them
run unchanged; a value that could not have worked there is refused here too.

Spark does not tell a source which columns a query needs, so the options `columns` and `includeBody` do. What
nobody wants is not made, and where a server offers that it is not fetched: without bodies, or with numbers and
times alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from busway_spark.bodies.body_options import AS_THEY_ARE, BodyOptions
from busway_spark.bodies.body_options import NAMES as BODY_NAMES
from busway_spark.eventhubs.offsets import END, START, GivenPosition
from busway_spark.given_options import (
    AMQP,
    BATCH_ID,
    CA_FILE,
    COLUMNS,
    CONNECTION_STRING,
    FAIL_ON_DATA_LOSS,
    INCLUDE_BODY,
    OPERATION_TIMEOUT,
    TRANSPORT,
    WEBSOCKET,
    WRITE_ID,
    GivenOptions,
    WrongColumns,
    seconds_of,
)
from busway_spark.wire.bus import CONNECTION, ENTRA_REFUSED, Bus
from busway_spark.wire.patience import OPERATION_S
from busway_spark.writing.write_names import GivenName

#: A class of the JVM.
_CLASS: Final = re.compile(r"[\w$]+(\.[\w$]+)*")
_STRATEGIES: Final = ("hash", "balancedhash")

Check = Callable[[str], str | None]
#: They would have to be used, and cannot be.
REFUSED: Final[dict[str, str]] = {
    name: ENTRA_REFUSED for name in ("useAadAuth", "aadAuthCallback", "aadAuthCallbackParams")
}
PREFIX: Final = "eventhubs."
AUTO: Final = "auto"
BULK: Final = "bulk"
#: The last is AMQP too, by another way.
_TRANSPORTS: Final = (AUTO, BULK, AMQP, WEBSOCKET)
NAME: Final = "name"
CONSUMER_GROUP: Final = "consumerGroup"
STARTING_POSITION: Final = "startingPosition"
STARTING_POSITIONS: Final = "startingPositions"
ENDING_POSITION: Final = "endingPosition"
ENDING_POSITIONS: Final = "endingPositions"
MAX_EVENTS: Final = "maxEventsPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
MIN_PARTITIONS: Final = "minPartitions"
RECEIVER_TIMEOUT: Final = "receiverTimeout"
FILTER_PUSHDOWN: Final = "filterPushdown"
IDLE_WAIT: Final = "idleWait"
KNOWN: Final = (
    CONNECTION_STRING, CONNECTION, NAME, CONSUMER_GROUP, STARTING_POSITION, STARTING_POSITIONS, ENDING_POSITION,
    ENDING_POSITIONS, MAX_EVENTS, MAX_BYTES, MIN_PARTITIONS, FAIL_ON_DATA_LOSS, RECEIVER_TIMEOUT, FILTER_PUSHDOWN,
    TRANSPORT, CA_FILE, OPERATION_TIMEOUT, IDLE_WAIT, WRITE_ID, BATCH_ID, COLUMNS, INCLUDE_BODY, *BODY_NAMES,
)  # fmt: skip
#: Events in one micro-batch for each partition of the hub, when no option says so.
EVENTS_PER_PARTITION: Final = 100_000
_RECEIVER_TIMEOUT_S: Final = 60.0
IDLE_WAIT_S: Final = 1.0
#: `stop()` of a query waits for it, and so do the other sources of the query.
_IDLE_WAIT_MAX_S: Final = 10.0
_PARTITIONS_MAX: Final = 100_000


def _is_duration(text: str) -> str | None:
    return "a duration like PT60S" if seconds_of(text) is None else None


def _is_flag(text: str) -> str | None:
    return None if text.lower() in ("true", "false") else "true or false"


def _is_class(text: str) -> str | None:
    return None if _CLASS.fullmatch(text) and len(text) <= 500 else "the name of a class"


def _is_strategy(text: str) -> str | None:
    return None if text.lower() in _STRATEGIES else "Hash or BalancedHash"


def _is_object(text: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return None if isinstance(found, dict) else "a JSON object"


def _from_to(least: int, most: int) -> Check:
    def check(text: str) -> str | None:
        is_whole = text.isascii() and text.isdigit() and len(text) <= 9
        return None if is_whole and least <= int(text) <= most else f"a whole number from {least} to {most}"

    return check


#: By name: the check, which tells what is expected instead, and what the option comes to here.
PORTED: Final[dict[str, tuple[Check, str]]] = {
    "prefetchCount": (_from_to(1, 4_000), "the bulk route fetches megabytes, AMQP grants its own credit"),
    "threadPoolSize": (_from_to(1, 100_000), "there is no pool: a task reads in its own process"),
    "useExclusiveReceiver": (_is_flag, "readers never push each other off, so queries may share a group"),
    "maxSilentTime": (_is_duration, "receiverTimeout tells when a silent partition fails a task"),
    "dynamicPartitionDiscovery": (_is_flag, "always: each micro-batch asks for the partitions"),
    "slowPartitionAdjustment": (_is_flag, "tasks are independent; minPartitions splits what is large"),
    "maxAcceptableBatchReceiveTime": (_is_duration, "belongs to slowPartitionAdjustment"),
    "throttlingStatusPlugin": (_is_class, "a StreamingQueryListener of Spark tells progress and lag"),
    "metricPlugin": (_is_class, "a StreamingQueryListener of Spark tells progress and lag"),
    "partitionPreferredLocationStrategy": (_is_strategy, "any executor may read any partition"),
    "maxRatePerPartition": (_from_to(1, 1 << 29), "of its DStreams; maxEventsPerTrigger limits streams"),
    "maxRatesPerPartition": (_is_object, "of its DStreams; maxEventsPerTrigger limits streams"),
    "useSimulatedClient": (_is_flag, "of its own tests"),
}


def is_switched_off(lower_name: str, value: str) -> bool:
    """A job may say that it does not want what is not there."""
    return lower_name == "useaadauth" and value.strip().lower() == "false"


class BadOption(ValueError):
    """The text begins with the option's name."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"{PREFIX}{name}: {sentence}")


@dataclass(frozen=True)
class EventHubsOptions:
    bus: Bus
    hub: str
    consumer_group: str = "$Default"
    #: None where the default of batch or stream holds.
    starting: GivenPosition | None = None
    starting_by_partition: dict[str, GivenPosition] = field(default_factory=dict)
    ending: GivenPosition = END
    ending_by_partition: dict[str, GivenPosition] = field(default_factory=dict)
    max_events: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 0
    fails_on_data_loss: bool = True
    receiver_timeout_s: float = _RECEIVER_TIMEOUT_S
    pushes_filters: bool = True
    transport: str = AUTO
    bodies: BodyOptions = AS_THEY_ARE
    #: How long an operation is tried while the bus is away or busy.
    operation_s: float = OPERATION_S
    #: How long the server waits for news before it tells a stream that there are none.
    idle_wait_s: float = IDLE_WAIT_S
    #: What a write is known by; see `write_names`.
    write_id: str | None = None
    batch_id: int | None = None
    #: None: those of azure-event-hubs-spark.
    columns: tuple[str, ...] | None = None
    includes_body: bool = True

    @property
    def given_name(self) -> GivenName:
        return GivenName(f"the hub '{self.hub.lower()}'", self.write_id, self.batch_id)

    def start_of(self, partition: str, default: GivenPosition = START) -> GivenPosition:
        return self.starting_by_partition.get(partition, default if self.starting is None else self.starting)

    def end_of(self, partition: str) -> GivenPosition:
        return self.ending_by_partition.get(partition, self.ending)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> EventHubsOptions:
        """Raises BadOption."""
        options = _named(given)
        transport = options.choice(TRANSPORT, _TRANSPORTS) or AUTO
        bus = options.bus()
        hub = options.text(NAME) or bus.target.entity_path
        if not hub:
            raise BadOption(
                NAME, "neither this option nor EntityPath in the connection string names the hub."
            )
        if MAX_EVENTS in options.values and MAX_BYTES in options.values:
            raise BadOption(MAX_BYTES, f"only one of {MAX_EVENTS} and {MAX_BYTES} can be given.")
        return cls(
            bus,
            hub,
            consumer_group=options.text(CONSUMER_GROUP) or "$Default",
            starting=_position(options, STARTING_POSITION),
            starting_by_partition=_positions(options, STARTING_POSITIONS, hub),
            ending=_position(options, ENDING_POSITION) or END,
            ending_by_partition=_positions(options, ENDING_POSITIONS, hub),
            max_events=options.whole(MAX_EVENTS, most=1 << 40),
            max_bytes=options.whole(MAX_BYTES, most=1 << 50),
            min_partitions=options.whole(MIN_PARTITIONS, most=_PARTITIONS_MAX) or 0,
            fails_on_data_loss=options.flag(FAIL_ON_DATA_LOSS, True),
            receiver_timeout_s=options.duration(RECEIVER_TIMEOUT, _RECEIVER_TIMEOUT_S),
            pushes_filters=options.flag(FILTER_PUSHDOWN, True),
            transport=AMQP if transport == WEBSOCKET else transport,
            bodies=options.bodies(),
            operation_s=options.operation_s(),
            idle_wait_s=options.duration(IDLE_WAIT, IDLE_WAIT_S, _IDLE_WAIT_MAX_S),
            write_id=options.write_id(),
            batch_id=options.batch_id(),
            columns=options.names(COLUMNS),
            includes_body=options.flag(INCLUDE_BODY, True),
        )


def _named(given: Mapping[str, str]) -> GivenOptions:
    """Those of azure-event-hubs-spark that have nothing to do here are checked all the same."""
    wanted = {
        key: value
        for key, value in given.items()
        if not is_switched_off(key.lower().removeprefix(PREFIX), value)
    }
    options = GivenOptions(wanted, PREFIX, KNOWN, BadOption, taken=PORTED, refused=REFUSED)
    for name in PORTED.keys() & options.values.keys():
        expected = PORTED[name][0](options.values[name].strip())
        if expected is not None:
            raise BadOption(name, f"{expected} is expected, not {options.values[name][:40]!r}.")
    return options


def _position(options: GivenOptions, name: str) -> GivenPosition | None:
    return None if options.text(name) is None else _read_position(name, options.json(name))


def _read_position(name: str, value: object) -> GivenPosition:
    try:
        return GivenPosition.of_json(value)
    except ValueError as error:
        raise BadOption(name, str(error)) from error


def _positions(options: GivenOptions, name: str, hub: str) -> dict[str, GivenPosition]:
    if options.text(name) is None:
        return {}
    entries = options.json(name)
    if not isinstance(entries, dict):
        raise BadOption(
            name, 'a JSON object is expected: {"{\\"ehName\\":…,\\"partitionId\\":…}": position}.'
        )
    return {_partition(name, key, hub): _read_position(name, value) for key, value in entries.items()}


def _partition(name: str, key: str, hub: str) -> str:
    """`{"ehName": …, "partitionId": …}` as a text, or the partition's id alone."""
    if key.isascii() and key.isdigit():
        return key
    try:
        found = json.loads(key)
    except (ValueError, RecursionError):
        found = None
    partition = found.get("partitionId") if isinstance(found, dict) else None
    of_hub = found.get("ehName", hub) if isinstance(found, dict) else None
    if of_hub != hub or not str(partition).isdigit():
        raise BadOption(name, f"the key {key[:120]!r} names no partition of the hub '{hub}'.")
    return str(partition)


#: In the metadata of a column of maps, which selections keep: each value is the JSON text of what was sent. So a sink
#: can tell a frame that was read from texts that somebody wrote.
JSON_VALUES: Final = "busway.jsonValues"
#: Likewise: what stands there is where the row came from, not where it goes.
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
