"""What every fragment of a process shares: time, chance, limits, timers, the memory budget of ready windows,
and a way to start background work. All of it is handed in, so a whole namespace runs under a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final

from busway.broker.fragment.expiry_and_schedule import StoreSweep, WallTimers
from busway.broker.fragment.journal import Journal
from busway.broker.fragment.lane import WindowBudget
from busway.broker.fragment.turns import Turns
from busway.clock import Clock, Entropy
from busway.message.message import Message
from busway.model.errors import BrokerError, ServerBusy, StoreOutcomeUnknown
from busway.model.flow import FlowTable
from busway.model.limits import Limits
from busway.store.contract import CommitUnknown, FragmentKey, Store, StoreError
from busway.timers import Timers

Spawn = Callable[[Coroutine[None, None, None]], object]


def _ignore_store_failure(store: Store, error: StoreError) -> None:
    """Nobody asked to be told."""


def _nothing_used() -> int:
    """Fragments without a namespace around them."""
    return 0


#: A fragment by the name of its store and its key there.
FragmentId = tuple[str, FragmentKey]


class Undelivered:
    """Messages that were deleted for a receive-and-delete receiver and never reached it: they are put back (R-1).

    The deletion comes first, so between it and the delivery a message exists in memory only. When the receiver is
    gone by then the message goes back under its number. The fragment that deleted it may be gone too: its entity was
    updated, or its store failed. Then the message waits here until the fragment is loaded again, and that one puts
    it back. There are never more than those who received had credit for. `on_arrival` is told of a fragment that has
    some."""

    __slots__ = ("_by_fragment", "on_arrival")

    def __init__(self) -> None:
        self._by_fragment: dict[FragmentId, list[Message]] = {}
        self.on_arrival: Callable[[FragmentId], None] | None = None

    def add(self, fragment_id: FragmentId, messages: list[Message]) -> None:
        self._by_fragment.setdefault(fragment_id, []).extend(messages)
        if self.on_arrival is not None:
            self.on_arrival(fragment_id)

    def fragment_ids(self) -> list[FragmentId]:
        return list(self._by_fragment)

    def take(self, fragment_id: FragmentId) -> list[Message]:
        return self._by_fragment.pop(fragment_id, [])


class NamespaceSize:
    """How many bytes the namespace may still take (L-4).

    Adding up every entity for every send costs too much, and following every deletion burdens the hot path. So the
    sum (`used`, exactly) is taken now and then: what is free after it is given out, and only when that is used up it
    is taken again, which finds what was deleted meanwhile. What grows without asking (a dead letter's reason) is
    found at the next sum."""

    __slots__ = ("_used", "bytes_max", "free_bytes")

    def __init__(self, bytes_max: int, used: Callable[[], int]) -> None:
        self.bytes_max = bytes_max
        self._used = used
        #: Free at the last sum, less what was taken since (`intake.namespace_fault`).
        self.free_bytes = 0

    def recount(self) -> None:
        self.free_bytes = self.bytes_max - self._used()


def broker_error(error: StoreError) -> BrokerError:
    """What a client is told when a commit failed: an unknown outcome is never called a refusal."""
    if isinstance(error, CommitUnknown):
        return StoreOutcomeUnknown()
    return ServerBusy("The store refused to write just now: nothing was stored. Please try again.")


class StoreLease:
    """Until when a store is certainly ours, for what no commit protects.

    A commit of somebody who has lost his store is refused by the store itself. But locks are granted, renewed and
    handed out in memory, and so are sessions. Where another server may take the store that is done only before the
    end of a lease; past it the store is suspended, and when the lease is renewed all goes on as it was."""

    #: False: it is ours as long as it is open, as a file is; nobody need ask.
    is_bounded = False

    def is_over(self) -> bool:
        return False


UNLIMITED: Final = StoreLease()


class BrokerRuntime:
    """Shared by all fragments of one process."""

    __slots__ = (
        "activators",
        "clock",
        "entropy",
        "flows",
        "journal",
        "leases",
        "limits",
        "namespace_size",
        "reserved_bytes",
        "spawn",
        "store_failed",
        "sweepers",
        "tail_budget",
        "timers",
        "turns",
        "undelivered",
        "wall_timers",
        "window_budget",
    )

    def __init__(
        self,
        clock: Clock,
        entropy: Entropy,
        limits: Limits,
        timers: Timers,
        window_budget: WindowBudget,
        spawn: Spawn,
        store_failed: Callable[[Store, StoreError], None] = _ignore_store_failure,
        used_bytes: Callable[[], int] = _nothing_used,
    ) -> None:
        self.clock = clock
        self.entropy = entropy
        self.limits = limits
        self.timers = timers
        #: The same for wall times.
        self.wall_timers = WallTimers(clock, timers)
        #: What flows through each entity (O-1).
        self.flows = FlowTable()
        #: Who keeps a record of what happens to messages; None: nobody. Set before the first fragment works.
        self.journal: Journal | None = None
        #: By store name; stores that nobody else can take have none here. Filled before the first fragment is made.
        self.leases: dict[str, StoreLease] = {}
        self.window_budget = window_budget
        #: Deleted messages that wait to be put back.
        self.undelivered = Undelivered()
        #: What logs of event hubs keep of their ends for readers that follow.
        self.tail_budget = WindowBudget(limits.tails_bytes_max)
        #: Starts a coroutine on the loop and keeps it from being collected; logs what it raises.
        self.spawn = spawn
        #: What a turn of the loop has room for.
        self.turns = Turns(clock, spawn)
        #: Told once for each fragment that met a failed commit: the store must be reopened, its fragments
        #: loaded anew.
        self.store_failed = store_failed
        #: L-4; `used_bytes` adds up all entities.
        self.namespace_size = NamespaceSize(limits.namespace_bytes_max, used_bytes)
        #: What is staged for a fragment and counts against its entity's size.
        self.reserved_bytes: dict[FragmentId, int] = {}
        #: By store name; an `Activator` and an `ExpirySweeper` enter themselves.
        self.activators: dict[str, StoreSweep] = {}
        self.sweepers: dict[str, StoreSweep] = {}
