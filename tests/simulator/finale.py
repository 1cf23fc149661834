"""The end of a run: everything is healed, and all that is stored anywhere must come out within bounded time.

What is received here is written down as `drain` and completed: afterwards nothing may be left, neither in the stores'
rows nor in any count.
"""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.entity.entity import Queue, Topic
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.outlet import Outlet
from busway.message.message import PLACE_DEFERRED
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from tests.simulator.topology import (
    DROPS,
    FORWARDING,
    SESSION_IDS,
    SESSIONS,
    TOPICS,
    TRANSACTIONAL,
    TRANSFERS,
)
from tests.simulator.world import World

#: In simulated time. Locks last 15 s, schedules wait for 40 s, and the clock may have been set back by hours.
_ROUND_S: Final = 5.0
_ROUNDS_MAX: Final = 240
_CREDIT: Final = 1_000


class Finale:
    """See the head of this file."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._journal = world.journal

    async def play(self) -> None:
        await self._all_in_service()
        if self._world.operator is not None:
            await self._world.operator.finish()
        self._make_all_due()
        try:
            await self._empty_all()
            await asyncio.sleep(120)  # what waits to try once more
            self._note_homes()
            self._check_nothing_is_left()
        except BrokerError as error:  # all is healed: whatever is refused now is as good as lost
            self._journal.find("not drained", f"{type(error).__name__}: {error}")
        self._journal.is_over = True
        await self._world.namespace.close()

    async def _empty_all(self) -> None:
        for _ in range(_ROUNDS_MAX):
            await asyncio.sleep(_ROUND_S)
            if self._is_empty():
                return
            await self._round()
        self._journal.find("not drained", f"after {_ROUNDS_MAX * _ROUND_S} s: {self._left()}")

    def _make_all_due(self) -> None:
        """The clock may stand hours before the time that schedules were made for."""
        clock = self._world.clock
        clock.step((clock.high_ms() - clock.wall_ms()) / 1000 + 60)

    async def _all_in_service(self) -> None:
        world = self._world
        for _ in range(100):
            for row in world.namespace.stores.shown():
                if row["state"] == "disabled":
                    await world.back_in_service(str(row["name"]))
            if all(row["state"] == "open" for row in world.namespace.stores.shown()):
                return
            await asyncio.sleep(1.0)
        self._journal.find("stores stay away", str([row["state"] for row in world.namespace.stores.shown()]))

    # -- draining

    def _outlets(self) -> list[tuple[str, bool, Outlet]]:
        namespace = self._world.namespace
        found: list[tuple[str, bool, Outlet]] = []
        for path in (*self._world.receivable, *SESSIONS, DROPS):
            found.append((path, False, namespace.queue(path).outlet(False)))
        for path in (*self._world.receivable, *SESSIONS, DROPS, *FORWARDING):
            if path != "brief":
                found.append((path, True, namespace.queue(path).outlet(True)))
        for path in TRANSACTIONAL:
            transfers = namespace.transfer_queues.of(path)
            if transfers is not None:
                found.append((TRANSFERS + path, True, transfers.outlet(True)))
        return found

    async def _round(self) -> None:
        for path, is_dead, outlet in self._outlets():
            if outlet.requires_session:
                if any(_holds_something(each.counters) or each.counters.bytes for each in outlet.fragments()):
                    for session_id in SESSION_IDS:
                        await self._drain_session(path, is_dead, outlet, session_id)
            elif any(_holds_something(fragment.counters) for fragment in outlet.fragments()):
                await self._drain(path, is_dead, outlet)

    async def _drain(self, path: str, is_dead: bool, outlet: Outlet) -> None:
        bucket = _Bucket(self._world, path, is_dead, outlet, None)
        outlet.add_receiver(bucket)
        outlet.wake(bucket)
        await asyncio.sleep(1.0)
        outlet.remove_receiver(bucket)
        await self._drain_deferred(path, is_dead, outlet, None)

    async def _drain_session(self, path: str, is_dead: bool, outlet: Outlet, session_id: str) -> None:
        bucket = _Bucket(self._world, path, is_dead, outlet, session_id)
        try:
            session = await outlet.accept_session(bucket, session_id, 1.0)
        except BrokerError:  # its lock has not ended yet
            return
        outlet.wake(bucket)
        await asyncio.sleep(1.0)
        await self._drain_deferred(path, is_dead, outlet, session_id)
        await outlet.set_session_state(session_id, None)
        session.close()

    async def _drain_deferred(self, path: str, is_dead: bool, outlet: Outlet, session_id: str | None) -> None:
        """Their numbers are found by peeking."""
        numbers: list[int] = []
        start = 0
        while True:
            page = await outlet.peek(start, 100, session_id)
            if not page:
                break
            numbers += [message.sequence_number for message in page if message.state == PLACE_DEFERRED]
            start = page[-1].sequence_number + 1
        for number in numbers:
            try:
                found = await outlet.receive_by_number([number], deletes=True, session_id=session_id)
            except BrokerError:  # locked, for a while
                continue
            for delivery in found:
                self._world.see(path, is_dead, "drain", delivery.message, "finale")

    # -- looking

    def _entities(self) -> list[tuple[str, Queue | Topic]]:
        namespace = self._world.namespace
        found: list[tuple[str, Queue | Topic]] = [
            (path, namespace.queue(path)) for path in (*self._world.receivable, *SESSIONS, DROPS, *FORWARDING)
        ]
        topics = TOPICS if self._world.has_operator else ("events", "news")
        found += [(path, namespace.sender(path)) for path in topics]
        for path in TRANSACTIONAL:
            transfers = namespace.transfer_queues.of(path)
            if transfers is not None:
                found.append((TRANSFERS + path, transfers))
        return found

    def _left(self) -> dict[str, list[int]]:
        left: dict[str, list[int]] = {}
        for path, entity in self._entities():
            for outlet in entity.outlets():
                for fragment in outlet.fragments():
                    counters = fragment.counters
                    if _holds_something(counters) or counters.bytes:
                        left[f"{path} {outlet.settings.path} {fragment.index}"] = [
                            counters.active,
                            counters.deferred,
                            counters.scheduled,
                            counters.bytes,
                        ]
        return left

    def _is_empty(self) -> bool:
        return not self._left()

    def _note_homes(self) -> None:
        for path, entity in self._entities():
            for outlet in entity.outlets():
                for fragment in outlet.fragments():
                    self._journal.homes[path, fragment.index] = fragment.store.name

    def _check_nothing_is_left(self) -> None:
        for store in self._world.stores:
            for owner, count in store.rows_left().items():
                self._journal.find("rows are left", f"{store.name} {owner} {count}")
            if store.marks_left():
                self._journal.find("transfer marks are left", f"{store.name} {store.marks_left()}")
        for path, entity in self._entities():
            for outlet in entity.outlets():
                for fragment in outlet.fragments():
                    intake, horizon = fragment.intake, fragment.horizon
                    remains = {
                        "locks": len(fragment.locks.live) + len(fragment.locks.reserved),
                        "withheld": len(intake.withheld),
                        "pending bytes": intake.pending_bytes,
                        "arriving": len(horizon.arriving),
                        "receivers": len(fragment.receivers()),
                    }
                    for what, count in remains.items():
                        if count:
                            self._journal.find(f"{what} are left", f"{path} {fragment.index} {count}")


class _Bucket(Receiver):
    """Takes everything and completes it."""

    def __init__(
        self, world: World, path: str, is_dead: bool, outlet: Outlet, session_id: str | None
    ) -> None:
        self._world = world
        self._place = (path, is_dead)
        self._outlet = outlet
        self._session_id = session_id

    def room(self) -> int:
        return _CREDIT

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            self._world.see(*self._place, "drain", delivery.message, "finale")
        asyncio.get_running_loop().call_soon(self._complete, [delivery.token for delivery in deliveries])
        return []

    def _complete(self, tokens: list[bytes]) -> None:
        self._outlet.settle(tokens, Settlement(Verb.COMPLETE), self._completed, self._session_id)

    def _completed(self, refused: list[tuple[int, BrokerError]]) -> None:
        for _, error in refused:
            self._world.journal.find("drained in vain", f"{self._place} {type(error).__name__}")

    def evict(self, error: BrokerError) -> None:
        self._world.journal.find("evicted while draining", f"{self._place} {type(error).__name__}")


def _holds_something(counters: object) -> bool:
    return any(getattr(counters, name) for name in ("active", "deferred", "scheduled"))
