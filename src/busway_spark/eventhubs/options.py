"""Options of `format("eventhubs")`, under the names of azure-event-hubs-spark, with or without "eventhubs." before
them and in any case. A wrong one is refused when the source is made, by its name; values that may hold a key are
never repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway_spark.authority import authority_text
from busway_spark.bodies.body_options import AS_THEY_ARE, BodyOptions, WrongBodyOption, read_body_options
from busway_spark.bodies.body_options import NAMES as BODY_NAMES
from busway_spark.bus import Bus
from busway_spark.catalogue_tables import MISSING, KeyInTable, of_definition
from busway_spark.connection_texts import over_websocket, parsed
from busway_spark.durations import seconds_of
from busway_spark.eventhubs.ported_options import PORTED, REFUSED, is_switched_off
from busway_spark.eventhubs.positions import END, START, Position
from busway_spark.named_connections import CONNECTION, find_connection
from busway_spark.patience import OPERATION_S
from busway_spark.write_names import BATCH_MAX, WRITE_ID_CHARACTERS_MAX, GivenName

PREFIX: Final = "eventhubs."
AUTO: Final = "auto"
BULK: Final = "bulk"
AMQP: Final = "amqp"
#: AMQP too, by another way.
WEBSOCKET: Final = "websocket"
_TRANSPORTS: Final = (AUTO, BULK, AMQP, WEBSOCKET)

CONNECTION_STRING: Final = "connectionString"
NAME: Final = "name"
CONSUMER_GROUP: Final = "consumerGroup"
STARTING_POSITION: Final = "startingPosition"
STARTING_POSITIONS: Final = "startingPositions"
ENDING_POSITION: Final = "endingPosition"
ENDING_POSITIONS: Final = "endingPositions"
MAX_EVENTS: Final = "maxEventsPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
MIN_PARTITIONS: Final = "minPartitions"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
RECEIVER_TIMEOUT: Final = "receiverTimeout"
FILTER_PUSHDOWN: Final = "filterPushdown"
TRANSPORT: Final = "transport"
CA_FILE: Final = "caFile"
OPERATION_TIMEOUT: Final = "operationTimeout"
WRITE_ID: Final = "writeId"
BATCH_ID: Final = "batchId"
IDLE_WAIT: Final = "idleWait"
COLUMNS: Final = "columns"
INCLUDE_BODY: Final = "includeBody"

KNOWN: Final = (
    CONNECTION_STRING, CONNECTION, NAME, CONSUMER_GROUP, STARTING_POSITION, STARTING_POSITIONS, ENDING_POSITION,
    ENDING_POSITIONS, MAX_EVENTS, MAX_BYTES, MIN_PARTITIONS, FAIL_ON_DATA_LOSS, RECEIVER_TIMEOUT, FILTER_PUSHDOWN,
    TRANSPORT, CA_FILE, OPERATION_TIMEOUT, IDLE_WAIT, WRITE_ID, BATCH_ID, COLUMNS, INCLUDE_BODY, *BODY_NAMES,
)  # fmt: skip
#: What Spark itself hands to every source and sink.
_OF_SPARK: Final = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "serialization.format", "truncate", "numrows"}
)
_BY_LOWER: Final = {name.lower(): name for name in (*KNOWN, *PORTED)}
_REFUSED_BY_LOWER: Final = {name.lower(): name for name in REFUSED}

#: Events in one micro-batch for each partition of the hub, when no option says so.
EVENTS_PER_PARTITION: Final = 100_000
_RECEIVER_TIMEOUT_S: Final = 60.0
IDLE_WAIT_S: Final = 1.0
#: `stop()` of a query waits for it, and so do the other sources of the query.
_IDLE_WAIT_MAX_S: Final = 10.0
_PARTITIONS_MAX: Final = 100_000


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
    starting: Position | None = None
    starting_by_partition: dict[str, Position] = field(default_factory=dict)
    ending: Position = END
    ending_by_partition: dict[str, Position] = field(default_factory=dict)
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

    def start_of(self, partition: str, default: Position = START) -> Position:
        return self.starting_by_partition.get(partition, default if self.starting is None else self.starting)

    def end_of(self, partition: str) -> Position:
        return self.ending_by_partition.get(partition, self.ending)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> EventHubsOptions:
        """Raises BadOption."""
        options = _named(given)
        transport = _choice(options, TRANSPORT, _TRANSPORTS, AUTO)
        bus = _bus(options, by_websocket=transport == WEBSOCKET)
        hub = options.get(NAME) or bus.target.entity_path
        if not hub:
            raise BadOption(
                NAME, "neither this option nor EntityPath in the connection string names the hub."
            )
        if MAX_EVENTS in options and MAX_BYTES in options:
            raise BadOption(MAX_BYTES, f"only one of {MAX_EVENTS} and {MAX_BYTES} can be given.")
        return cls(
            bus,
            hub,
            options.get(CONSUMER_GROUP, "$Default"),
            _position(options, STARTING_POSITION),
            _positions(options, STARTING_POSITIONS, hub),
            _position(options, ENDING_POSITION) or END,
            _positions(options, ENDING_POSITIONS, hub),
            _whole(options, MAX_EVENTS, 1 << 40),
            _whole(options, MAX_BYTES, 1 << 50),
            _whole(options, MIN_PARTITIONS, _PARTITIONS_MAX) or 0,
            _flag(options, FAIL_ON_DATA_LOSS, True),
            _seconds(options, RECEIVER_TIMEOUT, _RECEIVER_TIMEOUT_S),
            _flag(options, FILTER_PUSHDOWN, True),
            AMQP if transport == WEBSOCKET else transport,
            _bodies(options),
            _seconds(options, OPERATION_TIMEOUT, OPERATION_S),
            _idle_wait(options),
            _write_id(options),
            _batch_id(options),
            _names(options, COLUMNS),
            _flag(options, INCLUDE_BODY, True),
        )


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """By their proper names. A prefixed name that is not known is always wrong, another one unless it is Spark's."""
    options: dict[str, str] = {}
    try:
        defined = of_definition(given, _BY_LOWER, PREFIX)
    except KeyInTable as error:
        raise BadOption(CONNECTION_STRING, str(error)) from None
    for key, value in (given if defined is None else defined).items():
        lower = key.lower()
        bare = lower.removeprefix(PREFIX)
        name = _BY_LOWER.get(bare)
        if name is None:
            if (bare == lower and lower in _OF_SPARK) or is_switched_off(bare, value):
                continue
            raise _unknown(key)
        if name in options and options[name] != value:
            raise BadOption(name, "given twice, with two values.")
        _check_ported(name, value)
        options[name] = value
    return options


