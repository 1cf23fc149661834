"""Queues, topics and subscriptions as XML: read from what clients send, written as the service does.

Names and kinds of properties come from the broker's one table, `PROPERTIES`; the order of elements from
`atom_names`. Unknown elements are kept and given back (E-44); read-only ones that clients send back are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never
from urllib.parse import unquote
from xml.etree.ElementTree import Element, tostring

from busway.atom_names import (
    CONNECT,
    COUNTS,
    ELEMENT_SINCE,
    INSTANCE,
    QUEUE_ELEMENTS,
    SUBSCRIPTION_ELEMENTS,
    TOPIC_ELEMENTS,
)
from busway.gateway.http.atom.atom import described, is_nil, local_name, text_of, timestamp, xml_escaped
from busway.gateway.http.atom.rule_xml import parse_rule
from busway.gateway.http.untrusted_input import flag_of, integer_of
from busway.model.descriptions import (
    PROPERTIES,
    PROPERTY_OF,
    AuthorizationRule,
    DescribedProperty,
    Description,
    PropertyKind,
    QueueDescription,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
    with_values,
)
from busway.model.durations import format_duration, parse_duration
from busway.model.entity_path import shown
from busway.model.errors import BadArgument, NotImplementedByServer
from busway.rules.rule import DEFAULT_RULE_NAME, Rule

Value = int | bool | str | None
RULES_ELEMENT: Final = "AuthorizationRules"
DEFAULT_RULE_ELEMENT: Final = "DefaultRuleDescription"
#: Element in an entry → what it describes.
_KINDS: Final[Mapping[str, type[Description]]] = {
    "QueueDescription": QueueDescription,
    "TopicDescription": TopicDescription,
    "SubscriptionDescription": SubscriptionDescription,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_ELEMENTS: Final[Mapping[type[Description], tuple[str, ...]]] = {
    QueueDescription: QUEUE_ELEMENTS,
    TopicDescription: TOPIC_ELEMENTS,
    SubscriptionDescription: SUBSCRIPTION_ELEMENTS,
}
_ELSEWHERE: Final = {
    "EventHubDescription": "Event hubs are managed under /$eventhubs.",
    "ConsumerGroupDescription": "A consumer group's address is HUB/consumergroups/GROUP, below a hub that exists.",
}
_FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
#: Not in the answer to a creation, which has no numbers yet.
_NUMBERS: Final = frozenset(
    {"AccessedAt", "CountDetails", "SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount"}
)
_WEB_SCHEMES: Final = frozenset({"https", "http"})
_SCHEMES: Final = _WEB_SCHEMES | {"sb", "amqps", "amqp"}
_UNKNOWN_ELEMENTS_MAX: Final = 64


@dataclass(frozen=True)
class EntityInput:
    """What a client sent about an entity: checked in form, not yet in meaning."""

    kind: type[Description]
    values: dict[str, Value] = field(default_factory=dict)  # by field of the description
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    unknown_elements: tuple[str, ...] = ()
    #: E-64: given at the creation of a subscription.
    default_rule: Rule | None = None
    #: Property of a forward's target → scheme of a web address that it was written with.
    forward_schemes: tuple[tuple[str, str], ...] = ()

    def on(self, start: Description) -> Description:
        """`start` with what was sent; BadArgument when that is about another kind of entity."""
        if type(start) is not self.kind:
            raise BadArgument(
                f"A {_NAMES[self.kind]} was sent, but {shown(start.path)} is described by a"
                f" {_NAMES[type(start)]}."
            )
        changes: dict[str, object] = {**self.values, "unknown_elements": self.unknown_elements}
        if isinstance(start, TopicDescription):
            return with_values(start, {**changes, "authorization_rules": self.authorization_rules})
        changes["forward_schemes"] = self.forward_schemes
        if isinstance(start, SubscriptionDescription):
            return with_values(start, changes)
        return with_values(start, {**changes, "authorization_rules": self.authorization_rules})


@dataclass(frozen=True)
class RuntimeNumbers:
    """What an entry tells besides the description; the last three are a topic's (E-55, E-72)."""

    counts: RuntimeCounts
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0


# -- reading --


def parse_entity(body: bytes, api_version: str) -> EntityInput:
    """The description inside an ATOM entry. Raises BadArgument, or NotImplementedByServer for other entities."""
    description = described(body)
    name = local_name(description)
    if name in _ELSEWHERE:
        raise NotImplementedByServer(_ELSEWHERE[name])
    if name not in _KINDS:
        raise BadArgument(f"The entry's content must be one of {', '.join(_KINDS)}.")
    return _entity_input(_KINDS[name], description, api_version)


