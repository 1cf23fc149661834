"""What an entity is: its properties, as users set and read them (E-20…E-64), and keys of authorization rules.

Descriptions are frozen; an update makes a new one. Durations are milliseconds, `FOREVER_MS` is the largest
duration a client can write. What values are allowed is said in `description_checks`.

`PROPERTIES` is the one table of names, by kind of description: the catalogue's JSON, the config file and its
export are read and written by it, so a property has one name everywhere.

Keys of authorization rules are 256 random bits, written in base64 (A-1).
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Final, TypeVar

from busway.clock import Entropy
from busway.model.durations import FOREVER_MS, format_duration, parse_duration_or_clock
from busway.model.errors import BadArgument
from busway.model.json_rows import Json, integer_at, list_at, text_at
from busway.rules.rule import Rule

MANAGE: Final = "Manage"
SEND: Final = "Send"
LISTEN: Final = "Listen"
ALL_RIGHTS: Final = frozenset({MANAGE, SEND, LISTEN})
#: As the service lists them.
RIGHTS_ORDER: Final = (MANAGE, LISTEN, SEND)

ACTIVE_STATUS: Final = "Active"
#: Earlier versions knew a subscription that history is captured through by these words in its UserMetadata; their
#: capture jobs still write them, and rows of theirs have nothing else.
CAPTURE_WORDS: Final = "busway pipeline capture"
#: E-8, in the spelling that clients look for in the ids of ATOM entries.
SUBSCRIPTIONS_SEGMENT: Final = "/Subscriptions/"


@dataclass(frozen=True)
class AuthorizationRule:
    """A SAS rule (A-1). Keys are text; the text itself is the HMAC key (A-4). An empty key given at creation
    is replaced by a random one."""

    name: str
    rights: frozenset[str]  # of "Manage", "Send", "Listen"
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created_at_ms: int = 0
    modified_at_ms: int = 0
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    #: The rights as they were written, which is how they come back; no matter for what the rule means.
    rights_written: tuple[str, ...] = field(default=(), compare=False)

    @property
    def rights_in_order(self) -> tuple[str, ...]:
        written = tuple(dict.fromkeys(self.rights_written))
        if frozenset(written) == self.rights:
            return written
        return tuple(right for right in RIGHTS_ORDER if right in self.rights)


@dataclass(frozen=True)
class QueueDescription:
    path: str
    lock_duration_ms: int = 60_000  # E-20
    max_size_in_megabytes: int = 1024  # E-21
    max_message_size_in_kilobytes: int = 256  # E-22
    requires_duplicate_detection: bool = False  # E-23
    duplicate_detection_history_time_window_ms: int = 600_000  # E-24
    requires_session: bool = False  # E-25
    default_message_time_to_live_ms: int = FOREVER_MS  # E-26
    dead_lettering_on_message_expiration: bool = False  # E-27
    max_delivery_count: int = 10  # E-28
    enable_batched_operations: bool = True  # E-29
    auto_delete_on_idle_ms: int = FOREVER_MS  # E-30
    enable_partitioning: bool = False  # E-31
    enable_express: bool = False  # E-32
    forward_to: str | None = None  # E-33
    forward_dead_lettered_messages_to: str | None = None  # E-34
    status: str = ACTIVE_STATUS  # E-35
    user_metadata: str | None = None  # E-36
    #: The gateway made it because a client attached, and no other way leads here. Messages that are still to come do
    #: not keep it: they are no use (E-111) of what nobody can find any more.
    made_for_a_link: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()  # E-37
    support_ordering: bool = True  # E-38
    is_anonymous_accessible: bool = False  # E-39
    unknown_elements: tuple[str, ...] = ()  # E-44: XML kept and returned
    #: ForwardTo and its like → scheme, where the target was written as a web address: so it is given back (E-33).
    forward_schemes: tuple[tuple[str, str], ...] = ()
    created_at_ms: int = 0
    updated_at_ms: int = 0
    fragment_count: int = 1  # P-9: how many it has; the catalogue's row tells

    @property
    def reported_size_in_megabytes(self) -> int:
        """P-8: each fragment may hold as much as was asked for."""
        return self.max_size_in_megabytes * self.fragment_count


@dataclass(frozen=True)
class TopicDescription:
    """E-50…E-56: no locks, sessions, deliveries or dead letters of its own; the copies have them."""

    path: str
    max_size_in_megabytes: int = 1024
    max_message_size_in_kilobytes: int = 256
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window_ms: int = 600_000
    default_message_time_to_live_ms: int = FOREVER_MS
    enable_batched_operations: bool = True
    auto_delete_on_idle_ms: int = FOREVER_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    enable_subscription_partitioning: bool = False  # E-54
    filtering_messages_before_publishing: bool = False  # E-53
    status: str = ACTIVE_STATUS
    user_metadata: str | None = None
    made_for_a_link: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    support_ordering: bool = True  # E-52
    is_anonymous_accessible: bool = False
    unknown_elements: tuple[str, ...] = ()
    created_at_ms: int = 0
    updated_at_ms: int = 0
    fragment_count: int = 1

    @property
    def reported_size_in_megabytes(self) -> int:
        """P-8: what all fragments hold together."""
        return self.max_size_in_megabytes * self.fragment_count


@dataclass(frozen=True)
class SubscriptionDescription:
    """E-60…E-64. Its `path` is its address, `T/Subscriptions/S` (E-8); its rules are rows of their own."""

    path: str
    lock_duration_ms: int = 60_000
    requires_session: bool = False
    default_message_time_to_live_ms: int = FOREVER_MS
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    auto_delete_on_idle_ms: int = FOREVER_MS
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    status: str = ACTIVE_STATUS
    user_metadata: str | None = None
    #: The topic's history is captured through it: rules note how far it had come when they began (E-70).
    captures_history: bool = False
    #: A subscriber of JMS made it by attaching, and may end it.
    made_for_a_link: bool = False
    unknown_elements: tuple[str, ...] = ()
    forward_schemes: tuple[tuple[str, str], ...] = ()
    created_at_ms: int = 0
    updated_at_ms: int = 0

    def __post_init__(self) -> None:
        """Wherever a description comes from, what older versions said in words is a property here."""
        if self.says_capture_in_words:
            object.__setattr__(self, "captures_history", True)

    @property
    def says_capture_in_words(self) -> bool:
        """Then earlier versions know it too."""
        return CAPTURE_WORDS in (self.user_metadata or "")

    @property
    def topic_path(self) -> str:
        return self.path.split(SUBSCRIPTIONS_SEGMENT)[0]

    @property
    def name(self) -> str:
        return self.path.split(SUBSCRIPTIONS_SEGMENT)[1]


#: What one receives from, and the whole of what a namespace holds.
Receivable = QueueDescription | SubscriptionDescription
Description = QueueDescription | TopicDescription | SubscriptionDescription
KIND_NAMES: Final[dict[type[Description], str]] = {
    QueueDescription: "Queue",
    TopicDescription: "Topic",
    SubscriptionDescription: "Subscription",
}
#: What `made_for_a_link` says to people, in the user metadata; earlier versions had nothing else to know it by.
LINK_WORDS: Final[dict[type[Description], str]] = {
    QueueDescription: "Made for a link of a client, and goes with it",
    TopicDescription: "Made for a link of a client, and goes with it",
    SubscriptionDescription: "Made for a subscriber of JMS",
}
AnyDescription = TypeVar("AnyDescription", QueueDescription, TopicDescription, SubscriptionDescription)


@dataclass(frozen=True)
class NewEntity:
    """What somebody wants to exist. `rules` are those of a subscription; with none it gets `$Default` (E-64)."""

    description: Description
    rules: tuple[Rule, ...] = ()


def never_idle(wanted: SubscriptionDescription) -> SubscriptionDescription:
    """E-112: forwarding is a receiver that never goes."""
    return wanted if wanted.forward_to is None else replace(wanted, auto_delete_on_idle_ms=FOREVER_MS)


def routes(description: Description) -> tuple[str | None, str | None]:
    """Where its messages go by themselves, and where its dead letters do."""
    if isinstance(description, TopicDescription):
        return None, None
    return description.forward_to, description.forward_dead_lettered_messages_to


@dataclass(frozen=True)
class RuntimeCounts:
    """Read-only numbers of an entity (E-40, E-100…E-102)."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    deferred: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0
    accessed_at_ms: int = 0
    availability: str = "Available"

    @property
    def total(self) -> int:
        """MessageCount (E-101)."""
        return self.active + self.dead_letter + self.scheduled + self.deferred + self.transfer


