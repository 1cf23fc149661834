"""Where Prometheus gets the figures of a driver: `GET /metrics` on a port of this machine.

One thread answers one request after the other, and whoever keeps it waiting for its words is dropped after five
seconds. There is nothing else behind the door, and nothing secret.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar, Final

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PATH: Final = "/metrics"


class FiguresDoor:
    """Open from the start. Raises OSError when the port is taken."""

    def __init__(self, text: Callable[[], bytes], host: str, port: int) -> None:
        """`port` 0: one that is free."""

        class _Handler(_FiguresHandler):
            figures = staticmethod(text)

        self._server = HTTPServer((host, port), _Handler)
        self.address = f"http://{_shown(host)}:{self._server.server_port}{_PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="busway-figures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _FiguresHandler(BaseHTTPRequestHandler):
    #: Of the socket, in seconds.
    timeout: ClassVar[float] = 5.0
    server_version = "busway"
    sys_version = ""
    figures: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404)
            return
        text = self.figures()
        self.send_response(200)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each scrape would tell nobody anything."""


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
