"""From Spark's blocking calls to the asynchronous client.

Theory of operation. A Python process of Spark (a worker of an executor, or the driver's process of a stream) gets
one event loop in a thread of its own and one connection for each bus and key; both live as long as the process,
which Spark uses again for later tasks. A child that is forked gets its own: an event loop does not survive that.
A connection that broke is opened again by the client with the next use.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.bus import Bus
from busway_spark.wire.patience import patiently

T = TypeVar("T")


class Bridge:
    """Use `bridge()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._clients: dict[tuple[str, str | None], ServiceBusClient] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="busway-bridge", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Starts it; the answer's `result()` waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for it. An interrupted task takes its request back."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def client(self, bus: Bus) -> ServiceBusClient:
        """The process's connection for this bus and key; it opens itself with the first use."""
        key = (bus.connection_string, bus.ca_file)
        if key not in self._clients:
            self._clients[key] = self.run(_made(bus))
        return self._clients[key]

    def close(self) -> None:
        for client in self._clients.values():
            self.run(client.close())
        self._clients.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _made(bus: Bus) -> ServiceBusClient:
    """On the loop, where its locks belong."""
    return bus.client()


_bridge: Bridge | None = None


def bridge() -> Bridge:
    global _bridge
    if _bridge is None or _bridge.pid != os.getpid():
        _bridge = Bridge()
    return _bridge


def close_bridge() -> None:
    """For programs that read in their own process: says good-bye to the buses. The next use opens anew."""
    global _bridge
    if _bridge is not None and _bridge.pid == os.getpid():
        _bridge.close()
    _bridge = None


def ask(bus: Bus, operation_s: float, question: Callable[[ServiceBusClient], Coroutine[Any, Any, T]]) -> T:
    """The answer to a question that changes nothing; it is asked again while the bus is away. Raises ClientError."""

    def ask_once() -> T:
        work = bridge()
        return work.run(question(work.client(bus)))

    return patiently(bus.target.authority, operation_s, ask_once)
