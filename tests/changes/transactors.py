"""Clients that do several things together or not at all: receive and settle, send here, send on by way of here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from busway.broker.transaction.transactions import Transaction, Transactions
from busway.model.errors import BrokerError, MessageLockLost, SessionLockLost, TransactionRolledBack
from busway.model.settlement import Settlement, Verb
from tests.changes.kinds import is_queue
from tests.changes.messages import Draft
from tests.changes.receivers import Consumer, Held
from tests.changes.record import result_of
from tests.changes.session_receivers import SessionConsumer
from tests.chaos.history import FAIL, OK

if TYPE_CHECKING:
    from tests.changes.world import World


class _Act:
    """What belongs to one transaction."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.ended: list[Held] = []


class TransactionWork:
    """For a consumer with or without sessions: what comes is completed in transactions that also send."""

    def __init__(self, consumer: Consumer) -> None:
        self._client = consumer
        self._world = consumer.world
        self._record = consumer.record
        self._chance = consumer.chance
        self._transactions: Transactions = consumer.world.namespace.transactions()

    def leave(self) -> None:
        self._transactions.owner_gone(self)

    async def transact(self, inbox: list[Held], session_id: str | None) -> list[Held]:
        """One of them, until it is committed. Returns what is left of the inbox."""
        client, record = self._client, self._record
        drafts = [self._world.draft() for _ in range(self._chance.choice((1, 2, 3)))]
        first = inbox[0] if inbox and is_queue(self._world.cell.kind) else None
        for draft in drafts:  # TX-13: one fragment, one key
            if first is not None:
                draft.session_id, draft.partition_key = first.session_id, first.partition_key
            else:
                draft.session_id, draft.partition_key = drafts[0].session_id, drafts[0].partition_key
        held = [first] if first is not None else inbox[:1]
        wanted = held
        only_settles = bool(held) and first is None and self._chance.random() < 0.5
        work = record.begin("transaction")
        while True:
            client.doing = f"transacts {drafts[0].value}"
            act = _Act()
            problem = await self._try(act, [] if only_settles else drafts, held, session_id)
            if problem is None or result_of(problem) != FAIL:
                break
            if isinstance(problem, MessageLockLost | SessionLockLost | TransactionRolledBack):
                held = []  # whoever holds nothing any more sends alone
            if only_settles:
                return inbox[1:]
            await client.refused(problem)
        client.served()
        if problem is None:
            record.end(work)
        return [each for each in inbox if each not in act.ended and (each in held or each not in wanted)]

    async def _try(
        self, act: _Act, drafts: list[Draft], held: list[Held], session_id: str | None
    ) -> BrokerError | None:
        transaction_id = self._transactions.declare(self)
        transaction = self._transactions.find(transaction_id)
        try:
            self._settle_in(transaction, act, held, session_id)
            await self._send_in(transaction, act, drafts)
        except BrokerError as error:
            self._transactions.discharge(self, transaction_id, fail=True, done=_unheard)
            return error
        return await self._commit(transaction_id, act)

    def _settle_in(
        self, transaction: Transaction, act: _Act, held: list[Held], session_id: str | None
    ) -> None:
        """A lost lock is none of the transaction's."""
        if not held or (not is_queue(self._world.cell.kind) and self._chance.random() < 0.5):
            return
        tokens = [each.token for each in held]
        refused = transaction.settle(self._client.place(), tokens, Settlement(Verb.COMPLETE), session_id)
        places = {place for place, _ in refused}
        act.ended += [each for place, each in enumerate(held) if place not in places]

    async def _send_in(self, transaction: Transaction, act: _Act, drafts: list[Draft]) -> None:
        world = self._world
        if act.ended and not is_queue(world.cell.kind):  # a topic is another entity
            return
        for draft in drafts:
            if is_queue(world.cell.kind) and self._chance.random() < 0.2:
                await self._send_via(transaction, draft)
            else:
                transaction.send(world.namespace.sender(world.send_path).inlet, [draft.message()])
            act.drafts.append(draft)
            self._record.first_sent.setdefault(draft.value, self._record.now())

    async def _send_via(self, transaction: Transaction, draft: Draft) -> None:
        """TX-3: to another queue by way of this one."""
        world = self._world
        target = world.subject.targets[0]
        via = world.namespace.transfer_queues.send_via(world.send_path, target)
        if via is None:
            transaction.hold()
            try:
                await world.namespace.transfer_queues.prepare(world.send_path)
                via = world.namespace.transfer_queues.send_via(world.send_path, target)
            finally:
                transaction.unhold()
        if via is None:
            raise TransactionRolledBack
        via.send_in(transaction, [draft.message()])

    async def _commit(self, transaction_id: bytes, act: _Act) -> BrokerError | None:
        invoked = self._record.now()
        ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        try:
            self._transactions.discharge(self, transaction_id, fail=False, done=ended.set_result)
            problem = await ended
        except BrokerError as error:
            problem = error
        for draft in act.drafts:
            self._record.sent(draft.value, invoked, problem, 0)
        for held in act.ended:
            self._record.settled("complete", held.value, invoked, problem, held.token.hex())
        if problem is None:
            self._record.acts.append(([draft.value for draft in act.drafts], OK))
        return problem


class Transactor(Consumer):
    """Without sessions."""

    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name, path)
        self._work = TransactionWork(self)

    def leave(self) -> None:
        super().leave()
        self._work.leave()

    async def settle_some(self) -> None:
        self.inbox = await self._work.transact(self.inbox, None)


class SessionTransactor(SessionConsumer):
    def __init__(self, world: World, name: str, path: str) -> None:
        super().__init__(world, name, path)
        self._work = TransactionWork(self)

    def leave(self) -> None:
        super().leave()
        self._work.leave()

    async def settle_some(self) -> None:
        session_id = None if self.session is None else self.session.session_id
        self.inbox = await self._work.transact(self.inbox, session_id)


def _unheard(error: BrokerError | None) -> None:
    """A rollback has nothing to say."""
