"""The plain page at `console_url`: that the server runs, which version, how many entities. Nothing secret.

It is the only page a browser renders, so it carries no script, no style from elsewhere and no form, and says
so in its Content-Security-Policy. Names of entities are not on it: it needs no key to be read.
"""

from html import escape
from typing import Final

from starlette.responses import Response

from busway import __version__
from busway.broker.namespace.namespace import Namespace

CONSOLE_PATH: Final = "/$console"
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


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
