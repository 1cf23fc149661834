"""Reports to the bus (`POST /$pipelines/NAME`), from a thread of its own.

Theory of operation. Every few seconds, and soon after something happened, each query that runs is reported, and each
that has ended once more. A report says all there is, so one that was lost is made good by the next: nothing is kept
for later and nothing is repeated. While the bus is away or refuses, queries are not concerned; that it is so is said
once in the log, and once that it is over. A server that knows no such reports (Azure, an older Busway) is left alone
for good.

The requests go by the one HTTP client of the formats, with one try each, on one kept connection.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Any, Final
from urllib.parse import quote

from busway.client.errors import ClientError, EntityExists, EntityMissing, Unreachable
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
