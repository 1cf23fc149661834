"""ATOM entries and feeds around what an entity is (`entity_xml`, `rule_xml`), in the shape of the service.

Reading is by namespace, so every client's prefixes are welcome. Writing is by template, because clients read by
literal prefix (`i:`, `d2p1:`, `d6p1:`) and by position (Python takes the SECOND `link` of a feed as its next page).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from busway.atom_names import ATOM, CONNECT, INSTANCE
from busway.gateway.http.statuses import xml_text
from busway.gateway.http.xml_input import parse_xml
from busway.model.errors import BadArgument

_NEVER: Final = "0001-01-01T00:00:00Z"


# -- reading --


def described(body: bytes) -> Element:
    """The one description inside an ATOM entry. Raises BadArgument."""
    entry = parse_xml(body)
    if entry.tag != f"{{{ATOM}}}entry":
        raise BadArgument("The body must be an ATOM entry.")
    contents = entry.findall(f"{{{ATOM}}}content")
    children = list(contents[0]) if len(contents) == 1 else []
    if len(children) != 1:
        raise BadArgument("The ATOM entry must have one content with one description in it.")
    return children[0]


def local_name(element: Element) -> str:
    """The name without its namespace when that is the service's; else with it, so it is never mistaken."""
    return str(element.tag).removeprefix(f"{{{CONNECT}}}")


def is_nil(element: Element) -> bool:
    return element.get(f"{{{INSTANCE}}}nil") in ("true", "1")


def text_of(element: Element) -> str:
    return "".join(element.itertext())


# -- writing --


@dataclass(frozen=True)
class EntryAddress:
    """Where an entry stands: `url` is its id; inside a feed it has the feed's address as `base` and a relative
    `link`. `author` is the namespace's name on queues and topics, None on what lies below them."""

    url: str
    author: str | None = None
    base: str | None = None
    link: str | None = None


def entry_of(content: str, place: EntryAddress, *, title: str, published: int | None, updated: int) -> str:
    base, link = place.base, place.url if place.link is None else place.link
    namespace = f' xmlns="{ATOM}"' if base is None else f" xml:base={quoteattr(xml_text(base))}"
    first = "" if published is None else f"<published>{_seconds(published)}</published>"
    author = "" if place.author is None else f"<author><name>{xml_escaped(place.author)}</name></author>"
    return (
        f'<entry{namespace}><id>{xml_escaped(place.url)}</id><title type="text">{xml_escaped(title)}</title>'
        f"{first}<updated>{_seconds(updated)}</updated>{author}"
        f'<link rel="self" href={quoteattr(xml_text(link))}/>'
        f'<content type="application/xml">{content}</content></entry>'
    )


def feed_of(
    title: str, url: str, updated: int, entries: Iterable[str] = (), next_url: str | None = None
) -> str:
    """Exactly one link, or exactly two when there is a next page: Python counts them."""
    following = "" if next_url is None else f'<link rel="next" href={quoteattr(xml_text(next_url))}/>'
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{xml_escaped(title)}</title><id>{xml_escaped(url)}</id>'
        f'<updated>{_seconds(updated)}</updated><link rel="self" href={quoteattr(xml_text(url))}/>{following}'
        f"{''.join(entries)}</feed>"
    )


def namespace_entry(name: str, sku: str, created_at_ms: int, *, url: str, now_ms: int) -> str:
    content = (
        f'<NamespaceInfo xmlns="{CONNECT}" xmlns:i="{INSTANCE}"><CreatedTime>{timestamp(created_at_ms)}'
        f"</CreatedTime><MessagingSKU>{xml_escaped(sku)}</MessagingSKU>"
        f"<ModifiedTime>{timestamp(created_at_ms)}</ModifiedTime><Name>{xml_escaped(name)}</Name>"
        "<NamespaceType>Messaging</NamespaceType></NamespaceInfo>"
    )
    return entry_of(content, EntryAddress(url, name), title=name, published=None, updated=now_ms)


def timestamp(at_ms: int) -> str:
    """UTC with as many decimals as needed; 0 is "never"."""
    if at_ms <= 0:
        return _NEVER
    decimals = f"{at_ms % 1000:03d}".rstrip("0")
    return _seconds(at_ms)[:-1] + (f".{decimals}" if decimals else "") + "Z"


def _seconds(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def xml_escaped(text: str) -> str:
    """A carriage return is escaped too: a reader would make a line feed of it."""
    return escape(xml_text(text), {"\r": "&#xD;"})
