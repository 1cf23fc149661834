"""For whoever runs the bus: stores and the namespace's own keys, a bus made as new, figures, the status page.

What an operator does besides entities, in JSON:

    GET    /$stores                        [{name, url, state, owner, epoch, fragments}]
    POST   /$stores/NAME/disable|enable    take a store out of service, or back
    GET    /$fragments/ENTITY              [{index, store, health, availability, active, deadLettered, …}]
    GET    /$rules                         [{name, rights, primaryKey, secondaryKey, createdAt, modifiedAt}]
    PUT    /$rules/NAME                    {rights, primaryKey?, secondaryKey?}; a key left out stays, or is drawn
    DELETE /$rules/NAME
    POST   /$reset                         empties the bus, for test suites
    GET    /$backup                        {state, to, bytes, bytesTotal, heldMs, stores, error}: the last backup
    POST   /$backup                        {to, note}: begins one, in a folder that the caller has made (see draft)
    DELETE /$backup                        ends one that is under way

All of them ask for Manage on the namespace (`router` does): a queue's own rule never opens them. Refusals have the
XML body of every other route, so a client reads one kind of error.

A reset is guarded thrice: the server was started with `--allow-reset`, which it takes on loopback only, and the
caller may Manage the namespace. Whoever may not is told that first, so a stranger does not learn whether it would
be allowed.

    GET    /metrics                        the figures of the namespace for Prometheus

On loopback they are open to everybody who may see the status page. Elsewhere they need a token with Manage or
Listen on the namespace itself, because names of entities are in them: a rule of one entity does not open them, not
even of an entity called `metrics`. That entity may exist. Administration clients name the version of their API in
every request and scrapers never do, so a request with `api-version` means the entity.

Nobody needs a key for two things: that the server lives, and, where the console is off, a plain page at
`console_url`, which tells its version and how many entities there are. Nothing secret. It carries no script, no style
from elsewhere and no form, and says so in its Content-Security-Policy. Names of entities are not on it: it needs no
key to be read.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Final, Protocol

from starlette.responses import JSONResponse, RedirectResponse, Response

from busway import __version__
from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.gateway.http.atom.atom import timestamp
from busway.gateway.http.call import Call
from busway.gateway.http.statuses import HttpRefusal
from busway.model.descriptions import (
    ALL_RIGHTS,
    LISTEN,
    MANAGE,
    RIGHTS_ORDER,
    AuthorizationRule,
    FragmentCounts,
    random_key,
)
from busway.model.entity_path import path_key, shown
from busway.model.errors import BadArgument, EntityNotFound, InvalidOperation
from busway.signals.pipelines import Pipelines

if TYPE_CHECKING:
    from busway.signals.exposition import Exposition, MeasuredHubs, MeasuredNamespace
    from busway.signals.measured_process import MeasuredLeases, MeasuredProcess
    from busway.signals.pipelines import MeasuredPipelines

_RULE_KEYS: Final = frozenset({"rights", "primaryKey", "secondaryKey"})
_JSON_DEPTH_MAX: Final = 8
#: Keys are in the answers: no cache on the way may keep them.
_NO_STORE: Final = {"Cache-Control": "no-store"}


class OperatorRoutes:
    """What an operator does besides entities: stores and the namespace's own keys, in JSON; and a bus made as
    new."""

    def __init__(self, namespace: Namespace, clock: Clock, entropy: Entropy) -> None:
        self._namespace = namespace
        self._clock = clock
        self._entropy = entropy

    # -- stores --

    async def stores(self, _: Call) -> Response:
        return _json(self._namespace.stores.shown())

    async def switch_store(self, _: Call, name: str, verb: str) -> Response:
        if name not in {str(store["name"]) for store in self._namespace.stores.shown()}:
            raise EntityNotFound(f"There is no store called {shown(name)}.")
        if verb.lower() == "disable":
            await self._namespace.stores.disable(name)
        else:
            await self._namespace.stores.enable(name)
        return Response(status_code=200)

    async def fragments(self, _: Call, entity: str) -> Response:
        """O-8: where each fragment of an entity lies, how its store is, what it holds."""
        return _json([_fragment_json(counts) for counts in self._namespace.fragment_counts(entity)])

    # -- the namespace's rules --

    async def rules(self, _: Call) -> Response:
        return _json([_rule_json(rule) for rule in self._namespace.access.rules()])

    async def rule(self, _: Call, name: str) -> Response:
        return _json(_rule_json(self._known(name)))

    async def put_rule(self, call: Call, name: str) -> Response:
        sent = parse_json(await call.body())
        rules = self._namespace.access.rules()
        known = _find(rules, name)
        wanted = self._wanted(name, sent, known)
        others = tuple(rule for rule in rules if rule is not known)
        _check_manager((*others, wanted))
        await self._namespace.access.set((*others, wanted))
        return _json(_rule_json(self._known(name)), 201 if known is None else 200)

    async def delete_rule(self, _: Call, name: str) -> Response:
        known = self._known(name)
        others = tuple(rule for rule in self._namespace.access.rules() if rule is not known)
        _check_manager(others)
        await self._namespace.access.set(others)
        return Response(status_code=200)

    def _known(self, name: str) -> AuthorizationRule:
        known = _find(self._namespace.access.rules(), name)
        if known is None:
            raise EntityNotFound(f"There is no rule called {shown(name)}.")
        return known

    def _wanted(self, name: str, sent: object, known: AuthorizationRule | None) -> AuthorizationRule:
        """Checked in form here; the namespace checks names, rights and keys as for every other rule."""
        if not isinstance(sent, dict) or not sent.keys() <= _RULE_KEYS or "rights" not in sent:
            raise BadArgument(
                "The body must be an object with rights, and optionally primaryKey and secondaryKey."
            )
        now_ms = self._clock.wall_ms()
        fresh = AuthorizationRule(
            name, frozenset(), random_key(self._entropy), random_key(self._entropy), now_ms
        )
        start = known if known is not None else fresh
        return replace(
            start,
            rights=_rights(sent["rights"]),
            primary_key=_text(sent, "primaryKey") or start.primary_key,
            secondary_key=_text(sent, "secondaryKey") or start.secondary_key,
            modified_at_ms=now_ms,
        )


def parse_json(body: bytes) -> object:
    """Raises BadArgument; depth is bounded because the parser recurses."""
    if body.count(b"[") + body.count(b"{") > _JSON_DEPTH_MAX:
        raise BadArgument("The body is nested too deeply.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadArgument("The body is not JSON.") from error


def _check_manager(rules: tuple[AuthorizationRule, ...]) -> None:
    if not any(MANAGE in rule.rights for rule in rules):
        raise InvalidOperation(
            "At least one rule with Manage must stay: nobody could manage the namespace any more."
        )


def _find(rules: tuple[AuthorizationRule, ...], name: str) -> AuthorizationRule | None:
    return next((rule for rule in rules if path_key(rule.name) == path_key(name)), None)


def _rights(sent: object) -> frozenset[str]:
    names = {right.lower(): right for right in ALL_RIGHTS}
    if not isinstance(sent, list) or not all(
        isinstance(right, str) and right.lower() in names for right in sent
    ):
        raise BadArgument("rights must be a list of Manage, Send and Listen.")
    return frozenset(names[right.lower()] for right in sent)


def _text(sent: dict[object, object], key: str) -> str:
    value = sent.get(key, "")
    if value is not None and not isinstance(value, str):
        raise BadArgument(f"{key} must be a text.")
    return value or ""


def _rule_json(rule: AuthorizationRule) -> dict[str, object]:
    return {
        "name": rule.name,
        "rights": [right for right in RIGHTS_ORDER if right in rule.rights],
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
        "createdAt": timestamp(rule.created_at_ms),
        "modifiedAt": timestamp(rule.modified_at_ms),
    }


def _fragment_json(fragment: FragmentCounts) -> dict[str, object]:
    counts = fragment.counts
    return {
        "index": fragment.index,
        "store": fragment.store,
        "health": fragment.health,
        "availability": counts.availability,
        "active": counts.active,
        "deadLettered": counts.dead_letter,
        "scheduled": counts.scheduled,
        "deferred": counts.deferred,
        "sizeInBytes": counts.size_bytes,
    }


def _json(content: object, status: int = 200) -> Response:
    return JSONResponse(content, status, _NO_STORE)


class BackupMaker(Protocol):
    """Whoever can copy the bus while it works."""

    async def begin(self, target: str, note: str) -> None:
        """Returns when it is decided what is in it. Raises BrokerError."""

    def told(self) -> dict[str, object]: ...

    def stop(self) -> None: ...


class BackupRoute:
    """`backups`: None where there are no files to copy."""

    def __init__(self, backups: BackupMaker | None) -> None:
        self._backups = backups

    async def tell(self, _: Call) -> Response:
        return _json(self._found().told())

    async def begin(self, call: Call) -> Response:
        sent = parse_json(await call.body())
        if not isinstance(sent, dict) or sent.keys() != {"to", "note"}:
            raise BadArgument("The body must be an object with to and note.")
        await self._found().begin(_text(sent, "to"), _text(sent, "note"))
        return _json(self._found().told(), 202)

    async def stop(self, _: Call) -> Response:
        self._found().stop()
        return _json(self._found().told())

    def _found(self) -> BackupMaker:
        if self._backups is None:
            raise HttpRefusal(404, "This server makes no backups.")
        return self._backups


#: Raises BrokerError.
MakeNew = Callable[[], Awaitable[None]]


class ResetRoute:
    """`make_new`: None when the server does not allow it."""

    def __init__(self, make_new: MakeNew | None, pipelines: Pipelines) -> None:
        self._make_new = make_new
        self._pipelines = pipelines
        #: One after the other: each makes again what a configuration file describes.
        self._turn = asyncio.Lock()

    async def reset(self, _: Call) -> Response:
        if self._make_new is None:
            raise HttpRefusal(
                403, "This server does not empty its bus: it was started without busway serve --allow-reset."
            )
        async with self._turn:
            await self._make_new()
            self._pipelines.clear()
        return Response(status_code=204)


class NodesRoute:
    """`GET /$nodes`: the servers that share the stores; none where nobody can."""

    def __init__(self, leases: "MeasuredLeases | None") -> None:
        self._leases = leases

    async def nodes(self, _: Call) -> Response:
        return JSONResponse([] if self._leases is None else self._leases.nodes())


METRICS_PATH: Final = "metrics"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEADERS: Final = {"Cache-Control": "no-store"}


class MetricsRoute:
    """`GET /metrics`: the figures of the namespace for Prometheus."""

    def __init__(
        self,
        namespace: "MeasuredNamespace",
        hubs: "MeasuredHubs | None" = None,
        process: "MeasuredProcess | None" = None,
        pipelines: "MeasuredPipelines | None" = None,
        *,
        is_open: bool,
    ) -> None:
        self._measured = (namespace, hubs, process, pipelines)
        self._exposition: Exposition | None = None
        self._is_open = is_open

    @staticmethod
    def is_meant(call: Call) -> bool:
        return (
            call.path == METRICS_PATH
            and call.method in ("GET", "HEAD")
            and "api-version" not in call.request.query_params
        )

    async def answer(self, call: Call) -> Response:
        if not self._is_open:
            call.require_on_namespace(MANAGE, LISTEN)
        if self._exposition is None:
            # In a thread: it takes longer than a request should hold the loop.
            kind = await asyncio.to_thread(_exposition_class)
            self._exposition = self._exposition or kind(*self._measured)
        return Response(await self._exposition.text(), 200, _HEADERS, media_type=CONTENT_TYPE)


def _exposition_class() -> "type[Exposition]":
    """Imported with the first scrape: most servers are never scraped."""
    from busway.signals.exposition import Exposition

    return Exposition


CONSOLE_PATH: Final = "/$console"
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StatusPage:
    """What nobody needs a key for: that the server lives, whether it is ready, and where its page is."""

    def __init__(self, namespace: Namespace, readiness: Callable[[], str]) -> None:
        self._namespace = namespace
        self._readiness = readiness

    async def health(self, _: Call) -> Response:
        return JSONResponse({"status": "healthy"})

    async def ready(self, _: Call) -> Response:
        """Whether a balancer should send anybody here."""
        state = self._readiness()
        if state == "ready" and not any(store["state"] == "open" for store in self._namespace.stores.shown()):
            state = "without stores"
        status = 200 if state == "ready" else 503
        return JSONResponse({"status": state}, status, {"Cache-Control": "no-store"})

    async def redirect(self, _: Call) -> Response:
        return RedirectResponse(CONSOLE_PATH, 307)

    @staticmethod
    def is_health(call: Call) -> bool:
        """A queue may be called `health` or `ready`: whoever shows a token means the queue."""
        return call.path in ("health", "ready") and "authorization" not in call.request.headers

    @staticmethod
    def is_browser(call: Call) -> bool:
        headers = call.request.headers
        return "text/html" in headers.get("accept", "") and "authorization" not in headers


def status_page(namespace: Namespace) -> Response:
    facts = (
        ("Namespace", namespace.name),
        ("Version", __version__),
        ("Queues", str(len(namespace.queues()))),
        ("Topics", str(len(namespace.topics()))),
        ("Stores", _stores(namespace)),
    )
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Busway</title></head>'
        f"<body><h1>Busway is running</h1><dl>{rows}</dl>"
        "<p>Manage entities with the command line (busway --help) or any Service Bus administration client.</p>"
        "</body></html>"
    )
    return Response(page, 200, PAGE_HEADERS, media_type="text/html; charset=utf-8")


def _stores(namespace: Namespace) -> str:
    """`4 open`, or with what is not: `1 disabled, 3 open`."""
    states: dict[str, int] = {}
    for store in namespace.stores.shown():
        state = str(store["state"])
        states[state] = states.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
