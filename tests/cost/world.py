"""A whole server, from the listener to SQLite, on a loop in a thread of its own: what its turns cost is measured
there, what the clients in the test's own thread do is not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import apsw

from busway.broker.namespace.namespace import Namespace
from busway.model.descriptions import ALL_RIGHTS, LISTEN, MANAGE, ROOT_RULE_NAME, SEND, AuthorizationRule
from busway.serve_options import ServeOptions
from busway.served_bus import ServedBus
from busway.server import Server, slow_the_collector
from busway.streams.event_hubs import EventHubs
from tests.harness.turn_meter import TurnMeter

T = TypeVar("T")

WAIT_S = 60.0
#: The rule of each right; that of Manage has the others too, as everywhere (A-1).
KEYS = {right: f"the-key-of-the-tests-for-{right}-{'x' * 16}" for right in (SEND, LISTEN, MANAGE)}
_SQL_STEPS = 10
#: The loop is quiet when it has done nothing for so long.
_QUIET_S = 0.02
_LOOK_S = 0.004
#: Background work of stores comes in slices with pauses.
_STORES_REST_S = 1.0
_STORES_REST_S_MAX = 10.0
#: What timers may cost meanwhile.
_IDLE_S = 0.0005


class World:
    """`with World(folder) as world:`"""

    def __init__(self, folder: Path) -> None:
        self.meter = TurnMeter()
        self.loop = asyncio.SelectorEventLoop(self.meter.selector)
        self._thread = threading.Thread(target=self._serve, name="the server's loop", daemon=True)
        self._server = Server(ServeOptions(data=folder / "data", port=0, stores=2))
        self._stack = contextlib.AsyncExitStack()
        #: Instructions that SQLite's machine has run, in tens.
        self.sql_steps = 0

    @property
    def _bus(self) -> ServedBus:
        assert self._server.bus is not None
        return self._server.bus

    @property
    def namespace(self) -> Namespace:
        return self._bus.namespace

    @property
    def hubs(self) -> EventHubs:
        return self._bus.hubs

    @property
    def is_copying(self) -> bool:
        """A backup is under way."""
        backups = self._bus.backups
        return backups is not None and backups.told()["state"] == "copying"

    @property
    def port(self) -> int:
        return self._server._port

    def __enter__(self) -> World:
        self._collector = gc.get_threshold()
        slow_the_collector()
        apsw.connection_hooks.append(self._count_sql)
        self._thread.start()
        self.run(self._server.start(self._stack))
        self.run(self._rules())
        gc.collect()
        gc.freeze()  # for good: thawed, all collected tests would be walked over again and again
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()
        apsw.connection_hooks.remove(self._count_sql)
        gc.set_threshold(*self._collector)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _rules(self) -> None:
        made = [
            AuthorizationRule(right, ALL_RIGHTS if right == MANAGE else frozenset({right}), key, key)
            for right, key in KEYS.items()
        ]
        await self.namespace.access.set((*self.namespace.access.rules(), *made))

    def _count_sql(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(self._sql_ran, _SQL_STEPS)

    def _sql_ran(self) -> bool:
        self.sql_steps += 1
        return False

    # -- the loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Something beside the clients, on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def call(self, work: Any, *arguments: Any) -> Any:
        async def called() -> Any:
            return work(*arguments)

        return self.run(called())

    def settle(self) -> None:
        """Until neither the loop nor a store has anything to do. First what waits for the loop now, however slowly
        it comes to it."""
        for _ in range(3):
            self.call(int)
        until = monotonic() + WAIT_S
        spent, sql_steps, quiet_since = -1.0, -1, monotonic()
        while monotonic() < until:
            now_spent = self.meter.total_s
            works = now_spent - spent > _IDLE_S or self.sql_steps != sql_steps
            if works or not self.meter.is_waiting:
                spent, sql_steps, quiet_since = now_spent, self.sql_steps, monotonic()
            elif monotonic() - quiet_since > _QUIET_S:
                return
            threading.Event().wait(_LOOK_S)
        raise AssertionError("the loop does not come to rest")

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """For work that a slow disk may interrupt for longer than `settle` takes for rest."""
        until = monotonic() + WAIT_S
        while not self.call(holds):
            assert monotonic() < until, "it does not come to pass"
            threading.Event().wait(_LOOK_S)

    def let_stores_rest(self) -> None:
        """Until what was left to them has not gone on for a while; there is no need to wait for its end."""
        until = monotonic() + _STORES_REST_S_MAX
        steps, quiet_since = -1, monotonic()
        while monotonic() < until and monotonic() - quiet_since < _STORES_REST_S:
            if self.sql_steps != steps:
                steps, quiet_since = self.sql_steps, monotonic()
            threading.Event().wait(_QUIET_S)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The loop stands still, so that it finds everything at once that is written meanwhile."""
        stands, goes = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            goes.wait(WAIT_S)

        self.loop.call_soon_threadsafe(stand)
        stands.wait(WAIT_S)
        try:
            yield
        finally:
            goes.set()


def rule_of(right: str) -> tuple[str, str]:
    """(name, key)"""
    return right, KEYS[right]


ROOT = ROOT_RULE_NAME
