"""What every fragment of a process shares: time, chance, limits, timers, the memory budget of ready windows,
and a way to start background work. All of it is handed in, so a whole namespace runs under a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from busway.broker.fragment.flow import FlowTable
from busway.broker.fragment.journal import Journal
from busway.broker.fragment.namespace_size import NamespaceSize
from busway.broker.fragment.ready_window import WindowBudget
from busway.broker.fragment.store_sweep import StoreSweep
from busway.broker.fragment.strays import Strays
from busway.broker.fragment.timers import Timers
from busway.broker.fragment.turns import Turns
from busway.broker.fragment.wall_alarm import WallTimers
from busway.broker.limits import Limits
from busway.clock import Clock, Entropy
from busway.store.contract import FragmentKey, Store, StoreError

Spawn = Callable[[Coroutine[None, None, None]], object]


def _ignore_store_failure(store: Store, error: StoreError) -> None:
    """Nobody asked to be told."""


def _nothing_used() -> int:
    """Fragments without a namespace around them."""
    return 0


class BrokerRuntime:
    """Shared by all fragments of one process."""

    __slots__ = (
        "activators",
        "clock",
        "entropy",
        "flows",
        "journal",
        "limits",
        "namespace_size",
        "reserved_bytes",
        "spawn",
        "store_failed",
        "strays",
        "sweepers",
        "tail_budget",
        "timers",
        "turns",
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
        self.window_budget = window_budget
        #: Deleted messages that wait to be put back.
        self.strays = Strays()
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
        #: By store and key of a fragment: what is staged for it and counts against its entity's size.
        self.reserved_bytes: dict[tuple[str, FragmentKey], int] = {}
        #: By store name; an `Activator` and an `ExpirySweeper` enter themselves.
        self.activators: dict[str, StoreSweep] = {}
        self.sweepers: dict[str, StoreSweep] = {}
