"""HTTP connections of this process that are kept between requests, for both formats.

A connection is lent to one thread at a time and comes back when its answer was read to the end. Those that rest are
used last in, first out, so that those beyond the need grow old; whoever has rested for IDLE_S is closed, which is
before the server would (a minute). One that the server has closed meanwhile is noticed before it is lent.

A child that is forked gets nothing of it: two processes on one socket would read each other's answers.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
import time
from typing import Final

from busway_spark.wire.bus import Bus

IDLE_S: Final = 30.0
#: Of one bus.
RESTING_MAX: Final = 32
#: A peer that is gone without a word is noticed after KEEP_ALIVE_S + 3 · KEEP_ALIVE_EVERY_S, however long an answer
#: may take.
_KEEP_ALIVE_S: Final = 10
_KEEP_ALIVE_EVERY_S: Final = 5
_KEEP_ALIVE_TRIES: Final = 3

#: Host, port, whether it is plain, and the authority that is trusted.
_Place = tuple[str, int, bool, str | None]


class KeptConnections:
    """Use `kept_connections()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        #: Since when each rests; the last one was used last.
        self._resting: dict[_Place, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._closing: threading.Timer | None = None

    def resting(self, bus: Bus) -> http.client.HTTPConnection | None:
        """One that was used before and seems to be open."""
        while True:
            with self._lock:
                here = self._resting.get(_place(bus))
                if not here:
                    return None
                since, connection = here.pop()
            if time.monotonic() - since < IDLE_S and _is_quiet(connection):
                return connection
            connection.close()

    def keep(self, bus: Bus, connection: http.client.HTTPConnection) -> None:
        """It is free again."""
        with self._lock:
            here = self._resting.setdefault(_place(bus), [])
            if len(here) < RESTING_MAX:
                here.append((time.monotonic(), connection))
                self._look_later()
                return
        connection.close()

    def close(self) -> None:
        """Those that rest; for programs that end, and for tests."""
        with self._lock:
            found = [each for here in self._resting.values() for _, each in here]
            self._resting.clear()
            if self._closing is not None:
                self._closing.cancel()
                self._closing = None
        for connection in found:
            connection.close()

    def _look_later(self) -> None:
        if self._closing is None:
            self._closing = threading.Timer(IDLE_S, self._close_idle)
            self._closing.daemon = True
            self._closing.start()

    def _close_idle(self) -> None:
        old: list[http.client.HTTPConnection] = []
        limit = time.monotonic() - IDLE_S
        with self._lock:
            self._closing = None
            for place, here in list(self._resting.items()):
                old += [connection for since, connection in here if since <= limit]
                self._resting[place] = [each for each in here if each[0] > limit]
            self._resting = {place: here for place, here in self._resting.items() if here}
            if self._resting:
                self._look_later()
        for connection in old:
            connection.close()


_kept: KeptConnections | None = None


def kept_connections() -> KeptConnections:
    """Those of this process."""
    global _kept
    if _kept is None or _kept.pid != os.getpid():
        _kept = KeptConnections()
    return _kept


def connected(bus: Bus, timeout_s: float) -> http.client.HTTPConnection:
    """A new one. Raises OSError."""
    connection = bus.http_connection(timeout_s)
    connection.connect()
    _watch_peer(connection.sock)
    return connection


def _place(bus: Bus) -> _Place:
    target = bus.target
    return (target.host, target.http_port, target.emulator, bus.ca_file)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whoever rests has nothing to say: something to read is the end of the connection."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _watch_peer(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_S),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_EVERY_S),
        ("TCP_KEEPCNT", _KEEP_ALIVE_TRIES),
    ):
        option = getattr(socket, name, None)  # not every system has them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
