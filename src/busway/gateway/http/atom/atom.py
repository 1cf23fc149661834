"""ATOM entries and feeds around what an entity is (`entity_xml`, `rule_xml`), in the shape of the service.

Reading is by namespace, so every client's prefixes are welcome. Writing is by template, because clients read by
literal prefix (`i:`, `d2p1:`, `d6p1:`) and by position (Python takes the SECOND `link` of a feed as its next
page).

Then what management routes answer with: entries, feeds, pages of them; and what they ask of If-Match.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from starlette.responses import Response

from busway.atom_names import ATOM, CONNECT, INSTANCE
from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal, xml_text
from busway.gateway.http.untrusted_input import parse_xml
from busway.message.message import ticks_of
from busway.model.descriptions import Description
from busway.model.entity_path import shown
from busway.model.errors import BadArgument, UpdateConflict

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


PAGE_MAX: Final = 100
_SKIP_MAX: Final = 1_000_000_000
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class FeedPage(Generic[_Item]):
    """`next_url` is None on the last one."""

    items: Sequence[_Item]
    next_url: str | None


def page_of(call: Call, known: Sequence[_Item]) -> FeedPage[_Item]:
    """What $skip and $top ask for; at most a hundred."""
    return page_found(call, lambda skip, count: known[skip : skip + count])


def page_found(call: Call, find: Callable[[int, int], Sequence[_Item]]) -> FeedPage[_Item]:
    """The same of what is found by `skip` and `count`. One more than the page is asked for: is there another?"""
    skip = _number(call, "$skip", 0)
    top = min(_number(call, "$top", PAGE_MAX), PAGE_MAX)
    found = find(skip, top + 1)
    following = None
    if 0 < top < len(found):
        query = f"$skip={skip + top}&$top={top}&api-version={call.api_version}"
        following = f"{call.root}/{call.path}?{query}"
    return FeedPage(found[:top], following)


def _number(call: Call, name: str, default: int) -> int:
    text = call.request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or int(text) > _SKIP_MAX:
        raise BadArgument(f"{name}: {text[:32]!r} is not a whole number between 0 and {_SKIP_MAX}.")
    return int(text)


def entry_answer(status: int, body: str, etag: str | None = None) -> Response:
    return Response(
        body, status, etag_header(etag), media_type="application/atom+xml; type=entry; charset=utf-8"
    )


def feed_answer(
    call: Call, title: str, now_ms: int, entries: Sequence[str] = (), next_url: str | None = None
) -> Response:
    body = feed_of(title, call.url, now_ms, entries, next_url)
    return Response(body, 200, media_type="application/atom+xml; type=feed; charset=utf-8")


def deleted_answer(etag: str) -> Response:
    return Response(status_code=200, headers=etag_header(etag))


def etag_header(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"ETag": etag}


def etag_of(description: Description) -> str:
    return str(ticks_of(description.updated_at_ms))


def check_match(call: Call, path: str, etag: str) -> None:
    """`*` matches whatever exists; an ETag must be the present one."""
    wanted = call.request.headers.get("if-match", "*").strip().removeprefix("W/").strip('"')
    if wanted not in ("*", etag):
        raise UpdateConflict(f"The entity {shown(path)} was changed since it was read.")


def is_update(call: Call) -> bool:
    """A PUT with If-Match changes what exists; without, it creates (ERR-43)."""
    return "if-match" in call.request.headers


def invalid_verb(call: Call, allowed: str) -> HttpRefusal:
    """Below a topic the service refuses a verb with 400, in these words; clients show them."""
    return HttpRefusal(400, f"The specified HTTP verb ({call.method}) is not valid.", {"Allow": allowed})


def entry_url(call: Call, path: str, *, scheme: str | None = None) -> str:
    """The address of what was asked for, under the spelling it was created with (E-7), with the query as it was
    asked. The service writes the scheme `sb` when it reads what lies below a topic."""
    query = call.request.scope["query_string"].decode("latin-1")
    root = call.root if scheme is None else f"{scheme}://{call.authority}"
    return f"{root}/{path}" + (f"?{query}" if query else "")
