"""Queues, topics, subscriptions and rules as the management API tells them: read from and written to ATOM entries.

Values of rules keep the type they were written with (E-64, E-74): the type is a name in the namespace of XML
Schema, or of .NET's serialization for durations.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import defusedxml.ElementTree

from busway import atom_names
from busway.client.entity_properties import (
    QUEUE_PROPERTIES,
    READ_ONLY,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    EntityOption,
    Value,
)
from busway.rules.rule import (
    COMPATIBILITY_LEVEL,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from busway.rules.time_text import format_span, has_zone, instant_of, moment_text, parse_span

# As ElementTree writes names.
ATOM: Final = f"{{{atom_names.ATOM}}}"
CONNECT: Final = f"{{{atom_names.CONNECT}}}"
COUNTS: Final = f"{{{atom_names.COUNTS}}}"
SCHEMA_TYPE: Final = f"{{{atom_names.INSTANCE}}}type"

_COUNT_NAMES: Final = (
    "ActiveMessageCount",
    "DeadLetterMessageCount",
    "ScheduledMessageCount",
    "TransferMessageCount",
    "TransferDeadLetterMessageCount",
)


class BadAnswer(Exception):
    """The server's answer could not be read."""


@dataclass(frozen=True)
class KeyRule:
    """A SAS rule of a queue, of a topic or of the namespace (A-1)."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)


@dataclass(frozen=True)
class EntityKind:
    """What tells the three kinds apart on the wire."""

    word: str
    element: str
    properties: tuple[EntityOption, ...]
    elements: tuple[str, ...]

    def property_of(self, element: str) -> EntityOption | None:
        return next((known for known in self.properties if known.element == element), None)


QUEUE: Final = EntityKind("queue", "QueueDescription", QUEUE_PROPERTIES, atom_names.QUEUE_ELEMENTS)
TOPIC: Final = EntityKind("topic", "TopicDescription", TOPIC_PROPERTIES, atom_names.TOPIC_ELEMENTS)
SUBSCRIPTION: Final = EntityKind(
    "subscription", "SubscriptionDescription", SUBSCRIPTION_PROPERTIES, atom_names.SUBSCRIPTION_ELEMENTS
)
KINDS: Final = (QUEUE, TOPIC, SUBSCRIPTION)
#: Entities to forward to; they come as an address, `sb://host/name`.
_FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


@dataclass(frozen=True)
class EntityEntry:
    """A queue, topic or subscription as the management API tells it: read from and written to ATOM entries."""

    kind: EntityKind
    #: Of a subscription without its topic.
    name: str
    properties: dict[str, Value]
    numbers: dict[str, Value]  # read-only counts, sizes and times
    rules: tuple[KeyRule, ...] = ()
    #: Elements this version does not know: an update sends them back untouched (E-44).
    others: tuple[ET.Element, ...] = field(default=(), repr=False)

    def changed(self, changes: Mapping[str, Value]) -> "EntityEntry":
        return replace(self, properties={**self.properties, **changes})

    def with_rules(self, rules: Iterable[KeyRule]) -> "EntityEntry":
        return replace(self, rules=tuple(rules))


def parse_document(text: bytes) -> ET.Element:
    """Hostile XML (entities, expansion) is refused."""
    try:
        root: ET.Element = defusedxml.ElementTree.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise BadAnswer("The server answered with something that is not XML.") from error
    return root


def entries(document: ET.Element) -> list[ET.Element]:
    """The entries of a feed, or the entry itself."""
    return [document] if document.tag == f"{ATOM}entry" else document.findall(f"{ATOM}entry")


def read_entry(kind: EntityKind, entry: ET.Element) -> EntityEntry:
    description = entry.find(f"{ATOM}content/{CONNECT}{kind.element}")
    if description is None:
        raise BadAnswer(f"The server answered with an entry that describes no {kind.word}.")
    properties: dict[str, Value] = {}
    numbers: dict[str, Value] = {}
    rules: tuple[KeyRule, ...] = ()
    others: list[ET.Element] = []
    for child in description:
        element = child.tag.removeprefix(CONNECT)
        known = kind.property_of(element)
        if known is not None:
            text = child.text or ""
            properties[element] = target_name(text) if element in _FORWARDS else known.read(text)
        elif element == "AuthorizationRules":
            rules = tuple(_read_rule(rule) for rule in child)
        elif element == "CountDetails":
            numbers.update(_read_counts(child))
        elif element in READ_ONLY:
            numbers[element] = _number_or_text(child.text or "")
        else:
            others.append(child)
    title = entry.findtext(f"{ATOM}title") or ""
    return EntityEntry(kind, title, properties, numbers, rules, tuple(others))


def kind_of(entry: ET.Element) -> EntityKind | None:
    """Queues and topics share their names, so an entry may be of another kind than the one asked for."""
    content = f"{ATOM}content/{CONNECT}"
    return next((kind for kind in KINDS if entry.find(content + kind.element) is not None), None)


def target_name(address: str) -> str:
    """`sb://host:port/some/queue` → `some/queue`; a bare name stays as it is."""
    scheme, separator, rest = address.partition("://")
    return rest.partition("/")[2] if separator and scheme.isalpha() else address


def write_entry(entity: EntityEntry, extra: Mapping[str, ET.Element] | None = None) -> bytes:
    """The body of a create or an update: what is set, in the wire's order; read-only parts stay behind. `extra`
    are whole elements by name that stand in their place."""
    description = ET.Element(f"{CONNECT}{entity.kind.element}")
    for element in entity.kind.elements:
        known = entity.kind.property_of(element)
        if element == "AuthorizationRules":
            _write_rules(description, entity.rules)
        elif extra is not None and element in extra:
            description.append(extra[element])
        elif known is not None and entity.properties.get(element) is not None:
            child = ET.SubElement(description, f"{CONNECT}{element}")
            child.text = known.write(entity.properties[element])
    description.extend(entity.others)
    return document_of(description)


def document_of(description: ET.Element) -> bytes:
    entry = ET.Element(f"{ATOM}entry")
    content = ET.SubElement(entry, f"{ATOM}content", {"type": "application/xml"})
    content.append(description)
    document: bytes = ET.tostring(entry, encoding="utf-8")
    return document


def _read_counts(details: ET.Element) -> dict[str, Value]:
    return {name: int(details.findtext(f"{COUNTS}{name}") or 0) for name in _COUNT_NAMES}


def _number_or_text(text: str) -> Value:
    return int(text) if text.lstrip("-").isdigit() else text


def _read_rule(rule: ET.Element) -> KeyRule:
    rights = rule.find(f"{CONNECT}Rights")
    return KeyRule(
        name=rule.findtext(f"{CONNECT}KeyName") or "",
        rights=tuple(right.text or "" for right in rights) if rights is not None else (),
        primary_key=rule.findtext(f"{CONNECT}PrimaryKey") or "",
        secondary_key=rule.findtext(f"{CONNECT}SecondaryKey") or "",
    )


def _write_rules(description: ET.Element, rules: Iterable[KeyRule]) -> None:
    parent = ET.SubElement(description, f"{CONNECT}AuthorizationRules")
    for rule in rules:
        child = ET.SubElement(
            parent, f"{CONNECT}AuthorizationRule", {SCHEMA_TYPE: "SharedAccessAuthorizationRule"}
        )
        for name, text in (("ClaimType", "SharedAccessKey"), ("ClaimValue", "None")):
            ET.SubElement(child, f"{CONNECT}{name}").text = text
        rights = ET.SubElement(child, f"{CONNECT}Rights")
        for right in rule.rights:
            ET.SubElement(rights, f"{CONNECT}AccessRights").text = right
        for name, text in (
            ("KeyName", rule.name),
            ("PrimaryKey", rule.primary_key),
            ("SecondaryKey", rule.secondary_key),
        ):
            ET.SubElement(child, f"{CONNECT}{name}").text = text


Pairs = tuple[tuple[str, TypedValue], ...]

_PAIR: Final = f"{CONNECT}KeyValueOfstringanyType"
#: The prefix that stands for the schema's namespace in values of `type` attributes.
_PREFIX: Final = "d6p1"


def read_rule(entry: ET.Element) -> Rule:
    description = entry.find(f"{ATOM}content/{CONNECT}RuleDescription")
    if description is None:
        raise BadAnswer("The server answered with an entry that describes no rule.")
    name = description.findtext(f"{CONNECT}Name") or entry.findtext(f"{ATOM}title") or ""
    return Rule(
        name,
        _read_filter(description.find(f"{CONNECT}Filter")),
        _read_action(description.find(f"{CONNECT}Action")),
    )


def write_rule(rule: Rule) -> bytes:
    return document_of(rule_element(rule, "RuleDescription"))


def rule_element(rule: Rule, element: str) -> ET.Element:
    """`element` is RuleDescription, or DefaultRuleDescription inside a new subscription."""
    description = ET.Element(f"{CONNECT}{element}")
    _write_filter(description, rule.filter)
    _write_action(description, rule.action)
    ET.SubElement(description, f"{CONNECT}Name").text = rule.name
    return description


def _type_of(element: ET.Element) -> str:
    return (element.get(SCHEMA_TYPE) or "").rpartition(":")[2]


def _read_filter(element: ET.Element | None) -> Filter:
    kind = "" if element is None else _type_of(element)
    if element is None or kind not in ("SqlFilter", "TrueFilter", "FalseFilter", "CorrelationFilter"):
        raise BadAnswer(f"The server answered with a filter of an unknown type {kind[:60]!r}.")
    if kind == "CorrelationFilter":
        texts = {
            field: element.findtext(f"{CONNECT}{name}")
            for name, field in atom_names.CORRELATION_ELEMENTS
            if element.find(f"{CONNECT}{name}") is not None
        }
        return CorrelationFilter(**texts, properties=_read_pairs(element.find(f"{CONNECT}Properties")))
    expression, parameters, level, is_prepared = _read_sql(element)
    if kind == "TrueFilter":
        return TrueFilter(expression or "1=1", parameters, level, is_prepared)
    if kind == "FalseFilter":
        return FalseFilter(expression or "1=0", parameters, level, is_prepared)
    return SqlFilter(expression, parameters, level, is_prepared)


def _read_action(element: ET.Element | None) -> SqlAction | None:
    if element is None or _type_of(element) == "EmptyRuleAction":
        return None
    return SqlAction(*_read_sql(element))


def _read_sql(element: ET.Element) -> tuple[str, Pairs, int, bool]:
    level = element.findtext(f"{CONNECT}CompatibilityLevel") or ""
    return (
        element.findtext(f"{CONNECT}SqlExpression") or "",
        _read_pairs(element.find(f"{CONNECT}Parameters")),
        int(level) if level.isdecimal() and len(level) < 10 else COMPATIBILITY_LEVEL,
        (element.findtext(f"{CONNECT}RequiresPreprocessing") or "") == "true",
    )


def _read_pairs(element: ET.Element | None) -> Pairs:
    return () if element is None else tuple(_read_pair(pair) for pair in element.findall(_PAIR))


def _read_pair(pair: ET.Element) -> tuple[str, TypedValue]:
    name = pair.findtext(f"{CONNECT}Key") or ""
    value = pair.find(f"{CONNECT}Value")
    if value is None:
        raise BadAnswer(f"The server answered with a value of {name[:60]!r} that is missing.")
    try:
        return name, _typed(_type_of(value), value.text or "")
    except ValueError as error:
        raise BadAnswer(f"The server answered with a value of {name[:60]!r} that cannot be read.") from error


def _typed(type_name: str, text: str) -> TypedValue:
    if type_name in ("int", "long"):
        return TypedValue(type_name, int(text))
    if type_name == "boolean":
        return TypedValue(type_name, text in ("true", "1"))
    if type_name == "double":
        return TypedValue(type_name, float(text.replace("INF", "inf")))
    if type_name == "duration":
        return TypedValue(type_name, parse_span(text))
    if type_name == "dateTime":
        moment = instant_of(text)
        if moment is None:
            raise ValueError("not a moment")
        return TypedValue(type_name, moment.ticks, has_zone(text))
    if type_name == "string":
        return TypedValue(type_name, text)
    raise ValueError("not a known type")


def _write_filter(parent: ET.Element, filter_: Filter) -> None:
    element = ET.SubElement(parent, f"{CONNECT}Filter")
    if not isinstance(filter_, CorrelationFilter):
        element.set(SCHEMA_TYPE, type(filter_).__name__)
        _write_sql(element, filter_)
        return
    element.set(SCHEMA_TYPE, "CorrelationFilter")
    for name, attribute in atom_names.CORRELATION_ELEMENTS:
        value = getattr(filter_, attribute)
        if value is not None:
            ET.SubElement(element, f"{CONNECT}{name}").text = value
    _write_pairs(ET.SubElement(element, f"{CONNECT}Properties"), filter_.properties)


def _write_action(parent: ET.Element, action: SqlAction | None) -> None:
    element = ET.SubElement(parent, f"{CONNECT}Action")
    element.set(SCHEMA_TYPE, "EmptyRuleAction" if action is None else "SqlRuleAction")
    if action is not None:
        _write_sql(element, action)


def _write_sql(element: ET.Element, part: SqlFilter | SqlAction) -> None:
    ET.SubElement(element, f"{CONNECT}SqlExpression").text = part.expression
    ET.SubElement(element, f"{CONNECT}CompatibilityLevel").text = str(part.compatibility_level)
    _write_pairs(ET.SubElement(element, f"{CONNECT}Parameters"), part.parameters)
    is_prepared = "true" if part.requires_preprocessing else "false"
    ET.SubElement(element, f"{CONNECT}RequiresPreprocessing").text = is_prepared


def _write_pairs(parent: ET.Element, pairs: Pairs) -> None:
    for name, typed in pairs:
        pair = ET.SubElement(parent, _PAIR)
        ET.SubElement(pair, f"{CONNECT}Key").text = name
        is_span = typed.type_name == "duration"
        declared = {
            f"xmlns:{_PREFIX}": atom_names.SERIALIZATION if is_span else atom_names.SCHEMA,
            SCHEMA_TYPE: f"{_PREFIX}:{typed.type_name}",
        }
        ET.SubElement(pair, f"{CONNECT}Value", declared).text = _text_of(typed)


def _text_of(typed: TypedValue) -> str:
    value = typed.value
    if typed.type_name == "boolean":
        return "true" if value else "false"
    if typed.type_name == "dateTime":
        return moment_text(typed)
    if typed.type_name == "duration":
        return format_span(int(value))
    if typed.type_name == "double":
        return repr(float(value)).replace("inf", "INF").replace("nan", "NaN")
    return str(value)
