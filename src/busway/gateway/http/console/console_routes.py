"""The page, its files, and the same figures for whoever asks instead of watching.

    GET   /$console                    the page; where `serve --console off` was said, the plain status page
    GET   /$console/VERSION/FILE       its files, to be kept for ever
    POST  /$console/codes              {token, below}: left for a browser; answers {code}, good once, for a minute
    POST  /$console/codes/redeem       {code}: answers {token, below}
    GET   /$overview                   every entity in one row: {namespace, columns, rows, stores, connections}
    GET   /$rates                      messages in, out and dead-lettered in each 10 seconds of the last hour
    GET   /$rates/ENTITY               the same of one entity; in each minute, of those that are not the busiest

The page and its files need no key: nothing in them is of this bus. Figures ask for Manage or Listen, as `/metrics`
does beyond loopback: on the namespace, or for one entity on that entity. Leaving a token asks for that token, so
nobody can fill the few places with anything else.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from starlette.responses import JSONResponse, Response

from busway.broker.namespace.namespace import Namespace
from busway.clock import Clock, Entropy
from busway.gateway.http.call import Call
from busway.gateway.http.console.live import LivePages
from busway.gateway.http.console.overview import COLUMNS, Overview
from busway.gateway.http.console.page_files import PageFiles
from busway.gateway.http.console.sign_in_codes import SignInCodes
from busway.gateway.http.operator_routes import PAGE_HEADERS, status_page
from busway.gateway.http.statuses import HttpRefusal
from busway.gateway.http.untrusted_input import parse_json
from busway.model.authorization import Grant
from busway.model.descriptions import LISTEN, MANAGE
from busway.model.errors import AuthenticationFailed, BadArgument, Unauthorized
from busway.signals.rates import RateHistory
from busway.streams.event_hubs import EventHubs

FULL: Final = "full"
READ_ONLY: Final = "read-only"
OFF: Final = "off"

_NO_STORE: Final = {"Cache-Control": "no-store"}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_CODE_CHARACTERS_MAX: Final = 64


class ConsoleRoutes:
    def __init__(
        self,
        namespace: Namespace,
        hubs: EventHubs | None,
        clock: Clock,
        entropy: Entropy,
        rates: RateHistory,
        mode: str,
    ) -> None:
        self._namespace = namespace
        self._rates = rates
        self._mode = mode
        self._files: PageFiles | None = None
        self._codes = SignInCodes(clock, entropy)
        self.overview = Overview(namespace, hubs, clock)
        self.live = LivePages(namespace, self.overview, mode)

    @property
    def is_on(self) -> bool:
        return self._mode != OFF

    async def close(self) -> None:
        await self.live.close()

    # -- the page

    async def page(self, call: Call) -> Response:
        if not self.is_on:
            return status_page(self._namespace)
        files = await self._read_files()
        headers = {
            **PAGE_HEADERS,
            "Content-Security-Policy": files.policy(call.authority),
            "Cache-Control": "no-cache",
            "ETag": f'"{files.version}"',
        }
        if call.request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(files.page(), 200, headers, media_type="text/html; charset=utf-8")

    def check_on(self, _: Call, *__: str) -> None:
        if not self.is_on:
            raise HttpRefusal(404, "This server has no console: it was started with --console off.")

    async def file(self, call: Call, version: str, name: str) -> Response:
        files = await self._read_files()
        found = files.find(name) if version == files.version else None
        if found is None:
            raise HttpRefusal(404, "There is no such file of the console. Please load the page anew.")
        headers = {
            "Cache-Control": _FOR_EVER,
            "ETag": found.etag,
            "Vary": "Accept-Encoding",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if call.request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        content = found.content
        if found.compressed is not None and "gzip" in call.request.headers.get("accept-encoding", ""):
            content = found.compressed
            headers["Content-Encoding"] = "gzip"
        return Response(content, 200, headers, media_type=found.content_type)

    async def _read_files(self) -> PageFiles:
        if self._files is None:
            files = await asyncio.to_thread(PageFiles)
            self._files = self._files or files
        return self._files

    # -- one-time codes

    async def leave_token(self, call: Call) -> Response:
        said = _texts(parse_json(await call.body(), "The body"), "token", "below")
        if call.request.headers.getlist("authorization") != [said["token"]]:
            raise AuthenticationFailed("The token that is left here must be the one that asks.")
        call.require_any(said["below"])
        return JSONResponse({"code": self._codes.leave(json.dumps(said))}, 201, _NO_STORE)

    async def redeem_code(self, call: Call) -> Response:
        code = _texts(parse_json(await call.body(), "The body"), "code")["code"]
        found = self._codes.take(code[:_CODE_CHARACTERS_MAX])
        if found is None:
            raise AuthenticationFailed(
                "This code was used already, or is older than a minute. Please ask for another one: busway console."
            )
        return JSONResponse(json.loads(found), 200, _NO_STORE)

    # -- figures

    async def tell_overview(self, call: Call) -> Response:
        call.require_on_namespace(MANAGE, LISTEN)
        await self.overview.fresh()
        told = {
            "namespace": self._namespace.name,
            "stores": self._namespace.stores.shown(),
            "connections": self._namespace.flows.connections.active,
            "columns": COLUMNS,
            "rows": self.overview.rows(),
        }
        text = await asyncio.to_thread(json.dumps, told, ensure_ascii=False)
        return Response(text, 200, _NO_STORE, media_type="application/json")

    async def rates(self, call: Call) -> Response:
        call.require_on_namespace(MANAGE, LISTEN)
        return JSONResponse(self._rates.of_namespace(), 200, _NO_STORE)

    async def entity_rates(self, call: Call, entity: str) -> Response:
        _require_on_entity(call, entity)
        return JSONResponse(self._rates.of_entity(entity), 200, _NO_STORE)


def _require_on_entity(call: Call, entity: str) -> Grant:
    """A token may be for the entity alone."""
    try:
        return call.require_for(entity, entity, MANAGE)
    except Unauthorized:
        return call.require_for(entity, entity, LISTEN)


def _texts(said: object, *names: str) -> dict[str, str]:
    if not isinstance(said, dict) or said.keys() != set(names):
        raise BadArgument(f"The body must be an object with {' and '.join(names)}.")
    if not all(isinstance(value, str) for value in said.values()):
        raise BadArgument("What the body names must be texts.")
    return {name: said[name] for name in names}