@dataclass(frozen=True)
class FragmentCounts:
    """One fragment of an entity (O-8): where it lies, how its store is, what it holds."""

    index: int
    store: str
    health: str
    counts: RuntimeCounts


class PropertyKind(Enum):
    DURATION = "an ISO 8601 duration in quotes"
    INTEGER = "a whole number"
    FLAG = "true or false"
    NAME = "a word in quotes"
    TEXT = "a text in quotes"  # empty means none


@dataclass(frozen=True)
class DescribedProperty:
    """A property that users set: its name outside, its field here."""

    name: str
    field: str
    kind: PropertyKind
    #: May not change after creation.
    fixed: bool = False
    #: A flag that the service does not have: clients see it only where it is set.
    is_our_own: bool = False


_LOCK_DURATION: Final = DescribedProperty("LockDuration", "lock_duration_ms", PropertyKind.DURATION)
_MAX_SIZE: Final = DescribedProperty("MaxSizeInMegabytes", "max_size_in_megabytes", PropertyKind.INTEGER)
_MAX_MESSAGE_SIZE: Final = DescribedProperty(
    "MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", PropertyKind.INTEGER
)
_REQUIRES_DUPLICATE_DETECTION: Final = DescribedProperty(
    "RequiresDuplicateDetection", "requires_duplicate_detection", PropertyKind.FLAG, fixed=True
)
_DUPLICATE_WINDOW: Final = DescribedProperty(
    "DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window_ms", PropertyKind.DURATION
)
_REQUIRES_SESSION: Final = DescribedProperty(
    "RequiresSession", "requires_session", PropertyKind.FLAG, fixed=True
)
_DEFAULT_TTL: Final = DescribedProperty(
    "DefaultMessageTimeToLive", "default_message_time_to_live_ms", PropertyKind.DURATION
)
_DEAD_LETTERING: Final = DescribedProperty(
    "DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", PropertyKind.FLAG
)
_DEAD_LETTERING_OF_FILTERS: Final = DescribedProperty(
    "DeadLetteringOnFilterEvaluationExceptions",
    "dead_lettering_on_filter_evaluation_exceptions",
    PropertyKind.FLAG,
)
_MAX_DELIVERY_COUNT: Final = DescribedProperty("MaxDeliveryCount", "max_delivery_count", PropertyKind.INTEGER)
_BATCHED_OPERATIONS: Final = DescribedProperty(
    "EnableBatchedOperations", "enable_batched_operations", PropertyKind.FLAG
)
_AUTO_DELETE: Final = DescribedProperty("AutoDeleteOnIdle", "auto_delete_on_idle_ms", PropertyKind.DURATION)
_PARTITIONING: Final = DescribedProperty(
    "EnablePartitioning", "enable_partitioning", PropertyKind.FLAG, fixed=True
)
_EXPRESS: Final = DescribedProperty("EnableExpress", "enable_express", PropertyKind.FLAG)
_FORWARD_TO: Final = DescribedProperty("ForwardTo", "forward_to", PropertyKind.TEXT)
_FORWARD_DEAD_LETTERS: Final = DescribedProperty(
    "ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", PropertyKind.TEXT
)
_STATUS: Final = DescribedProperty("Status", "status", PropertyKind.NAME)
_USER_METADATA: Final = DescribedProperty("UserMetadata", "user_metadata", PropertyKind.TEXT)
_CAPTURES_HISTORY: Final = DescribedProperty(
    "CapturesHistory", "captures_history", PropertyKind.FLAG, is_our_own=True
)
_SUPPORT_ORDERING: Final = DescribedProperty("SupportOrdering", "support_ordering", PropertyKind.FLAG)
_ANONYMOUS: Final = DescribedProperty("IsAnonymousAccessible", "is_anonymous_accessible", PropertyKind.FLAG)
_PREFILTERING: Final = DescribedProperty(
    "FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", PropertyKind.FLAG
)
_SUBSCRIPTION_PARTITIONING: Final = DescribedProperty(
    "EnableSubscriptionPartitioning", "enable_subscription_partitioning", PropertyKind.FLAG
)

