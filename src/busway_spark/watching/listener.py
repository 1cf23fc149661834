"""What Spark says about its queries, on the driver or, with Spark Connect, in the client.

Spark calls from a thread of its own, after the fact: no batch waits for us. Whatever happens in here must not disturb
it, so nothing is raised, and nothing is done but to note a few values; the bus is told by another thread.

In classic sessions PySpark asks Java for each value of a progress by itself, which costs the driver a hundred
milliseconds of processor time for each batch. Java's own JSON of it is one call, and what Spark Connect sends anyway.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from busway.redaction import redacted
from busway_spark.watching.spark_sentence import sentence_of
from busway_spark.watching.watched import Watched, positions_of

_log = logging.getLogger(__name__)


class _QuickListener(JStreamingQueryListener):
    """What Java calls in a classic session."""

    def onQueryProgress(self, jevent: Any) -> None:
        try:
            progress = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        except Exception:  # another version of Spark may tell it otherwise
            super().onQueryProgress(jevent)
        else:
            self.pylistener.onQueryProgress(QueryProgressEvent(progress))


class BusListener(StreamingQueryListener):
    def __init__(self, watched: Watched, authority: str | None, news: Callable[[], None]) -> None:
        """`authority`: of the bus whose readers are watched; None: of any. `news`: what should be told at once."""
        self._watched = watched
        self._authority = authority
        self._news = news

    @property
    def _jlistener(self) -> Any:
        if not hasattr(self, "_jlistenerobj"):
            jvm: Any = SparkContext._jvm
            self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(_QuickListener(self))
        return self._jlistenerobj

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        try:
            self._watched.started(str(event.id), str(event.runId), event.name)
        except Exception:
            _log.exception("The start of a query was not noted.")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        try:
            if self._note(event.progress):
                self._news()
        except Exception:
            _log.exception("The progress of a query was not noted.")

    def _note(self, progress: Any) -> bool:
        return self._watched.went_on(
            str(progress.id),
            str(progress.runId),
            progress.name,
            batch=progress.batchId,
            rows=progress.numInputRows or 0,
            rows_per_s=max(progress.processedRowsPerSecond or 0.0, 0.0),
            batch_ms=progress.batchDuration or 0,
            positions=tuple(positions_of(progress.sources, self._authority)),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        try:
            text = event.exception
            # Before it is cut: half a key would pass for none.
            sentence = None if text is None else sentence_of(Exception(redacted(text)))
            self._watched.ended(str(event.id), str(event.runId), sentence)
            self._news()
        except Exception:
            _log.exception("The end of a query was not noted.")
