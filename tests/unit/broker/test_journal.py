"""What the broker tells a journal: each operation once, when it is durable, in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from busway.broker.entity.fragment_group import FragmentGroup
from busway.broker.fragment import journal as operations
from busway.broker.transaction.transactions import Transactions
from busway.journal.files import OPERATIONS
from busway.model.errors import BrokerError
from busway.model.settlement import SendReport, Settlement, Verb
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, on_partitions
from tests.unit.broker.partition_bench import text as keyed
from tests.unit.broker.rig import Recorder, Rig, play, text
from tests.unit.broker.told_journal import Told, ToldJournal
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql

Scenario = Callable[[Rig, ToldJournal], Awaitable[None]]


def play_told(scenario: Scenario, **description: Any) -> None:
    async def with_a_journal(rig: Rig) -> None:
        journal = ToldJournal()
        rig.runtime.journal = journal
        await scenario(rig, journal)

    play(with_a_journal, **description)


def test_the_broker_and_the_files_mean_the_same_operations() -> None:
    """Journal: numbers of operations are places in the words of the files."""
    others = {"TYPE_CHECKING", "UNKNOWN"}
    named = {name: value for name, value in vars(operations).items() if name.isupper()}
    numbers = {name: value for name, value in named.items() if name not in others}
    camel = {word: "".join("_" + c if c.isupper() else c for c in word).upper() for word in OPERATIONS}
    assert {camel[OPERATIONS[value]] for value in numbers.values()} == set(numbers)
    assert sorted(numbers.values()) == list(range(len(OPERATIONS)))


# -- the usual life


def test_a_message_is_sent_received_and_completed() -> None:
    """Journal: one row each, with what the report needs; a run is one call."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        sent_ms = rig.clock.wall_ms()
        await rig.send(text("abc", partition_key="k"), text("de"))
        assert journal.told == [
            Told("send", "orders", 0, 1, 3, 0, sent_ms, None, "k", None),
            Told("send", "orders", 0, 2, 2, 0, sent_ms, None, None, None),
        ]
        await rig.advance(2)
        got = await rig.receive()
        await rig.settle(got)
        assert journal.calls == 3
        assert journal.told[2:] == [
            Told("receive", "orders", 0, 1, 3, 0, sent_ms, None, "k", None),
            Told("receive", "orders", 0, 2, 2, 0, sent_ms, None, None, None),
            Told("complete", "orders", 0, 1, 3, 0, sent_ms, None, None, None),
            Told("complete", "orders", 0, 2, 2, 0, sent_ms, None, None, None),
        ]

    play_told(scenario)


def test_nothing_is_told_before_it_is_durable() -> None:
    """Journal: neither a send nor a completion whose commit is under way."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"))
        got = await rig.receive()
        journal.take()
        rig.queue.send([text("b")], lambda _: None)
        rig.main.settle([d.token for d in got], Settlement(Verb.COMPLETE), lambda _: None)
        assert journal.told == []
        await rig.calm()
        assert sorted(journal.take()) == [("complete", 1), ("send", 2)]

    play_told(scenario)


def test_a_failed_commit_is_told_to_nobody() -> None:
    """Journal: what is not stored did not happen."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"))
        got = await rig.receive()
        journal.take()
        rig.store.refuse_next_commit()
        rig.queue.send([text("b")], lambda _: None)
        rig.main.settle([d.token for d in got], Settlement(Verb.COMPLETE), lambda _: None)
        await rig.calm()
        assert journal.take() == []

    play_told(scenario)


def test_a_refused_settlement_is_told_to_nobody() -> None:
    """Journal: a lock that is lost completes nothing."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"), text("b"))
        got = await rig.receive()
        await rig.settle(got[:1])
        journal.take()
        await rig.settle(got)
        assert journal.take() == [("complete", 2)]

    play_told(scenario)


def test_receive_and_delete_is_both() -> None:
    """Journal: received and completed; what could not be sent is neither."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"), text("b"))
        journal.take()
        await rig.receive(1, deletes=True)
        assert journal.take() == [("receive", 1), ("complete", 1)]
        refusing = Recorder(5, deletes=True)
        refusing.refuses = 1
        rig.main.add_receiver(refusing)
        rig.main.wake(refusing)
        await rig.calm()
        assert journal.take() == []

    play_told(scenario)