PROPERTIES: Final[Mapping[type[Description], tuple[DescribedProperty, ...]]] = {
    QueueDescription: (
        _LOCK_DURATION,
        _MAX_SIZE,
        _MAX_MESSAGE_SIZE,
        _REQUIRES_DUPLICATE_DETECTION,
        _DUPLICATE_WINDOW,
        _REQUIRES_SESSION,
        _DEFAULT_TTL,
        _DEAD_LETTERING,
        _MAX_DELIVERY_COUNT,
        _BATCHED_OPERATIONS,
        _AUTO_DELETE,
        _PARTITIONING,
        _EXPRESS,
        _FORWARD_TO,
        _FORWARD_DEAD_LETTERS,
        _STATUS,
        _USER_METADATA,
        _SUPPORT_ORDERING,
        _ANONYMOUS,
    ),
    TopicDescription: (
        _MAX_SIZE,
        _MAX_MESSAGE_SIZE,
        _REQUIRES_DUPLICATE_DETECTION,
        _DUPLICATE_WINDOW,
        _DEFAULT_TTL,
        _BATCHED_OPERATIONS,
        _AUTO_DELETE,
        _PARTITIONING,
        _SUBSCRIPTION_PARTITIONING,
        _EXPRESS,
        _PREFILTERING,
        _STATUS,
        _USER_METADATA,
        _SUPPORT_ORDERING,
        _ANONYMOUS,
    ),
    SubscriptionDescription: (
        _LOCK_DURATION,
        _REQUIRES_SESSION,
        _DEFAULT_TTL,
        _DEAD_LETTERING,
        _DEAD_LETTERING_OF_FILTERS,
        _MAX_DELIVERY_COUNT,
        _BATCHED_OPERATIONS,
        _AUTO_DELETE,
        _FORWARD_TO,
        _FORWARD_DEAD_LETTERS,
        _STATUS,
        _USER_METADATA,
        _CAPTURES_HISTORY,
    ),
}
PROPERTY_OF: Final[Mapping[type[Description], Mapping[str, DescribedProperty]]] = {
    kind: {entry.name: entry for entry in entries} for kind, entries in PROPERTIES.items()
}

