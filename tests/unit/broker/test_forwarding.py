"""Forwarding: everything that arrives moves on, once, in order, and never into nothing."""

import pytest

from busway.amqp.types import Timestamp
from busway.broker.namespace.namespace import Namespace
from busway.message.message import PLACE_ACTIVE
from busway.model.durations import FOREVER_MS
from busway.model.errors import (
    BrokerError,
    EntityUpdated,
    ForwardTargetNotFound,
    InvalidOperation,
)
from busway.model.settlement import Settlement, Verb
from busway.store.contract import TransferMark
from tests.unit.broker.namespace_bench import Link, Reader, settle
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

#: One store, and two: then queues lie in different ones.
both = pytest.mark.parametrize("stores", [1, 2])


@both
def test_messages_move_on_in_order(stores: int) -> None:
    """F-1, F-7, F-10, M-15: new number and time, the first number is kept, the delivery count is 0."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target")
        await bench.publish("target", encoded("before"))
        for text in "abc":
            await bench.publish("source", encoded(text, properties={"text": text}))
        await settle(60)
        seen = await bench.peek("target")
        assert [copy.body for copy in seen] == ["before", "a", "b", "c"]
        assert seen[1].properties == {"text": "a"}
        numbers = [copy.annotations.get("x-opt-enqueue-sequence-number") for copy in seen]
        assert numbers == [None, 1, 2, 3]
        assert [copy.message.sequence_number for copy in seen] == [1, 2, 3, 4]
        counts = await bench.namespace.counts("source")
        assert (counts.active, counts.transfer, counts.size_bytes, counts.dead_letter) == (0, 0, 0, 0)
        assert [await store.transfer_marks() for store in bench.stores] == [[]] * stores

    on_a_topic_bench(test, stores)


@both
def test_a_backlog_moves_on_when_forwarding_is_switched_on(stores: int) -> None:
    """F-1, ERR-27: whoever received from the source must attach again, and then may not (F-4)."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source")
        await bench.publish("source", *[encoded(str(number)) for number in range(1_200)])
        reader = Reader()
        bench.namespace.queue("source").main.add_receiver(reader)
        await bench.change("source", forward_to="target")
        await settle(300)
        assert isinstance(reader.error, EntityUpdated)
        assert (await bench.namespace.counts("target")).active == 1_200
        assert (await bench.bodies("target"))[:3] == ["0", "1", "2"]
        with pytest.raises(InvalidOperation, match="forwarded"):
            bench.namespace.queue("source").main.add_receiver(Reader())
        await bench.change("source", forward_to=None)
        await bench.publish("source", encoded("stays"))
        assert await bench.bodies("source") == ["stays"]
        bench.namespace.queue("source").main.add_receiver(Reader())

    on_a_topic_bench(test, stores)


@both
def test_a_backlog_moves_on_after_a_restart(stores: int) -> None:
    """F-1, F-13: nobody has to touch the source; what waits counts as transfer."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target", status="SendDisabled")
        await bench.queue("source", forward_to="target")
        await bench.publish("source", encoded("x"))
        await settle(60)
        assert (await bench.namespace.counts("source")).transfer == 1
        await bench.restart()
        await bench.change("target", status="Active")
        await bench.advance(2)
        await settle(60)
        assert await bench.bodies("target") == ["x"]

    on_a_topic_bench(test, stores)


def test_chains_end_after_four_hops() -> None:
    """F-6, L-17, D-14, F-14: a loop is allowed and ends in the dead-letter queue where it stopped."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("loop")
        await bench.change("loop", forward_to="loop")
        await bench.publish("loop", encoded("x"))
        await settle(200)
        dead = await bench.peek("loop", dead_letter=True)
        assert [copy.properties["DeadLetterReason"] for copy in dead] == ["MaxTransferHopCountExceeded"]
        assert dead[0].annotations["x-opt-enqueue-sequence-number"] == 1
        assert dead[0].message.sequence_number == 5
        names = ["a", "b", "c", "d", "e", "f"]
        for name, onward in zip(names[::-1], [None, *names[::-1]], strict=False):
            await bench.queue(name, forward_to=onward)
        await bench.publish("b", encoded("four"))
        await bench.publish("a", encoded("five"))
        await settle(300)
        assert await bench.bodies("f") == ["four"]
        assert await bench.bodies("e", dead_letter=True) == ["five"]

    on_a_topic_bench(test)


