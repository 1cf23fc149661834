"""This server as a node, on the event loop: whether the stores are its own, and who has them if not.

Theory of operation. A `LeaseKeeper` in a thread looks after each database; here their news come together. In this
version a node has all stores of the namespace or none, and the database that was given first decides, where the
catalogue's home is: whoever has its stores takes the others as they become free, and whoever has not gives up what he
has. A database that cannot be reached decides nothing; the next one does.

While the node has its stores it may serve (`owned`); it must stop when `lost` returns. Between the end of a lease and
its renewal, or its loss, stores are suspended (`OwnLease`): nothing is handed out, everything else goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from busway.clock import Clock
from busway.cluster.lease import NEVER, OwnLease, boot_time
from busway.cluster.lease_keeper import FATAL, LeaseKeeper, Standing
from busway.cluster.lease_rows import Member, MemberRow
from busway.store.contract import StoreError
from busway.store.postgres.url import PostgresUrl

_log = logging.getLogger("busway.cluster")

#: So often the loop shows that it works, and looks at its leases.
_PULSE_EVERY_S = 0.2
#: A node that owns the first database waits so many leases for the others before it serves.
_OTHERS_LEASES = 1.5


@dataclass(frozen=True)
class NodeSettings:
    """`life`: drawn for this process. `last_life`: an earlier one's of which it is certain that it is over."""

    name: str
    address: str
    version: str
    life: bytes
    last_life: bytes = b""
    lease_s: float = 2.0