#: No property that anybody sets. Rows of earlier versions lack it; what they say in words counts there alone.
_MADE_FOR_A_LINK: Final = "MadeForALink"
#: Of an element that was kept as text (E-44).
_ELEMENT_NAME: Final = re.compile(r"<(?:[\w.-]+:)?([\w.-]+)")


def property_value(entry: DescribedProperty, value: object, where: str) -> int | bool | str | None:
    """The field's value of what JSON holds. `where` names the place in the error."""
    if entry.kind is PropertyKind.DURATION and isinstance(value, str):
        return parse_duration_or_clock(value, where)
    if entry.kind is PropertyKind.INTEGER and isinstance(value, int) and not isinstance(value, bool):
        return value
    if entry.kind is PropertyKind.FLAG and isinstance(value, bool):
        return value
    if entry.kind is PropertyKind.NAME and isinstance(value, str):
        return value
    if entry.kind is PropertyKind.TEXT and (value is None or isinstance(value, str)):
        return value or None
    raise BadArgument(f"{where}: {str(value)[:80]!r} is not {entry.kind.value}.")


def properties_json(description: Description) -> Json:
    """Every settable property under its outside name; texts and flags of our own that are not set are left out."""
    written: Json = {}
    for entry in PROPERTIES[type(description)]:
        value = getattr(description, entry.field)
        if entry.kind is PropertyKind.DURATION:
            written[entry.name] = format_duration(value)
        elif value is not None and not (entry.is_our_own and not value):
            written[entry.name] = value
    return written


