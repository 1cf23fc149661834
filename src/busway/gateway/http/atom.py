"""Queue descriptions as ATOM entries and feeds, byte for byte in the shape of the service.

Reading is by namespace, so every client's prefixes are welcome. Writing is by template, because clients read
by literal prefix (`i:`, `d2p1:`), by position (Python takes the SECOND `link` of a feed as its next page) and
by element order (`QUEUE_ELEMENTS`). Property names and kinds come from the broker's one table, `PROPERTIES`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, assert_never
from xml.etree.ElementTree import Element, tostring
from xml.sax.saxutils import escape, quoteattr

from busway.atom_names import ATOM, CONNECT, COUNTS, INSTANCE, QUEUE_ELEMENTS
from busway.broker.descriptions import (
    PROPERTY_OF,
    RIGHTS_ORDER,
    AuthorizationRule,
    Kind,
    Property,
    QueueDescription,
    RuntimeCounts,
)
from busway.broker.durations import format_duration, parse_duration
from busway.broker.errors import BadArgument, NotImplementedByServer
from busway.gateway.http.statuses import xml_text
from busway.gateway.http.xml_input import parse_xml

MESSAGE_SIZE_ELEMENT: Final = "MaxMessageSizeInKilobytes"
#: The first version that knows MaxMessageSizeInKilobytes (E-22).
_MESSAGE_SIZE_SINCE: Final = "2021-05"
#: An update clears a text by leaving it out (clients send back everything they want to keep).
_TEXTS: Final = [entry for entry in PROPERTY_OF.values() if entry.kind is Kind.TEXT]
_FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_UNKNOWN_ELEMENTS_MAX: Final = 64
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_LATER: Final = {
    "TopicDescription": "Topics",
    "SubscriptionDescription": "Subscriptions",
    "RuleDescription": "Subscription rules",
    "EventHubDescription": "Event hubs",
    "ConsumerGroupDescription": "Consumer groups",
}
_NEVER: Final = "0001-01-01T00:00:00Z"


@dataclass(frozen=True)
class QueueInput:
    """What a client sent about a queue: checked in form, not yet in meaning."""

    values: dict[str, int | bool | str | None] = field(default_factory=dict)  # by field of QueueDescription
    rules: tuple[AuthorizationRule, ...] = ()
    unknown_elements: tuple[str, ...] = ()

    def changes(self) -> dict[str, object]:
        """For `with_values`."""
        return {
            **self.values,
            "authorization_rules": self.rules,
            "unknown_elements": self.unknown_elements,
        }


# -- reading --


def parse_queue(body: bytes, api_version: str) -> QueueInput:
    """The description inside an ATOM entry. Raises BadArgument, or NotImplementedByServer for other entities."""
    description = _description(parse_xml(body))
    kind = _local_name(description)
    if kind in _LATER:
        raise NotImplementedByServer(
            f"{_LATER[kind]} come with a later version of Busway; this one serves queues."
        )
    if kind != "QueueDescription":
        raise BadArgument("The entry's content must be one QueueDescription.")
    return _queue_input(description, api_version)


def _description(entry: Element) -> Element:
    if entry.tag != f"{{{ATOM}}}entry":
        raise BadArgument("The body must be an ATOM entry.")
    contents = entry.findall(f"{{{ATOM}}}content")
    children = list(contents[0]) if len(contents) == 1 else []
    if len(children) != 1:
        raise BadArgument("The ATOM entry must have one content with one description in it.")
    return children[0]


def _queue_input(description: Element, api_version: str) -> QueueInput:
    values: dict[str, int | bool | str | None] = {entry.field: None for entry in _TEXTS}
    rules: tuple[AuthorizationRule, ...] = ()
    unknown: list[str] = []
    seen: set[str] = set()
    for child in description:
        name = _local_name(child)
        if name in seen:
            raise BadArgument(f"{name} comes twice.")
        if name in QUEUE_ELEMENTS:
            seen.add(name)
        if name == "AuthorizationRules":
            rules = tuple(_rule(rule) for rule in child)
        elif name in PROPERTY_OF:
            _check_version(name, api_version)
            _read_property(PROPERTY_OF[name], child, values)
        elif name not in QUEUE_ELEMENTS:
            unknown.append(_kept(child))
    if len(unknown) > _UNKNOWN_ELEMENTS_MAX:
        raise BadArgument(f"More than {_UNKNOWN_ELEMENTS_MAX} unknown elements.")
    return QueueInput(values, rules, tuple(unknown))


def _check_version(name: str, api_version: str) -> None:
    if name == MESSAGE_SIZE_ELEMENT and api_version < _MESSAGE_SIZE_SINCE:
        raise BadArgument(f"{name} needs api-version {_MESSAGE_SIZE_SINCE} or later, not {api_version}.")


def _read_property(entry: Property, child: Element, values: dict[str, int | bool | str | None]) -> None:
    if child.get(f"{{{INSTANCE}}}nil") == "true":
        return
    value = _value(entry, "".join(child.itertext()))
    if entry.name in _FORWARDS and isinstance(value, str):
        value = entity_of_url(value)
    values[entry.field] = value


def _value(entry: Property, text: str) -> int | bool | str | None:
    match entry.kind:
        case Kind.TEXT:
            return text or None
        case Kind.NAME:
            return text.strip()
        case Kind.DURATION:
            return parse_duration(text.strip(), entry.name)
        case Kind.FLAG:
            return _flag(entry.name, text.strip())
        case Kind.INTEGER:
            return _integer(entry.name, text.strip())
        case never:
            assert_never(never)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise BadArgument(f"{name}: {text[:80]!r} is not true or false.")
    return _FLAGS[text.lower()]


def _integer(name: str, text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BadArgument(f"{name}: {text[:80]!r} is not a whole number.")
    return int(text)


def entity_of_url(text: str) -> str:
    """`sb://host:port/name` → `name`: clients write the target of a forward as an address."""
    scheme, separator, rest = text.partition("://")
    if separator == "" or scheme.lower() not in ("sb", "https", "http", "amqps", "amqp"):
        return text.strip("/")
    return rest.partition("/")[2].strip("/")


def _rule(element: Element) -> AuthorizationRule:
    texts = {_local_name(child): "".join(child.itertext()) for child in element}
    rights = element.find(f"{{{CONNECT}}}Rights")
    return AuthorizationRule(
        name=texts.get("KeyName", ""),
        rights=frozenset(right.text or "" for right in rights) if rights is not None else frozenset(),
        primary_key=texts.get("PrimaryKey", ""),
        secondary_key=texts.get("SecondaryKey", ""),
        claim_type=texts.get("ClaimType") or "SharedAccessKey",
        claim_value=texts.get("ClaimValue") or "None",
    )


def _kept(element: Element) -> str:
    """E-44: an element of the future, as text that stands by itself (it declares its own namespaces)."""
    element.tail = None
    return tostring(element, encoding="unicode")


def _local_name(element: Element) -> str:
    """The name without its namespace when that is the service's; else with it, so it is never mistaken."""
    return str(element.tag).removeprefix(f"{{{CONNECT}}}")


