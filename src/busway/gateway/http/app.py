"""The HTTP gateway: one ASGI application, and the connections that the listener hands over to it.

Every request goes the same way: Host and Origin are checked, the path is decoded once, the table of `router` says who
answers, and whatever is raised becomes the XML error of ERR-41. A client never sees a traceback; an error we
did not expect is logged under the TrackingId that the client gets.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import h11
import wsproto.utilities
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.config import Config
from uvicorn.server import ServerState

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.event_loop import Steps, shown
from busway.gateway.connection_budget import ConnectionBudget
from busway.gateway.http.atom.management_routes import EntityRoutes, RuleRoutes, SubscriptionRoutes
from busway.gateway.http.bulk.admission import BYTES_MAX_DEFAULT, CORES, BulkAdmission, is_bulk
from busway.gateway.http.bulk.backfill_route import BackfillRoute
from busway.gateway.http.bulk.bulk_route import BulkRoute
from busway.gateway.http.bulk.claims_route import CLAIMS_KEYWORD, ClaimsRoute
from busway.gateway.http.bulk.letters_route import LettersRoute
from busway.gateway.http.bulk.staging_route import StagingRoute
from busway.gateway.http.call import Call, host_of
from busway.gateway.http.console.console_routes import FULL, ConsoleRoutes
from busway.gateway.http.console.live import LIVE_PATH
from busway.gateway.http.event_hubs import ConsumerGroupRoutes, HubMessages, HubRoutes, PartitionsRoute
from busway.gateway.http.messages.browsing import Browsing
from busway.gateway.http.messages.messages import Messages, WireCodec
from busway.gateway.http.operator_routes import (
    BackupMaker,
    BackupRoute,
    MakeNew,
    MetricsRoute,
    NodesRoute,
    OperatorRoutes,
    ResetRoute,
    StatusPage,
)
from busway.gateway.http.pipelines_route import PipelinesRoute
from busway.gateway.http.protocol import HttpProtocol, Idlers
from busway.gateway.http.router import Answering, HubsAnswering, Router, table
from busway.gateway.http.statuses import HttpRefusal, error_response
from busway.gateway.http.untrusted_input import BODY_BYTES_MAX
from busway.gateway.http.websocket import FRAME_BYTES_MAX, OpenConnection, serve_websocket
from busway.gateway.tracking import Tracking
from busway.model.authorization import NOBODY, note_caller
from busway.model.errors import BrokerError, InternalError
from busway.model.flow import FlowCounts
from busway.signals.pipelines import LagMeter, MeasuredPipelines, Pipelines
from busway.signals.rates import RateHistory
from busway.staging.stagings import Stagings
from busway.streams.event_hubs import EventHubs

if TYPE_CHECKING:
    from busway.signals.measured_process import MeasuredProcess

_log = logging.getLogger("busway.http")

_METHODS: Final = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"]
_KEEP_ALIVE_S: Final = 60
_HEAD_BYTES_MAX: Final = 32 * 1024
_CLOSE_S: Final = 5.0


@dataclass(frozen=True)
class HttpSettings:
    """`loopback_hosts` None: a network listener, where any Host is welcome (the certificate names the server).
    Else only these names and the loopback addresses: a page of another site that makes its own name point
    here (DNS rebinding) carries that name in Host."""

    loopback_hosts: frozenset[str] | None = frozenset({"localhost", "127.0.0.1", "::1"})
    #: full, read-only or off.
    console: str = FULL

    @classmethod
    def for_host(cls, host: str, is_loopback: bool, console: str = FULL) -> "HttpSettings":
        if not is_loopback:
            return cls(None, console)
        names = {"localhost", "127.0.0.1", "::1", host.lower(), socket.gethostname().lower()}
        return cls(frozenset(names), console)


def _always_ready() -> str:
    return "ready"


class HttpGateway:
    """`protocol` is the factory for the listener; `close` ends what is open."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        entropy: Entropy,
        open_amqp: OpenConnection,
        codec: WireCodec,
        settings: HttpSettings | None = None,
        hubs: EventHubs | None = None,
        process: "MeasuredProcess | None" = None,
        budget: ConnectionBudget | None = None,
        stagings: Stagings | None = None,
        bulk_bytes_max: int = BYTES_MAX_DEFAULT,
        make_new: MakeNew | None = None,
        backups: BackupMaker | None = None,
        readiness: Callable[[], str] = _always_ready,
        rates: RateHistory | None = None,
    ) -> None:
        self._namespace = namespace
        #: Shared with AMQP.
        self._budget = budget
        self.bulk = BulkAdmission(bulk_bytes_max, budget)
        self._clock = clock
        self._open_amqp = open_amqp
        self._settings = settings if settings is not None else HttpSettings()
        self._tracking = Tracking(namespace.name, clock, entropy)
        pipelines = MeasuredPipelines(Pipelines(clock), LagMeter(namespace, hubs, clock))
        is_open = self._settings.loopback_hosts is not None
        self._console = ConsoleRoutes(
            namespace, hubs, clock, entropy, rates or RateHistory(namespace.flows), self._settings.console
        )
        self._answering = Answering(
            metrics=MetricsRoute(namespace, hubs, process, pipelines, is_open=is_open),
            status=StatusPage(namespace, readiness),
            nodes=NodesRoute(None if process is None else process.leases),
            claims=ClaimsRoute(namespace, clock, self.bulk),
            messages=Messages(namespace, clock, codec),
            operators=OperatorRoutes(namespace, clock, entropy),
            reset=ResetRoute(make_new, pipelines.table),
            backup=BackupRoute(backups),
            pipelines=PipelinesRoute(pipelines, hubs),
            letters=LettersRoute(namespace, codec, clock, self.bulk),
            backfill=BackfillRoute(namespace, codec, self.bulk),
            entities=EntityRoutes(namespace, clock),
            subscriptions=SubscriptionRoutes(namespace, clock),
            rules=RuleRoutes(namespace, clock),
            browsing=Browsing(namespace, codec),
            console=self._console,
            staging=None if stagings is None else StagingRoute(stagings, hubs, self.bulk),
            hubs=None if hubs is None else _hubs_answering(hubs, clock, self.bulk),
        )
        self.router = Router(table(self._answering))
        self._state = ServerState()
        self._idlers = Idlers()
        self._bulk_threads = ThreadPoolExecutor(CORES, "busway-bulk")
        self._routes = Starlette(
            routes=[
                Route("/{path:path}", self._answer, methods=_METHODS),
                WebSocketRoute("/{path:path}", self._websocket),
            ]
        )
        self._config = uvicorn_config(self.app)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Steps(self._served(scope, receive, send), lambda: _described(scope))

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_bulk(scope["raw_path"]):
            peer = scope.get("client") or ("",)
            await self.bulk.arrive(peer[0])
        await self._routes(scope, receive, send)

    def protocol(self) -> asyncio.Protocol:
        """For one connection; call it on the event loop."""
        return HttpProtocol(self._config, self._state, self._idlers, self._bulk_threads)

    @property
    def connections(self) -> int:
        return len(self._state.connections)

    async def close(self) -> None:
        """Idle connections at once, running requests when they are answered, all within five seconds."""
        self._answering.messages.close()
        await self._console.close()
        if self._answering.hubs is not None:
            self._answering.hubs.partitions.close()
        for connection in list(self._state.connections):
            try:
                connection.shutdown()
            except (h11.LocalProtocolError, wsproto.utilities.LocalProtocolError):
                # It is closing already and can say nothing more.
                connection.transport.close()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSE_S)
            for task in late:
                task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        self._bulk_threads.shutdown(wait=False)

    # -- requests --

    async def _answer(self, request: Request) -> Response:
        path = ""
        call: Call | None = None
        note_caller(NOBODY)
        try:
            call = Call(request, self._namespace.authorizer, self._budget)
            path = call.path
            self._check_origin(call.authority, request.headers.get("origin"))
            response = await self.router.answer(call)
            self._flow(path).answered(1, [])
        except BrokerError as error:
            self._flow(path).refused(error)
            host = None if call is None else call.authority
            addressed = partial(self._tracking.addressed, host=host)
            soon_s = None if call is None else call.retry_after_s
            response = error_response(error, self._tracking.tail(path), addressed, soon_s)
        except HttpRefusal as error:
            self._flow(path).mistaken()
            response = error_response(error, self._tracking.tail(path))
        except Exception:
            self._flow(path).failed()
            tail = self._tracking.tail(path)
            _log.exception("an HTTP request failed: %s", tail)
            response = error_response(InternalError(), tail)
        finally:
            if call is not None:
                call.close()
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers["Date"] = formatdate(self._clock.wall_ms() / 1000, usegmt=True)
        if (call is None or not call.is_read) and _has_long_body(request):
            response.headers["Connection"] = "close"
        return response

    def _flow(self, path: str) -> FlowCounts:
        """Requests about messages count for their entity, all others for the namespace (O-2)."""
        flows = self._namespace.flows
        lower = path.lower()
        is_about_messages = "/messages" in lower or f"/{CLAIMS_KEYWORD}" in lower
        return flows.nearest(path) if is_about_messages else flows.namespace

    def _check_origin(self, authority: str, origin: str | None) -> None:
        """Browsers say where a page came from; no page of another site has business here."""
        host = host_of(authority)
        if not self._is_known_host(host):
            raise HttpRefusal(403, f"This server does not answer to the name {host!r}.")
        if origin is not None and _origin_host(origin) != host and not self._is_loopback_page(origin):
            raise HttpRefusal(403, "Requests from pages of other sites are refused.")

    def _is_known_host(self, host: str) -> bool:
        return is_known_host(self._settings, host)

    def _is_loopback_page(self, origin: str) -> bool:
        return self._settings.loopback_hosts is not None and self._is_known_host(_origin_host(origin))

    # -- WebSockets --

    async def _websocket(self, websocket: WebSocket) -> None:
        """Pages of other sites may open AMQP on a network listener (browser clients do), never on loopback."""
        host = host_of(websocket.headers.get("host", ""))
        origin = websocket.headers.get("origin")
        is_strange = (
            self._settings.loopback_hosts is not None
            and origin is not None
            and not self._is_known_host(_origin_host(origin))
        )
        if is_strange or not self._is_known_host(host):
            await websocket.send_denial_response(Response("Refused: another site's name or page.", 403))
            return
        if websocket.scope["path"].lower() == LIVE_PATH and self._console.is_on:
            await self._console.live.serve(websocket)
        else:
            await serve_websocket(websocket, self._open_amqp)