def description_json(description: Description) -> Json:
    """The catalogue's form: all of it."""
    entries = PROPERTIES[type(description)]
    unset: Json = {entry.name: None for entry in entries if entry.kind is PropertyKind.TEXT}
    unset.update({entry.name: False for entry in entries if entry.is_our_own})
    written: Json = {"Name": description.path, **unset, **properties_json(description)}
    if not isinstance(description, SubscriptionDescription):
        written["AuthorizationRules"] = [rule_json(rule) for rule in description.authorization_rules]
    if description.made_for_a_link or description.user_metadata == LINK_WORDS[type(description)]:
        written[_MADE_FOR_A_LINK] = description.made_for_a_link
    written["UnknownElements"] = list(description.unknown_elements)
    if not isinstance(description, TopicDescription) and description.forward_schemes:
        written["ForwardSchemes"] = [list(pair) for pair in description.forward_schemes]
    written["CreatedAtMs"] = description.created_at_ms
    written["UpdatedAtMs"] = description.updated_at_ms
    return written


def description_of_json(kind: type[AnyDescription], data: Mapping[str, object]) -> AnyDescription:
    """Reads `description_json` back. Keys that only a newer version knows are passed over; whoever writes the
    row again keeps them. Raises BadArgument when the text cannot have been written by us."""
    values: dict[str, object] = {}
    for entry in PROPERTIES[kind]:
        if entry.name in data:
            values[entry.field] = property_value(entry, data[entry.name], entry.name)
    says_so = data.get("UserMetadata") == LINK_WORDS[kind]
    values["made_for_a_link"] = data.get(_MADE_FOR_A_LINK, says_so) is True
    values["path"] = text_at(data, "Name")
    if kind is not SubscriptionDescription:
        values["authorization_rules"] = rules_of_json(data.get("AuthorizationRules", []))
    values["unknown_elements"] = _still_unknown(kind, list_at(data, "UnknownElements"))
    if kind is not TopicDescription:
        values["forward_schemes"] = _schemes_of_json(list_at(data, "ForwardSchemes"))
    values["created_at_ms"] = integer_at(data, "CreatedAtMs")
    values["updated_at_ms"] = integer_at(data, "UpdatedAtMs")
    return with_values(kind(""), values)


def _still_unknown(kind: type[Description], elements: list[object]) -> tuple[str, ...]:
    """Without what an earlier version kept for a client and this one knows as a property."""
    found = [(element, _ELEMENT_NAME.match(element)) for element in map(str, elements)]
    return tuple(text for text, name in found if name is None or name[1] not in PROPERTY_OF[kind])


def _schemes_of_json(data: list[object]) -> tuple[tuple[str, str], ...]:
    pairs = [pair for pair in data if isinstance(pair, list) and len(pair) == 2]
    return tuple((str(name), str(scheme)) for name, scheme in pairs)


