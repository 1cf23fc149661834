"""Options of `format("servicebus")`: read, checked, and turned into one value that travels to executors.

Names are case-insensitive, as everywhere in Spark; `servicebus.` before a name is allowed. An option that is not
known is refused, so that a misspelt one does not silently do nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway.client.connection_string import ConnectionString
from busway_spark.authority import authority_text
from busway_spark.bodies.body_options import AS_THEY_ARE, BodyOptions, WrongBodyOption, read_body_options
from busway_spark.bodies.body_options import NAMES as BODY_NAMES
from busway_spark.bus import Bus
from busway_spark.catalogue_tables import MISSING, KeyInTable, of_definition
from busway_spark.connection_texts import over_websocket, parsed
from busway_spark.durations import seconds_of
from busway_spark.named_connections import CONNECTION, find_connection
from busway_spark.patience import OPERATION_S
from busway_spark.write_names import BATCH_MAX, WRITE_ID_CHARACTERS_MAX, GivenName

BROWSE: Final = "browse"
CLAIM: Final = "claim"
PEEK_LOCK: Final = "peekLock"
RECEIVE_AND_DELETE: Final = "receiveAndDelete"
MODES: Final = (BROWSE, CLAIM, PEEK_LOCK, RECEIVE_AND_DELETE)

#: How a stream claims: by operations of Busway, or by those that every Service Bus has; `auto` asks the server.
AUTO: Final = "auto"
BULK: Final = "bulk"
STOCK: Final = "stock"

#: How AMQP travels.
AMQP: Final = "amqp"
WEBSOCKET: Final = "websocket"

VARIANT: Final = "variant"
JSON: Final = "json"

NUMBER_MAX: Final = (1 << 63) - 1
_SUB_QUEUES: Final = {
    "none": "",
    "deadletter": "/$DeadLetterQueue",
    "transferdeadletter": "/$Transfer/$DeadLetterQueue",
}
KNOWN: Final = (
    "connectionString", CONNECTION, "caFile", "transport", "queue", "topic", "subscription", "entity", "subQueue",
    "mode", "allowDestructive", "properties", "columns", "includeBody",
    "startingSequenceNumber", "endingSequenceNumber", "maxMessages", "maxWaitSeconds",
    "maxMessagesPerTrigger", "messagesPerPartition", "failOnDataLoss", "adoptClaims", "claimOperations", "writeId",
    "batchId", "operationTimeout",
    *BODY_NAMES,
)  # fmt: skip
_BY_LOWER: Final = {name.lower(): name for name in KNOWN}
#: Spark's own, which reach a source beside its options.
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "querytimeout", "queryname", "outputmode"})


class WrongOption(ValueError):
    """An option has a value that cannot be used; the sentence begins with its name and never holds a secret."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"Option '{name}' of format 'servicebus': {sentence}")
        self.option = name


@dataclass(frozen=True)
class ServiceBusOptions:
    connection_text: str = field(repr=False)
    #: PEM text.
    ca_file: str | None = field(default=None, repr=False)
    #: What is read from or written to, with its sub-queue; None only where each row names its target.
    address: str | None = None
    #: None: what is usual for the kind of query.
    mode: str | None = None
    allow_destructive: bool = False
    properties: str = VARIANT
    #: None: all.
    columns: tuple[str, ...] | None = None
    include_body: bool = True
    starting_number: int = 0
    ending_number: int = NUMBER_MAX
    #: Of a reading that deletes; None: until nothing comes.
    messages_max: int | None = None
    wait_s: float = 0.5
    #: None: what suits the operations by which a stream claims.
    messages_per_trigger_max: int | None = None
    messages_per_partition: int | None = None
    fail_on_data_loss: bool = True
    adopts_claims: bool = False
    claim_operations: str = AUTO
    #: What a write is known by; see `write_names`.
    write_id: str | None = None
    batch_id: int | None = None
    bodies: BodyOptions = AS_THEY_ARE
    #: How long an operation is tried while the bus is away or busy.
    operation_s: float = OPERATION_S

    @property
    def bus(self) -> Bus:
        return Bus(self.connection_text, self.ca_file)

    @property
    def given_name(self) -> GivenName:
        target = "entities that rows name" if self.address is None else f"'{self.address.lower()}'"
        return GivenName(target, self.write_id, self.batch_id)

    @property
    def target(self) -> ConnectionString:
        return ConnectionString.parse(self.connection_text)

    def source_address(self) -> str:
        """Where to read from. Raises WrongOption when nothing says so."""
        if self.address is None:
            raise WrongOption("queue", "is missing; say 'queue', or 'topic' and 'subscription', or 'entity'.")
        return self.address


