"""Transactions beside plain sends, settlements and the end of locks, against a model that fits on one screen."""

from __future__ import annotations

from random import Random

import pytest

from busway.broker.fragment.locks import Delivery
from busway.broker.transaction.transactions import Transaction, Transactions
from busway.model.errors import BrokerError, TransactionRolledBack, TransactionTimedOut
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.rig import Rig, play, text

CONTROL = object()
LOCK_S = 60.0
STEPS = 120


class OpenTransaction:
    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.began_at: float | None = None
        self.sent: list[str] = []
        #: Claims: the message, its lock, and what shall happen to it.
        self.settled: list[tuple[str, Delivery, Verb]] = []


class Model:
    """What the queue holds: each message is free, or locked by one delivery until a time."""

    def __init__(self) -> None:
        self.free: set[str] = set()
        self.locked: dict[str, tuple[Delivery, float]] = {}
        self.open: list[OpenTransaction] = []
        self.made = 0

    def new(self) -> str:
        self.made += 1
        return f"m{self.made}"

    def claimed(self, body: str, delivery: Delivery) -> bool:
        return any((body, delivery) == claim[:2] for each in self.open for claim in each.settled)

    def holds(self, body: str, delivery: Delivery, now: float) -> bool:
        lock = self.locked.get(body)
        return lock is not None and lock[0] is delivery and lock[1] > now

    def end_locks(self, now: float) -> None:
        for body in [body for body, (_, until) in self.locked.items() if until <= now]:
            del self.locked[body]
            self.free.add(body)

    def settle(self, body: str, verb: Verb) -> None:
        del self.locked[body]
        if verb is Verb.ABANDON:
            self.free.add(body)


class Game:
    """One walk of random steps; every answer of the queue is compared."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = Random(seed)
        self.model = Model()
        self.transactions = Transactions(rig.runtime)
        #: Every delivery ever made, also those whose locks are long gone.
        self.seen: list[tuple[str, Delivery]] = []

    def now(self) -> float:
        return self.rig.clock.monotonic()

    async def play(self) -> None:
        steps = (
            self.send, self.receive, self.receive, self.settle, self.declare, self.send_in, self.send_in,
            self.settle_in, self.settle_in, self.discharge, self.discharge, self.wait, self.leave,
        )  # fmt: skip
        for _ in range(STEPS):
            await self.random.choice(steps)()
            self.compare()
        self.transactions.owner_gone(CONTROL)
        self.model.open.clear()
        await self.rig.advance(LOCK_S + 1)
        self.model.end_locks(self.now())
        self.compare()
        left = await self.rig.receive(credit=1_000)
        assert {delivery.message.bare.decode() for delivery in left} == self.model.free
        assert self.rig.main.intake.pending_bytes == 0
        assert not self.rig.main.locks.reserved

    def compare(self) -> None:
        model = self.model
        assert self.rig.main.counters.active == len(model.free) + len(model.locked)

    # -- plain

    async def send(self) -> None:
        body = self.model.new()
        assert await self.rig.send(text(body)) == []
        self.model.free.add(body)

    async def receive(self) -> None:
        wanted = self.random.randint(1, 3)
        deliveries = await self.rig.receive(credit=wanted)
        assert len(deliveries) == min(wanted, len(self.model.free))
        for delivery in deliveries:
            body = delivery.message.bare.decode()
            self.model.free.remove(body)
            self.model.locked[body] = (delivery, self.now() + LOCK_S)
            self.seen.append((body, delivery))

    async def settle(self) -> None:
        if not self.seen:
            return
        body, delivery = self.random.choice(self.seen)
        verb = self.random.choice((Verb.COMPLETE, Verb.ABANDON))
        fits = self.model.holds(body, delivery, self.now()) and not self.model.claimed(body, delivery)
        refused = await self.rig.settle([delivery], verb)
        assert (refused == []) == fits
        if fits:
            self.model.settle(body, verb)

    # -- in transactions

    async def declare(self) -> None:
        txn_id = self.transactions.declare(CONTROL)
        self.model.open.append(OpenTransaction(self.transactions.find(txn_id)))

    def chosen(self) -> OpenTransaction | None:
        return self.random.choice(self.model.open) if self.model.open else None

    def is_late(self, each: OpenTransaction) -> bool:
        return each.began_at is not None and self.now() >= each.began_at + 120

    async def send_in(self) -> None:
        each = self.chosen()
        if each is None:
            return
        body = self.model.new()
        try:
            each.transaction.send(self.rig.main, [text(body)])
        except TransactionTimedOut:
            assert self.is_late(each)
            return
        assert not self.is_late(each)
        each.sent.append(body)
        each.began_at = self.now() if each.began_at is None else each.began_at

    async def settle_in(self) -> None:
        each = self.chosen()
        if each is None or not self.seen or self.is_late(each):
            return
        body, delivery = self.random.choice(self.seen[-8:])
        verb = self.random.choice((Verb.COMPLETE, Verb.ABANDON))
        fits = self.model.holds(body, delivery, self.now()) and not self.model.claimed(body, delivery)
        refused = each.transaction.settle(self.rig.main, [delivery.token], Settlement(verb), None)
        assert (refused == []) == fits
        if fits:
            each.settled.append((body, delivery, verb))
            each.began_at = self.now() if each.began_at is None else each.began_at

    async def discharge(self) -> None:
        each = self.chosen()
        if each is None:
            return
        self.model.open.remove(each)
        fail = self.random.random() < 0.3
        told: list[BrokerError | None] = []
        self.transactions.discharge(CONTROL, each.transaction.txn_id, fail=fail, done=told.append)
        holds = all(self.model.holds(body, delivery, self.now()) for body, delivery, _ in each.settled)
        await self.rig.calm()
        [error] = told
        if fail:
            assert error is None
        elif self.is_late(each):
            assert isinstance(error, TransactionTimedOut)
        elif not holds:
            assert isinstance(error, TransactionRolledBack)
        else:
            assert error is None
            for body, _, verb in each.settled:
                self.model.settle(body, verb)
            self.model.free.update(each.sent)

    # -- time

    async def wait(self) -> None:
        await self.rig.advance(self.random.choice((1, 10, 30, 61)))
        self.model.end_locks(self.now())
        for each in self.model.open:
            if self.is_late(each):  # it was rolled back: its claims are given back
                each.settled.clear()
                each.sent.clear()

    async def leave(self) -> None:
        """Rarely the control link goes, and everything open with it."""
        if self.random.random() < 0.2:
            self.transactions.owner_gone(CONTROL)
            self.model.open.clear()


@pytest.mark.parametrize("seed", range(40))
def test_transactions_behave_like_the_model(seed: int) -> None:
    """TX-6, TX-8, TX-9, TX-10: transactions behave like the model."""

    async def scenario(rig: Rig) -> None:
        await Game(rig, seed).play()

    play(scenario, max_delivery_count=1_000)
