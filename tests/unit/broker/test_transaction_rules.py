"""Rules that change in a transaction are durable with it or not at all (T-13, TX-8, TX-9, TX-20)."""

from __future__ import annotations

import asyncio
import json

import pytest

from busway.broker.namespace.catalogue import DECIDED_KEY, DecidedRules, to_take_over
from busway.broker.transaction.rules import RuleStep
from busway.broker.transaction.transactions import Transaction, Transactions
from busway.gateway.amqp.message_mapping import message_of
from busway.model.errors import (
    BrokerError,
    EntityAlreadyExists,
    InvalidOperation,
    StoreOutcomeUnknown,
    TransactionRolledBack,
)
from busway.store.contract import StoreError
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

CONTROL = object()
SUBSCRIPTION = "t/Subscriptions/s"


class Work:
    """A transaction that replaces the rule `$Default` by one for red messages, and publishes a red and a blue one."""

    def __init__(self, bench: TopicBench) -> None:
        self._bench = bench
        self._among: Transactions = bench.namespace.transactions()
        self.transaction: Transaction = self._among.find(self._among.declare(CONTROL))
        self.told: list[BrokerError | None] = []

    def change(self, step: RuleStep) -> None:
        outlet = self._bench.namespace.queue(SUBSCRIPTION).outlet(False)
        self.transaction.change_rules(outlet, self._bench.namespace.rules.work, step)

    def begin(self) -> Work:
        self.change(RuleStep(SUBSCRIPTION, "red", sql("sys.Label = 'red'", name="red")))
        self.change(RuleStep(SUBSCRIPTION, "$Default", None))
        messages = [message_of(encoded(body, subject=body), False) for body in ("red", "blue")]
        self.transaction.send(self._bench.namespace.sender("t").inlet, messages)
        return self

    async def discharge(self) -> Work:
        self._among.discharge(CONTROL, self.transaction.txn_id, fail=False, done=self.told.append)
        await settle(60)
        return self


async def made(bench: TopicBench, store: int = 0) -> None:
    """The topic in that store; the catalogue's home is store 0."""
    for number in range(store):
        await bench.queue(f"filler-{number}")
    await bench.topic("t")
    await bench.subscription("t", "s")
    await settle()
    assert bench.namespace.sender("t").inlet.member(0).store.name == f"store-{store}"


def names(bench: TopicBench) -> list[str]:
    return [rule.name for rule in bench.namespace.rules.of(SUBSCRIPTION)]


async def crash(bench: TopicBench) -> None:
    """Every store keeps what it has committed; the next life begins."""
    for store in bench.stores:
        store.crash()
    await bench.namespace.close()
    for store in bench.stores:
        store.release_commits()
    bench.namespace = bench.new_namespace()
    await bench.namespace.open()


async def come_back(bench: TopicBench) -> None:
    await bench.advance(120)
    await settle()


@pytest.mark.parametrize("store", [0, 1])
def test_rules_and_messages_change_in_one_commit(store: int) -> None:
    """T-13, TX-8: nothing before it, everything after it, and so over a restart."""

    async def test(bench: TopicBench) -> None:
        await made(bench, store)
        work = Work(bench).begin()
        assert names(bench) == ["$Default"]
        await work.discharge()
        assert work.told == [None]
        for _ in range(2):
            assert names(bench) == ["red"]
            assert await bench.bodies(SUBSCRIPTION) == ["red"]
            await bench.restart()
        await bench.publish("t", encoded("red", subject="red"), encoded("other", subject="other"))
        assert await bench.bodies(SUBSCRIPTION) == ["red", "red"]

    on_a_topic_bench(test, store_count=2)


@pytest.mark.parametrize("store", [0, 1])
def test_a_crash_before_the_commit_leaves_nothing(store: int) -> None:
    """T-13, TX-8: a crash before the commit leaves nothing."""

    async def test(bench: TopicBench) -> None:
        await made(bench, store)
        bench.stores[store].hold_commits()
        work = await Work(bench).begin().discharge()
        assert work.told == []
        await crash(bench)
        assert names(bench) == ["$Default"]
        assert await bench.bodies(SUBSCRIPTION) == []

    on_a_topic_bench(test, store_count=2)