def read_options(given: Mapping[str, str]) -> ServiceBusOptions:
    """Raises WrongOption."""
    reader = _Given(given)
    text, ca_file = _connection(reader)
    path = _entity_path(text)
    if reader.choice("transport", (AMQP, WEBSOCKET)) == WEBSOCKET:
        text = over_websocket(text)
    starting = reader.integer("startingSequenceNumber", 0, 0)
    ending = reader.integer("endingSequenceNumber", NUMBER_MAX, 0)
    if ending < starting:
        raise WrongOption("endingSequenceNumber", f"{ending} is before startingSequenceNumber {starting}.")
    return ServiceBusOptions(
        connection_text=text,
        ca_file=_authority(reader.text("caFile") or ca_file),
        address=_address(reader, path),
        mode=reader.choice("mode", MODES),
        allow_destructive=reader.switch("allowDestructive", False),
        properties=reader.choice("properties", (VARIANT, JSON)) or VARIANT,
        columns=reader.names("columns"),
        include_body=reader.switch("includeBody", True),
        starting_number=starting,
        ending_number=ending,
        messages_max=reader.integer("maxMessages", 0, 1) or None,
        wait_s=reader.seconds("maxWaitSeconds", 0.5),
        messages_per_trigger_max=reader.integer("maxMessagesPerTrigger", 0, 1, 100_000) or None,
        messages_per_partition=reader.integer("messagesPerPartition", 0, 1, 1_000_000) or None,
        fail_on_data_loss=reader.switch("failOnDataLoss", True),
        adopts_claims=reader.switch("adoptClaims", False),
        claim_operations=reader.choice("claimOperations", (AUTO, BULK, STOCK)) or AUTO,
        write_id=_write_id(reader),
        batch_id=_batch_id(reader),
        bodies=_bodies(reader),
        operation_s=reader.duration("operationTimeout", OPERATION_S),
    )


def _authority(given: str | None) -> str | None:
    """As text: executors need not have the file."""
    try:
        return authority_text(given)
    except ValueError as error:
        raise WrongOption("caFile", str(error)) from None


class _Given:
    """The options as they were given, looked up by their proper names."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        try:
            defined = of_definition(given, _BY_LOWER, "servicebus.")
        except KeyInTable as error:
            raise WrongOption("connectionString", str(error)) from None
        for key, value in (given if defined is None else defined).items():
            lower = key.lower().removeprefix("servicebus.")
            name = _BY_LOWER.get(lower)
            if name is None and lower not in _OF_SPARK:
                raise WrongOption(key[:60], f"is not known. Known are {', '.join(KNOWN)}.")
            if name is not None:
                self._values[name] = value

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None or not value.strip() else value.strip()

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is None:
            return None
        found = {each.lower(): each for each in allowed}.get(value.lower())
        if found is None:
            raise WrongOption(name, f"must be one of {', '.join(allowed)}, not '{value[:60]}'.")
        return found

    def switch(self, name: str, default: bool) -> bool:
        value = self.choice(name, ("true", "false"))
        return default if value is None else value == "true"

    def integer(self, name: str, default: int, least: int, most: int = NUMBER_MAX) -> int:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            limits = f"at least {least}" if most == NUMBER_MAX else f"from {least} to {most}"
            raise WrongOption(name, f"must be a whole number, {limits}; it is '{value[:60]}'.")
        return number

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 300.0:
            raise WrongOption(name, f"must be seconds from 0 to 300; it is '{value[:60]}'.")
        return number

    def duration(self, name: str, default: float) -> float:
        value = self.text(name)
        number = default if value is None else seconds_of(value)
        if number is None or number <= 0:
            raise WrongOption(
                name, f"must be a duration like PT60S, or whole seconds; it is '{str(value)[:60]}'."
            )
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.text(name)
        if value is None:
            return None
        return tuple(part.strip() for part in value.split(",") if part.strip())


def _connection(reader: _Given) -> tuple[str, str | None]:
    """The connection string, and a file with an authority where a named connection has one."""
    text, name = reader.text("connectionString"), reader.text(CONNECTION)
    if name is None:
        if text is None:
            raise WrongOption("connectionString", f"is {MISSING}")
        return text, None
    if text is not None:
        raise WrongOption(CONNECTION, "cannot stand beside 'connectionString'.")
    try:
        found = find_connection(name)
    except ValueError as error:
        raise WrongOption(CONNECTION, str(error)) from None
    return found.connection_string, found.ca_file


def _entity_path(text: str) -> str | None:
    """The entity that the connection string names. Never quoted: it holds a key."""
    try:
        return parsed(text).entity_path
    except ValueError as error:
        raise WrongOption("connectionString", str(error)) from None


def _address(reader: _Given, path: str | None) -> str | None:
    sub_queue = _SUB_QUEUES[(reader.choice("subQueue", tuple(_SUB_QUEUES)) or "none").lower()]
    entity = _entity(reader) or path
    if entity is None:
        if sub_queue:
            raise WrongOption("subQueue", "needs 'queue', or 'topic' and 'subscription', beside it.")
        return None
    return entity.strip("/") + sub_queue


def _entity(reader: _Given) -> str | None:
    named = [name for name in ("queue", "topic", "entity") if reader.text(name) is not None]
    if len(named) > 1:
        raise WrongOption(named[1], f"cannot stand beside '{named[0]}'.")
    topic, subscription = reader.text("topic"), reader.text("subscription")
    if subscription is not None and topic is None:
        raise WrongOption("subscription", "needs 'topic' beside it.")
    if topic is not None and subscription is not None:
        return f"{topic.strip('/')}/Subscriptions/{subscription.strip('/')}"
    return topic or reader.text("queue") or reader.text("entity")


def _bodies(reader: _Given) -> BodyOptions:
    try:
        return read_body_options(reader.text)
    except WrongBodyOption as error:
        raise WrongOption(error.option, error.sentence) from None


def _write_id(reader: _Given) -> str | None:
    value = reader.text("writeId")
    if value is not None and len(value) > WRITE_ID_CHARACTERS_MAX:
        raise WrongOption(
            "writeId", f"has {len(value)} characters; at most {WRITE_ID_CHARACTERS_MAX} are possible."
        )
    return value


def _batch_id(reader: _Given) -> int | None:
    return None if reader.text("batchId") is None else reader.integer("batchId", 0, 0, BATCH_MAX)
