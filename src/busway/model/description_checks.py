"""What an entity's properties and a subscription's rules may be (E-20…E-64, T-36; [rec] notes win).

Every refusal is a `BadArgument` (400, sub-code 40000) whose sentence names the property and the value. Whether a
rule can be stored at all is asked by management before anything is written (`check_rule`; T-36, T-42, ERR-28).
"""

import re
from dataclasses import fields, replace
from typing import Final, TypeVar
from uuid import UUID

from busway.model.descriptions import (
    ALL_RIGHTS,
    KIND_NAMES,
    MANAGE,
    PROPERTIES,
    AnyDescription,
    AuthorizationRule,
    DescribedProperty,
    Description,
    PropertyKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.durations import FOREVER_MS, format_duration
from busway.model.entity_path import check_name, check_path, path_key, shown
from busway.model.errors import BadArgument, QuotaExceeded
from busway.model.limits import Limits
from busway.rules.compiled_rule import compiled_action, compiled_filter
from busway.rules.rule import CorrelationFilter, Rule, RuleSyntaxError, SqlAction, SqlFilter, TypedValue

#: As much as a request over HTTP can bring: rules are listed by the hundred.
RULE_CHARACTERS_MAX: Final = 64 * 1024
#: What a property or parameter counts for beside its letters.
_PAIR_CHARACTERS: Final = 32


def check_rule(rule: Rule) -> None:
    """Raises RuleSyntaxError, nothing else."""
    size = rule_characters(rule)
    if size > RULE_CHARACTERS_MAX:
        raise RuleSyntaxError(f"The rule is too large: it counts {size} of {RULE_CHARACTERS_MAX} characters.")
    compiled_filter(rule.filter, _no_id)
    if rule.action is not None:
        compiled_action(rule.action, _no_id)


def rule_characters(rule: Rule) -> int:
    """How large a rule is: the letters of its texts, and something for each property and parameter."""
    action = 0 if rule.action is None else _sql_characters(rule.action)
    if isinstance(rule.filter, CorrelationFilter):
        return len(rule.name) + action + _correlation_characters(rule.filter)
    return len(rule.name) + action + _sql_characters(rule.filter)


def _sql_characters(part: SqlFilter | SqlAction) -> int:
    return len(part.expression) + _pairs_characters(part.parameters)


def _correlation_characters(part: CorrelationFilter) -> int:
    texts = (getattr(part, field.name) for field in fields(part) if field.name != "properties")
    return sum(len(text) for text in texts if text is not None) + _pairs_characters(part.properties)


def _pairs_characters(pairs: tuple[tuple[str, TypedValue], ...]) -> int:
    return sum(
        _PAIR_CHARACTERS + len(name) + (len(typed.value) if isinstance(typed.value, str) else 0)
        for name, typed in pairs
    )


def _no_id() -> UUID:
    return UUID(int=0)


QueueOrTopic = TypeVar("QueueOrTopic", QueueDescription, TopicDescription)

BASIC: Final = "Basic"
STANDARD: Final = "Standard"
PREMIUM: Final = "Premium"

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000

#: field → (least, most).
_DURATION_BOUNDS_MS: Final[dict[str, tuple[int, int]]] = {
    "lock_duration_ms": (5 * _SECOND_MS, 5 * _MINUTE_MS),
    "duplicate_detection_history_time_window_ms": (20 * _SECOND_MS, 7 * _DAY_MS),
    "default_message_time_to_live_ms": (_SECOND_MS, FOREVER_MS),
    "auto_delete_on_idle_ms": (5 * _MINUTE_MS, FOREVER_MS),
}
_INT32_MAX: Final = 2_147_483_647
#: E-80
_STATUSES: Final[dict[type[Description], tuple[str, ...]]] = {
    QueueDescription: ("Active", "Disabled", "SendDisabled", "ReceiveDisabled"),
    TopicDescription: ("Active", "Disabled", "SendDisabled"),
    SubscriptionDescription: ("Active", "Disabled", "ReceiveDisabled"),
}
_SIZES_GB: Final[dict[str, tuple[int, ...]]] = {
    BASIC: (1, 2, 3, 4, 5),
    STANDARD: (1, 2, 3, 4, 5),
    PREMIUM: (1, 2, 3, 4, 5, 10, 20, 40, 80),
}
_STANDARD_MESSAGE_KB: Final = 256
_PREMIUM_MESSAGE_KB: Final = 1_024
_PREMIUM_MESSAGE_KB_MAX: Final = 102_400
_BASIC_TTL_MS: Final = 14 * _DAY_MS
#: E-42: on Basic these keep their defaults.
_NOT_ON_BASIC: Final = frozenset(
    {
        "requires_duplicate_detection",
        "auto_delete_on_idle_ms",
        "requires_session",
        "default_message_time_to_live_ms",
        "duplicate_detection_history_time_window_ms",
        "enable_express",
        "forward_to",
        "forward_dead_lettered_messages_to",
    }
)
_RULE_NAME: Final = re.compile(r"[A-Za-z0-9._~-]{1,256}")
_KEY: Final = re.compile(r"[!-~]{1,512}")
#: What XML 1.0 cannot carry: such text could be stored but never read back through the management API.
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_KEPT_CHARACTERS_MAX: Final = 65_536


def default_queue(path: str, limits: Limits) -> QueueDescription:
    """A queue with the defaults of the namespace's sku: what a creation starts from."""
    partitioned = limits.namespace_partitions > 0
    if limits.sku == PREMIUM:
        return QueueDescription(
            path, max_message_size_in_kilobytes=_PREMIUM_MESSAGE_KB, enable_partitioning=partitioned
        )
    if limits.sku == BASIC:
        return QueueDescription(
            path, default_message_time_to_live_ms=_BASIC_TTL_MS, enable_partitioning=partitioned
        )
    return QueueDescription(path, enable_partitioning=partitioned)


def default_topic(path: str, limits: Limits) -> TopicDescription:
    partitioned = limits.namespace_partitions > 0
    if limits.sku == PREMIUM:
        return TopicDescription(
            path, max_message_size_in_kilobytes=_PREMIUM_MESSAGE_KB, enable_partitioning=partitioned
        )
    return TopicDescription(path, enable_partitioning=partitioned)


def with_fragments(
    wanted: QueueDescription | TopicDescription, limits: Limits
) -> QueueDescription | TopicDescription:
    """How many fragments a new entity gets (P-9, C-1)."""
    if limits.namespace_partitions:
        return replace(wanted, fragment_count=limits.namespace_partitions)
    if limits.sku == PREMIUM:  # the flag has no effect there
        return replace(wanted, enable_partitioning=False)
    return replace(wanted, fragment_count=limits.partition_count if wanted.enable_partitioning else 1)


def check_creation(wanted: Description, limits: Limits) -> None:
    """Raises when an entity like this cannot be made."""
    if isinstance(wanted, SubscriptionDescription):
        check_name("subscription", wanted.name, limits.name_characters_max)
    else:
        check_path(wanted.path, limits.path_characters_max)
        if limits.namespace_partitions and not wanted.enable_partitioning:
            raise BadArgument(
                "EnablePartitioning: Non-partitioned entities are not allowed in partitioned namespace; leave it out"
                " or set it to true."
            )
    _check_values(wanted, limits)


def check_rule_text(rule: Rule, limits: Limits) -> None:
    """T-36: nothing is stored that could not be evaluated."""
    check_name("rule", rule.name, limits.name_characters_max)
    try:
        check_rule(rule)
    except RuleSyntaxError as error:
        raise BadArgument(f"The rule {shown(rule.name)} is not valid. {error}") from None


def check_update(present: AnyDescription, wanted: AnyDescription, limits: Limits) -> AnyDescription:
    """The description to keep: what `wanted` says under the name, creation time and origin of `present`."""
    if not isinstance(present, SubscriptionDescription) and not isinstance(wanted, SubscriptionDescription):
        wanted = _in_fragments_of(present, wanted, limits)
    for entry in PROPERTIES[type(present)]:
        if entry.fixed and getattr(present, entry.field) != getattr(wanted, entry.field):
            raise BadArgument(_fixed(entry, present))
    _check_values(wanted, limits)
    return replace(
        wanted,
        path=present.path,
        created_at_ms=present.created_at_ms,
        made_for_a_link=present.made_for_a_link,
    )


def _fixed(entry: DescribedProperty, present: Description) -> str:
    """In the words of the service, for which programs look."""
    kind = KIND_NAMES[type(present)]
    if entry.field == "enable_partitioning":
        return f"Partitioning cannot be changed for {kind}."
    return f"The value for the {entry.name} property of an existing {kind} cannot be changed."


def _check_values(wanted: Description, limits: Limits) -> None:
    _check_sku(wanted, limits)
    for entry in PROPERTIES[type(wanted)]:
        if entry.field in _DURATION_BOUNDS_MS:
            _check_duration(entry, wanted)
    _check_status(wanted)
    _check_texts(wanted, limits)
    if not isinstance(wanted, TopicDescription):
        _check_delivery_count(wanted)
    if not isinstance(wanted, SubscriptionDescription):
        _check_sizes(wanted, limits)
        _check_express(wanted, limits)
        check_rules(wanted.authorization_rules, limits)


def _in_fragments_of(
    present: QueueDescription | TopicDescription, wanted: QueueOrTopic, limits: Limits
) -> QueueOrTopic:
    """P-8: a size that was read comes back as it was reported. C-1: a flag without effect changes nothing."""
    size = wanted.max_size_in_megabytes
    if size == present.reported_size_in_megabytes:
        size = present.max_size_in_megabytes
    is_partitioned = wanted.enable_partitioning
    if limits.sku == PREMIUM and not limits.namespace_partitions:
        is_partitioned = present.enable_partitioning
    return replace(
        wanted,
        max_size_in_megabytes=size,
        enable_partitioning=is_partitioned,
        fragment_count=present.fragment_count,
    )


def _check_duration(entry: DescribedProperty, wanted: Description) -> None:
    least_ms, most_ms = _DURATION_BOUNDS_MS[entry.field]
    if not least_ms <= getattr(wanted, entry.field) <= most_ms:
        raise BadArgument(
            f"{entry.name}: {_text(entry, wanted)} is out of range; it must be between"
            f" {format_duration(least_ms)} and {format_duration(most_ms)}."
        )


def _check_sizes(wanted: QueueDescription | TopicDescription, limits: Limits) -> None:
    allowed = [gigabytes * 1024 for gigabytes in _SIZES_GB[limits.sku]]
    if wanted.max_size_in_megabytes not in allowed:
        raise BadArgument(
            f"MaxSizeInMegabytes: {wanted.max_size_in_megabytes} is not possible; choose one of"
            f" {', '.join(map(str, allowed))}."
        )
    kilobytes = wanted.max_message_size_in_kilobytes
    if limits.sku != PREMIUM and kilobytes != _STANDARD_MESSAGE_KB:
        raise BadArgument(
            f"MaxMessageSizeInKilobytes: {kilobytes} is not possible; it is {_STANDARD_MESSAGE_KB} on sku"
            f" {limits.sku} and can be set on Premium only."
        )
    if limits.sku == PREMIUM and not _PREMIUM_MESSAGE_KB <= kilobytes <= _PREMIUM_MESSAGE_KB_MAX:
        raise BadArgument(
            f"MaxMessageSizeInKilobytes: {kilobytes} is out of range; it must be between"
            f" {_PREMIUM_MESSAGE_KB} and {_PREMIUM_MESSAGE_KB_MAX}."
        )


def _check_delivery_count(wanted: QueueDescription | SubscriptionDescription) -> None:
    if not 1 <= wanted.max_delivery_count <= _INT32_MAX:
        raise BadArgument(
            f"MaxDeliveryCount: {wanted.max_delivery_count} is out of range; it must be between 1 and"
            f" {_INT32_MAX}."
        )


def _check_status(wanted: Description) -> None:
    statuses = _STATUSES[type(wanted)]
    if wanted.status not in statuses:
        raise BadArgument(
            f"Status: {shown(wanted.status)} cannot be set; choose one of {', '.join(statuses)}."
        )


def _check_texts(wanted: Description, limits: Limits) -> None:
    metadata = wanted.user_metadata or ""
    if len(metadata) > limits.user_metadata_characters_max:
        raise BadArgument(
            f"UserMetadata: {len(metadata)} characters are too many; at most"
            f" {limits.user_metadata_characters_max} are allowed."
        )
    if _NOT_XML.search(metadata) is not None:
        raise BadArgument("UserMetadata: it holds a control character that XML cannot carry.")
    if sum(map(len, wanted.unknown_elements)) > _KEPT_CHARACTERS_MAX:
        raise BadArgument(f"Unknown elements of more than {_KEPT_CHARACTERS_MAX} characters are not kept.")


def _check_express(wanted: QueueDescription | TopicDescription, limits: Limits) -> None:
    if wanted.enable_express and wanted.requires_duplicate_detection:
        raise BadArgument("EnableExpress cannot be combined with RequiresDuplicateDetection.")
    if wanted.enable_express and limits.sku == PREMIUM:
        raise BadArgument("EnableExpress is not available on sku Premium.")


def _check_sku(wanted: Description, limits: Limits) -> None:
    """E-42: what Basic lacks is refused by name."""
    if limits.sku != BASIC:
        return
    if not isinstance(wanted, QueueDescription):
        raise BadArgument("Topics and subscriptions are not available on sku Basic.")
    usual = default_queue(wanted.path, limits)
    for entry in PROPERTIES[QueueDescription]:
        if entry.field in _NOT_ON_BASIC and getattr(wanted, entry.field) != getattr(usual, entry.field):
            raise BadArgument(f"{entry.name} cannot be set on sku Basic.")


def check_rules(rules: tuple[AuthorizationRule, ...], limits: Limits) -> None:
    """Rules of one level, namespace or queue (A-1, L-10)."""
    if len(rules) > limits.authorization_rules_max:
        raise QuotaExceeded(
            f"{len(rules)} authorization rules are too many; at most {limits.authorization_rules_max} are"
            " allowed on one level."
        )
    if len({path_key(rule.name) for rule in rules}) < len(rules):
        raise BadArgument("AuthorizationRules: two rules have the same name.")
    for rule in rules:
        _check_rule(rule)


def _check_rule(rule: AuthorizationRule) -> None:
    if _RULE_NAME.fullmatch(rule.name) is None:
        raise BadArgument(
            f"The authorization rule's name {shown(rule.name)} is not allowed: 1 to 256 letters, digits, '.',"
            " '-', '_' or '~'."
        )
    if not rule.rights or not rule.rights <= ALL_RIGHTS:
        raise BadArgument(
            f"The authorization rule {shown(rule.name)} needs one or more of the rights Manage, Send, Listen."
        )
    if MANAGE in rule.rights and rule.rights != ALL_RIGHTS:
        raise BadArgument(
            f"The authorization rule {shown(rule.name)} has Manage and must then list Send and Listen too."
        )
    for key in (rule.primary_key, rule.secondary_key):
        if _KEY.fullmatch(key) is None:
            raise BadArgument(
                f"A key of the authorization rule {shown(rule.name)} is not possible: 1 to 512 visible ASCII"
                " characters are allowed."
            )
    if len(rule.claim_type) > 256 or len(rule.claim_value) > 256 or _NOT_XML.search(rule.claim_value):
        raise BadArgument(f"The claim of the authorization rule {shown(rule.name)} is not possible.")


def _text(entry: DescribedProperty, description: Description) -> str:
    value = getattr(description, entry.field)
    if entry.kind is PropertyKind.DURATION:
        return format_duration(value) if value >= 0 else f"{value} ms"
    return str(value).lower() if entry.kind is PropertyKind.FLAG else str(value)
