"""The queries of a driver, as far as the listener heard of them, and where their batches have brought them.

Theory of operation. The listener's thread writes, the reporter and Prometheus read; one lock, held for as long as
it takes to copy a few values. A query is known by its id, which it keeps when it is started again from its
checkpoint: its rows, batches and failures go on counting then. Queries that have ended are kept until their end
was told, and then as long as there is space for them.

Spark tells of each source where the batch began and ended and, where the source says so (`reportLatestOffset`),
how far there is something to read. These are the offsets of our readers (`eventhubs.offsets`, `servicebus.claim`)
and are known by their members; sources of other formats are passed over. Beside its latest offset a reader tells
which bus it reads and as which consumer group, so that two buses with entities of the same name are not mistaken
for each other.

The listener (`BusListener`) hears what Spark says about its queries, on the driver or, with Spark Connect, in the
client. Spark calls from a thread of its own, after the fact: no batch waits for us. Whatever happens in here must
not disturb it, so nothing is raised, and nothing is done but to note a few values; the bus is told by another
thread.

In classic sessions PySpark asks Java for each value of a progress by itself, which costs the driver a hundred
milliseconds of processor time for each batch. Java's own JSON of it is one call, and what Spark Connect sends
anyway.

What Spark says when something goes wrong becomes one sentence (`sentence_of`): without codes, plans, hints and stack
traces.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, Protocol

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from busway.log_lines import redacted

#: What Spark raises, and what comes out of Java as it is. Py4j tells no types.
SPARK_ERRORS: Final[tuple[type[Exception], ...]] = (
    PySparkException,
    import_module("py4j.protocol").Py4JJavaError,
)
_TRACEBACK: Final = "Traceback (most recent call last)"
#: The last line of a traceback: an exception's name and what it says.
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
#: Where a stream's plan or a stack begins.
_REST: Final = re.compile(r"^(?:=== Streaming Query|\tat )", re.MULTILINE)
#: What comes before a sentence: py4j's words, codes, which query it was, names of classes.
_BEFORE: Final = re.compile(
    r"^An error occurred while calling \S+\s*: |^\[[\w.]+\] ?|^Query .*?terminated with exception: "
    r"|\b(?:[a-z]\w*\.)+[A-Z][\w$]*: "
)
_NOT_SAID: Final = ("==", "^", "'", "+-", "JVM stacktrace", "\tat ")
_LETTERS_MAX: Final = 600


def sentence_of(error: Exception) -> str:
    """Of what a source or a sink of ours raised in a process of Spark, its own sentence."""
    text = _text(error)
    # Behind the last traceback Java goes on with lines of its own: the first that names an exception counts.
    raised = _RAISED.search(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else None
    if raised is not None:
        return raised[1][:_LETTERS_MAX]
    text = _REST.split(text, maxsplit=1)[0].strip()
    while (shorter := _BEFORE.sub("", text).strip()) != text:
        text = shorter
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NOT_SAID)]
    kept = [line for line in lines if not line.startswith(_NOT_SAID)]
    return " ".join(kept[:2]).partition(" SQLSTATE")[0][:_LETTERS_MAX]


def _text(error: Exception) -> str:
    """The message alone, unless it is empty or only the whole report has the traceback."""
    message = error.getMessage() if isinstance(error, PySparkException) else None
    whole = str(error)
    has_more = _TRACEBACK in whole and _TRACEBACK not in (message or "")
    return whole.strip() if not message or has_more else message.strip()


Json = dict[str, Any]

BUS: Final = "bus"
CONSUMER_GROUP: Final = "consumerGroup"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
QUERIES_MAX: Final = 200
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS_MAX: Final = 100
_SUFFIX_CHARACTERS: Final = 8


class SourceProgress(Protocol):
    """As Spark tells it; offsets are JSON, as text or read already."""

    @property
    def endOffset(self) -> object: ...
    @property
    def latestOffset(self) -> object: ...
    @property
    def numInputRows(self) -> int | None: ...


@dataclass(frozen=True)
class ReadPosition:
    """Of one entity."""

    entity: str
    consumer_group: str = ""
    created_at_ms: int = 0
    #: Of a hub: partition → number of the event that is read next.
    next_numbers: Mapping[str, int] = field(default_factory=dict)
    #: Of a hub: partition → number that its next event gets, when the batch was planned.
    end_numbers: Mapping[str, int] = field(default_factory=dict)
    #: Of a queue or subscription: messages that the last batch holds, and those that wait behind them.
    held: int = 0
    waiting: int | None = None

    def behind(self) -> dict[str, int]:
        """Partition → events that wait, as Spark knows it: at the moment in which the batch was planned."""
        if not self.end_numbers:
            return {} if self.waiting is None else {"": self.waiting}
        return {name: max(end - self.next_numbers.get(name, 0), 0) for name, end in self.end_numbers.items()}

    def to_json(self) -> Json:
        """As the bus is told."""
        told: Json = {"entity": self.entity}
        if self.next_numbers:
            told["consumerGroup"] = self.consumer_group
            told["createdAtMs"] = self.created_at_ms
            told["positions"] = dict(self.next_numbers)
        else:
            told["held"] = self.held
        return told


def positions_of(sources: Iterable[SourceProgress], authority: str | None) -> list[ReadPosition]:
    """`authority`: of the bus that is meant; sources that say they read another one are passed over."""
    found: list[ReadPosition] = []
    for source in sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if authority is not None and latest.get(BUS, authority) != authority:
            continue
        if isinstance(end.get("hub"), str) and isinstance(end.get("partitions"), dict):
            found.append(_of_hub(end, latest))
        elif isinstance(end.get("entity"), str) and isinstance(end.get("claim"), int):
            available = latest.get("available")
            waiting = available if isinstance(available, int) else None
            found.append(ReadPosition(end["entity"], held=source.numInputRows or 0, waiting=waiting))
    return found


def _of_hub(end: Json, latest: Json) -> ReadPosition:
    created = end.get("createdAt")
    return ReadPosition(
        end["hub"],
        str(latest.get(CONSUMER_GROUP, "")),
        created if isinstance(created, int) else 0,
        _numbers(end["partitions"]),
        _numbers(latest.get("partitions")),
    )


def _offset(given: object) -> Json:
    """Nothing where it cannot be read: a source of another format may write what it likes."""
    try:
        read = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _numbers(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    return {str(name): number for name, number in given.items() if isinstance(number, int)}


@dataclass(frozen=True)
class WatchedQuery:
    query: str
    run: str
    #: As its program calls it.
    name: str | None = None
    state: str = RUNNING
    batch: int = -1
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    batch_ms: int = 0
    failures: int = 0
    failed_at_ms: int = 0
    sentence: str = ""
    positions: tuple[ReadPosition, ...] = ()
    heard_at_s: float = 0.0
    #: Somebody else has the name.
    is_renamed: bool = False
    #: The bus has the last word about it.
    is_told: bool = False
    #: What the bus answered: its sources, with lag in events, bytes and seconds.
    lags: tuple[Json, ...] = ()

    @property
    def pipeline(self) -> str:
        """Its name on the bus."""
        if self.name is None:
            return f"query-{self.query}"
        name = _UNFIT.sub("-", self.name)[:_NAME_CHARACTERS_MAX] or "query"
        return f"{name}-{self.query[:_SUFFIX_CHARACTERS]}" if self.is_renamed else name

    @property
    def is_ours(self) -> bool:
        """It reads by our formats; or nobody knows what it reads, because it failed before."""
        return bool(self.positions) or (self.state == FAILED and self.batches == 0)


@dataclass
class Watched:
    """The queries of a driver, as far as the listener heard of them, and where their batches have brought them.
    Read by the reporter and by Prometheus."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _queries: dict[str, WatchedQuery] = field(default_factory=dict)

    def all(self) -> list[WatchedQuery]:
        with self._lock:
            return [each for each in self._queries.values() if each.is_ours]

    # -- the listener

    def started(self, query: str, run: str, name: str | None) -> None:
        with self._lock:
            known = self._queries.pop(query, None) or WatchedQuery(query, run)
            self._drop_ended()
            self._queries[query] = replace(
                known, run=run, name=name, state=RUNNING, is_told=False, heard_at_s=time.monotonic()
            )

    def went_on(self, query: str, run: str, name: str | None, **figures: Any) -> bool:
        """A batch is done. `figures`: batch, rows, rows_per_s, batch_ms, positions. True for the first news of it."""
        with self._lock:
            known = self._queries.get(query)
        if known is None:  # it was started before anybody watched
            self.started(query, run, name)
        with self._lock:
            known = self._queries[query]
            figures["rows"] = known.rows + figures["rows"]
            figures["batches"] = known.batches + 1
            # A batch without news of a source leaves it where it was.
            figures["positions"] = figures["positions"] or known.positions
            self._queries[query] = replace(known, **figures, is_told=False, heard_at_s=time.monotonic())
            return not known.positions and bool(figures["positions"])

    def ended(self, query: str, run: str, sentence: str | None) -> None:
        """`sentence`: why it failed; None for one that was stopped or has done all it had to do."""
        with self._lock:
            known = self._queries.get(query, WatchedQuery(query, run))
            if sentence is None:
                known = replace(known, state=STOPPED)
            else:
                failed_at_ms = round(time.time() * 1000)
                known = replace(
                    known,
                    state=FAILED,
                    failures=known.failures + 1,
                    failed_at_ms=failed_at_ms,
                    sentence=sentence,
                )
            self._queries[query] = replace(known, is_told=False, heard_at_s=time.monotonic())

    def _drop_ended(self) -> None:
        while len(self._queries) >= QUERIES_MAX:
            ended = (each.query for each in self._queries.values() if each.state != RUNNING)
            del self._queries[next(ended, next(iter(self._queries)))]

    # -- the reporter

    def told(self, reported: WatchedQuery, lags: tuple[Json, ...]) -> None:
        """The bus has taken this."""
        with self._lock:
            known = self._queries.get(reported.query)
            if known is not None:
                is_told = replace(known, lags=(), is_told=False) == replace(reported, lags=(), is_told=False)
                self._queries[reported.query] = replace(known, lags=lags, is_told=is_told)

    def rename(self, reported: WatchedQuery) -> None:
        with self._lock:
            known = self._queries.get(reported.query)
            if known is not None:
                self._queries[reported.query] = replace(known, is_renamed=True)


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
    """What Spark says about its queries, on the driver or, with Spark Connect, in the client."""

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
