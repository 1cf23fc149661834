"""One store and the namespace's dealings with it: in service, failed and coming back, or out of service.

Theory of operation. A store is in service when it is open *and* the namespace has looked at it (`is_open`).
A failed commit, an error at opening or an operator's word takes it out; only its own queues notice. After a
failure it is opened again with a growing pause, by a timer, for as long as it takes; but not when another server has
taken it, or the two would take it from each other for ever. What is in memory about
its fragments is forgotten at the failure and read anew when it comes back: a commit whose outcome was unknown
is known then.

The counters of all fragments are read once at opening (they are small and no message is touched), so that
counts cost nothing and a fragment can be loaded at the moment it is used.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from busway.clock import Clock
from busway.store.contract import (
    CommitBatch,
    Counters,
    FragmentKey,
    Store,
    StoreError,
    StoreState,
    StoreUnavailable,
)
from busway.timers import Timer, Timers

_log = logging.getLogger("busway.stores")

#: Pause before the first attempt to open a failed store again; doubled after each failure up to the last.
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_LAST_S: Final = 30.0


class StoreKeeper:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        timers: Timers,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        examine: "Callable[[StoreKeeper], Awaitable[None]]",
        lost: "Callable[[StoreKeeper, StoreError], None]",
        entered: "Callable[[StoreKeeper], None]",
    ) -> None:
        # Shared
        self._clock = clock
        self._timers = timers
        self._spawn = spawn
        #: Asked before an opened store goes into service; raises StoreError to keep it out.
        self._examine = examine
        #: Told once when it leaves service.
        self._lost = lost
        #: Told once when it goes into service.
        self._entered = entered
        # While it is open
        self.store = store
        self.counters: dict[FragmentKey, Counters] = {}
        #: Commits that it was found to have lost, since the start.
        self.lost_commits = 0
        self._in_service = False
        self._is_sweeping = False
        self._should_sweep = False
        #: The last use of each fragment that we have sent to the store (E-41).
        self._access_written_ms: dict[FragmentKey, int] = {}
        # While it is not
        self.is_disabled = False
        self._is_closed = True
        self._is_attempting = False
        #: A store that is closing still commits what had joined: it is not read before that is over.
        self._closing = asyncio.Lock()
        self._pause_s = _PAUSE_FIRST_S
        self._timer: Timer | None = None

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def is_open(self) -> bool:
        return self._in_service and self.store_is_usable

    @property
    def store_is_usable(self) -> bool:
        """Open, though perhaps not in service yet."""
        return self.store.state is StoreState.OPEN

    @property
    def state(self) -> str:
        """For people: open, failed, taken, disabled or closed."""
        if self.is_disabled:
            return StoreState.DISABLED.value
        if self._is_closed:
            return StoreState.CLOSED.value
        if self.is_taken:
            return StoreState.TAKEN.value
        return StoreState.OPEN.value if self.is_open else StoreState.FAILED.value

    @property
    def is_taken(self) -> bool:
        """By another server."""
        return self.store.state is StoreState.TAKEN

    @property
    def fragment_count(self) -> int:
        return len(self.counters)

    async def connect(self) -> None:
        """Opens the store and reads its counters, without taking it into service. Raises StoreError."""
        self._is_closed = False
        if self.store.state is not StoreState.OPEN:
            if self.store.state in (StoreState.FAILED, StoreState.TAKEN):
                await self.store.reopen()
            else:
                await self.store.open()
            self.lost_commits += self.store.lost_commits
        self.counters = {row.key: row.counters for row in await self.store.fragments()}
        self._access_written_ms.clear()

    def postpone(self) -> None:
        """Instead of `connect`, which would fail: `fail` sees to the attempts that follow."""
        self._is_closed = False

    async def enter_service(self) -> None:
        """After `connect`. Raises StoreError when the store does not fit the catalogue."""
        await self._examine(self)
        self._cancel()
        self._in_service = True
        self._pause_s = _PAUSE_FIRST_S
        self._entered(self)

    async def commit(self, join: Callable[[CommitBatch], None]) -> None:
        """Joins the store's open batch and waits until it is durable. Raises StoreError; a failed commit takes
        the store out of service."""
        waiter: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
        batch = self.store.batch()
        join(batch)
        batch.callbacks.append(lambda outcome: None if waiter.done() else waiter.set_result(outcome))
        outcome = await waiter
        if outcome is not None:
            self.fail(outcome)
            raise outcome

    def join(self, join: Callable[[CommitBatch], None]) -> bool:
        """Joins without waiting; False when the store is not in service."""
        if not self.is_open:
            return False
        try:
            join(self.store.batch())
        except StoreUnavailable as error:
            self.fail(error)
            return False
        return True

    def fail(self, error: StoreError) -> None:
        """The store failed: out of service, and another attempt later. Told again it does nothing, nor when
        the news is older than the store's return."""
        if self.is_disabled or self._is_closed or self._timer is not None or self._is_attempting:
            return
        if self.is_open or (self.is_taken and not self._in_service):
            return
        _log.error("The store %s failed: %s Its queues are unavailable until it is back.", self.name, error)
        self._leave_service(error)
        self._arm()

    def check_health(self) -> None:
        """Notices a store that failed without anybody waiting for it."""
        if self._in_service and self.store.state is not StoreState.OPEN:
            self.fail(StoreUnavailable(f"it is {self.store.state.value}."))

    async def disable(self) -> None:
        """Out of service by an operator's word, until `enable`."""
        self.is_disabled = True
        self._cancel()
        await self._leave_for_good()

    async def enable(self) -> None:
        """Back into service; when that fails the attempts go on by themselves."""
        self.is_disabled = False
        await self._attempt()

    async def close(self) -> None:
        self._is_closed = True
        self._cancel()
        self._in_service = False
        await self.store.close()

    def notice_access(self, key: FragmentKey) -> bool:
        """True when the fragment was used since this was asked last: then its counters should be written."""
        counters = self.counters.get(key)
        if counters is None or counters.accessed_at_ms == self._access_written_ms.get(key, 0):
            return False
        self._access_written_ms[key] = counters.accessed_at_ms
        return True

    async def sweep_dropped(self, rows_max: int) -> None:
        """Removes the rows of dropped fragments, `rows_max` at a time. One sweep at once: a second call makes
        the first look again."""
        self._should_sweep = True
        if self._is_sweeping:
            return
        self._is_sweeping = True
        try:
            while self._should_sweep and self.is_open:
                self._should_sweep = False
                await self.store.flush()
                while await self.store.sweep_dropped(rows_max):
                    pass
        except StoreError as error:
            self.fail(error)
        finally:
            self._is_sweeping = False

    def _leave_service(self, error: StoreError) -> None:
        was_in_service, self._in_service = self._in_service, False
        if was_in_service:
            self._lost(self, error)

    async def _leave_for_good(self) -> None:
        self._leave_service(StoreUnavailable(f"The store {self.name} was taken out of service."))
        async with self._closing:
            await self.store.close()

    def _arm(self) -> None:
        if self.is_taken:
            return
        deadline = self._clock.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _PAUSE_LAST_S)
        self._timer = self._timers.at(deadline, self._retry)

    def _cancel(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None

    def _retry(self) -> None:
        self._timer = None
        self._spawn(self._attempt())

    async def _attempt(self) -> None:
        if self._is_attempting:
            return
        self._is_attempting = True
        try:
            async with self._closing:
                await self.connect()
            await self.enter_service()
        except Exception as error:
            if self._should_be_open() and not self._in_service:
                _log.warning("The store %s cannot be opened: %s", self.name, error)
                self._arm()
            if not isinstance(error, StoreError):  # nobody expects it: told, and tried again like the others
                raise
        else:
            _log.info("The store %s is back in service.", self.name)
        finally:
            self._is_attempting = False
        if not self._should_be_open():  # the operator's word came meanwhile
            await self._leave_for_good()

    def _should_be_open(self) -> bool:
        return not self.is_disabled and not self._is_closed