def _entity_input(kind: type[Description], description: Element, api_version: str) -> EntityInput:
    # An update clears a text by leaving it out (clients send back everything they want to keep).
    values: dict[str, Value] = {
        entry.field: None for entry in PROPERTIES[kind] if entry.kind is PropertyKind.TEXT
    }
    rules: tuple[AuthorizationRule, ...] = ()
    default_rule: Rule | None = None
    schemes: dict[str, str] = {}
    unknown: list[str] = []
    for name, child in _children(kind, description):
        if name == RULES_ELEMENT:
            rules = _authorization_rules(kind, child)
        elif name == DEFAULT_RULE_ELEMENT and kind is SubscriptionDescription:
            default_rule = None if is_nil(child) else parse_rule(child, None, DEFAULT_RULE_NAME)
        elif name in PROPERTY_OF[kind]:
            _check_version(name, api_version)
            _read_property(PROPERTY_OF[kind][name], child, values)
            if name in _FORWARDS:
                _read_target(PROPERTY_OF[kind][name], values, schemes)
        elif name not in _ELEMENTS[kind]:
            unknown.append(_kept(child))
    if len(unknown) > _UNKNOWN_ELEMENTS_MAX:
        raise BadArgument(f"More than {_UNKNOWN_ELEMENTS_MAX} unknown elements.")
    return EntityInput(kind, values, rules, tuple(unknown), default_rule, tuple(schemes.items()))


def _children(kind: type[Description], description: Element) -> list[tuple[str, Element]]:
    named = [(local_name(child), child) for child in description]
    seen: set[str] = set()
    for name, _ in named:
        if name in seen and name in _ELEMENTS[kind]:
            raise BadArgument(f"{name} comes twice.")
        seen.add(name)
    return named


def _check_version(name: str, api_version: str) -> None:
    since = ELEMENT_SINCE.get(name, "")
    if api_version < since:
        raise BadArgument(f"{name} needs api-version {since} or later, not {api_version}.")


def _read_property(entry: DescribedProperty, child: Element, values: dict[str, Value]) -> None:
    if is_nil(child):
        return
    values[entry.field] = _value(entry, text_of(child))


def _value(entry: DescribedProperty, text: str) -> Value:
    match entry.kind:
        case PropertyKind.TEXT:
            return text or None
        case PropertyKind.NAME:
            return text.strip()
        case PropertyKind.DURATION:
            return parse_duration(text.strip(), entry.name)
        case PropertyKind.FLAG:
            return flag_of(entry.name, text.strip())
        case PropertyKind.INTEGER:
            return integer_of(entry.name, text.strip())
        case never:
            assert_never(never)


def _read_target(entry: DescribedProperty, values: dict[str, Value], schemes: dict[str, str]) -> None:
    """E-33: Java's client takes the scheme `sb` for no address at all, so what it wrote comes back as it wrote it."""
    sent = values[entry.field]
    if not isinstance(sent, str):
        return
    values[entry.field] = entity_of_url(sent.strip())
    scheme = sent.strip().partition("://")[0].lower()
    if scheme in _WEB_SCHEMES:
        schemes[entry.name] = scheme


def entity_of_url(text: str) -> str:
    """`sb://host:port/name` → `name`: clients write the target of a forward as an address, and the host is ours
    under any of its names. Twice, because Java makes `https://host/sb://host/name` of what others wrote."""
    for _ in range(2):
        scheme, separator, rest = text.partition("://")
        if separator == "" or scheme.lower() not in _SCHEMES:
            break
        text = unquote(rest.partition("/")[2]).strip("/")
    return text.strip("/")


def _authorization_rules(kind: type[Description], element: Element) -> tuple[AuthorizationRule, ...]:
    if kind is SubscriptionDescription:
        raise BadArgument(f"{RULES_ELEMENT}: a subscription has none of its own; they are its topic's.")
    return tuple(_authorization_rule(rule) for rule in element)


def _authorization_rule(element: Element) -> AuthorizationRule:
    texts = {local_name(child): text_of(child) for child in element}
    found = element.find(f"{{{CONNECT}}}Rights")
    rights = () if found is None else tuple(dict.fromkeys(right.text or "" for right in found))
    return AuthorizationRule(
        name=texts.get("KeyName", ""),
        rights=frozenset(rights),
        primary_key=texts.get("PrimaryKey", ""),
        secondary_key=texts.get("SecondaryKey", ""),
        claim_type=texts.get("ClaimType") or "SharedAccessKey",
        claim_value=texts.get("ClaimValue") or "None",
        rights_written=rights,
    )


