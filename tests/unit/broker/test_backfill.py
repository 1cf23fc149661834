"""History for subscriptions: copies that arrive once, and when rules began."""

from __future__ import annotations

import asyncio

import pytest

from busway.broker.bulk.backfill import Backfill, HistoricCopy, Stored
from busway.gateway.amqp.message_mapping import message_of
from busway.model.errors import BadArgument, InvalidOperation
from busway.rules.rule import FalseFilter, TrueFilter
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, rule, sql

SUB = "t/Subscriptions/s"


def copy(name: str, body: str = "", **fields: object) -> HistoricCopy:
    return HistoricCopy(name, message_of(encoded(body or name, **fields), False))


def test_history_arrives_once_however_often_it_is_sent() -> None:
    """E-70: by the ids of copies, after a restart too; what is new among them is stored."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", rule(FalseFilter()))
        backfill = Backfill()
        first = await backfill.store(bench.namespace.queue(SUB), 0, [copy("1"), copy("2"), copy("2")])
        assert first == Stored(2, 1)
        await bench.restart()
        again = await backfill.store(bench.namespace.queue(SUB), 0, [copy("2"), copy("3")])
        assert again == Stored(1, 1)
        assert sorted(await bench.bodies(SUB)) == ["1", "2", "3"]

    on_a_topic_bench(test)


def test_the_same_history_sent_by_two_at_once_arrives_once() -> None:
    """E-70: a sender that was thought dead and the one in its place."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", rule(FalseFilter()))
        backfill, queue = Backfill(), bench.namespace.queue(SUB)
        names = [str(number) for number in range(20)]
        both = await asyncio.gather(
            *(backfill.store(queue, 0, [copy(name) for name in names]) for _ in range(2))
        )
        assert sorted(stored.new for stored in both) == [0, 20]
        assert sorted(await bench.bodies(SUB)) == sorted(names)

    on_a_topic_bench(test)


def test_rule_failures_and_missing_sessions_are_dead_letters_as_of_a_publish() -> None:
    """T-60, X-4: history is treated as what is published."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription(
            "t",
            "s",
            rule(FalseFilter()),
            requires_session=True,
            dead_lettering_on_filter_evaluation_exceptions=True,
        )
        failed = HistoricCopy("f", message_of(encoded("failed"), False), "FilterException", "Rule 'x': no.")
        sent = [copy("a", group_id="s1"), copy("b"), failed]
        assert (await Backfill().store(bench.namespace.queue(SUB), 0, sent)).new == 3
        assert await bench.bodies(SUB) == ["a"]
        assert sorted(await bench.bodies(SUB, dead_letter=True)) == ["b", "failed"]

    on_a_topic_bench(test)


def test_history_is_for_subscriptions_and_for_fragments_that_exist() -> None:
    """E-70: everything else is refused with a sentence."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "s", rule(FalseFilter()))
        await bench.queue("q")
        backfill = Backfill()
        with pytest.raises(InvalidOperation, match="no subscription"):
            await backfill.store(bench.namespace.queue("q"), 0, [copy("1")])
        with pytest.raises(BadArgument, match="one fragment"):
            await backfill.store(bench.namespace.queue(SUB), 1, [copy("1")])
        with pytest.raises(BadArgument, match="characters"):
            await backfill.store(bench.namespace.queue(SUB), 0, [copy("x" * 513)])

    on_a_topic_bench(test)


def test_a_rule_knows_how_far_the_captured_subscription_was_when_it_began() -> None:
    """E-70: in that one's numbers, for first rules and later ones, over a restart; a changed rule begins anew."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "old", rule(TrueFilter(), "old"))
        await bench.publish("t", encoded("0"))
        await bench.subscription("t", "cap", rule(TrueFilter()), captures_history=True)
        await bench.publish("t", encoded("1"), encoded("2"))
        await bench.subscription("t", "s", rule(TrueFilter(), "first"))
        await bench.publish("t", encoded("3"))
        await bench.namespace.rules.add(SUB, sql("n = 1", name="second"))
        await bench.publish("t", encoded("4"))
        await bench.namespace.rules.add(SUB, sql("n = 1", name="third"))
        await bench.publish("t", encoded("5"))
        await bench.namespace.rules.replace(SUB, sql("n = 2", name="third"))
        for _ in range(2):
            told = bench.namespace.rules.beginnings(SUB)
            assert told["rules"] == [
                {"name": "first", "began": {"cap": [2]}},
                {"name": "second", "began": {"cap": [3]}},
                {"name": "third", "began": {"cap": [5]}},
            ]
            captured = told["captured"]
            assert isinstance(captured, dict)
            assert captured["cap"]["lastNumbers"] == (5,)
            older = bench.namespace.rules.beginnings("t/Subscriptions/old")
            assert older["rules"] == [{"name": "old", "began": {}}], "it was there before the capture"
            await bench.restart()

    on_a_topic_bench(test)


def test_a_captured_subscription_that_is_created_again_is_another_one() -> None:
    """E-70, E-86: its numbers begin again, and say nothing of rules that knew the first."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "cap", rule(TrueFilter()), captures_history=True)
        await bench.publish("t", encoded("1"))
        await bench.subscription("t", "s", rule(TrueFilter(), "first"))
        await bench.namespace.delete("t/Subscriptions/cap")
        await bench.subscription("t", "cap", rule(TrueFilter()), captures_history=True)
        assert bench.namespace.rules.beginnings(SUB)["rules"] == [{"name": "first", "began": {}}]

    on_a_topic_bench(test)