def test_what_a_receiver_gives_back_was_not_received() -> None:
    """Journal: handed over but never sent."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"), text("b"))
        journal.take()
        hesitant = Recorder(5)
        hesitant.refuses = 1
        rig.main.add_receiver(hesitant)
        rig.main.wake(hesitant)
        await rig.calm()
        assert journal.take() == [("receive", 1)]

    play_told(scenario)


# -- other ends


def test_other_settlements_have_their_own_words() -> None:
    """Journal: abandon and defer count the delivery that ended; a reason is kept; a release is no operation."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(*[text(body) for body in "abcd"])
        got = await rig.receive()
        journal.take()
        await rig.settle(got[:1], Verb.ABANDON)
        await rig.settle(got[1:2], Verb.DEFER)
        await rig.settle(got[2:3], Verb.DEAD_LETTER, dead_letter_reason="bad")
        await rig.settle(got[3:], Verb.RELEASE)
        rows = [(row.operation, row.number, row.delivery_count, row.reason) for row in journal.told]
        assert rows == [("abandon", 1, 1, None), ("defer", 2, 1, None), ("deadLetter", 3, 0, "bad")]
        assert {row.path for row in journal.told} == {"orders"}

    play_told(scenario)


def test_a_deferred_message_is_received_by_its_number() -> None:
    """Journal: like any other, and with receive-and-delete completed too."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"), text("b"))
        await rig.settle(await rig.receive(), Verb.DEFER)
        journal.take()
        [delivery] = await rig.main.receive_by_number([1], deletes=False)
        await rig.settle([delivery])
        await rig.main.receive_by_number([2], deletes=True)
        assert journal.take() == [("receive", 1), ("complete", 1), ("receive", 2), ("complete", 2)]

    play_told(scenario)


def test_a_lock_that_ends_is_lost() -> None:
    """Journal: with the count that it leads to; the last one too many is dead-lettered besides."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"))
        await rig.receive()
        await rig.advance(61)
        await rig.receive()
        journal.told.clear()
        await rig.advance(61)
        rows = [(row.operation, row.number, row.delivery_count, row.reason) for row in journal.told]
        assert sorted(rows) == [("deadLetter", 1, 2, "MaxDeliveryCountExceeded"), ("lockLost", 1, 2, None)]

    play_told(scenario, max_delivery_count=2)


def test_the_abandonment_that_was_one_too_many_is_a_dead_letter_too() -> None:
    """Journal: an operation that leads to another has a row for each."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"))
        got = await rig.receive()
        journal.take()
        await rig.settle(got, Verb.ABANDON)
        assert sorted(journal.take()) == [("abandon", 1), ("deadLetter", 1)]

    play_told(scenario, max_delivery_count=1)


@pytest.mark.parametrize("dead_letters", [True, False])
def test_expired_messages_say_so(dead_letters: bool) -> None:
    """Journal: dropped ones expire, others are dead-lettered with the reason; at the head, out of order,
    deferred, and after a lock."""
    play_told(
        _expiring(dead_letters),
        default_message_time_to_live_ms=100_000,
        dead_lettering_on_message_expiration=dead_letters,
        lock_duration_ms=300_000,
    )


def _expiring(dead_letters: bool) -> Scenario:
    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("c"), text("d"))
        deferred, held = await rig.receive()
        await rig.settle([deferred], Verb.DEFER)
        await rig.send(text("a"), text("b", ttl_ms=1_000))
        journal.told.clear()
        await rig.advance(101)
        assert await rig.settle([held], Verb.ABANDON) == []
        with pytest.raises(BrokerError):
            await rig.main.receive_by_number([1], deletes=False)
        await rig.calm()
        word = "deadLetter" if dead_letters else "expire"
        gone = [row for row in journal.told if row.operation == word]
        assert sorted(row.number for row in gone) == [1, 2, 3, 4]
        assert {row.reason for row in gone} == ({"TTLExpiredException"} if dead_letters else {None})
        assert journal.counts()["abandon"] == 1

    return scenario


def test_a_batch_delete_is_told() -> None:
    """Journal: otherwise they would seem to be there for ever."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"), text("b"))
        journal.take()
        rig.clock.advance(1)
        assert await rig.main.delete_messages(1, rig.clock.wall_ms()) == 1
        await rig.calm()
        assert journal.take() == [("delete", 1)]

    play_told(scenario)