def test_a_crash_between_the_stores_loses_no_rule() -> None:
    """T-13: the messages are stored, the catalogue's home has not heard of the rules."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        bench.stores[0].hold_commits()
        work = await Work(bench).begin().discharge()
        assert work.told == [None]
        await crash(bench)
        for _ in range(2):
            assert names(bench) == ["red"]
            assert await bench.bodies(SUBSCRIPTION) == ["red"]
            await bench.restart()
        version, rows = await bench.stores[0].catalogue()
        assert f"rule:{SUBSCRIPTION.lower()}/rules/red" in rows
        assert f"rule:{SUBSCRIPTION.lower()}/rules/$default" not in rows
        assert version == bench.namespace.contents.catalogue.version

    on_a_topic_bench(test, store_count=2)


def test_what_was_taken_over_is_never_taken_over_again() -> None:
    """T-13, T-11: a rule that somebody has removed since stays removed, whatever the stores still hold."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        await Work(bench).begin().discharge()
        await bench.namespace.rules.remove(SUBSCRIPTION, "red")
        assert DECIDED_KEY in (await bench.stores[1].catalogue())[1]
        await bench.restart()
        assert names(bench) == []
        await Work(bench).begin().discharge()  # there is no $Default any more
        assert names(bench) == []
        assert await bench.bodies(SUBSCRIPTION) == ["red"]

    on_a_topic_bench(test, store_count=2)


def test_a_home_that_fails_just_then_learns_the_rules_when_it_is_back() -> None:
    """T-13: a home that fails just then learns the rules when it is back."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        bench.stores[0].refuse_next_commit()
        work = await Work(bench).begin().discharge()
        assert work.told == [None]
        assert names(bench) == ["red"]
        await come_back(bench)
        assert names(bench) == ["red"]
        assert bench.namespace.contents.decided_changes() == {}
        await crash(bench)
        assert names(bench) == ["red"]

    on_a_topic_bench(test, store_count=2)


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("store", [0, 1])
def test_a_commit_of_unknown_outcome_changes_all_or_nothing(store: int, is_applied: bool) -> None:
    """T-13, S-1: which of the two it was is known when the store is back."""

    async def test(bench: TopicBench) -> None:
        await made(bench, store)
        bench.stores[store].lose_next_commit(is_applied=is_applied)
        work = await Work(bench).begin().discharge()
        assert [type(error) for error in work.told] == [StoreOutcomeUnknown]
        await come_back(bench)
        assert names(bench) == (["red"] if is_applied else ["$Default"])
        assert await bench.bodies(SUBSCRIPTION) == (["red"] if is_applied else [])
        await bench.publish("t", encoded("blue", subject="blue"))
        assert await bench.bodies(SUBSCRIPTION) == (["red"] if is_applied else ["blue"])

    on_a_topic_bench(test, store_count=2)


@pytest.mark.parametrize("store", [0, 1])
def test_a_refused_commit_takes_the_rules_back(store: int) -> None:
    """T-13, TX-9: with their places and their order."""

    async def test(bench: TopicBench) -> None:
        await made(bench, store)
        await bench.namespace.rules.add(SUBSCRIPTION, sql("1=0", name="later"))
        bench.stores[store].refuse_next_commit()
        work = await Work(bench).begin().discharge()
        assert [type(error) for error in work.told] == [TransactionRolledBack]
        await come_back(bench)
        assert names(bench) == ["$Default", "later"]
        assert (await bench.namespace.rules.add(SUBSCRIPTION, sql("1=0", name="last"))).name == "last"
        await bench.restart()
        assert names(bench) == ["$Default", "later", "last"]

    on_a_topic_bench(test, store_count=2)


def test_a_step_that_is_not_possible_undoes_those_before_it() -> None:
    """T-13, TX-9, T-11: a step that is not possible undoes those before it."""

    async def test(bench: TopicBench) -> None:
        await made(bench)
        work = Work(bench).begin()
        work.change(RuleStep(SUBSCRIPTION, "RED", sql("1=1", name="RED")))
        await work.discharge()
        assert [type(error) for error in work.told] == [TransactionRolledBack]
        assert names(bench) == ["$Default"]
        assert await bench.bodies(SUBSCRIPTION) == []
        await bench.publish("t", encoded("blue", subject="blue"))
        assert await bench.bodies(SUBSCRIPTION) == ["blue"]
        assert DECIDED_KEY not in (await bench.stores[0].catalogue())[1]

    on_a_topic_bench(test)


def test_a_rule_can_come_and_go_in_one_transaction() -> None:
    """T-13: the last word counts."""

    async def test(bench: TopicBench) -> None:
        await made(bench)
        work = Work(bench).begin()
        work.change(RuleStep(SUBSCRIPTION, "red", None))
        work.change(RuleStep(SUBSCRIPTION, "$Default", sql("sys.Label = 'blue'", name="$Default")))
        await work.discharge()
        assert work.told == [None]
        assert await bench.bodies(SUBSCRIPTION) == ["blue"]
        await bench.restart()
        assert names(bench) == ["$Default"]
        await bench.publish("t", encoded("red", subject="red"))
        assert await bench.bodies(SUBSCRIPTION) == ["blue"]

    on_a_topic_bench(test)


def test_rules_alone_are_a_transaction() -> None:
    """T-13: rules alone are a transaction."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        work = Work(bench)
        work.change(RuleStep(SUBSCRIPTION, "none", sql("1=0", name="none")))
        await work.discharge()
        assert work.told == [None]
        await bench.restart()
        assert names(bench) == ["$Default", "none"]

    on_a_topic_bench(test, store_count=2)