# -- writing --


def queue_entry(
    description: QueueDescription,
    counts: RuntimeCounts | None,
    *,
    url: str,
    author: str,
    api_version: str,
    base: str | None = None,
    link: str | None = None,
) -> str:
    """An entry; `counts` is None in the answer to a creation (no AccessedAt, no CountDetails), `base` is the
    feed's address inside a feed, where the entry's own `link` is relative."""
    content = queue_element(description, counts, url, api_version)
    return entry_of(
        content,
        url=url,
        title=description.path,
        published=description.created_at_ms,
        updated=description.updated_at_ms,
        author=author,
        base=base,
        link=link,
    )


def entry_of(
    content: str,
    *,
    url: str,
    title: str,
    published: int | None,
    updated: int,
    author: str,
    base: str | None = None,
    link: str | None = None,
) -> str:
    namespace = f' xmlns="{ATOM}"' if base is None else f" xml:base={quoteattr(xml_text(base))}"
    first = "" if published is None else f"<published>{_seconds(published)}</published>"
    return (
        f'<entry{namespace}><id>{_text(url)}</id><title type="text">{_text(title)}</title>{first}'
        f"<updated>{_seconds(updated)}</updated><author><name>{_text(author)}</name></author>"
        f'<link rel="self" href={quoteattr(xml_text(link if link is not None else url))}/>'
        f'<content type="application/xml">{content}</content></entry>'
    )