def _kept(element: Element) -> str:
    """E-44: an element of the future, as text that stands by itself (it declares its own namespaces)."""
    element.tail = None
    return tostring(element, encoding="unicode")


# -- writing --


def entity_element(
    description: Description, numbers: RuntimeNumbers | None, root: str, api_version: str
) -> str:
    """`numbers` is None in the answer to a creation; `root` is the address of the namespace, which a forward's
    target is written with."""
    kind = type(description)
    name = _NAMES[kind]
    parts = [
        _element(element, description, numbers, root)
        for element in _ELEMENTS[kind]
        if api_version >= ELEMENT_SINCE.get(element, "")
    ]
    return (
        f'<{name} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{"".join(parts)}'
        f"{''.join(description.unknown_elements)}</{name}>"
    )


def _element(name: str, description: Description, numbers: RuntimeNumbers | None, root: str) -> str:
    entry = PROPERTY_OF[type(description)].get(name)
    if entry is None:
        return _read_only(name, description, numbers)
    value = getattr(description, entry.field)
    if name == "MaxSizeInMegabytes" and not isinstance(description, SubscriptionDescription):
        value = description.reported_size_in_megabytes
    if value is None or value == "" or (entry.is_our_own and not value):
        return ""
    if name in _FORWARDS and not isinstance(description, TopicDescription):
        scheme = dict(description.forward_schemes).get(name, "sb")
        value = f"{scheme}://{root.partition('://')[2]}/{value}"
    return f"<{name}>{_property_text(entry, value)}</{name}>"


def _property_text(entry: DescribedProperty, value: int | bool | str) -> str:
    if entry.kind is PropertyKind.DURATION:
        return format_duration(int(value))
    if entry.kind is PropertyKind.FLAG:
        return "true" if value else "false"
    return xml_escaped(str(value))


def _read_only(name: str, description: Description, numbers: RuntimeNumbers | None) -> str:
    if name == DEFAULT_RULE_ELEMENT:
        return ""
    if name == RULES_ELEMENT and not isinstance(description, SubscriptionDescription):
        return f"<{name}>{''.join(map(_rule_element, description.authorization_rules))}</{name}>"
    if numbers is None and name in _NUMBERS:
        # The service writes a fresh subscription's AccessedAt, without a zone.
        is_fresh = name == "AccessedAt" and isinstance(description, SubscriptionDescription)
        return "<AccessedAt>0001-01-01T00:00:00</AccessedAt>" if is_fresh else ""
    known = numbers if numbers is not None else RuntimeNumbers(RuntimeCounts())
    if name == "CountDetails":
        return _count_details(known.counts)
    return f"<{name}>{_number_text(name, description, known)}</{name}>"


def _number_text(name: str, description: Description, numbers: RuntimeNumbers) -> str:
    counts = numbers.counts
    texts = {
        "SizeInBytes": str(counts.size_bytes),
        "MessageCount": str(counts.total),
        "CreatedAt": timestamp(description.created_at_ms),
        "UpdatedAt": timestamp(description.updated_at_ms),
        "AccessedAt": timestamp(counts.accessed_at_ms),
        "SubscriptionCount": str(numbers.subscriptions),
        "SqlFilterCount": str(numbers.sql_filters),
        "CorrelationFilterCount": str(numbers.correlation_filters),
        "EntityAvailabilityStatus": xml_escaped(counts.availability),
        "IsClientAffine": "false",
    }
    return texts[name]


def _count_details(counts: RuntimeCounts) -> str:
    numbers = (
        ("ActiveMessageCount", counts.active),
        ("DeadLetterMessageCount", counts.dead_letter),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", counts.transfer),
        ("TransferDeadLetterMessageCount", counts.transfer_dead_letter),
    )
    inner = "".join(f"<d2p1:{name}>{number}</d2p1:{name}>" for name, number in numbers)
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{inner}</CountDetails>'


def _rule_element(rule: AuthorizationRule) -> str:
    """With its keys: whoever manages the entity reads them, as from the service."""
    rights = "".join(f"<AccessRights>{right}</AccessRights>" for right in rule.rights_in_order)
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        f"<ClaimType>{xml_escaped(rule.claim_type)}</ClaimType>"
        f"<ClaimValue>{xml_escaped(rule.claim_value)}</ClaimValue>"
        f"<Rights>{rights}</Rights><KeyName>{xml_escaped(rule.name)}</KeyName>"
        f"<PrimaryKey>{xml_escaped(rule.primary_key)}</PrimaryKey>"
        f"<SecondaryKey>{xml_escaped(rule.secondary_key)}</SecondaryKey></AuthorizationRule>"
    )