def _unknown(key: str) -> BadOption:
    refused = _REFUSED_BY_LOWER.get(key.lower().removeprefix(PREFIX))
    if refused is not None:
        return BadOption(refused, REFUSED[refused])
    name = key[len(PREFIX) :] if key.lower().startswith(PREFIX) else key
    return BadOption(name[:80], f"not known; known are {', '.join(sorted(KNOWN))}.")


def _check_ported(name: str, value: str) -> None:
    entry = PORTED.get(name)
    expected = None if entry is None else entry[0](value.strip())
    if expected is not None:
        raise BadOption(name, f"{expected} is expected, not {value[:40]!r}.")


def _bus(options: Mapping[str, str], *, by_websocket: bool) -> Bus:
    text, ca_file = _connection(options)
    try:
        authority = authority_text(options.get(CA_FILE, ca_file))
    except ValueError as error:
        raise BadOption(CA_FILE, str(error)) from None
    try:
        parsed(text)
    except ValueError as error:
        raise BadOption(CONNECTION_STRING, str(error)) from None
    return Bus(over_websocket(text) if by_websocket else text, authority)


def _connection(options: Mapping[str, str]) -> tuple[str, str | None]:
    """The connection string, and a file with an authority where a named connection has one."""
    text, name = options.get(CONNECTION_STRING), options.get(CONNECTION)
    if name is None:
        if not text:
            raise BadOption(CONNECTION_STRING, MISSING)
        return text, None
    if text:
        raise BadOption(CONNECTION, f"only one of {CONNECTION} and {CONNECTION_STRING} can be given.")
    try:
        found = find_connection(name)
    except ValueError as error:
        raise BadOption(CONNECTION, str(error)) from None
    return found.connection_string, found.ca_file