@both
def test_subscriptions_forward_into_queues_and_topics(stores: int) -> None:
    """F-1, F-11, T-7: the destination's rules and actions apply again; the actions of the source have."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("second")
        await bench.subscription("second", "picked", sql("n = 2"))
        await bench.topic("first")
        await bench.subscription("first", "onward", sql("1=1", "SET n = n + 1"), forward_to="second")
        await bench.publish("first", encoded("a", properties={"n": 1}), encoded("b", properties={"n": 5}))
        await settle(100)
        seen = await bench.peek("second/Subscriptions/picked")
        assert [(copy.body, copy.properties) for copy in seen] == [("a", {"n": 2, "RuleName": "rule"})]
        assert (await bench.namespace.counts("first")).size_bytes == 0

    on_a_topic_bench(test, stores)


@both
def test_the_destination_checks_duplicates_and_sessions(stores: int) -> None:
    """S-49, F-3, F-11: a duplicate is dropped, a message without a session goes to the source's dead letters."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("once", requires_duplicate_detection=True)
        await bench.queue("source", forward_to="once")
        await bench.publish("source", encoded("a", message_id="1"), encoded("b", message_id="1"))
        await bench.publish("source", encoded("c", message_id="2"))
        await settle(100)
        assert await bench.bodies("once") == ["a", "c"]
        assert (await bench.namespace.counts("source")).total == 0
        await bench.queue("grouped", requires_session=True)
        await bench.queue("other", forward_to="grouped", requires_session=False)
        await bench.publish("other", encoded("with", group_id="g"), encoded("without"))
        await settle(100)
        assert await bench.bodies("grouped") == ["with"]
        dead = await bench.peek("other", dead_letter=True)
        assert [copy.body for copy in dead] == ["without"]
        assert "SessionId" in dead[0].properties["DeadLetterErrorDescription"]

    on_a_topic_bench(test, stores)


def test_a_source_with_sessions_forwards_like_others() -> None:
    """F-3, E-33: a source with sessions forwards like others."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target", requires_session=True)
        await bench.publish("source", encoded("a", group_id="x"), encoded("b", group_id="y"))
        await settle(60)
        assert await bench.bodies("target") == ["a", "b"]

    on_a_topic_bench(test)


@both
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("disabled", "TransferDestinationDisabled"),
        ("deleted", "TransferDestinationNotFound"),
        ("full", "TransferDestinationQuotaExceeded"),
    ],
)
def test_a_destination_that_refuses_is_tried_for_seconds_then_the_source_dead_letters(
    stores: int, trouble: str, reason: str
) -> None:
    """F-12, D-17: disabled, deleted or full."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target")
        if trouble == "disabled":
            await bench.change("target", status="Disabled")
        elif trouble == "deleted":
            await bench.namespace.delete("target")
        else:
            bench.namespace.queue("target").main.counters.bytes = 1024 * 1024 * 1024
        await bench.publish("source", encoded("x"))
        await bench.advance(3, 1.0)
        assert await bench.bodies("source", dead_letter=True) == []
        await bench.advance(5, 1.0)
        await settle(60)
        dead = await bench.peek("source", dead_letter=True)
        assert [(copy.body, copy.properties["DeadLetterReason"]) for copy in dead] == [("x", reason)]

    on_a_topic_bench(test, stores)


