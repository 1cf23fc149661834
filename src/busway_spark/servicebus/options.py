"""Options of `format("servicebus")`: read, checked, and turned into one value that travels to executors.

Names are case-insensitive, as everywhere in Spark; `servicebus.` before a name is allowed. An option that is not
known is refused, so that a misspelt one does not silently do nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from busway.client.connection_string import ConnectionString
from busway_spark.bodies.body_options import AS_THEY_ARE, BodyOptions
from busway_spark.bodies.body_options import NAMES as BODY_NAMES
from busway_spark.given_options import (
    AMQP,
    BATCH_ID,
    CA_FILE,
    COLUMNS,
    CONNECTION_STRING,
    FAIL_ON_DATA_LOSS,
    INCLUDE_BODY,
    NUMBER_MAX,
    OPERATION_TIMEOUT,
    TRANSPORT,
    WEBSOCKET,
    WRITE_ID,
    GivenOptions,
)
from busway_spark.wire.bus import CONNECTION, Bus
from busway_spark.wire.patience import OPERATION_S
from busway_spark.writing.write_names import GivenName

PREFIX: Final = "servicebus."
BROWSE: Final = "browse"
CLAIM: Final = "claim"
PEEK_LOCK: Final = "peekLock"
RECEIVE_AND_DELETE: Final = "receiveAndDelete"
MODES: Final = (BROWSE, CLAIM, PEEK_LOCK, RECEIVE_AND_DELETE)

#: How a stream claims: by operations of Busway, or by those that every Service Bus has; `auto` asks the server.
AUTO: Final = "auto"
BULK: Final = "bulk"
STOCK: Final = "stock"

VARIANT: Final = "variant"
JSON: Final = "json"

_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 300.0
_SUB_QUEUES: Final = {
    "none": "",
    "deadLetter": "/$DeadLetterQueue",
    "transferDeadLetter": "/$Transfer/$DeadLetterQueue",
}
KNOWN: Final = (
    CONNECTION_STRING, CONNECTION, CA_FILE, TRANSPORT, "queue", "topic", "subscription", "entity", "subQueue",
    "mode", "allowDestructive", "properties", COLUMNS, INCLUDE_BODY,
    "startingSequenceNumber", "endingSequenceNumber", "maxMessages", "maxWaitSeconds",
    "maxMessagesPerTrigger", "messagesPerPartition", FAIL_ON_DATA_LOSS, "adoptClaims", "claimOperations", WRITE_ID,
    BATCH_ID, OPERATION_TIMEOUT,
    *BODY_NAMES,
)  # fmt: skip


class WrongOption(ValueError):
    """An option has a value that cannot be used; the sentence begins with its name and never holds a secret."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(f"Option '{name}' of format 'servicebus': {sentence}")
        self.option = name


@dataclass(frozen=True)
class ServiceBusOptions:
    bus: Bus
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
    wait_s: float = _WAIT_S
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
    def ca_file(self) -> str | None:
        """PEM text."""
        return self.bus.ca_file

    @property
    def given_name(self) -> GivenName:
        target = "entities that rows name" if self.address is None else f"'{self.address.lower()}'"
        return GivenName(target, self.write_id, self.batch_id)

    @property
    def target(self) -> ConnectionString:
        return self.bus.target

    def source_address(self) -> str:
        """Where to read from. Raises WrongOption when nothing says so."""
        if self.address is None:
            raise WrongOption("queue", "is missing; say 'queue', or 'topic' and 'subscription', or 'entity'.")
        return self.address


def read_options(given: Mapping[str, str]) -> ServiceBusOptions:
    """Raises WrongOption."""
    options = GivenOptions(given, PREFIX, KNOWN, WrongOption)
    options.choice(TRANSPORT, (AMQP, WEBSOCKET))
    bus = options.bus()
    starting = options.whole("startingSequenceNumber", 0) or 0
    ending = options.whole("endingSequenceNumber", 0)
    if ending is not None and ending < starting:
        raise WrongOption("endingSequenceNumber", f"{ending} is before startingSequenceNumber {starting}.")
    return ServiceBusOptions(
        bus,
        address=_address(options, bus.target.entity_path),
        mode=options.choice("mode", MODES),
        allow_destructive=options.flag("allowDestructive", False),
        properties=options.choice("properties", (VARIANT, JSON)) or VARIANT,
        columns=options.names(COLUMNS),
        include_body=options.flag(INCLUDE_BODY, True),
        starting_number=starting,
        ending_number=NUMBER_MAX if ending is None else ending,
        messages_max=options.whole("maxMessages"),
        wait_s=options.seconds("maxWaitSeconds", _WAIT_S, _WAIT_MAX_S),
        messages_per_trigger_max=options.whole("maxMessagesPerTrigger", most=100_000),
        messages_per_partition=options.whole("messagesPerPartition", most=1_000_000),
        fail_on_data_loss=options.flag(FAIL_ON_DATA_LOSS, True),
        adopts_claims=options.flag("adoptClaims", False),
        claim_operations=options.choice("claimOperations", (AUTO, BULK, STOCK)) or AUTO,
        write_id=options.write_id(),
        batch_id=options.batch_id(),
        bodies=options.bodies(),
        operation_s=options.operation_s(),
    )


def _address(options: GivenOptions, path: str | None) -> str | None:
    sub_queue = _SUB_QUEUES[options.choice("subQueue", _SUB_QUEUES) or "none"]
    entity = _entity(options) or path
    if entity is None:
        if sub_queue:
            raise WrongOption("subQueue", "needs 'queue', or 'topic' and 'subscription', beside it.")
        return None
    return entity.strip("/") + sub_queue


def _entity(options: GivenOptions) -> str | None:
    named = [name for name in ("queue", "topic", "entity") if options.text(name) is not None]
    if len(named) > 1:
        raise WrongOption(named[1], f"cannot stand beside '{named[0]}'.")
    topic, subscription = options.text("topic"), options.text("subscription")
    if subscription is not None and topic is None:
        raise WrongOption("subscription", "needs 'topic' beside it.")
    if topic is not None and subscription is not None:
        return f"{topic.strip('/')}/Subscriptions/{subscription.strip('/')}"
    return topic or options.text("queue") or options.text("entity")
