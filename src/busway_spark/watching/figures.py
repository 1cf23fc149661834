"""What Prometheus gets from a driver: the figures of its queries under the names that the bus has for them, by
`GET /metrics` on a port of this machine.

Lag is what the bus answered to the last report, in events, bytes and seconds. Where no bus answers (a server that is
not Busway) it is what Spark knows: events, at the moment in which the last batch was planned.

One thread answers one request after the other, and whoever keeps it waiting for its words is dropped after five
seconds. Nothing else is served on that port, and nothing secret.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar, Final

from busway.signals.exposition_text import ExpositionText, labels_text
from busway.signals.metric_names import PIPELINE_LAG_METRICS, PIPELINE_METRICS
from busway_spark.watching.watched import RUNNING, WatchedQuery

_PIPELINE: Final = ("pipeline",)
_PARTITION: Final = ("pipeline", "entity", "consumer_group", "partition")
_LAG_MEMBERS: Final = ("lagEvents", "lagBytes", "lagSeconds")

#: Labels' values, and events, bytes, seconds as far as they are known.
_Lag = tuple[list[str], tuple[float | None, ...]]
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PATH: Final = "/metrics"


def figures_text(queries: list[WatchedQuery]) -> bytes:
    text = ExpositionText()
    now = time.monotonic()
    rows = [(labels_text(_PIPELINE, [each.pipeline]), _figures(each, now)) for each in queries]
    for place, metric in enumerate(PIPELINE_METRICS):
        text.add(metric, [(labels, values[place]) for labels, values in rows])
    lags = [(labels_text(_PARTITION, labels), values) for each in queries for labels, values in _lags(each)]
    for place, metric in enumerate(PIPELINE_LAG_METRICS):
        known = [(labels, values[place]) for labels, values in lags]
        text.add(metric, [(labels, value) for labels, value in known if value is not None])
    return text.text()


def _figures(query: WatchedQuery, now: float) -> list[float]:
    """In the order of PIPELINE_METRICS."""
    return [
        query.state == RUNNING,
        max(now - query.heard_at_s, 0.0),
        query.rows,
        query.rows_per_s,
        query.batch_ms / 1000,
        query.failures,
    ]


def _lags(query: WatchedQuery) -> Iterator[_Lag]:
    if query.lags:
        for source in query.lags:
            yield from _answered(query.pipeline, source)
        return
    for position in query.positions:
        for partition, events in position.behind().items():
            labels = [query.pipeline, position.entity, position.consumer_group, partition]
            yield labels, (events, None, None)


def _answered(pipeline: str, source: dict[str, Any]) -> Iterator[_Lag]:
    partitions = source.get("partitions")
    for each in partitions if isinstance(partitions, list) else []:
        names = (
            str(source.get("entity")),
            str(source.get("consumerGroup", "")),
            str(each.get("partition", "")),
        )
        yield [pipeline, *names], tuple(_number(each.get(member)) for member in _LAG_MEMBERS)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


class FiguresServer:
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
