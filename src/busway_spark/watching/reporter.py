"""What a driver tells about its queries: reports to the bus (`POST /$pipelines/NAME`), and figures for Prometheus.

Theory of operation of reports. They go out from a thread of its own. Every few seconds, and soon after something
happened, each query that runs is reported, and each that has ended once more. A report says all there is, so one
that was lost is made good by the next: nothing is kept for later and nothing is repeated. While the bus is away or
refuses, queries are not concerned; that it is so is said once in the log, and once that it is over. A server that
knows no such reports (Azure, an older Busway) is left alone for good. The requests go by the one HTTP client of
the formats, with one try each, on one kept connection.

Prometheus gets the figures of the queries under the names that the bus has for them, by `GET /metrics` on a port
of this machine. Lag is what the bus answered to the last report, in events, bytes and seconds. Where no bus
answers (a server that is not Busway) it is what Spark knows: events, at the moment in which the last batch was
planned. One thread answers one request after the other, and whoever keeps it waiting for its words is dropped
after five seconds. Nothing else is served on that port, and nothing secret.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import quote

from busway.client.errors import ClientError, EntityExists, EntityMissing, Unreachable
from busway.signals.metrics import PIPELINE_LAG_METRICS, PIPELINE_METRICS, ExpositionText, labels_text
from busway_spark.watching.watched import RUNNING, Watched, WatchedQuery
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpClient

_log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
#: What the end of a program waits for the last report.
LAST_WORD_S: Final = 2.0
#: Fits into a report with room for everything else.
_PARTITIONS_MAX: Final = 2_048
_SOURCES_MAX: Final = 64


class Reporter:
    """Reports to the bus (`POST /$pipelines/NAME`), from a thread of its own."""

    def __init__(self, bus: Bus, watched: Watched, every_s: float = EVERY_S) -> None:
        self._bus = bus
        self._http = HttpClient(bus, "", 0.0)
        self._watched = watched
        self._every_s = every_s
        self._news = threading.Event()
        self._is_over = False
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name="busway-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def news(self) -> None:
        """Something happened that people want to see soon."""
        self._news.set()

    def stop(self) -> None:
        """After a last report, if that goes quickly. May be called again."""
        self._is_over = True
        self._news.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=LAST_WORD_S)

    def _run(self) -> None:
        while True:
            self._news.wait(self._every_s)
            self._news.clear()
            is_last = self._is_over
            try:
                if not self._round():
                    return
            except Exception:  # a thread that ended would end all reports, and nobody would know
                _log.exception("A report to the bus failed.")
            if is_last:
                return

    def _round(self) -> bool:
        """False when there is nobody to report to, for good."""
        due = [each for each in self._watched.all() if each.state == RUNNING or not each.is_told]
        if not due:
            return True
        if self._bus.is_azure_host():
            return False
        refused: ClientError | None = None
        for each in due:
            try:
                self._report(each)
            except EntityMissing:
                _log.info("The server at %s takes no reports of streams.", self._bus.target.authority)
                return False
            except ClientError as error:
                refused = error
                if isinstance(error, Unreachable):
                    break  # the next one would fare no better
        if refused is None:
            self._tell_back()
        else:
            self._tell_away(refused)
        return True

    def _report(self, query: WatchedQuery) -> None:
        """Raises ClientError."""
        target = f"/$pipelines/{query.pipeline}"
        if query.positions:
            target += f"?entity={quote(query.positions[0].entity, safe='')}"
        body = json.dumps(report_of(query, self._every_s)).encode()
        try:
            answer = self._http.post(target, body, is_repeatable=True)
        except EntityExists:
            if query.is_renamed:
                raise
            self._watched.rename(query)
            self.news()
            return
        self._watched.told(query, _lags(answer))

    def _tell_away(self, error: ClientError) -> None:
        if not self._is_away:
            self._is_away = True
            _log.warning(
                "The bus hears nothing of the streams: %s They go on; it is tried every %g s.",
                error,
                self._every_s,
            )

    def _tell_back(self) -> None:
        if self._is_away:
            self._is_away = False
            _log.info("The bus takes reports of pipelines again.")


def report_of(query: WatchedQuery, every_s: float) -> dict[str, Any]:
    sources, left = [], _PARTITIONS_MAX
    for each in query.positions[:_SOURCES_MAX]:
        left -= len(each.next_numbers)
        if left >= 0:
            sources.append(each.to_json())
    return {
        "query": query.query,
        "run": query.run,
        "state": query.state,
        "everySeconds": every_s,
        "batch": query.batch,
        "batches": query.batches,
        "rows": query.rows,
        "rowsPerSecond": query.rows_per_s,
        "batchMs": query.batch_ms,
        "failures": query.failures,
        "failedAtMs": query.failed_at_ms,
        "sentence": query.sentence,
        "sources": sources,
    }


def _lags(answer: bytes) -> tuple[dict[str, Any], ...]:
    """What the bus knows of the sources; nothing where it says something else."""
    try:
        told = json.loads(answer)
    except ValueError:
        return ()
    sources = told.get("sources") if isinstance(told, dict) else None
    return tuple(each for each in sources if isinstance(each, dict)) if isinstance(sources, list) else ()


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
    lags = [
        (labels_text(_PARTITION, labels), values) for each in queries for labels, values in _shown_lags(each)
    ]
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


def _shown_lags(query: WatchedQuery) -> Iterator[_Lag]:
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