@both
def test_dead_letters_move_on_and_say_where_they_come_from(stores: int) -> None:
    """D-20, M-21, E-34: reason and description stay; nobody receives from the dead-letter queue any more."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("graveyard")
        await bench.queue("source", forward_dead_lettered_messages_to="graveyard")
        await bench.publish("source", encoded("x"))
        queue = bench.namespace.queue("source")
        reader = Reader()
        queue.main.add_receiver(reader)
        queue.main.wake(reader)
        await settle()
        settlement = Settlement(Verb.DEAD_LETTER, dead_letter_reason="why", dead_letter_description="so")
        queue.main.settle([reader.taken[0].token], settlement, _nobody_waits)
        await settle(60)
        seen = (await bench.peek("graveyard"))[0]
        assert seen.properties == {"DeadLetterReason": "why", "DeadLetterErrorDescription": "so"}
        assert seen.annotations["x-opt-deadletter-source"] == "source"
        with pytest.raises(InvalidOperation):
            queue.dead_letter.add_receiver(Reader())
        assert (await bench.namespace.counts("source")).total == 0

    on_a_topic_bench(test, stores)


def test_dead_letters_wait_for_a_destination_that_refuses() -> None:
    """D-20, K-11: for ever, and go on later."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("graveyard", status="SendDisabled")
        await bench.topic("t")
        await bench.subscription("t", "s", sql("1/0 = n"), forward_dead_lettered_messages_to="graveyard")
        await bench.publish("t", encoded("x"))
        await bench.advance(600)
        assert await bench.bodies("t/Subscriptions/s", dead_letter=True) == ["x"]
        await bench.change("graveyard", status="Active")
        await bench.advance(60)
        assert await bench.bodies("graveyard") == ["x"]

    on_a_topic_bench(test)


def test_what_went_too_far_is_not_sent_on_from_the_dead_letters() -> None:
    """D-21: that ends loops; what comes behind it goes on."""

    async def test(bench: TopicBench) -> None:
        await bench.queue(
            "loop", default_message_time_to_live_ms=600_000, dead_lettering_on_message_expiration=True
        )
        await bench.queue("graveyard")
        await bench.change("loop", forward_to="loop", forward_dead_lettered_messages_to="graveyard")
        await bench.publish("loop", encoded("far"))
        await settle(300)
        assert await bench.bodies("loop", dead_letter=True) == ["far"]
        await bench.change("loop", forward_to=None)
        await bench.publish("loop", encoded("expired"))
        await bench.advance(700)
        assert await bench.bodies("loop", dead_letter=True) == ["far"]
        assert await bench.bodies("graveyard") == ["expired"]

    on_a_topic_bench(test)


def test_targets_are_checked_when_they_are_named() -> None:
    """F-2: a target that does not exist, and one that cannot be sent to."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        for values in ({"forward_to": "nothing"}, {"forward_dead_lettered_messages_to": "nothing"}):
            with pytest.raises(ForwardTargetNotFound):
                await bench.queue("q", **values)
            with pytest.raises(ForwardTargetNotFound):
                await bench.subscription("t", "s", **values)
        await bench.subscription("t", "s")
        with pytest.raises(ForwardTargetNotFound):
            await bench.queue("q", forward_to="t/Subscriptions/s")
        await bench.queue("self")
        await bench.change("self", forward_to="self", forward_dead_lettered_messages_to="self")

    on_a_topic_bench(test)


@both
def test_a_subscription_may_forward_to_its_own_topic(stores: int) -> None:
    """E-33, E-62, F-6, F-14: each round is a publish of its own, and the limit of hops ends it."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "again", forward_to="T")
        await bench.subscription("t", "all")
        await bench.publish("t", encoded("x"))
        await settle(400)
        assert await bench.bodies("t/Subscriptions/all") == ["x"] * 5
        dead = await bench.peek("t/Subscriptions/again", dead_letter=True)
        assert [copy.properties["DeadLetterReason"] for copy in dead] == ["MaxTransferHopCountExceeded"]

    on_a_topic_bench(test, stores)