def feed_of(
    title: str, url: str, updated: int, entries: Iterable[str] = (), next_url: str | None = None
) -> str:
    """Exactly one link, or exactly two when there is a next page: Python counts them."""
    following = "" if next_url is None else f'<link rel="next" href={quoteattr(xml_text(next_url))}/>'
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{_text(title)}</title><id>{_text(url)}</id>'
        f'<updated>{_seconds(updated)}</updated><link rel="self" href={quoteattr(xml_text(url))}/>{following}'
        f"{''.join(entries)}</feed>"
    )


def queue_element(
    description: QueueDescription, counts: RuntimeCounts | None, url: str, api_version: str
) -> str:
    parts = [_element(name, description, counts, url) for name in _elements_for(api_version)]
    return (
        f'<QueueDescription xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{"".join(parts)}'
        f"{''.join(description.unknown_elements)}</QueueDescription>"
    )


def _elements_for(api_version: str) -> Sequence[str]:
    return QUEUE_ELEMENTS if api_version >= _MESSAGE_SIZE_SINCE else QUEUE_ELEMENTS[:-1]


def _element(name: str, description: QueueDescription, counts: RuntimeCounts | None, url: str) -> str:
    entry = PROPERTY_OF.get(name)
    if entry is None:
        return _read_only(name, description, counts)
    value = getattr(description, entry.field)
    if value is None or value == "":
        return ""
    if name in _FORWARDS:
        value = _sibling(url, str(value))
    return f"<{name}>{_property_text(entry, value)}</{name}>"


def _property_text(entry: Property, value: int | bool | str) -> str:
    if entry.kind is Kind.DURATION:
        return format_duration(int(value))
    if entry.kind is Kind.FLAG:
        return "true" if value else "false"
    return _text(str(value))


def _read_only(name: str, description: QueueDescription, counts: RuntimeCounts | None) -> str:
    if name == "AuthorizationRules":
        return f"<{name}>{''.join(_rule_element(rule) for rule in description.authorization_rules)}</{name}>"
    if name in ("AccessedAt", "CountDetails") and counts is None:
        return ""
    known = counts if counts is not None else RuntimeCounts()
    if name == "CountDetails":
        return _count_details(known)
    texts = {
        "SizeInBytes": str(known.size_bytes),
        "MessageCount": str(known.total),
        "CreatedAt": timestamp(description.created_at_ms),
        "UpdatedAt": timestamp(description.updated_at_ms),
        "AccessedAt": timestamp(known.accessed_at_ms),
        "EntityAvailabilityStatus": _text(known.availability),
    }
    return f"<{name}>{texts[name]}</{name}>"


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
    """With its keys: whoever manages the queue reads them, as from the service."""
    rights = "".join(
        f"<AccessRights>{right}</AccessRights>" for right in RIGHTS_ORDER if right in rule.rights
    )
    return (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule">'
        f"<ClaimType>{_text(rule.claim_type)}</ClaimType><ClaimValue>{_text(rule.claim_value)}</ClaimValue>"
        f"<Rights>{rights}</Rights><KeyName>{_text(rule.name)}</KeyName>"
        f"<PrimaryKey>{_text(rule.primary_key)}</PrimaryKey>"
        f"<SecondaryKey>{_text(rule.secondary_key)}</SecondaryKey></AuthorizationRule>"
    )


def namespace_entry(name: str, sku: str, created_at_ms: int, *, url: str, now_ms: int) -> str:
    content = (
        f'<NamespaceInfo xmlns="{CONNECT}" xmlns:i="{INSTANCE}"><CreatedTime>{timestamp(created_at_ms)}'
        f"</CreatedTime><MessagingSKU>{_text(sku)}</MessagingSKU>"
        f"<ModifiedTime>{timestamp(created_at_ms)}</ModifiedTime><Name>{_text(name)}</Name>"
        "<NamespaceType>Messaging</NamespaceType></NamespaceInfo>"
    )
    return entry_of(content, url=url, title=name, published=None, updated=now_ms, author=name)


def timestamp(at_ms: int) -> str:
    """UTC with as many decimals as needed; 0 is "never"."""
    if at_ms <= 0:
        return _NEVER
    decimals = f"{at_ms % 1000:03d}".rstrip("0")
    return _seconds(at_ms)[:-1] + (f".{decimals}" if decimals else "") + "Z"


def _seconds(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sibling(url: str, path: str) -> str:
    """`sb://host/path` for another entity beside the one at `url`."""
    authority = url.partition("://")[2].partition("/")[0]
    return f"sb://{authority}/{path}"


def _text(text: str) -> str:
    return escape(xml_text(text))