# -- sending


def test_duplicates_are_told_without_a_number() -> None:
    """Journal: accepted and dropped."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a", message_id="1"), text("b", message_id="1"), text("c", message_id="2"))
        assert sorted(journal.take()) == [("duplicate", 0), ("send", 1), ("send", 2)]
        await rig.send(text("d", message_id="2"))
        assert journal.take() == [("duplicate", 0)]

    play_told(scenario, requires_duplicate_detection=True)


def test_scheduled_messages_are_scheduled_cancelled_and_activated() -> None:
    """Journal: activation has the new number and time."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        at_ms = rig.clock.wall_ms() + 10_000
        later = [text(body, scheduled_at_ms=at_ms) for body in "ab"]
        await rig.send(*later, text("now"))
        assert sorted(journal.take()) == [("schedule", 1), ("schedule", 2), ("send", 3)]
        await rig.queue.cancel_scheduled([1])
        assert journal.take() == [("cancel", 1)]
        await rig.advance(10)
        [row] = journal.told
        assert (row.operation, row.number, row.enqueued_at_ms, row.size) == ("activate", 4, at_ms, 1)

    play_told(scenario)


# -- transactions


def test_a_transaction_is_told_when_it_is_committed() -> None:
    """Journal: sends, schedules, cancellations and settlements, all of them then."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        at_ms = rig.clock.wall_ms() + 10_000
        await rig.send(*[text(body) for body in "abc"], text("d", scheduled_at_ms=at_ms))
        got = await rig.receive()
        journal.take()
        transactions = Transactions(rig.runtime)
        transaction = transactions.find(transactions.declare(rig))
        transaction.send(rig.main, [text("e")])
        transaction.schedule(rig.main, [text("f", scheduled_at_ms=at_ms)])
        transaction.settle(rig.main, [got[0].token], Settlement(Verb.COMPLETE), None)
        transaction.settle(rig.main, [got[1].token], Settlement(Verb.ABANDON), None)
        transaction.settle(rig.main, [got[2].token], Settlement(Verb.DEAD_LETTER), None)
        await transaction.cancel(rig.main, [4])
        await rig.calm()
        assert journal.take() == []
        transactions.discharge(rig, transaction.txn_id, fail=False, done=lambda _: None)
        await rig.calm()
        assert sorted(journal.counts().items()) == [
            ("abandon", 1), ("cancel", 1), ("complete", 1), ("deadLetter", 1), ("schedule", 1), ("send", 1),
        ]  # fmt: skip

    play_told(scenario)


def test_a_rolled_back_transaction_is_told_to_nobody() -> None:
    """Journal: nothing of it happened."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a"))
        got = await rig.receive()
        journal.take()
        transactions = Transactions(rig.runtime)
        transaction = transactions.find(transactions.declare(rig))
        transaction.send(rig.main, [text("b")])
        transaction.settle(rig.main, [got[0].token], Settlement(Verb.COMPLETE), None)
        transactions.discharge(rig, transaction.txn_id, fail=True, done=lambda _: None)
        await rig.calm()
        assert journal.take() == []

    play_told(scenario)


# -- sessions


