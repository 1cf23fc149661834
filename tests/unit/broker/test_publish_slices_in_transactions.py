"""A transaction whose publish takes several turns of the loop: all of it or nothing, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.fragment import turns
from busway.broker.transaction.rules import RuleStep
from busway.gateway.amqp.message_mapping import message_of
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError, EntityUpdated, TransactionRolledBack
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.namespace_bench import Reader, settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

A, B = (subscription_path("t", name) for name in "ab")
CONTROL = object()
LONG = 400


@pytest.fixture(autouse=True, name="tiny_turns")
def _tiny_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn has room for nothing."""
    monkeypatch.setattr(turns, "TURN_STEPS", 0)
    monkeypatch.setattr(turns, "SHARE_STEPS", 1)


class Work:
    """A transaction that publishes so many messages."""

    def __init__(self, bench: TopicBench, count: int) -> None:
        self._bench = bench
        self._among = bench.namespace.transactions()
        self.transaction = self._among.find(self._among.declare(CONTROL))
        self.told: list[BrokerError | None] = []
        self.send(*range(count))

    def send(self, *numbers: int) -> None:
        inlet = self._bench.namespace.sender("t").inlet
        detects = inlet.settings.detects_duplicates
        texts = [encoded(f"{number}", message_id=f"{number}") for number in numbers]
        self.transaction.send(inlet, [message_of(text, detects) for text in texts])

    def discharge(self) -> Work:
        self._among.discharge(CONTROL, self.transaction.txn_id, fail=False, done=self.told.append)
        return self

    def sentence(self) -> str:
        [error] = self.told
        assert isinstance(error, TransactionRolledBack)
        return error.sentence


async def two_subscriptions(bench: TopicBench, **values: object) -> None:
    await bench.topic("t", **values)
    for name in "ab":
        await bench.subscription("t", name)


async def active(bench: TopicBench) -> list[int]:
    return [(await bench.namespace.counts(path)).active for path in (A, B)]


def nothing_waits(bench: TopicBench) -> bool:
    return bench.namespace.sender("t").inlet.member(0).intake.pending_bytes == 0


def test_a_transaction_is_committed_whole_after_several_turns() -> None:
    """TX-1, TX-8: what it publishes and what it settles, in one step."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        await bench.publish("t", encoded("first"))
        reader = Reader()
        outlet = bench.namespace.queue(A).outlet(False)
        outlet.add_receiver(reader)
        outlet.wake(reader)
        await settle()
        work = Work(bench, 12)
        work.transaction.settle(outlet, [reader.taken[0].token], Settlement(Verb.COMPLETE), None)
        outlet.remove_receiver(reader)
        work.discharge()
        took = 0
        while not work.told:
            assert await active(bench) in ([1, 1], [12, 13])
            await settle(1)
            took += 1
        assert took > 12, "it was published at once: this test tests nothing"
        assert (work.told, await active(bench), nothing_waits(bench)) == ([None], [12, 13], True)
        assert await bench.bodies(A) == [f"{number}" for number in range(12)]

    on_a_topic_bench(test)


def test_a_lock_that_ends_meanwhile_rolls_all_of_it_back() -> None:
    """TX-10: everything is looked at again before the one step."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        await bench.publish("t", encoded("first"))
        reader = Reader()
        outlet = bench.namespace.queue(A).outlet(False)
        outlet.add_receiver(reader)
        outlet.wake(reader)
        await settle()
        work = Work(bench, 12)
        work.transaction.settle(outlet, [reader.taken[0].token], Settlement(Verb.COMPLETE), None)
        work.discharge()
        await settle(6)
        assert work.told == []
        await bench.advance(61, step_s=61)
        await settle(LONG)
        assert "lock" in work.sentence()
        assert (await active(bench), nothing_waits(bench)) == ([1, 1], True)

    on_a_topic_bench(test)


def test_a_subscription_that_is_being_updated_rolls_all_of_it_back() -> None:
    """TX-9, T-9: a subscription that is being updated rolls all of it back."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        work = Work(bench, 12).discharge()
        await settle(6)
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        await settle(LONG)
        bench.namespace.contents.entities.unpark(B.lower())
        assert "rolled back" in work.sentence()
        assert (await active(bench), nothing_waits(bench)) == ([0, 0], True)

    on_a_topic_bench(test)


def test_a_commit_that_fails_rolls_all_of_it_back() -> None:
    """TX-9, S-1: and a crash at any moment leaves all or nothing."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        work = Work(bench, 12).discharge()
        await settle(6)
        bench.stores[0].refuse_next_commit()
        await settle(100)
        assert "rolled back" in work.sentence()
        await bench.advance(30)
        assert await active(bench) == [0, 0]

    on_a_topic_bench(test)


