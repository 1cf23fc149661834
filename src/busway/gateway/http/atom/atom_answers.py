"""What management routes answer with: entries, feeds, pages of them; and what they ask of If-Match."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.responses import Response

from busway.gateway.http.atom.atom import feed_of
from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal
from busway.message.dotnet_time import ticks_of
from busway.model.descriptions import Description
from busway.model.entity_path import shown
from busway.model.errors import BadArgument, UpdateConflict

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
