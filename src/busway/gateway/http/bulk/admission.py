"""Who may move megabytes, when, and how many at once: so that bulk work fills what others leave, and no more.

Bulk work is what one request moves in bulk: ranges of hubs, claims of thousands of messages, rows that are staged.
The contract of a route that does it:

  arrive   `await BulkAdmission.arrive(peer)`: before its first step (`app` does that, by `is_bulk`)
  enter    with `BulkAdmission.enter`, once it knows who asks. REQUESTS_MAX may be inside; whoever comes then is
           refused with ServerBusy, which tells when to come back (`call.SOON_S`)
  memory   `await place.hold(size)` before it reads so much into memory, a body or a page of a store;
           `place.holds(size)` when it turned out otherwise, 0 when it was written out or given on. Who waits holds
           nothing, so nobody waits for one another; `place.extend(size)` never waits. All together hold
           `bytes_max` (a setting)
  work     `async with place.working(what)` around what keeps a thread busy, a read of a store or a write to a
           socket: as many at once as there are cores to spare (`WorkLines`)
  time     `await place.turn()` before each piece of work on the loop that may take a millisecond (SLICE_BYTES to
           write, a thousand rows to change): one piece in each turn of the loop, over all routes, so nobody else
           waits for more than one
  leave    `place.close()`; what it held is free

Each of these lines is served caller by caller, and for each caller in the order of arrival (`FairLine`): one with
sixty connections gets no more than one with a single connection, who waits for one piece of every other caller. A
caller is a peer and its key. What a caller holds is bounded by its share of the memory, that of one caller more
than there are: a newcomer always finds room. A request that wants more than all of it gets all of it, when it is
free.

A client that hangs up leaves all lines at once: whatever it waits for raises OperationCancelled. One that takes
nothing for STALLED_S keeps its memory as long as nobody else waits for it (`is_short`).

Threads that move megabytes take cores, not only time: where more of them run than there are cores beside the
loop's, the loop, every commit and all other programs wait behind them for milliseconds. So CORES pieces are at
work at once, over all stores, entities and sockets; and WORKING_MAX at one of them.

What waits for a disk takes no core. A piece that lasts longer than SLOW_S counts no longer, and neither does what
follows it at the same store or entity until one is quick again or nobody is left there: so one that is slow holds
up nobody else.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from busway.gateway.connection_budget import ConnectionBudget
from busway.gateway.http.presence import ClientPresence
from busway.model.errors import OperationCancelled, ServerBusy

BYTES_MAX_DEFAULT: Final = 32 * 1024 * 1024
REQUESTS_MAX: Final = 512
SLICE_BYTES: Final = 256 * 1024
STALLED_S: Final = 10.0
_TARGETS: Final = (b"/$claims/", b"/$backfill/", b"/$deadletters/", b"/$staging/")


def is_bulk(target: bytes) -> bool:
    """Whether a request for this path will do bulk work, as far as one can see."""
    return target.endswith(b"/events") or any(mark in target for mark in _TARGETS)


class BulkAdmission:
    """Of one server."""

    def __init__(self, bytes_max: int = BYTES_MAX_DEFAULT, budget: ConnectionBudget | None = None) -> None:
        self.bytes_max = bytes_max
        self._budget = budget
        self._places: set[BulkPlace] = set()
        #: By caller, those that hold something.
        self._held: dict[str, int] = {}
        self.held_bytes = 0
        self._for_memory = FairLine()
        self._for_turns = FairLine()
        self._works = WorkLines()
        self._is_turning = False

    @property
    def requests(self) -> int:
        return len(self._places)

    @property
    def is_short(self) -> bool:
        """Somebody waits for memory."""
        return bool(self._for_memory)

    async def arrive(self, peer: str) -> None:
        """Before anything is known of a request but that it may be of this kind: its first steps, in which its token
        is checked, are a piece of work too, and many may come at once."""
        waiter = Waiter(peer)
        self.line_up_for_turn(waiter)
        try:
            await waiter.come
        except BaseException:
            self.forget(waiter)
            raise

    def enter(self, caller: str, presence: ClientPresence) -> BulkPlace:
        """Raises ServerBusy."""
        if len(self._places) >= REQUESTS_MAX:
            raise ServerBusy(f"{REQUESTS_MAX} requests move data in bulk already. Please try again later.")
        place = BulkPlace(self, caller, presence)
        self._places.add(place)
        return place

    # -- from places

    def leave(self, place: BulkPlace) -> None:
        self._places.discard(place)

    def book(self, caller: str, more: int) -> None:
        """So much more, or less."""
        held = self._held.get(caller, 0) + more
        if held:
            self._held[caller] = held
        else:
            self._held.pop(caller, None)
        self.held_bytes += more
        if self._budget is not None:
            self._budget.add(more)
        if more < 0:
            self._give_memory()

    def has_room(self, caller: str, size: int) -> bool:
        own = self._held.get(caller, 0)
        return (
            not self._for_memory and own + size <= self._share() and self.held_bytes + size <= self.bytes_max
        )

    def line_up_for_memory(self, waiter: Waiter) -> None:
        self._for_memory.add(waiter)
        self._give_memory()

    def line_up_for_turn(self, waiter: Waiter) -> None:
        self._for_turns.add(waiter)
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    def line_up_for_work(self, waiter: Waiter) -> None:
        self._works.line_up(waiter)

    def worked(self, waiter: Waiter) -> None:
        self._works.worked(waiter)

    def forget(self, waiter: Waiter) -> None:
        """It waits no longer; others may have stood behind it."""
        self._works.forget(waiter)
        self._for_turns.left(waiter)
        self._for_memory.left(waiter)
        self._give_memory()

    # -- lines

    def _give_memory(self) -> None:
        """To everybody whose turn it is, until one does not fit: what is larger is not overtaken for ever."""
        while self._for_memory:
            for waiter in self._for_memory.heads():
                own = self._held.get(waiter.caller, 0)
                if own and own + waiter.size > self._share():
                    continue
                if self.held_bytes and self.held_bytes + waiter.size > self.bytes_max:
                    return
                break
            else:
                return
            self._for_memory.served(waiter)
            if waiter.give():
                self.book(waiter.caller, waiter.size)

    def _share(self) -> int:
        return self.bytes_max // (len(self._held) + 1)

    def _turn(self) -> None:
        """One of them in each turn of the loop."""
        while self._for_turns:
            waiter = self._for_turns.first()
            self._for_turns.served(waiter)
            if waiter.give():
                asyncio.get_running_loop().call_soon(self._turn)
                return
        self._is_turning = False


class BulkPlace:
    """One request inside; a context manager for those that answer in one go."""

    __slots__ = ("_admission", "_caller", "_held", "_waiting", "presence")

    def __init__(self, admission: BulkAdmission, caller: str, presence: ClientPresence) -> None:
        self._admission = admission
        self._caller = caller
        self._held = 0
        self._waiting: set[Waiter] = set()
        self.presence = presence
        presence.watch(self._lost)

    def __enter__(self) -> BulkPlace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def hold(self, size: int) -> None:
        """Waits until so many bytes may be in memory for it. Raises OperationCancelled."""
        assert not self._held, "who waits holds nothing"
        size = min(size, self._admission.bytes_max)
        await self._wait(Waiter(self._caller, size), self._admission.line_up_for_memory)
        self._held += size

    def extend(self, size: int) -> bool:
        """So many bytes more, if nobody waits and there is room in its share."""
        if not self._admission.has_room(self._caller, size):
            return False
        self.holds(self._held + size)
        return True

    def holds(self, size: int) -> None:
        """What it turned out to be, or is left of it."""
        self._admission.book(self._caller, size - self._held)
        self._held = size

    async def turn(self) -> None:
        """Waits for its turn of the loop. Raises OperationCancelled."""
        await self._wait(Waiter(self._caller), self._admission.line_up_for_turn)

    async def pace(self) -> None:
        """As `turn`, of work that is finished also when its client has gone."""
        try:
            await self.turn()
        except OperationCancelled:
            await asyncio.sleep(0)

    @asynccontextmanager
    async def working(self, what: str) -> AsyncIterator[None]:
        """Waits until few enough are at work there. Raises OperationCancelled."""
        waiter = Waiter(self._caller, what=what)
        await self._wait(waiter, self._admission.line_up_for_work)
        try:
            yield
        finally:
            self._admission.worked(waiter)

    @property
    def is_short(self) -> bool:
        """Somebody waits for memory, which this one may be holding."""
        return self._admission.is_short

    def close(self) -> None:
        """Idempotent."""
        self.presence.unwatch(self._lost)
        if self._held:
            self.holds(0)
        self._admission.leave(self)

    async def _wait(self, waiter: Waiter, line_up: Callable[[Waiter], None]) -> None:
        if self.presence.is_gone:
            raise _gone()
        self._waiting.add(waiter)
        line_up(waiter)
        try:
            await waiter.come
        except BaseException:
            self._take_back(waiter, line_up)
            raise
        finally:
            self._waiting.discard(waiter)

    def _take_back(self, waiter: Waiter, line_up: Callable[[Waiter], None]) -> None:
        """It was called off, perhaps in the very moment in which it was given what it waited for."""
        was_given = waiter.come.done() and not waiter.come.cancelled() and waiter.come.exception() is None
        if not was_given:
            self._admission.forget(waiter)
        elif line_up == self._admission.line_up_for_memory:
            self._admission.book(self._caller, -waiter.size)
        elif line_up == self._admission.line_up_for_work:
            self._admission.worked(waiter)

    def _lost(self) -> None:
        for waiter in list(self._waiting):
            if not waiter.come.done():
                waiter.come.set_exception(_gone())


def _gone() -> OperationCancelled:
    return OperationCancelled("The client has gone.")


WORKING_MAX: Final = 4
SLOW_S: Final = 0.05


class Waiter:
    """One place in one line."""

    __slots__ = ("caller", "come", "size", "what")

    def __init__(self, caller: str, size: int = 0, what: str = "") -> None:
        self.caller = caller
        self.size = size
        self.what = what
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give(self) -> bool:
        """False when it has gone, and was not yet there to say so."""
        if self.come.done():
            return False
        self.come.set_result(None)
        return True


class FairLine:
    """Callers in turn; of one caller whoever came first."""

    __slots__ = ("_by_caller",)

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, deque[Waiter]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_caller.values()))

    def __bool__(self) -> bool:
        return bool(self._by_caller)

    def add(self, waiter: Waiter) -> None:
        self._by_caller.setdefault(waiter.caller, deque()).append(waiter)

    def first(self) -> Waiter:
        return next(iter(self._by_caller.values()))[0]

    def heads(self) -> list[Waiter]:
        """The first of each caller, whose turn it is first."""
        return [own[0] for own in self._by_caller.values()]

    def served(self, waiter: Waiter) -> None:
        """It leaves, and its caller has had its turn."""
        self.left(waiter)
        if waiter.caller in self._by_caller:
            self._by_caller.move_to_end(waiter.caller)

    def left(self, waiter: Waiter) -> None:
        own = self._by_caller.get(waiter.caller)
        if own is None or waiter not in own:
            return
        own.remove(waiter)
        if not own:
            del self._by_caller[waiter.caller]


def _spare_cores() -> int:
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(1, mine - 1), WORKING_MAX)


#: Pieces of work that run at once.
CORES: Final = _spare_cores()


class _WorkPlace:
    """A store, an entity or the sockets."""

    __slots__ = ("is_slow", "line", "running")

    def __init__(self) -> None:
        self.line = FairLine()
        #: With the time at which they began.
        self.running: dict[Waiter, float] = {}
        self.is_slow = False


class WorkLines:
    """Of one server."""

    def __init__(self) -> None:
        #: Where somebody works or waits, in the order in which their turn comes.
        self._places: dict[str, _WorkPlace] = {}
        #: Those that take a core.
        self._counted: set[Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    def line_up(self, waiter: Waiter) -> None:
        self._places.setdefault(waiter.what, _WorkPlace()).line.add(waiter)
        self._go_on()

    def worked(self, waiter: Waiter) -> None:
        place = self._places[waiter.what]
        place.is_slow = asyncio.get_running_loop().time() - place.running.pop(waiter) > SLOW_S
        self._counted.discard(waiter)
        self._tidy(waiter.what, place)
        self._go_on()

    def forget(self, waiter: Waiter) -> None:
        """It waits no longer."""
        place = self._places.get(waiter.what)
        if place is not None:
            place.line.left(waiter)
            self._tidy(waiter.what, place)

    def _tidy(self, what: str, place: _WorkPlace) -> None:
        if not (place.line or place.running):
            del self._places[what]

    def _go_on(self) -> None:
        while any(self._starts(what) for what in list(self._places)):
            pass
        if self._timer is None and self._counted and any(place.line for place in self._places.values()):
            self._timer = asyncio.get_running_loop().call_later(SLOW_S, self._look)

    def _starts(self, what: str) -> bool:
        """Whether a piece was started there, or somebody who had gone was left out."""
        place = self._places[what]
        if not place.line or not self._has_room(place):
            return False
        self._places[what] = self._places.pop(what)  # its turn comes again behind all others
        waiter = place.line.first()
        place.line.served(waiter)
        if waiter.give():
            place.running[waiter] = asyncio.get_running_loop().time()
            if not place.is_slow:
                self._counted.add(waiter)
        else:
            self._tidy(what, place)
        return True

    def _has_room(self, place: _WorkPlace) -> bool:
        return len(place.running) < WORKING_MAX and (place.is_slow or len(self._counted) < CORES)

    def _look(self) -> None:
        """Somebody waits: what has been at work for long waits for a disk itself."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiter in list(self._counted):
            place = self._places[waiter.what]
            if now - place.running[waiter] > SLOW_S:
                place.is_slow = True
                self._counted.discard(waiter)
        self._go_on()
