"""The end of a cell: whatever is stored comes out, wherever it is, and nothing stays behind."""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.entity.entity import Queue
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.fragment.outlet import Outlet
from busway.message.message import PLACE_DEFERRED
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement, Verb
from tests.changes.messages import value_of
from tests.changes.world import SESSION_IDS, World

_CREDIT: Final = 1_000
#: Locks of five minutes may have to end.
_DRAIN_S_MAX: Final = 700.0
_FIRST_WAIT_S: Final = 0.05
_LAST_WAIT_S: Final = 10.0


class Finale:
    def __init__(self, world: World) -> None:
        self._world = world
        self._record = world.record
        self._buckets: dict[tuple[str, bool], _Bucket] = {}
        self.doing = ""

    async def play(self) -> None:
        began, wait_s = self._record.now(), _FIRST_WAIT_S
        while self._record.now() < began + _DRAIN_S_MAX:
            for path, is_dead, outlet in self._outlets():
                self.doing = f"drains {path}{' (dead letters)' if is_dead else ''}"
                await self._drain(path, is_dead, outlet)
            await asyncio.sleep(wait_s)
            if not self._left():
                break
            wait_s = min(2 * wait_s, _LAST_WAIT_S)
        for path, what in self._left().items():
            self._record.find("stays behind", f"{path}: {what}")
        for bucket in self._buckets.values():
            bucket.leave()

    def _outlets(self) -> list[tuple[str, bool, Outlet]]:
        found: list[tuple[str, bool, Outlet]] = []
        for path, queue in self._queues():
            for is_dead in (False, True):
                outlet = queue.outlet(is_dead)
                if not outlet.settings.forwards and not (path.endswith(" transfers") and not is_dead):
                    found.append((path, is_dead, outlet))
        return found

    def _queues(self) -> list[tuple[str, Queue]]:
        namespace = self._world.namespace
        found = [(path, namespace.queue(path)) for path in self._world.receivable()]
        if self._world.cell.traffic.name == "transactions":
            transfers = namespace.transfer_queues.of(self._world.send_path)
            if transfers is not None:
                found.append((f"{self._world.send_path} transfers", transfers))
        return found

    async def _drain(self, path: str, is_dead: bool, outlet: Outlet) -> None:
        counters = [fragment.counters for fragment in outlet.fragments()]
        if not any(each.active or each.deferred for each in counters):
            return
        if outlet.requires_session:
            for session_id in SESSION_IDS:
                await self._drain_session(path, outlet, session_id)
        else:
            bucket = self._buckets.get((path, is_dead))
            if bucket is None or bucket.is_gone:
                bucket = self._buckets[path, is_dead] = _Bucket(self._world, path, outlet, None)
                outlet.add_receiver(bucket)
            outlet.wake(bucket)
        if any(each.deferred for each in counters):
            await self._drain_deferred(path, outlet, None)

    async def _drain_session(self, path: str, outlet: Outlet, session_id: str) -> None:
        bucket = _Bucket(self._world, path, outlet, session_id)
        try:
            session = await outlet.accept_session(bucket, session_id, 0.1)
        except BrokerError:  # its lock has not ended yet
            return
        outlet.wake(bucket)
        await asyncio.sleep(0.05)
        await self._drain_deferred(path, outlet, session_id)
        session.close()

    async def _drain_deferred(self, path: str, outlet: Outlet, session_id: str | None) -> None:
        """Their numbers are found by peeking."""
        if outlet.requires_session and session_id is None:
            return
        page = await outlet.peek(0, 250, session_id)
        for number in [message.sequence_number for message in page if message.state == PLACE_DEFERRED]:
            try:
                found = await outlet.receive_by_number([number], deletes=True, session_id=session_id)
            except BrokerError:  # locked, for a while
                continue
            for delivery in found:
                self._record.received("drain", path, value_of(delivery.message.bare), number)

    def _left(self) -> dict[str, str]:
        left: dict[str, str] = {}
        entities = [(path, queue.outlets()) for path, queue in self._queues()]
        sender = self._world.namespace.sender(self._world.send_path)  # a topic keeps what is not due yet
        entities.append((self._world.send_path, sender.outlets()))
        for path, outlets in entities:
            for outlet in outlets:
                for fragment in outlet.fragments():
                    counters = fragment.counters
                    if counters.active or counters.deferred or counters.scheduled:
                        left[f"{outlet.settings.path} {fragment.index}"] = (
                            f"{counters.active} active, {counters.deferred} deferred,"
                            f" {counters.scheduled} scheduled; {path}"
                        )
        return left


class _Bucket(Receiver):
    """Takes everything and completes it."""

    def __init__(self, world: World, path: str, outlet: Outlet, session_id: str | None) -> None:
        self._world = world
        self._path = path
        self._outlet = outlet
        self._session_id = session_id
        self.is_gone = False

    def room(self) -> int:
        return _CREDIT

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            message = delivery.message
            self._world.record.received("drain", self._path, value_of(message.bare), message.sequence_number)
        asyncio.get_running_loop().call_soon(self._complete, [delivery.token for delivery in deliveries])
        return []

    def _complete(self, tokens: list[bytes]) -> None:
        self._outlet.settle(tokens, Settlement(Verb.COMPLETE), self._completed, self._session_id)

    def _completed(self, refused: list[tuple[int, BrokerError]]) -> None:
        for _, error in refused:
            self._world.record.find("drained in vain", f"{self._path} {type(error).__name__}")

    def evict(self, error: BrokerError) -> None:
        self.is_gone = True
        self._world.record.find("evicted while draining", f"{self._path} {type(error).__name__}")

    def leave(self) -> None:
        if not self.is_gone:
            self._outlet.remove_receiver(self)
