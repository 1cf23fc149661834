"""Clients that do several things together or not at all: receive, settle, send, send via, schedule; then commit, roll
back, or just leave."""

from __future__ import annotations

import asyncio
from typing import Final

from busway.broker.transaction.transactions import Transaction, Transactions
from busway.message.message import Message
from busway.model.errors import BrokerError, TransactionRolledBack
from busway.model.settlement import Settlement, Verb
from tests.chaos.history import FAIL, INFO, OK
from tests.simulator.consumers import Consumer
from tests.simulator.journal import Act, Ended, Seen, Sent
from tests.simulator.producers import repeatable
from tests.simulator.topology import (
    ALL_TRAITS,
    DEDUPLICATED,
    KEYS,
    PARTITIONED,
    TRANSFERS,
    VIA_TARGET,
    bare_of,
    fragment_index,
    group_of,
    index_of_key,
)

#: TX-6, and a little more.
_TOO_LONG_S: Final = 130.0
_PUBLISHED_TO: Final = ("events", "news", "once", "single", "gate", "inbox")


class Transactor(Consumer):
    """One transaction at a time, on a connection of its own."""

    def begin(self) -> None:
        super().begin()
        self.transactions: Transactions = self.namespace.transactions()
        self.scheduled: list[Sent] = []

    def leave(self) -> None:
        super().leave()
        self.transactions.owner_gone(self)

    async def act(self) -> None:
        if self.tap is None or self.tap.is_gone:
            self.attach()
            return
        if self.chance.random() < 0.5:
            self.grant()
            await asyncio.sleep(self.chance.random() * 0.05)
        if self.chance.random() < 0.15:
            await self.publish()
        elif self.chance.random() < 0.15:
            await self.settle()
        elif self.chance.random() < 0.03:
            self.hang_up()
        else:
            await self.transact()

    async def transact(self) -> None:
        path, _ = self.place
        transaction_id = self.transactions.declare(self)
        transaction = self.transactions.find(transaction_id)
        act = Act(self.journal.now(), self.journal.life, "transaction")
        self.journal.acts.append(act)
        index = self._settle_in(transaction, act)
        if index is None and path not in PARTITIONED:
            index = 0
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            self._send_in(transaction, act, path, index)
        if index is not None and self.chance.random() < 0.35:
            await self._send_via_in(transaction, act, path)
        if self.chance.random() < 0.15:
            await self._cancel_in(transaction, act, path)
        if self.chance.random() < 0.2:
            await asyncio.sleep(self.chance.random() * 2)
        await self._end(transaction_id, act)

    async def publish(self) -> None:
        """Several messages into another entity: copies, forwarding and the history of ids take part."""
        path = self.chance.choice(_PUBLISHED_TO)
        transaction_id = self.transactions.declare(self)
        transaction = self.transactions.find(transaction_id)
        act = Act(self.journal.now(), self.journal.life, "transaction")
        self.journal.acts.append(act)
        for _ in range(self.chance.choice((1, 2, 3))):
            self._send_in(transaction, act, path, None)
        await self._end(transaction_id, act)

    # -- what it does

    def _settle_in(self, transaction: Transaction, act: Act) -> int | None:
        """The fragment that the transaction keeps to from now on."""
        if not self.inbox or self.chance.random() < 0.25:
            return None
        first = self.inbox[0]
        index = fragment_index(first.number)
        alike = [
            seen
            for seen in self.inbox
            if (seen.path, seen.is_dead, fragment_index(seen.number)) == (first.path, first.is_dead, index)
        ]
        chosen = alike[: self.chance.choice((1, 2, 3))]
        verb = self.chance.choice((Verb.COMPLETE, Verb.COMPLETE, Verb.COMPLETE, Verb.ABANDON, Verb.DEFER))
        try:
            outlet = self.outlet(first.path, first.is_dead)
            tokens = [seen.token for seen in chosen]
            refused = {place for place, _ in transaction.settle(outlet, tokens, Settlement(verb), None)}
        except BrokerError:
            return None
        self.inbox = [seen for seen in self.inbox if seen not in chosen]
        claimed = [seen for place, seen in enumerate(chosen) if place not in refused]
        for seen in claimed:
            ended = self.ended(seen, verb.value)
            ended.result = FAIL  # as long as nobody commits it
            act.endings.append(ended)
        return index if claimed else None

    def _send_in(self, transaction: Transaction, act: Act, path: str, index: int | None) -> None:
        sent, message = self._message(path, index, act)
        schedules = path not in DEDUPLICATED and self.chance.random() < 0.2
        if schedules:
            sent.due_ms = self.world.clock.wall_ms() + self.chance.choice((500, 20_000))
            message.scheduled_at_ms = sent.due_ms
        try:
            inlet = self.namespace.sender(path).inlet
            if schedules:
                (sent.number,) = transaction.schedule(inlet, [message])
            else:
                transaction.send(inlet, [message])
        except BrokerError as error:
            self._refused(sent, error)
            return
        act.sends.append(sent)

    def _message(self, path: str, index: int | None, act: Act) -> tuple[Sent, Message]:
        """With a key that leads to the transaction's fragment."""
        if path in DEDUPLICATED:
            sent, message = repeatable(self, path)
            sent.result = FAIL
            self.journal.sends.append(sent)
            return sent, message
        value, traits = self.world.new_value(), self.chance.choice(ALL_TRAITS)
        known = next((sent.key for sent in act.sends if sent.path == path), None)
        fit = [key for key in KEYS if index is None or index_of_key(key) == index]
        key = known or self.chance.choice(fit or KEYS)
        bare = bare_of(value, traits)
        sent = Sent(self.journal.now(), self.journal.life, value, path, key, traits, bare)
        sent.result = FAIL
        self.journal.sends.append(sent)
        return sent, Message(b"", bare, partition_key=key)

    def _refused(self, sent: Sent, error: BrokerError) -> None:
        """It is no part of the transaction."""
        sent.done = self.journal.now()
        self.journal.count("transaction-part fail")
        self.note(f"transaction-part {sent.path} {sent.value} fail {type(error).__name__}")

    async def _send_via_in(self, transaction: Transaction, act: Act, path: str) -> None:
        """TX-3: to the archive by way of the entity."""
        value, traits = self.world.new_value(), self.chance.choice(ALL_TRAITS)
        bare = bare_of(value, traits)
        sent = Sent(self.journal.now(), self.journal.life, value, TRANSFERS + path, None, traits, bare)
        sent.result = FAIL
        self.journal.sends.append(sent)
        try:
            via = self.namespace.transfer_queues.send_via(path, VIA_TARGET)
            if via is None:
                transaction.hold()
                try:
                    await self.namespace.transfer_queues.prepare(path)
                    via = self.namespace.transfer_queues.send_via(path, VIA_TARGET)
                finally:
                    transaction.unhold()
            if via is None:
                self.journal.find("not prepared to send via", path)
                return
            via.send_in(transaction, [Message(b"", bare)])
        except BrokerError as error:
            self._refused(sent, error)
            return
        self.journal.count("via ok")
        act.sends.append(sent)

    async def _cancel_in(self, transaction: Transaction, act: Act, path: str) -> None:
        known = [
            sent
            for sent in self.scheduled
            if sent.path == path and self.world.is_still_there(path, sent.made)
        ]
        if not known:
            return
        sent = self.chance.choice(known)
        try:
            await transaction.cancel(self.namespace.sender(path).inlet, [sent.number])
        except BrokerError:
            return
        self.scheduled.remove(sent)
        sent.is_cancelled = True
        ended = Ended(self.journal.now(), self.journal.life, "complete", group_of(path), sent.value, None)
        ended.result = FAIL
        self.journal.endings.append(ended)
        act.endings.append(ended)

    # -- how it ends

    async def _end(self, transaction_id: bytes, act: Act) -> None:
        draw = self.chance.random()
        if draw < 0.72:
            await self._commit(transaction_id, act)
        elif draw < 0.86:
            self.transactions.discharge(self, transaction_id, fail=True, done=_unheard)
            self._undone(act, "rolled back")
        elif draw < 0.97:
            self.transactions.owner_gone(self)
            self._undone(act, "left open")
        else:
            await asyncio.sleep(_TOO_LONG_S)
            await self._commit(transaction_id, act)

    async def _commit(self, transaction_id: bytes, act: Act) -> None:
        now = self.journal.now()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for call in (act, *act.sends, *act.endings):
            call.invoked = now
            call.result = INFO

        def discharged(error: BrokerError | None) -> None:
            if act.life != self.journal.life:
                return
            self.journal.end(act, error, "transaction")
            for call in (*act.sends, *act.endings):
                call.done, call.result, call.error = act.done, act.result, act.error
            if not ended.done():
                ended.set_result(None)

        self.note(
            f"commits {[sent.value for sent in act.sends]} {[(each.verb, each.value) for each in act.endings]}"
        )
        self.transactions.discharge(self, transaction_id, fail=False, done=discharged)
        await ended
        if act.result == OK:
            self.scheduled += [sent for sent in act.sends if sent.due_ms]
        self._keep(act)

    def _undone(self, act: Act, how: str) -> None:
        self.journal.end(act, TransactionRolledBack(), f"rollback {how}")
        for call in (*act.sends, *act.endings):
            call.done, call.result = act.done, FAIL
        self._keep(act)

    def _keep(self, act: Act) -> None:
        """What a rollback gives back is still locked by us; what was deferred must be found again."""
        kept: list[Seen] = [ended.seen for ended in act.endings if ended.seen is not None]
        if act.result == FAIL and self.chance.random() < 0.8:
            self.inbox += kept
        elif act.result == OK:
            for ended in act.endings:
                if ended.verb == "defer" and ended.seen is not None:
                    place = (ended.seen.path, ended.seen.is_dead)
                    self.world.deferred.setdefault(place, []).append(ended.seen)


def _unheard(error: BrokerError | None) -> None:
    """A rollback has nothing to say."""
