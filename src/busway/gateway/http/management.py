"""Entity management over HTTP, as the official admin clients speak it (ERR-43).

    GET    /$namespaceinfo                 the namespace
    GET    /$Resources/queues|topics       a page of entities
    GET    /NAME                           a queue; a missing one is 200 with a feed without entries
    PUT    /NAME                           create (409 when it exists); with If-Match update (404 when missing)
    DELETE /NAME                           200, or 404

Every route asks for Manage (A-9) before it looks at anything else, so a stranger learns nothing, not even
which names exist.
"""

from typing import Final

from starlette.responses import Response

from busway.broker.authorization import path_segments
from busway.broker.description_checks import default_queue
from busway.broker.descriptions import MANAGE, SEND, QueueDescription, RuntimeCounts, with_values
from busway.broker.entity_path import check_path, shown
from busway.broker.errors import (
    BadArgument,
    EntityNotFound,
    NotImplementedByServer,
    UpdateConflict,
)
from busway.clock import Clock
from busway.gateway.dotnet_ticks import ticks_of
from busway.gateway.http.atom import QueueInput, feed_of, namespace_entry, parse_queue, queue_entry
from busway.gateway.http.call import Call, Handler, ManagedNamespace
from busway.gateway.http.statuses import HttpRefusal

PAGE_MAX: Final = 100
_SKIP_MAX: Final = 1_000_000_000
_MISSING_TITLE: Final = "Publicly Listed Services"
NOT_HOSTED: Final = "No service is hosted at the specified address."


