"""The stores of one database: held, watched, taken. A thread with a connection of its own.

Theory of operation. In rounds the thread beats for its node and looks at all leases and members, in one round trip.
What is held stays held as long as beats succeed; what others hold is watched, and taken when they are silent for a
lease (`lease`), at once when it is free or its holder is gone for good. All stores of a database are taken together,
in one transaction with their epochs.

    entering ──joined──▶ standing by ──take──▶ owner ──lost──▶ standing by
        └── refused: a living node has the name          (deposed: its row is gone ──▶ entering)

It beats only while the event loop has shown a pulse in the last second: a busy loop keeps its stores, one that hangs
loses them. A round that fails ends the connection, and what was seen on it counts no more.

An incarnation is a life of the process and a count of entries, and is never used twice, so that one without a row is
gone. A life that ended on this machine is known to be over (`LastLife`): what it held is taken at once.

Everything the thread finds out it leaves in fields that others read, and calls `changed` on its own thread.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from threading import Event, Thread
from typing import Final

from busway.clock import Clock
from busway.cluster.lease import BEATS, LOOKS, LeaseWatch, OwnLease, boot_time
from busway.cluster.lease_rows import DatabaseSilent, LeaseRows, Member, MemberRow, Seen
from busway.store.contract import StoreError, StoreInUse, StoreTooNew
from busway.store.postgres.database import prepare
from busway.store.postgres.url import PostgresUrl

_log = logging.getLogger("busway.cluster")

#: The loop must have shown a pulse in this time.
PULSE_S: Final = 1.0
#: An answer is waited for so long, or a lease if that is longer.
_ANSWER_S: Final = 3.0
#: Between two tries to reach a database.
_PAUSE_S: Final = 0.25
_STOP_S: Final = 2.0
LIFE_BYTES: Final = 12


class Standing(Enum):
    UNKNOWN = "unknown"  # the database cannot be reached
    STANDBY = "standby"  # somebody else has the stores, or nobody yet
    OWNER = "owner"
    REFUSED = "refused"  # another living node has our name


class LeaseKeeper:
    """Of one database, for one node."""

    def __init__(
        self,
        url: PostgresUrl,
        clock: Clock,
        node: Member,
        last_life: bytes,
        changed: Callable[[], None],
    ) -> None:
        """`node`: its incarnation is the life of this process. `last_life`: one that is certainly over, or empty."""
        self.url = url
        self._clock = clock
        self._node = node
        self._lease_s = node.lease_s
        self._last_life = last_life
        self._changed = changed
        self._entries = 0
        self._rows: LeaseRows | None = None
        self._watches: dict[bytes, LeaseWatch] = {}
        self._thread: Thread | None = None
        #: What was told last of a database that does not answer.
        self._said = ""
        self._wake = Event()
        self._is_stopping = False
        # For others to read.
        self.standing = Standing.UNKNOWN
        self.lease = OwnLease(node.lease_s)
        #: Ours in this database at the moment.
        self.incarnation = b""
        self.stores: tuple[int, ...] = ()
        self.members: tuple[MemberRow, ...] = ()
        #: How many stores each incarnation has.
        self._counts: dict[bytes | None, int] = {}
        #: Who has the stores, when we do not.
        self.holder: MemberRow | None = None
        #: Why it is UNKNOWN or REFUSED, for people.
        self.trouble: StoreError | None = None
        #: How often stores came and went, by reason.
        self.moves: dict[str, int] = {}
        # For others to write.
        #: When the loop showed its last pulse.
        self.pulse_s = boot_time()
        #: Whether stores should be taken. Without it, what is held is given up.
        self.wants_stores = True

    # -- for the loop

    def enter(self) -> None:
        """In any thread, before `start`: the database is made ready and entered once. Raises StoreError."""
        prepare(self.url)
        self._connect()
        self.standing = Standing.STANDBY  # it was reached: whoever decides waits for what its leases say

    def start(self) -> None:
        self._thread = Thread(target=self._work, name=f"{self.url.name}-leases", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something should be looked at now."""
        self._wake.set()

    def stop(self) -> None:
        """Stores are free and the node has left, unless the database does not answer. Waits: not on the loop."""
        self._is_stopping = True
        self.wake()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def count_of(self, incarnation: bytes) -> int:
        """How many stores it has, as we saw last."""
        return self._counts.get(incarnation, 0)

    # -- in the thread

    def _work(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                self._round()
            except (DatabaseSilent, StoreError) as error:
                self._disconnect(error)
            self._wake.wait(self._pause_s())
        self._leave()

    def _pause_s(self) -> float:
        if self._rows is None:
            return min(_PAUSE_S, self._lease_s / LOOKS)
        return self._lease_s / (BEATS if self.standing is Standing.OWNER else LOOKS)

    def _disconnect(self, error: Exception) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        said = str(error)
        if said != self._said:  # not at each try
            _log.warning("The leases in the database at %s cannot be looked at: %s", self.url.shown, said)
        self._said = said
        self._watches.clear()
        if not self.incarnation:  # nothing is known of its leases, and nobody waits for them
            self._tell(Standing.UNKNOWN, None)

    def _connect(self) -> LeaseRows:
        if self._rows is None:
            self._rows = LeaseRows(self.url, self._clock, max(_ANSWER_S, self._lease_s))
        return self._rows

    def _round(self) -> None:
        if not self.incarnation:
            self._enter()
            return
        if boot_time() - self.pulse_s > PULSE_S:
            return  # the loop hangs: whoever is well may have the stores
        rows = self._connect()
        sent_s = boot_time()
        sight = rows.beat(self.incarnation)
        answered_s = boot_time()
        self._said = ""
        if not sight.is_member:
            self._deposed()
            return
        self._see(sight, sent_s, answered_s)
        if self.stores and not self.wants_stores:
            self._release(rows)
        elif self._holds_all(sight):
            self.lease.renewed(sent_s)
            self._become_owner(sight)
        else:
            self._stand_by(sight)
            if self.wants_stores:
                self._try_to_take(rows, sight, boot_time())

    def _holds_all(self, sight: Seen) -> bool:
        return bool(sight.holders) and len(sight.owned_by(self.incarnation)) == len(sight.holders)

    def _see(self, sight: Seen, asked_s: float, answered_s: float) -> None:
        present = {member.incarnation: member for member in sight.members}
        for gone in self._watches.keys() - present.keys():
            del self._watches[gone]
        for incarnation, member in present.items():
            if incarnation not in self._watches:
                # Who was started with a longer lease believes in it for as long.
                self._watches[incarnation] = LeaseWatch(max(self._lease_s, member.lease_s))
            self._watches[incarnation].seen(member.beat, asked_s, answered_s)
        self.members = tuple(sight.members)
        self._counts = Counter(sight.holders.values())

    # -- entering

    def _enter(self) -> None:
        """The node gets a row, in the place of an earlier life of the same name."""
        if self.standing is Standing.UNKNOWN and self._rows is None:
            prepare(self.url)
        rows = self._connect()
        asked_s = boot_time()
        sight = rows.look()
        self._see(sight, asked_s, boot_time())
        namesake = next((each for each in sight.members if each.node == self._node.node), None)
        displaced: tuple[bytes, int] | None = None
        if namesake is not None:
            watch = self._watches[namesake.incarnation]
            if watch.has_moved and not self._is_over(namesake.incarnation):
                self._refuse(namesake)
                return
            if not self._is_over(namesake.incarnation) and not watch.may_take(boot_time()):
                self._tell(Standing.STANDBY, namesake)
                return
            displaced = namesake.incarnation, namesake.beat
        self._entries += 1
        incarnation = self._node.incarnation + self._entries.to_bytes(4, "big")
        if rows.join(replace(self._node, incarnation=incarnation), displaced):
            self.incarnation = incarnation
            self.trouble = None
            self.wake()

    def _is_over(self, incarnation: bytes) -> bool:
        """It is known to be dead."""
        life = incarnation[:LIFE_BYTES]
        return life == self._node.incarnation or (bool(self._last_life) and life == self._last_life)

    def _refuse(self, namesake: MemberRow) -> None:
        where = f" at {namesake.address}" if namesake.address else ""
        self.trouble = StoreInUse(
            f"A node called {namesake.node} lives already{where}, in the database at {self.url.shown}: give this one"
            " another name with --node."
        )
        self._tell(Standing.REFUSED, namesake)

    def _deposed(self) -> None:
        """Our row is gone: somebody has our name, or we were silent for very long."""
        _log.warning("This node is no member of the database at %s any more.", self.url.shown)
        self.incarnation = b""
        self._lose("deposed")
        self._watches.clear()
        self._tell(Standing.STANDBY, None)
        self.wake()

    # -- owning

    def _become_owner(self, sight: Seen) -> None:
        self.stores = tuple(sight.holders)
        self._tell(Standing.OWNER, None)

    def _stand_by(self, sight: Seen) -> None:
        if self.stores:
            self._lose("taken")
        holders = [holder for holder in sight.holders.values() if holder is not None]
        others = [each for each in sight.members if each.incarnation in holders]
        self._tell(Standing.STANDBY, others[0] if others else None)

    def _lose(self, reason: str) -> None:
        self.lease.end()
        self.lease = OwnLease(self._lease_s)
        self._count(reason, len(self.stores))
        self.stores = ()

    def _count(self, reason: str, stores: int) -> None:
        if stores:
            self.moves[reason] = self.moves.get(reason, 0) + stores

    def _try_to_take(self, rows: LeaseRows, sight: Seen, now_s: float) -> None:
        """All of them, or wait."""
        present = {each.incarnation for each in sight.members}
        silent: dict[bytes, int] = {}
        gone: set[bytes] = set()
        for holder in set(sight.holders.values()):
            if holder is None or holder == self.incarnation:
                continue
            if holder not in present or self._is_over(holder):
                gone.add(holder)
            elif self._watches[holder].may_take(now_s):
                silent[holder] = self._watches[holder].beat or 0
            else:
                return
        stores = list(sight.holders)
        if stores and rows.take(stores, self.incarnation, silent, gone):
            self._count("taken over" if silent or gone else "free", len(stores))
            self.wake()  # the next beat says until when they are ours

    # -- giving up

    def _release(self, rows: LeaseRows) -> None:
        self._lose("given up")
        rows.release(self.incarnation, leaves=False)
        self._tell(Standing.STANDBY, None)

    def _leave(self) -> None:
        if self._rows is None:
            return
        try:
            if self.incarnation:
                self._lose("given up")
                self._rows.release(self.incarnation, leaves=True)
        except DatabaseSilent as error:
            _log.warning("The stores at %s could not be given up: %s", self.url.shown, error)
        finally:
            self._rows.close()
            self._rows = None

    def _tell(self, standing: Standing, holder: MemberRow | None) -> None:
        is_news = standing is not self.standing or _name_of(holder) != _name_of(self.holder)
        self.standing, self.holder = standing, holder
        if is_news:
            self._changed()


def _name_of(member: MemberRow | None) -> bytes:
    return b"" if member is None else member.incarnation


#: What no later try would mend.
FATAL: Final = (StoreTooNew, StoreInUse)