class ClusterNode:
    """See the head of this file. Everything here belongs to the loop."""

    def __init__(self, urls: Sequence[PostgresUrl], clock: Clock, settings: NodeSettings) -> None:
        self.settings = settings
        member = Member(settings.name, settings.life, settings.address, settings.version, settings.lease_s)
        self._keepers = {
            url.place: LeaseKeeper(url, clock, member, settings.last_life, self._told) for url in urls
        }
        self._loop: asyncio.AbstractEventLoop
        self._news = asyncio.Event()
        self._pulse: asyncio.TimerHandle | None = None
        #: Databases whose stores were ours when we began to serve, each with its lease of that time.
        self._served: dict[LeaseKeeper, OwnLease] = {}
        self._lapses = 0
        self._is_suspended = False
        #: Called with the names of stores whose leases were over and are renewed.
        self.resumed: Callable[[list[str]], None] = _nobody_waits
        self._waits_for = b""

    # -- life

    async def enter(self) -> None:
        """Databases are reached for the first time. Raises StoreError when none can be, and for what no waiting would
        mend."""
        self._loop = asyncio.get_running_loop()
        troubles: list[StoreError] = []
        for keeper in self._keepers.values():
            try:
                await asyncio.to_thread(keeper.enter)
            except FATAL:
                raise
            except StoreError as error:
                troubles.append(error)
        if len(troubles) == len(self._keepers):
            raise troubles[0]
        self._decide()
        for keeper in self._keepers.values():
            keeper.start()
        self._beat()

    async def stop(self) -> None:
        """Stores are free for others, and the node has left."""
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
        await asyncio.gather(*(asyncio.to_thread(keeper.stop) for keeper in self._keepers.values()))

    def _told(self) -> None:
        """In a keeper's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._look)

    def _beat(self) -> None:
        now = boot_time()
        for keeper in self._keepers.values():
            keeper.pulse_s = now
        self._look_at_leases(now)
        self._pulse = self._loop.call_later(_PULSE_EVERY_S, self._beat)

    def _look_at_leases(self, now: float) -> None:
        over = [keeper for keeper, lease in self._served.items() if NEVER < lease.until <= now]
        if over and not self._is_suspended:
            self._is_suspended = True
            _log.warning(
                "The leases of %s could not be renewed in time: nothing is handed out until they are.",
                " and ".join(keeper.url.shown for keeper in over),
            )
        lapses = sum(lease.lapses for lease in self._served.values())
        if lapses > self._lapses and not over:
            self._lapses, self._is_suspended = lapses, False
            _log.info("The leases are renewed; all goes on.")
            self.resumed([name for keeper in self._served for name in keeper.url.store_names])

    def _look(self) -> None:
        self._decide()
        self._news.set()

    def _deciding(self) -> LeaseKeeper | None:
        """The first of the databases that are known."""
        return next((each for each in self._keepers.values() if each.standing is not Standing.UNKNOWN), None)

    def _decide(self) -> None:
        """Who has the first database has all."""
        first = self._deciding()
        for keeper in self._keepers.values():
            wants = first is None or keeper is first or first.standing is Standing.OWNER
            if keeper.wants_stores != wants:
                keeper.wants_stores = wants
                keeper.wake()

    # -- for the server

    @property
    def is_owner(self) -> bool:
        first = self._deciding()
        return first is not None and first.standing is Standing.OWNER

    @property
    def is_suspended(self) -> bool:
        return self._is_suspended

    async def owned(self) -> None:
        """Returns when the stores are ours. Raises StoreError when they never will be."""
        while not self.is_owner:
            self._news.clear()
            self._check_refused()
            self._tell_for_whom()
            await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.lease_s * _OTHERS_LEASES):
                while not all(each.standing is Standing.OWNER for each in self._reachable()):
                    self._news.clear()
                    await self._news.wait()
        self._served = {each: each.lease for each in self._reachable() if each.standing is Standing.OWNER}
        self._lapses = 0
        self._waits_for = b""

    @property
    def has_kept_all(self) -> bool:
        """Of the stores with which it began to serve, without a moment in between."""
        return self.is_owner and all(keeper.lease is lease for keeper, lease in self._served.items())

    async def lost(self) -> str:
        """Returns when stores that were ours are so no more, with what happened."""
        while self.has_kept_all:
            self._news.clear()
            await self._news.wait()
        self._served = {}
        self._is_suspended = False
        self._check_refused()
        holder = self.holder
        if self.is_owner:
            return "They are its own again, but somebody may have had them in between"
        return "They are held by " + shown(holder) if holder is not None else "They were given up"

    def forget_resumed(self) -> None:
        """Nothing is served any more."""
        self.resumed = _nobody_waits

    def _reachable(self) -> list[LeaseKeeper]:
        return [each for each in self._keepers.values() if each.standing is not Standing.UNKNOWN]

    def _check_refused(self) -> None:
        for keeper in self._keepers.values():
            if keeper.standing is Standing.REFUSED and keeper.trouble is not None:
                raise keeper.trouble

    def _tell_for_whom(self) -> None:
        holder = self.holder
        if holder is not None and holder.incarnation != self._waits_for:
            self._waits_for = holder.incarnation
            _log.info(
                "standby: the stores are held by %s; this node takes them when it is gone", shown(holder)
            )

    @property
    def holder(self) -> MemberRow | None:
        """Who has the stores, when it is not us."""
        first = self._deciding()
        return None if first is None else first.holder

    def holder_of(self, url: PostgresUrl) -> Callable[[], bytes | None]:
        """For stores of this database: under whose leases they are opened."""
        keeper = self._keepers[url.place]
        return lambda: keeper.incarnation

    def leases(self) -> Mapping[str, LeaseKeeper]:
        """By the name of each store."""
        return {name: keeper for keeper in self._keepers.values() for name in keeper.url.store_names}

    # -- for people

    def owned_stores(self) -> int:
        return sum(len(keeper.stores) for keeper in self._keepers.values())

    def lease_left_s(self) -> float:
        """Of the lease that ends first; 0 without any."""
        ends = [keeper.lease.until for keeper in self._keepers.values() if keeper.stores]
        return max(0.0, min(ends) - boot_time()) if ends else 0.0

    def moves(self) -> dict[str, int]:
        """How many stores came and went, by reason."""
        found: dict[str, int] = {}
        for keeper in self._keepers.values():
            for reason, count in keeper.moves.items():
                found[reason] = found.get(reason, 0) + count
        return found

    def nodes(self) -> list[dict[str, object]]:
        """Every node of every database, by name."""
        found: dict[str, dict[str, object]] = {}
        for keeper in self._keepers.values():
            for member in keeper.members:
                stores = keeper.count_of(member.incarnation)
                present = found.get(member.node)
                if present is not None:
                    present["stores"] = int(str(present["stores"])) + stores
                    present["state"] = "owner" if stores else present["state"]
                    continue
                found[member.node] = {
                    "name": member.node,
                    "state": _state_of(member, stores, self.settings.lease_s),
                    "stores": stores,
                    "address": member.address,
                    "version": member.version,
                    "uptime_s": round(member.up_ms / 1000),
                    "last_beat_s": round(member.silent_ms / 1000, 1),
                    "is_this": member.incarnation == keeper.incarnation,
                }
        return [found[name] for name in sorted(found)]


def _state_of(member: MemberRow, stores: int, lease_s: float) -> str:
    if member.silent_ms > max(lease_s, member.lease_s) * 1000:
        return "silent"
    return "owner" if stores else "standby"


def shown(member: MemberRow) -> str:
    """A node, for people."""
    return f"the node {member.node}{f' at {member.address}' if member.address else ''}"


def _nobody_waits(store_names: list[str]) -> None:
    """Nothing is served yet."""