def test_sessions_begin_and_end() -> None:
    """Journal: closed or lost; rows of settlements name the session."""

    async def scenario(rig: Rig, journal: ToldJournal) -> None:
        await rig.send(text("a", session_id="s"), text("b", session_id="s"))
        receiver = Recorder(10)
        await rig.main.accept_session(receiver, "s", 1.0)
        rig.main.wake(receiver)
        await rig.calm()
        await rig.settle(receiver.deliveries[:1], session_id="s")
        rig.main.remove_receiver(receiver)
        await rig.calm()
        rows = [(row.operation, row.session_id) for row in journal.told]
        assert rows == [
            ("send", "s"), ("send", "s"), ("sessionAccept", "s"), ("receive", "s"), ("receive", "s"),
            ("complete", "s"), ("sessionEnd", "s"),
        ]  # fmt: skip
        journal.told.clear()
        again = Recorder(10)
        await rig.main.accept_session(again, None, 1.0)
        rig.main.wake(again)
        await rig.calm()
        await rig.advance(61)
        assert journal.take() == [("sessionAccept", -1), ("receive", 2), ("sessionEnd", -1), ("lockLost", 2)]

    play_told(scenario, requires_session=True)


# -- several entities


def test_a_topic_and_its_copies_are_told() -> None:
    """Journal: a send for the topic and for each copy; what a rule fails on is a dead letter of the subscription."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("news")
        await bench.subscription("news", "all")
        await bench.subscription("news", "some", sql("kind = 'x'"))
        await bench.subscription(
            "news", "bad", sql("1 = 1", "SET a = 1 / 0"), dead_lettering_on_filter_evaluation_exceptions=True
        )
        journal = ToldJournal()
        bench.namespace.runtime.journal = journal
        await bench.publish("news", encoded("a", properties={"kind": "x"}), encoded("b"))
        at = journal.at()
        assert at.count(("send", "news")) == 2
        assert at.count(("send", "news/Subscriptions/all")) == 2
        assert at.count(("send", "news/Subscriptions/some")) == 1
        assert at.count(("deadLetter", "news/Subscriptions/bad")) == 2
        assert len(at) == 7

    on_a_topic_bench(test)


@pytest.mark.parametrize("stores", [1, 2])
def test_a_forwarded_message_leaves_and_arrives(stores: int) -> None:
    """Journal: a forward here and a send there, in one store and between two."""

    async def test(bench: TopicBench) -> None:
        await bench.queue("target")
        await bench.queue("source", forward_to="target")
        journal = ToldJournal()
        bench.namespace.runtime.journal = journal
        await bench.publish("source", encoded("a"), encoded("b"))
        await settle(60)
        assert sorted(journal.at()) == [
            ("forward", "source"), ("forward", "source"), ("send", "source"), ("send", "source"),
            ("send", "target"), ("send", "target"),
        ]  # fmt: skip

    on_a_topic_bench(test, stores)


def test_fragments_are_told_by_their_index() -> None:
    """Journal: sends in slices and by key, receives, and completions over several fragments."""

    async def test(bench: PartitionBench) -> None:
        journal = ToldJournal()
        bench.namespace.runtime.journal = journal
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Parts(SendReport):
            left = 400

            def part_done(self, places: list[int], refused: list[tuple[int, BrokerError]]) -> None:
                assert refused == []
                self.left -= len(places)
                if self.left == 0:
                    done.set_result(None)

        assert isinstance(bench.queue.inlet, FragmentGroup)
        bench.queue.inlet.append_in_parts([keyed(str(n)) for n in range(400)], Parts())
        await done
        await bench.put(keyed("k", partition_key="one"))
        got = await bench.receive(500)
        assert await bench.end(got) == []
        assert dict(journal.counts()) == {"send": 401, "receive": 401, "complete": 401}
        assert {row.index for row in journal.told} == set(range(COUNT))
        assert all(row.number >> 48 == row.index for row in journal.told)

    on_partitions(test)


# -- without


def test_without_a_journal_nothing_is_gathered() -> None:
    """Journal: batches hold no callback for one."""

    async def scenario(rig: Rig) -> None:
        assert rig.runtime.journal is None
        rig.queue.send([text("a")], lambda _: None)
        assert len(rig.store.batch().callbacks) == 1
        await rig.calm()
        [delivery] = await rig.receive()
        rig.main.settle([delivery.token], Settlement(Verb.COMPLETE), lambda _: None)
        assert len(rig.store.batch().callbacks) == 1

    play(scenario)