def test_rules_do_not_change_while_the_store_of_the_topic_is_away() -> None:
    """T-13: the client is told, also of a transaction that has nothing but rules in it."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        work = Work(bench)
        work.change(RuleStep(SUBSCRIPTION, "none", sql("1=0", name="none")))
        await bench.namespace.stores.disable("store-1")
        await work.discharge()
        assert [type(error) for error in work.told] == [TransactionRolledBack]
        assert names(bench) == ["$Default"]

    on_a_topic_bench(test, store_count=2)


def test_without_the_catalogues_home_rules_do_not_change() -> None:
    """T-13: nothing of the transaction takes place."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        work = Work(bench).begin()
        await bench.namespace.stores.disable("store-0")
        await work.discharge()
        assert [type(error) for error in work.told] == [TransactionRolledBack]
        assert names(bench) == ["$Default"]
        assert await bench.bodies(SUBSCRIPTION) == []

    on_a_topic_bench(test, store_count=2)


def test_other_changes_wait_for_a_transaction_that_changes_rules() -> None:
    """T-13, TX-8: and find its rules."""

    async def test(bench: TopicBench) -> None:
        await made(bench, 1)
        bench.stores[1].hold_commits()
        work = await Work(bench).begin().discharge()
        added = asyncio.ensure_future(bench.namespace.rules.add(SUBSCRIPTION, sql("1=0", name="red")))
        await settle(60)
        assert not added.done()
        bench.stores[1].release_commits()
        await settle(60)
        assert work.told == [None]
        assert isinstance(added.exception(), EntityAlreadyExists)

    on_a_topic_bench(test, store_count=2)


def test_partitioned_topics_refuse_rules_in_transactions() -> None:
    """T-13, TX-20: partitioned topics refuse rules in transactions."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", enable_partitioning=True)
        await bench.subscription("t", "s")
        with pytest.raises(InvalidOperation, match="partitioned"):
            Work(bench).begin()

    on_a_topic_bench(test)


def test_what_somebody_else_has_changed_is_left_alone() -> None:
    """T-13: a decision that comes late, because its store was away, changes only what is still as it was."""
    decided = DecidedRules(7, {"rule:t/rules/a": (None, "new"), "rule:t/rules/b": ("old", None)}).text()
    mark = "rules-taken-over:store-1"

    def found(rows: dict[str, str], *, exists: bool = True) -> dict[str, str | None]:
        changes = to_take_over({"store-1": decided}, rows, lambda key: exists and key == "t")
        assert changes == {} or json.loads(changes.pop(mark) or "")["number"] == 7
        return changes

    assert found({"rule:t/rules/b": "old"}) == {"rule:t/rules/a": "new", "rule:t/rules/b": None}
    assert found({"rule:t/rules/a": "theirs"}) == {}
    assert found({"rule:t/rules/b": "old"}, exists=False) == {}
    assert found({"rule:t/rules/b": "old", mark: '{"format":1,"number":7}'}) == {}
    assert found({"rule:t/rules/b": "old", mark: '{"format":1,"number":6}'}) != {}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"format":1,"number":1}', '{"format":1,"number":"1","rules":{}}'),
        *(
            f'{{"format":1,"number":1,"rules":{rules}}}'
            for rules in ('{"k":1}', '{"k":["a"]}', '{"k":["a",2]}')
        ),
    ],
)
def test_a_decision_that_cannot_be_read_is_named(text: str) -> None:
    """E-40, T-13: a decision that cannot be read is named."""
    with pytest.raises(StoreError, match=DECIDED_KEY):
        DecidedRules.parse(text)