def test_forwarding_keeps_a_subscription_alive() -> None:
    """E-112: a given time stays on a queue and is set aside on a subscription."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        queue = await bench.queue("q", forward_to="target", auto_delete_on_idle_ms=300_000)
        assert queue.auto_delete_on_idle_ms == 300_000
        await bench.topic("t")
        made = await bench.subscription("t", "s", forward_to="target", auto_delete_on_idle_ms=300_000)
        assert made.auto_delete_on_idle_ms == FOREVER_MS

    on_a_topic_bench(test)


def test_scheduled_messages_move_on_when_they_are_due() -> None:
    """F-11, S-34: scheduled messages move on when they are due."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target")
        due_ms = bench.clock.wall_ms() + 60_000
        later = encoded("later", annotations={"x-opt-scheduled-enqueue-time": Timestamp(due_ms)})
        await bench.publish("source", later)
        assert await bench.bodies("target") == []
        await bench.advance(61)
        await settle(60)
        assert await bench.bodies("target") == ["later"]

    on_a_topic_bench(test)


def test_a_row_that_has_arrived_before_a_crash_is_not_moved_again() -> None:
    """F-1, T-9: the mark in the destination's store tells."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source")
        await bench.publish("source", encoded("arrived"), encoded("not yet"))
        rows = bench.namespace.contents.entities.rows
        source, target = rows["source"], rows["target"]
        assert source.store_name != target.store_name
        await bench.change("source", status="ReceiveDisabled")
        batch = bench.namespace.contents.keepers[target.store_name].store.batch()
        batch.transfer_marks.append(TransferMark(source.store_name, source.main, 1))
        await bench.namespace.contents.keepers[target.store_name].store.flush()
        namespace = await bench.restart()
        await settle(60)
        assert (await namespace.counts("source")).active == 1
        await bench.change("source", status="Active", forward_to="target")
        await settle(60)
        assert await bench.bodies("target") == ["not yet"]
        assert [await store.transfer_marks() for store in bench.stores] == [[], []]

    on_a_topic_bench(test, 2)


def test_a_mark_of_a_source_that_is_gone_is_removed() -> None:
    """E-86: a mark of a source that is gone is removed."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        store = bench.stores[0]
        store.batch().transfer_marks.append(
            TransferMark("store-0", bench.namespace.contents.entities.rows["target"].main, 7)
        )
        store.batch().transfer_marks.append(TransferMark("store-0", store.next_fragment_key(), 1))
        await store.flush()
        await bench.restart()
        await settle(60)
        assert await store.transfer_marks() == []

    on_a_topic_bench(test)


def _nobody_waits(refused: list[tuple[int, BrokerError]]) -> None:
    assert refused == []


async def _counted(namespace: Namespace, *paths: str) -> list[int]:
    return [(await namespace.counts(path)).active for path in paths]


def test_a_store_that_is_not_available_is_waited_for() -> None:
    """F-12: nothing is dead-lettered for that, and nothing arrives twice."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target")
        rows = bench.namespace.contents.entities.rows
        target_store = rows["target"].store_name
        if bench.namespace.contents.catalogue.home.name == target_store:
            await bench.queue("more")
        await bench.namespace.stores.disable(target_store)
        await bench.publish("source", encoded("x"), encoded("y"))
        await bench.advance(120)
        counts = await bench.namespace.counts("source")
        assert (counts.transfer, counts.dead_letter) == (2, 0)
        await bench.namespace.stores.enable(target_store)
        await bench.advance(5)
        await settle(60)
        assert await bench.bodies("target") == ["x", "y"]

    on_a_topic_bench(test, 2)


def test_links_of_a_source_are_told_when_routes_change() -> None:
    """ERR-27, E-86: a sender attaches again and goes on."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source")
        link = Link()
        bench.namespace.sender("source").attach(link, sends=True)
        await bench.change("source", max_delivery_count=3)
        assert link.error is None
        await bench.change("source", forward_to="target")
        assert isinstance(link.error, EntityUpdated)
        store = bench.stores[0]
        key = bench.namespace.contents.entities.rows["source"].main
        assert (await store.messages(key, PLACE_ACTIVE, 0, 10, 1000)).messages == []
        assert await _counted(bench.namespace, "source", "target") == [0, 0]

    on_a_topic_bench(test)