def with_values(description: AnyDescription, values: Mapping[str, object]) -> AnyDescription:
    """`dataclasses.replace` for values that were already checked one by one against `PROPERTIES`."""
    kind = type(description)
    merged = {entry.name: getattr(description, entry.name) for entry in fields(kind)}
    return kind(**{**merged, **values})


def rule_json(rule: AuthorizationRule) -> Json:
    return {
        "Name": rule.name,
        "Rights": list(rule.rights_in_order),
        "PrimaryKey": rule.primary_key,
        "SecondaryKey": rule.secondary_key,
        "CreatedAtMs": rule.created_at_ms,
        "ModifiedAtMs": rule.modified_at_ms,
        "ClaimType": rule.claim_type,
        "ClaimValue": rule.claim_value,
    }


def rules_of_json(data: object) -> tuple[AuthorizationRule, ...]:
    if not isinstance(data, list):
        raise BadArgument("AuthorizationRules: a list is expected.")
    return tuple(_rule_of_json(entry) for entry in data)


def _rule_of_json(data: object) -> AuthorizationRule:
    if not isinstance(data, dict):
        raise BadArgument("AuthorizationRules: each entry must be an object.")
    rights = tuple(str(right) for right in list_at(data, "Rights"))
    return AuthorizationRule(
        name=text_at(data, "Name"),
        rights=frozenset(rights),
        primary_key=text_at(data, "PrimaryKey"),
        secondary_key=text_at(data, "SecondaryKey"),
        created_at_ms=integer_at(data, "CreatedAtMs"),
        modified_at_ms=integer_at(data, "ModifiedAtMs"),
        claim_type=text_at(data, "ClaimType", "SharedAccessKey"),
        claim_value=text_at(data, "ClaimValue", "None"),
        rights_written=rights,
    )


def authorization_rules_of(description: Description) -> tuple[AuthorizationRule, ...]:
    """A subscription has those of its topic."""
    return () if isinstance(description, SubscriptionDescription) else description.authorization_rules


ROOT_RULE_NAME: Final = "RootManageSharedAccessKey"
_KEY_BYTES: Final = 32


def random_key(entropy: Entropy) -> str:
    return base64.b64encode(entropy.bytes(_KEY_BYTES)).decode("ascii")


def root_rule(entropy: Entropy, now_ms: int, key: str | None) -> AuthorizationRule:
    """The rule a new namespace has (A-3), with the operator's own key when there is one."""
    return AuthorizationRule(
        name=ROOT_RULE_NAME,
        rights=ALL_RIGHTS,
        primary_key=key or random_key(entropy),
        secondary_key=random_key(entropy),
        created_at_ms=now_ms,
        modified_at_ms=now_ms,
    )


def completed_rules(
    wanted: tuple[AuthorizationRule, ...],
    present: tuple[AuthorizationRule, ...],
    entropy: Entropy,
    now_ms: int,
) -> tuple[AuthorizationRule, ...]:
    """The rules as they are kept: a key left empty stays as it is, or is drawn at random for a new rule; times
    are set by us."""
    known = {rule.name: rule for rule in present}
    return tuple(_completed(rule, known.get(rule.name), entropy, now_ms) for rule in wanted)


def _completed(
    wanted: AuthorizationRule, known: AuthorizationRule | None, entropy: Entropy, now_ms: int
) -> AuthorizationRule:
    if known is None:
        return replace(
            wanted,
            primary_key=wanted.primary_key or random_key(entropy),
            secondary_key=wanted.secondary_key or random_key(entropy),
            created_at_ms=now_ms,
            modified_at_ms=now_ms,
        )
    kept = replace(
        wanted,
        primary_key=wanted.primary_key or known.primary_key,
        secondary_key=wanted.secondary_key or known.secondary_key,
        created_at_ms=known.created_at_ms,
        modified_at_ms=known.modified_at_ms,
    )
    return kept if kept == known else replace(kept, modified_at_ms=now_ms)
