"""A queue, topic or subscription as the management API tells it: read from and written to ATOM entries."""

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
    Property,
    Value,
)

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
    properties: tuple[Property, ...]
    elements: tuple[str, ...]

    def property_of(self, element: str) -> Property | None:
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
