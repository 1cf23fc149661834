"""`watch(spark, …)`: from now on the bus, or Prometheus, or both know how far the streams of a session are.

    busway_spark.watch(spark, connection_string)            the bus: busway pipeline list, status NAME, /metrics there
    busway_spark.watch(spark, port=9400)                    Prometheus: http://127.0.0.1:9400/metrics
    busway_spark.watch(spark, connection="prod", port=0)    both; the port is chosen and told in the log

It works in classic sessions and with Spark Connect, where the client watches. The jobs of `busway pipeline` do it by
themselves; the setting `spark.busway.watch=false` switches that off, `spark.busway.watch.port` opens a port.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from busway_spark.watching.reporter import FiguresServer, Reporter
    from busway_spark.watching.watched import BusListener, Watched
    from busway_spark.wire.bus import Bus

_log = logging.getLogger(__name__)

#: `false`: the jobs tell nobody.
WATCH: Final = "spark.busway.watch"
#: Of the jobs: where Prometheus may ask; 0 is any port that is free.
WATCH_PORT: Final = "spark.busway.watch.port"
EVERY_S_MIN: Final = 1.0
EVERY_S_MAX: Final = 600.0


class Watch:
    """Of one session; ends with `stop`, or with the program."""

    def __init__(self, watched: Watched, reporter: Reporter | None, server: FiguresServer | None) -> None:
        self.watched = watched
        #: Where Prometheus gets the figures; None when nobody asked for it.
        self.address = None if server is None else server.address
        self._reporter = reporter
        self._server = server
        self._spark: weakref.ref[SparkSession] | None = None
        self._listener: BusListener | None = None

    def begin(self, spark: SparkSession, listener: BusListener) -> None:
        spark.streams.addListener(listener)
        self._spark, self._listener = weakref.ref(spark), listener
        if self._reporter is not None:
            self._reporter.start()
        atexit.register(self._end)

    def is_of(self, spark: SparkSession) -> bool:
        return self._spark is not None and self._spark() is spark

    def figures(self) -> bytes:
        """What Prometheus gets."""
        from busway_spark.watching.reporter import figures_text

        return figures_text(self.watched.all())

    def stop(self) -> None:
        """Nothing is heard or told any more; streams go on."""
        spark = None if self._spark is None else self._spark()
        if spark is not None and self._listener is not None:
            spark.streams.removeListener(self._listener)
        self._spark = None
        self._end()

    def _end(self) -> None:
        """Without Spark, which may be gone."""
        atexit.unregister(self._end)
        if self._reporter is not None:
            self._reporter.stop()
        if self._server is not None:
            self._server.close()
            self._server = None


def watch(
    spark: SparkSession,
    connection_string: str | None = None,
    *,
    connection: str | None = None,
    ca_file: str | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    every_s: float = 10.0,
) -> Watch:
    """See the head of this file. `connection` is the name of one (`wire.bus`). Listen is
    enough as a right. Raises ValueError for what cannot be used, OSError when the port is taken."""
    from busway_spark.wire.bus import Bus, find_connection, parsed

    if connection is not None:
        if connection_string is not None:
            raise ValueError("Give a connection string or the name of a connection, not both.")
        found = find_connection(connection)
        connection_string, ca_file = found.connection_string, ca_file or found.ca_file
    if connection_string is None and port is None:
        raise ValueError("Say who is told: the bus by connection_string or connection, Prometheus by port.")
    if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
        raise ValueError(f"every_s: a number from {EVERY_S_MIN:g} to {EVERY_S_MAX:g} is expected.")
    if connection_string is not None:
        parsed(connection_string)
    bus = None if connection_string is None else Bus(connection_string, ca_file)
    return watch_bus(spark, bus, port, host, every_s)


def watch_bus(
    spark: SparkSession,
    bus: Bus | None,
    port: int | None = None,
    host: str = "127.0.0.1",
    every_s: float = 10.0,
) -> Watch:
    """The same with what was checked. Raises OSError."""
    from busway_spark.watching.reporter import FiguresServer, Reporter, figures_text
    from busway_spark.watching.watched import BusListener, Watched

    watched = Watched()
    server = None if port is None else FiguresServer(lambda: figures_text(watched.all()), host, port)
    reporter = None if bus is None else Reporter(bus, watched, every_s)
    made = Watch(watched, reporter, server)
    if made.address is not None:
        _log.info("Figures of the streams of this driver: %s", made.address)
    authority = None if bus is None else bus.target.authority
    made.begin(spark, BusListener(watched, authority, _nothing if reporter is None else reporter.news))
    return made


#: Of the jobs of this process, by the bus; a process has one session at a time.
_of_jobs: dict[str, Watch] = {}


def watch_job(spark: SparkSession, bus: Bus, config: Mapping[str, str]) -> Watch | None:
    """For the jobs of `busway pipeline`: once for each session, unless the settings say no. Never fails a job."""
    if config.get(WATCH, "").strip().lower() == "false":
        return None
    authority = bus.target.authority
    known = _of_jobs.get(authority)
    if known is not None and known.is_of(spark):
        return known
    try:
        if known is not None:
            known.stop()
        port = config.get(WATCH_PORT, "").strip()
        _of_jobs[authority] = watch_bus(spark, bus, int(port) if port.isascii() and port.isdigit() else None)
    except Exception as error:
        _log.warning("The streams of this job are not watched: %s", error)
        return None
    return _of_jobs[authority]


def _nothing() -> None:
    """Nobody waits for news."""