def is_known_host(settings: HttpSettings, host: str) -> bool:
    known = settings.loopback_hosts
    return known is None or host in known or _is_loopback_address(host)


def _hubs_answering(hubs: EventHubs, clock: Clock, admission: BulkAdmission) -> HubsAnswering:
    return HubsAnswering(
        hubs,
        HubRoutes(hubs),
        ConsumerGroupRoutes(hubs, clock),
        HubMessages(hubs, clock),
        BulkRoute(hubs, admission),
        PartitionsRoute(hubs),
    )


def _described(scope: Scope) -> str:
    """A request in words: what is asked for, and by whom."""
    peer = scope.get("client") or ("",)
    return f"{scope.get('method', 'WebSocket')} {shown(scope['path'])} by HTTP, from {peer[0]}"


def uvicorn_config(app: ASGIApp) -> Config:
    """Nothing from proxies is believed, nothing is logged per request, no compression (bombs), no pings: AMQP
    has its own, and a client that only sends does not read them."""
    config = Config(
        app,
        interface="asgi3",
        http=HttpProtocol,
        ws="wsproto",
        ws_max_size=FRAME_BYTES_MAX,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        log_level="error",  # a stranger must not be able to fill the log
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
    )
    config.load()
    return config


def _has_long_body(request: Request) -> bool:
    """A body we may not have read to its end: the connection is not worth draining."""
    length = request.headers.get("content-length", "0")
    return "transfer-encoding" in request.headers or not length.isdigit() or int(length) > BODY_BYTES_MAX


def _origin_host(origin: str) -> str:
    """ "" for `null` and everything that is no address."""
    try:
        return (urlsplit(origin).hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback_address(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