class Management:
    """The routes of entities; `app` calls `handle` for every path that is nobody else's."""

    def __init__(self, namespace: ManagedNamespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    async def handle(self, call: Call) -> Response:
        """Raises BrokerError or HttpRefusal; the app turns them into answers."""
        if path_segments(call.path) is None:
            # No token can be for such a path (some clients make one for exactly the address they ask for), and
            # there is nothing to protect at it: everybody is told what is wrong with it (E-6).
            check_path(call.path, self._namespace.limits.path_characters_max)
        call.require(MANAGE)
        segments = call.segments
        if call.path == "":
            return self._root(call)
        if segments == ["$namespaceinfo"]:
            return self._namespace_info(call)
        if segments[0] == "$resources":
            return await self._resources(call)
        if "subscriptions" in segments[1:]:
            return self._subscription(call)
        if _is_message_route(call.method, segments):
            raise NotImplementedByServer(
                "Sending and receiving over HTTP comes with a later version of Busway; use AMQP, or AMQP over"
                " WebSocket."
            )
        return await self._queue(call)

    # -- lists and the namespace --

    def _root(self, call: Call) -> Response:
        """Never a web page: clients send an empty name here by mistake (ERR-43)."""
        call.allow("GET", "HEAD")
        return _feed(feed_of(_MISSING_TITLE, call.url, self._clock.wall_ms()))

    def _namespace_info(self, call: Call) -> Response:
        call.allow("GET", "HEAD")
        created_at_ms = min((rule.created_at_ms for rule in self._namespace.rules()), default=0)
        entry = namespace_entry(
            self._namespace.name,
            self._namespace.limits.sku,
            created_at_ms,
            url=call.url,
            now_ms=self._clock.wall_ms(),
        )
        return _entry(200, entry)

    async def _resources(self, call: Call) -> Response:
        call.allow("GET", "HEAD")
        kind = "/".join(call.segments[1:])
        if kind == "queues":
            return await self._queues(call)
        if kind in ("topics", "eventhubs"):
            title = "Topics" if kind == "topics" else "EventHubs"
            return _feed(feed_of(title, call.url, self._clock.wall_ms()))
        raise EntityNotFound(f"There is no list called {shown(kind)}.")

    async def _queues(self, call: Call) -> Response:
        skip = _number(call, "$skip", 0, _SKIP_MAX)
        top = min(_number(call, "$top", PAGE_MAX, _SKIP_MAX), PAGE_MAX)
        known = self._namespace.descriptions()
        page = known[skip : skip + top]
        counts = await self._namespace.counts_of([description.path for description in page])
        entries = [
            self._listed(call, description, numbers)
            for description, numbers in zip(page, counts, strict=True)
        ]
        following = None
        if top > 0 and skip + top < len(known):
            query = f"$skip={skip + top}&$top={top}&api-version={call.api_version}"
            following = f"{call.root}/{call.path}?{query}"
        return _feed(feed_of("Queues", call.url, self._clock.wall_ms(), entries, following))

    def _listed(self, call: Call, description: QueueDescription, counts: RuntimeCounts) -> str:
        name_and_query = f"{description.path}?api-version={call.api_version}"
        return queue_entry(
            description,
            counts,
            url=f"{call.root}/{name_and_query}",
            author=self._namespace.name,
            api_version=call.api_version,
            base=call.url,
            link=f"../{name_and_query}",
        )

    # -- one queue --

    async def _queue(self, call: Call) -> Response:
        handlers: dict[str, Handler] = {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._put,
            "DELETE": self._delete,
        }
        call.allow(*handlers)
        check_path(call.path, self._namespace.limits.path_characters_max)
        return await handlers[call.method](call)

    async def _get(self, call: Call) -> Response:
        try:
            description = self._namespace.description(call.path)
        except EntityNotFound:
            return _feed(feed_of(_MISSING_TITLE, call.url, self._clock.wall_ms()))
        counts = await self._namespace.counts(call.path)
        return _entry(200, self._written(call, description, counts), _etag(description))

    async def _put(self, call: Call) -> Response:
        sent = parse_queue(await call.body(), call.api_version)
        for target in (sent.values.get("forward_to"), sent.values.get("forward_dead_lettered_messages_to")):
            if isinstance(target, str):
                check_path(target, self._namespace.limits.path_characters_max)
                call.require_on(target, SEND)
        if "if-match" in call.request.headers:
            return await self._update(call, sent)
        return await self._create(call, sent)

    async def _create(self, call: Call, sent: QueueInput) -> Response:
        wanted = with_values(default_queue(call.path, self._namespace.limits), sent.changes())
        made = await self._namespace.create_queue(wanted)
        return _entry(201, self._written(call, made, None))

    async def _update(self, call: Call, sent: QueueInput) -> Response:
        present = self._namespace.description(call.path)
        _check_match(call, present)
        changed = await self._namespace.update_queue(with_values(present, sent.changes()))
        counts = await self._namespace.counts(call.path)
        return _entry(200, self._written(call, changed, counts), _etag(changed))

    async def _delete(self, call: Call) -> Response:
        try:
            present = self._namespace.description(call.path)
        except EntityNotFound as error:
            raise HttpRefusal(404, NOT_HOSTED) from error
        _check_match(call, present)
        await self._namespace.delete_queue(call.path)
        return Response(status_code=200, headers=_etag(present))

    def _written(self, call: Call, description: QueueDescription, counts: RuntimeCounts | None) -> str:
        """Under the spelling it was created with (E-7)."""
        query = call.request.scope["query_string"].decode("latin-1")
        url = f"{call.root}/{description.path}" + (f"?{query}" if query else "")
        return queue_entry(
            description, counts, url=url, author=self._namespace.name, api_version=call.api_version
        )

    # -- what is not here yet --

    def _subscription(self, call: Call) -> Response:
        topic, _, rest = call.path.partition("/")
        if call.method not in ("GET", "HEAD", "DELETE"):
            raise NotImplementedByServer(
                "Topics, subscriptions and rules come with a later version of Busway; this one serves queues."
            )
        name = rest.split("/")[1] if "/" in rest else ""
        raise HttpRefusal(
            404, f"Entity {shown(f'{self._namespace.name}:Topic:{topic}|{name}')} was not found."
        )


def _is_message_route(method: str, segments: list[str]) -> bool:
    """The service's REST API for messages; a queue may still be called `a/messages`."""
    if method == "POST":
        return "messages" in segments[1:]
    return method in ("PUT", "DELETE") and (
        segments[-2:] == ["messages", "head"] or (len(segments) > 3 and segments[-3] == "messages")
    )


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 10) or int(text) > most:
        raise BadArgument(f"{name}: {text[:32]!r} is not a whole number between 0 and {most}.")
    return int(text)


def _check_match(call: Call, present: QueueDescription) -> None:
    """`*` matches whatever exists; an ETag must be the present one."""
    wanted = call.request.headers.get("if-match", "*").strip().removeprefix("W/").strip('"')
    if wanted not in ("*", _etag(present)["ETag"]):
        raise UpdateConflict(f"The entity {shown(present.path)} was changed since it was read.")


def _etag(description: QueueDescription) -> dict[str, str]:
    return {"ETag": str(ticks_of(description.updated_at_ms))}


def _entry(status: int, body: str, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/atom+xml; type=entry; charset=utf-8")


def _feed(body: str) -> Response:
    return Response(body, 200, media_type="application/atom+xml; type=feed; charset=utf-8")
