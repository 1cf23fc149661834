"""What nobody needs a key for: that the server lives, and the plain page at `console_url`, which tells its version
and how many entities there are. Nothing secret.

The page is the only one that a browser renders, so it carries no script, no style from elsewhere and no form, and
says so in its Content-Security-Policy. Names of entities are not on it: it needs no key to be read.
"""

from html import escape
from typing import Final

from starlette.responses import JSONResponse, RedirectResponse, Response

from busway import __version__
from busway.broker.namespace.namespace import Namespace
from busway.gateway.http.call import Call

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
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def page(self, _: Call) -> Response:
        return status_page(self._namespace)

    async def health(self, _: Call) -> Response:
        return JSONResponse({"status": "healthy"})

    async def redirect(self, _: Call) -> Response:
        return RedirectResponse(CONSOLE_PATH, 307)

    @staticmethod
    def is_health(call: Call) -> bool:
        """A queue may be called `health`: whoever shows a token means the queue."""
        return call.path == "health" and "authorization" not in call.request.headers

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