def _bodies(options: Mapping[str, str]) -> BodyOptions:
    try:
        return read_body_options(options.get)
    except WrongBodyOption as error:
        raise BadOption(error.option, error.sentence) from None


def _position(options: Mapping[str, str], name: str) -> Position | None:
    text = options.get(name)
    if text is None:
        return None
    return _read_position(name, _json(name, text))


def _read_position(name: str, value: object) -> Position:
    try:
        return Position.of_json(value)
    except ValueError as error:
        raise BadOption(name, str(error)) from error


def _positions(options: Mapping[str, str], name: str, hub: str) -> dict[str, Position]:
    text = options.get(name)
    if text is None:
        return {}
    entries = _json(name, text)
    if not isinstance(entries, dict):
        raise BadOption(
            name, 'a JSON object is expected: {"{\\"ehName\\":…,\\"partitionId\\":…}": position}.'
        )
    return {_partition(name, key, hub): _read_position(name, value) for key, value in entries.items()}


def _partition(name: str, key: str, hub: str) -> str:
    """`{"ehName": …, "partitionId": …}` as a text, or the partition's id alone."""
    if key.isascii() and key.isdigit():
        return key
    found = _json(name, key)
    partition = found.get("partitionId") if isinstance(found, dict) else None
    of_hub = found.get("ehName", hub) if isinstance(found, dict) else None
    if of_hub != hub or not str(partition).isdigit():
        raise BadOption(name, f"the key {key[:120]!r} names no partition of the hub '{hub}'.")
    return str(partition)


def _json(name: str, text: str) -> object:
    try:
        loaded: object = json.loads(text)
    except ValueError:
        raise BadOption(name, "not JSON.") from None
    return loaded


def _names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = options.get(name)
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _whole(options: Mapping[str, str], name: str, most: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and 1 <= int(text) <= most):
        raise BadOption(name, f"a whole number from 1 to {most} is expected, not {text[:40]!r}.")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    return _choice(options, name, ("true", "false"), "") == "true"


def _choice(options: Mapping[str, str], name: str, values: tuple[str, ...], default: str) -> str:
    text = options.get(name, default).lower()
    if text not in values:
        raise BadOption(name, f"one of {', '.join(values)} is expected, not {text[:40]!r}.")
    return text


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    seconds = seconds_of(text.strip())
    if seconds is None or seconds <= 0:
        raise BadOption(name, f"a duration like PT60S is expected, not {text[:40]!r}.")
    return seconds


def _idle_wait(options: Mapping[str, str]) -> float:
    text = options.get(IDLE_WAIT)
    seconds = IDLE_WAIT_S if text is None else seconds_of(text.strip())
    if seconds is None or seconds > _IDLE_WAIT_MAX_S:
        raise BadOption(
            IDLE_WAIT,
            f"a duration like PT1S is expected, at most {_IDLE_WAIT_MAX_S:g} seconds, not {str(text)[:40]!r}.",
        )
    return seconds


def _write_id(options: Mapping[str, str]) -> str | None:
    text = (options.get(WRITE_ID) or "").strip()
    if len(text) > WRITE_ID_CHARACTERS_MAX:
        raise BadOption(
            WRITE_ID, f"at most {WRITE_ID_CHARACTERS_MAX} characters are expected, not {len(text)}."
        )
    return text or None


def _batch_id(options: Mapping[str, str]) -> int | None:
    text = (options.get(BATCH_ID) or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= BATCH_MAX):
        raise BadOption(BATCH_ID, f"the number of a batch is expected, not {text[:40]!r}.")
    return int(text)