def test_what_it_publishes_follows_the_rules_that_it_changes() -> None:
    """T-13: nobody else's messages do before the commit; they stand in line behind it."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        before = await _sent(bench, "before")
        work = Work(bench, 12)
        outlet = bench.namespace.queue(A).outlet(False)
        changes = bench.namespace.rules.work
        work.transaction.change_rules(outlet, changes, RuleStep(A, "$Default", None))
        work.transaction.change_rules(outlet, changes, RuleStep(A, "x", sql("sys.MessageId = '3'", name="x")))
        work.discharge()
        await settle(8)
        behind = await _sent(bench, "behind")
        assert work.told == []
        await settle(LONG)
        assert (work.told, before, behind) == ([None], [[]], [[]])
        assert await bench.bodies(A) == ["before", "3"]
        assert len(await bench.bodies(B)) == 14

    on_a_topic_bench(test)


def test_rules_are_taken_back_when_it_is_refused() -> None:
    """T-13, TX-9: whoever stands in line behind it is published by the old ones."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        work = Work(bench, 12)
        outlet = bench.namespace.queue(A).outlet(False)
        changes = bench.namespace.rules.work
        work.transaction.change_rules(outlet, changes, RuleStep(A, "$Default", None))
        work.discharge()
        await settle(8)
        behind = await _sent(bench, "behind")
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        while not work.told:
            await settle(1)
        bench.namespace.contents.entities.unpark(B.lower())
        await settle(LONG)
        assert "rolled back" in work.sentence()
        assert [rule.name for rule in bench.namespace.rules.of(A)] == ["$Default"]
        assert behind == [[]] or len(behind[0]) == 1
        assert await bench.bodies(A) == (["behind"] if behind == [[]] else [])

    on_a_topic_bench(test)


async def _sent(bench: TopicBench, body: str) -> list[list[tuple[int, BrokerError]]]:
    answers: list[list[tuple[int, BrokerError]]] = []
    bench.namespace.sender("t").send([message_of(encoded(body), False)], answers.append)
    return answers


def test_duplicates_in_it_are_dropped() -> None:
    """S-40, S-46: a look into the history comes first; a refused one leaves no id."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench, requires_duplicate_detection=True)
        first = Work(bench, 8).discharge()
        await settle(10)
        bench.namespace.contents.entities.park(B.lower(), EntityUpdated())
        await settle(LONG)
        bench.namespace.contents.entities.unpark(B.lower())
        assert "rolled back" in first.sentence()
        second, third = Work(bench, 8).discharge(), Work(bench, 10).discharge()
        await settle(LONG)
        assert (second.told, third.told) == ([None], [None])
        assert (await active(bench), nothing_waits(bench)) == ([10, 10], True)

    on_a_topic_bench(test)


def test_what_it_schedules_joins_with_what_it_publishes() -> None:
    """S-37, TX-8: what it schedules joins with what it publishes."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        work = Work(bench, 8)
        later = message_of(encoded("later"), False)
        later.scheduled_at_ms = bench.clock.wall_ms() + 5_000
        numbers = work.transaction.schedule(bench.namespace.sender("t").inlet, [later])
        work.discharge()
        await settle(LONG)
        assert work.told == [None]
        assert await active(bench) == [8, 8]
        assert (await bench.namespace.counts("t")).scheduled == 1
        await bench.advance(6, step_s=1)
        await settle(LONG)
        assert (await active(bench), len(numbers)) == ([9, 9], 1)

    on_a_topic_bench(test)


def test_too_many_copies_roll_it_back_with_numbers() -> None:
    """TX-9, ERR-9: messages, subscriptions and the limit are named."""

    async def test(bench: TopicBench) -> None:
        await two_subscriptions(bench)
        work = Work(bench, 11).discharge()
        await settle(LONG)
        assert work.sentence() == (
            "The transaction was rolled back. Publishing 11 messages at once to the 2 subscriptions of 't' makes more"
            " than 20 copies, which is the most that one publish may make."
        )
        assert (await active(bench), nothing_waits(bench)) == ([0, 0], True)
        assert Work(bench, 10).discharge().told == []
        await settle(LONG)
        assert await active(bench) == [10, 10]

    on_a_topic_bench(test, limits=replace(Limits(), publish_copies_max=20))
