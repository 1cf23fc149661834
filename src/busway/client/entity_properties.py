"""The properties of entities as clients name them: one table for ATOM bodies and command-line options."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from busway import atom_names

#: What a property can hold once read. Durations stay ISO 8601 text: the server is the one that judges them.
Value = str | int | bool | None


class OptionKind(Enum):
    DURATION = "DURATION"
    INTEGER = "NUMBER"
    BOOLEAN = "BOOLEAN"
    TEXT = "TEXT"


@dataclass(frozen=True)
class EntityOption:
    element: str  # the name in ATOM bodies
    kind: OptionKind
    option: str  # without the leading dashes
    meaning: str
    changeable: bool = True

    @property
    def parameter(self) -> str:
        """The Python name of the option."""
        return self.option.replace("-", "_")

    def read(self, text: str) -> Value:
        """The value of an element's text. Text that does not fit its kind is returned as it is."""
        if self.kind is OptionKind.BOOLEAN and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if self.kind is OptionKind.INTEGER and text.lstrip("-").isdigit():
            return int(text)
        return text

    def write(self, value: Value) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)


_ALL: Final = (
    EntityOption(
        "LockDuration",
        OptionKind.DURATION,
        "lock-duration",
        "How long a receiver's claim lasts, PT5S to PT5M.",
    ),
    EntityOption(
        "MaxSizeInMegabytes", OptionKind.INTEGER, "max-size-in-megabytes", "1024, 2048, 3072, 4096 or 5120."
    ),
    EntityOption(
        "RequiresDuplicateDetection",
        OptionKind.BOOLEAN,
        "requires-duplicate-detection",
        "Drop messages whose id was seen before; only at creation.",
        changeable=False,
    ),
    EntityOption(
        "RequiresSession",
        OptionKind.BOOLEAN,
        "requires-session",
        "Group messages by session id; only at creation.",
        changeable=False,
    ),
    EntityOption(
        "DefaultMessageTimeToLive",
        OptionKind.DURATION,
        "default-message-time-to-live",
        "How long messages live at most, for example P14D.",
    ),
    EntityOption(
        "DeadLetteringOnMessageExpiration",
        OptionKind.BOOLEAN,
        "dead-lettering-on-message-expiration",
        "Keep expired messages in the dead-letter queue.",
    ),
    EntityOption(
        "DuplicateDetectionHistoryTimeWindow",
        OptionKind.DURATION,
        "duplicate-detection-history-time-window",
        "How long message ids are remembered, PT20S to P7D.",
    ),
    EntityOption(
        "MaxDeliveryCount",
        OptionKind.INTEGER,
        "max-delivery-count",
        "Failed deliveries before a message is dead-lettered.",
    ),
    EntityOption(
        "EnableBatchedOperations",
        OptionKind.BOOLEAN,
        "enable-batched-operations",
        "Kept for compatibility; writes are always batched.",
    ),
    EntityOption(
        "IsAnonymousAccessible",
        OptionKind.BOOLEAN,
        "is-anonymous-accessible",
        "Kept for compatibility; has no effect.",
    ),
    EntityOption(
        "Status",
        OptionKind.TEXT,
        "status",
        "Active, Disabled, SendDisabled (queues, topics) or ReceiveDisabled (queues, subscriptions).",
    ),
    EntityOption(
        "SupportOrdering", OptionKind.BOOLEAN, "support-ordering", "Kept for compatibility; has no effect."
    ),
    EntityOption(
        "AutoDeleteOnIdle",
        OptionKind.DURATION,
        "auto-delete-on-idle",
        "Delete the entity when unused so long, at least PT5M.",
    ),
    EntityOption(
        "EnablePartitioning",
        OptionKind.BOOLEAN,
        "partitioned",
        "Spread the entity over all stores, in several fragments; cannot be changed later.",
        changeable=False,
    ),
    EntityOption(
        "EnableExpress",
        OptionKind.BOOLEAN,
        "enable-express",
        "Kept for compatibility; messages are always durable.",
    ),
    EntityOption(
        "ForwardTo",
        OptionKind.TEXT,
        "forward-to",
        "Move every message on to this queue or topic; '' ends it.",
    ),
    EntityOption("UserMetadata", OptionKind.TEXT, "user-metadata", "Free text, up to 1024 characters."),
    EntityOption(
        "ForwardDeadLetteredMessagesTo",
        OptionKind.TEXT,
        "forward-dead-lettered-messages-to",
        "Move dead-lettered messages on to this queue or topic; '' ends it.",
    ),
    EntityOption(
        "MaxMessageSizeInKilobytes",
        OptionKind.INTEGER,
        "max-message-size-in-kilobytes",
        "The largest message accepted; 256 in this version.",
    ),
    EntityOption(
        "DeadLetteringOnFilterEvaluationExceptions",
        OptionKind.BOOLEAN,
        "dead-lettering-on-filter-evaluation-exceptions",
        "Keep messages whose filter or action fails in the dead-letter queue.",
    ),
    EntityOption(
        "CapturesHistory",
        OptionKind.BOOLEAN,
        "captures-history",
        "The topic is captured through it: new rules note how far it has come.",
    ),
    EntityOption(
        "FilteringMessagesBeforePublishing",
        OptionKind.BOOLEAN,
        "filtering-messages-before-publishing",
        "Refuse messages that no subscription selects.",
    ),
    EntityOption(
        "EnableSubscriptionPartitioning",
        OptionKind.BOOLEAN,
        "enable-subscription-partitioning",
        "Kept for compatibility; has no effect.",
    ),
)


def _among(elements: tuple[str, ...]) -> tuple[EntityOption, ...]:
    """Those that a description of these elements has, in the order of the table."""
    return tuple(known for known in _ALL if known.element in elements)


QUEUE_PROPERTIES: Final = _among(atom_names.QUEUE_ELEMENTS)
TOPIC_PROPERTIES: Final = _among(atom_names.TOPIC_ELEMENTS)
SUBSCRIPTION_PROPERTIES: Final = _among(atom_names.SUBSCRIPTION_ELEMENTS)

#: What the server counts and dates; never sent back by an update.
READ_ONLY: Final = (
    "SubscriptionCount",
    "SqlFilterCount",
    "CorrelationFilterCount",
    "IsClientAffine",
    "SizeInBytes",
    "MessageCount",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "EntityAvailabilityStatus",
)
