"""Publishes too large for one turn of the loop: they take several, and are whole in the end or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from busway.broker.fragment import turns
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message import Message
from busway.model.entity_path import subscription_path
from busway.model.errors import (
    BrokerError,
    EntityUpdated,
    InternalError,
    NoMatchingSubscription,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.rules.rule import CorrelationFilter
from tests.store_contract.scenario import fields_of
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.slices_bench import (
    LONG,
    A,
    B,
    C,
    Refused,
    Sent,
    active,
    begun,
    make_turns_tiny,
    schedule,
    three_subscriptions,
)
from tests.unit.broker.told_journal import ToldJournal
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, rule, sql


@pytest.fixture(autouse=True, name="tiny_turns")
def _tiny_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    make_turns_tiny(monkeypatch)


# -- whole or not at all


def test_a_batch_takes_many_turns_and_commits_once() -> None:
    """S-20, T-9: nobody sees a part of it, and nothing is left behind in the line."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 20, atomically=True)
        waited = 0
        while not sent.answers:
            counts = await active(bench, A, B, C)
            assert counts in ([0, 0, 0], [20, 20, 20])
            await settle(1)
            waited += 1
        assert waited > 20, "it was published at once: this test tests nothing"
        assert (sent.refused, begun(bench)) == ([], 0)
        for path in (A, B, C):
            assert await bench.bodies(path) == [f"{number}" for number in range(20)]
            numbers = [seen.message.sequence_number for seen in await bench.peek(path)]
            assert numbers == list(range(1, 21))
        assert (await bench.namespace.counts("t")).size_bytes == 3 * sum(
            len(encoded(f"{number}", message_id=f"{number}")) for number in range(20)
        )

    on_a_topic_bench(test)


@pytest.mark.parametrize("turns_before", [1, 5, 12, 24, 40])
def test_a_crash_at_any_moment_leaves_all_or_none(turns_before: int) -> None:
    """S-20, S-1: what was not accepted may be there, but never a part of it."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 10, atomically=True)
        await settle(turns_before)
        bench.stores[0].crash()
        was_accepted = bool(sent.answers) and not sent.refused
        await bench.namespace.close()
        bench.namespace = bench.new_namespace()
        await bench.namespace.open()
        counts = await active(bench, A, B, C)
        assert counts == ([10, 10, 10] if was_accepted else [0, 0, 0])

    on_a_topic_bench(test)


def test_a_commit_that_fails_meanwhile_refuses_all_of_it() -> None:
    """S-1, S-20: another batch of the store failed while the copies were made."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await bench.queue("q")
        sent = Sent(bench, 10, atomically=True)
        await settle(4)
        bench.stores[0].refuse_next_commit()
        bench.namespace.queue("q").send([Message(b"", b"x")], lambda _refused: None)
        await settle(60)
        assert sent.errors() == [(0, ServerBusy)]
        await bench.advance(30)
        assert await active(bench, A, B, C) == [0, 0, 0]
        assert Sent(bench, 10, atomically=True).answers == []
        await settle(LONG)
        assert await active(bench, A, B, C) == [10, 10, 10]

    on_a_topic_bench(test)


@pytest.mark.parametrize("is_applied", [True, False])
def test_its_own_commit_may_fail(is_applied: bool) -> None:
    """S-1, S-20: nobody knows whether it is stored; it is stored whole or not at all."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 10, atomically=True)
        await settle(2)
        bench.stores[0].lose_next_commit(is_applied=is_applied)
        await settle(100)
        assert sent.errors() == [(0, StoreOutcomeUnknown)]
        await bench.advance(30)
        assert await active(bench, A, B, C) == ([10, 10, 10] if is_applied else [0, 0, 0])

    on_a_topic_bench(test)


# -- order


def test_what_comes_meanwhile_stands_behind_it() -> None:
    """S-4: also another sender's, and what is scheduled, cancelled or published by a transaction."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        many = Sent(bench, 10, atomically=True)
        await settle(5)
        one = Sent(bench, 1, 100)
        among = bench.namespace.transactions()
        transaction = among.find(among.declare(self_ := object()))
        transaction.send(bench.namespace.sender("t").inlet, [Message(b"", encoded("200"))])
        told: list[BrokerError | None] = []
        among.discharge(self_, transaction.txn_id, fail=False, done=told.append)
        last = Sent(bench, 2, 300)
        assert (many.answers, one.answers, told, last.answers) == ([], [], [], [])
        await settle(LONG)
        assert (many.refused, one.refused, told, last.refused) == ([], [], [None], [])
        bodies = [*(f"{number}" for number in range(10)), "100", "200", "300", "301"]
        assert [await bench.bodies(path) for path in (A, B, C)] == [bodies] * 3

    on_a_topic_bench(test)


def test_a_small_publish_does_not_overtake_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-4: though the turn has room for it."""
    monkeypatch.setattr(turns, "TURN_STEPS", 40)

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        many = Sent(bench, 20)
        small: list[Sent] = []
        while not many.answers:
            small.append(Sent(bench, 1, 100 + len(small)))
            await settle(1)
        await settle(LONG)
        assert len(small) > 3
        expected = [*range(20), *range(100, 100 + len(small))]
        assert await bench.bodies(A) == [f"{number}" for number in expected]

    on_a_topic_bench(test)


def test_another_topic_goes_on_meanwhile() -> None:
    """Attack: a large publish holds up those who publish to the same topic, and nobody else."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await bench.topic("u")
        await bench.subscription("u", "a")
        many = Sent(bench, 200, atomically=True)
        await settle(3)
        for text in ("x", "y", "z"):
            await bench.publish("u", encoded(text))
        assert many.answers == []
        assert await bench.bodies(subscription_path("u", "a")) == ["x", "y", "z"]
        await settle(2 * LONG)
        assert many.refused == []

    on_a_topic_bench(test)


def test_a_bug_in_a_publish_does_not_stop_the_line() -> None:
    """Found by review: whoever stands in line is answered, whatever happens to those before him."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        rows = bench.namespace.contents.entities.rows
        bench.namespace.sender("t").inlet.member(0).intake.used_bytes()  # for the next quarter of a second
        row = rows.pop(C.lower())  # nobody could do that
        answers: list[Refused] = []

        def ended(refused: Refused) -> None:
            rows[C.lower()] = row
            answers.append(refused)

        bench.namespace.sender("t").send_atomically([Message(b"", encoded("x"))], ended)
        behind = Sent(bench, 5)
        await settle(LONG)
        assert [type(error) for _, error in answers[0]] == [InternalError]
        assert (behind.refused, await active(bench, A, C), begun(bench)) == ([], [5, 5], 0)

    on_a_topic_bench(test)


# -- changes meanwhile


async def _change_rule(bench: TopicBench) -> None:
    await bench.namespace.rules.replace(B, sql("n = 1", name="$Default"))


async def _add_rule(bench: TopicBench) -> None:
    await bench.namespace.rules.add(B, sql("1=1", "SET x = 1", name="more"))


async def _remove_rule(bench: TopicBench) -> None:
    await bench.namespace.rules.remove(B, "$Default")


async def _create(bench: TopicBench) -> None:
    await bench.subscription("t", "d")


async def _delete(bench: TopicBench) -> None:
    await bench.namespace.delete(B)


async def _create_again(bench: TopicBench) -> None:
    await bench.namespace.delete(B)
    await bench.subscription("t", "b")


async def _forward(bench: TopicBench) -> None:
    await bench.queue("q")
    await bench.change(B, forward_to="q")


async def _describe(bench: TopicBench) -> None:
    await bench.change("t", user_metadata="x")
    await bench.change(B, default_message_time_to_live_ms=60_000)


#: A change, and what each subscription has in the end when 12 messages are accepted.
CHANGES: dict[str, tuple[Callable[[TopicBench], Awaitable[None]], dict[str, int]]] = {
    "a rule is changed": (_change_rule, {A: 12, B: 0, C: 12}),
    "a rule is added": (_add_rule, {A: 12, B: 24, C: 12}),
    "a rule is removed": (_remove_rule, {A: 12, B: 0, C: 12}),
    "a subscription is created": (_create, {A: 12, B: 12, C: 12, subscription_path("t", "d"): 12}),
    "a subscription is deleted": (_delete, {A: 12, C: 12}),
    "a subscription is created again": (_create_again, {A: 12, B: 12, C: 12}),
    "forwarding is set": (_forward, {A: 12, B: 0, C: 12, "q": 12}),
    "descriptions change": (_describe, {A: 12, B: 12, C: 12}),
}


@pytest.mark.parametrize("turns_before", [0, 3, 9, 14, 20])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_meanwhile_concerns_all_of_the_messages_or_none(change: str, turns_before: int) -> None:
    """T-8, T-9, S-20: refused and none, or accepted and all by the same rules."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        carry_out, expected = CHANGES[change]
        sent = Sent(bench, 12, atomically=True)
        await settle(turns_before)
        before = list(sent.answers)
        await carry_out(bench)
        await settle(LONG)
        if sent.refused:
            assert sent.errors() == [(0, ServerBusy)]
            expected = dict.fromkeys(expected, 0)
        elif before or sent.answers:
            counts = await active(bench, *expected)
            if counts != list(expected.values()):  # the publish was first
                assert counts in ([12, 12, 12], [12, 12, 12, 0], [12, 12], [12, 0, 12])
            return
        assert await active(bench, *expected) == list(expected.values())

    on_a_topic_bench(test)


def test_rules_of_the_moment_at_which_it_joins_count() -> None:
    """T-8: a rule that was added before the copies joined has its copies, of all messages."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 30, atomically=True)
        await settle(15)
        await _add_rule(bench)
        assert sent.answers == []
        await settle(LONG)
        assert sent.refused == []
        assert await active(bench, A, B, C) == [30, 60, 30]

    on_a_topic_bench(test)


def test_a_subscription_that_is_being_updated_refuses_all_of_it() -> None:
    """T-9, S-1: nobody gets a copy, and the next try succeeds."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 12, atomically=True)
        await settle(8)
        bench.namespace.contents.entities.park(C.lower(), EntityUpdated())
        await settle(LONG)
        assert sent.errors() == [(0, ServerBusy)]
        bench.namespace.contents.entities.unpark(C.lower())
        assert await active(bench, A, B, C) == [0, 0, 0]
        again = Sent(bench, 12, atomically=True)
        await settle(LONG)
        assert again.refused == []
        assert await active(bench, A, B, C) == [12, 12, 12]

    on_a_topic_bench(test)


def test_a_topic_that_is_deleted_refuses_what_is_on_its_way() -> None:
    """E-86, S-1: nobody waits for ever."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        first, second = Sent(bench, 12, atomically=True), Sent(bench, 12, 100)
        await settle(8)
        await bench.namespace.delete("t")
        await settle(60)
        assert first.errors() == [(0, ServerBusy)]
        assert {error for _, error in second.errors()} == {ServerBusy}
        await three_subscriptions(bench)
        assert await active(bench, A, B, C) == [0, 0, 0]

    on_a_topic_bench(test)


def test_a_store_that_is_disabled_refuses_what_is_on_its_way() -> None:
    """S-1: a store goes out of service with what has joined, and nothing else."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        first, second = Sent(bench, 12, atomically=True), Sent(bench, 12, 100)
        await settle(8)
        await bench.namespace.stores.disable("store-0")
        await settle(60)
        assert (first.errors(), {error for _, error in second.errors()}) == ([(0, ServerBusy)], {ServerBusy})
        await bench.namespace.stores.enable("store-0")
        await settle(60)
        assert await active(bench, A, B, C) == [0, 0, 0]

    on_a_topic_bench(test)


def test_rules_that_change_again_and_again_refuse_it_in_the_end() -> None:
    """Attack: nobody waits for ever, and those behind go on."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent, behind = Sent(bench, 60, atomically=True), Sent(bench, 1, 100)
        for number in range(30):
            await settle(10)
            if sent.answers:
                break
            await bench.namespace.rules.add(A, sql(f"n = {number}", name=f"r{number}"))
        assert sent.errors() == [(0, ServerBusy)]
        assert "rules of 't' are being changed" in sent.refused[0][1].sentence
        await settle(LONG)
        assert behind.refused == []
        assert await active(bench, A, B, C) == [1, 1, 1]

    on_a_topic_bench(test)


# -- what copies are like


def test_what_is_published_in_slices_is_as_if_published_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """T-4, T-6, T-60, D-12, D-15, M-41, M-44, X-16: rows, counters, dead letters and journal are the same."""
    rows: list[object] = []

    async def test(bench: TopicBench) -> None:
        journal = bench.namespace.runtime.journal = ToldJournal()
        await bench.topic("t")
        await bench.subscription("t", "a", requires_session=True)
        await bench.subscription(
            "t", "b", sql("x / 0 = 1", name="bad"), dead_lettering_on_filter_evaluation_exceptions=True
        )
        await bench.subscription(
            "t", "c", sql("1=1", "SET y = x + 1", name="one"), sql("x > 3", "SET z = sys.Label", name="two")
        )
        await bench.subscription("t", "d", rule(CorrelationFilter(label="odd")))
        messages = []
        for number in range(12):
            fields: dict[str, object] = {"subject": "odd" if number % 2 else "even"}
            if number % 3:
                fields["group_id"] = f"s{number % 3}"
            message = message_of(encoded(f"{number}", properties={"x": number}, **fields), False)
            message.ttl_ms = 1_000_000 - 70_000 * number if number % 4 else -1
            message.scheduled_at_ms = bench.clock.wall_ms() + 60_000 if number == 7 else 0
            messages.append(message)
        ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        bench.namespace.sender("t").send_atomically(messages, ended.set_result)
        assert await ended == []
        store = bench.stores[0]
        found: list[object] = []
        for row in await store.fragments():
            page = await store.peek(row.key, 0, 1_000, 10**9, None)
            found.append([fields_of(m) for m in page.messages])
            found.append(
                (
                    row.counters.last_counter,
                    row.counters.active,
                    row.counters.bytes,
                    row.counters.expiry_high_ms,
                )
            )
        found.append(await store.expired_entries(10**15, 1_000))
        found.append(await store.due(10**15, 1_000))
        found.append(sorted(journal.told, key=repr))
        rows.append(found)

    on_a_topic_bench(test)
    monkeypatch.setattr(turns, "TURN_STEPS", 3_000)
    on_a_topic_bench(test)
    assert rows[0] == rows[1]


def test_numbers_that_somebody_else_takes_meanwhile_are_not_given_out_twice() -> None:
    """M-35, M-37: copies get the numbers that are next when they join, without a gap."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 6, atomically=True)
        counters = bench.namespace.queue(B).main.counters
        taken = 0
        while not sent.answers:
            if taken < 9 and counters.last_counter == taken:
                counters.last_counter = taken = taken + 1
            await settle(2)
        await settle()
        assert (sent.refused, taken) == ([], 9)
        numbers = [[seen.message.sequence_number for seen in await bench.peek(path)] for path in (A, B)]
        assert numbers == [list(range(1, 7)), list(range(10, 16))]

    on_a_topic_bench(test)


def test_copies_expire_in_their_time_in_order_or_not() -> None:
    """M-41, M-44: nothing else comes that would have somebody look."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "a")
        await bench.advance(1)  # what is looked for at the start is over
        messages = [message_of(encoded(f"{number}"), False) for number in range(6)]
        for number, message in enumerate(messages):
            message.ttl_ms = 60_000 - 10_000 * number
        ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        bench.namespace.sender("t").send_atomically(messages, ended.set_result)
        assert await ended == []
        left = []
        for _ in range(6):
            await bench.advance(10.5, step_s=1.5)
            left.append((await bench.namespace.counts(A)).active)
        assert left == [5, 4, 3, 2, 1, 0]

    on_a_topic_bench(test)


def test_receivers_get_it_like_anything_else() -> None:
    """R-1, X-3: also a session's receiver, and after a restart."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "a", requires_session=True)
        await bench.subscription("t", "b")
        sent = Sent(bench, 6, atomically=True, group_id="s")
        await settle(LONG)
        assert sent.refused == []
        await bench.restart()
        outlet = bench.namespace.queue(A).outlet(False)
        assert await outlet.list_sessions(None, 0, 10) == ["s"]
        assert await bench.bodies(B) == [f"{number}" for number in range(6)]
        last = await bench.namespace.queue(B).main.peek(6, 1)
        assert [message.sequence_number for message in last] == [6]

    on_a_topic_bench(test)


# -- prefiltering


def test_prefiltering_refuses_those_that_nobody_wants() -> None:
    """E-53: by their places; an atomic batch as a whole."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", filtering_messages_before_publishing=True)
        await bench.subscription("t", "a", sql("sys.Label = 'wanted'"))
        sender = bench.namespace.sender("t")
        many = 300
        messages = [
            message_of(encoded(f"{n}", subject="wanted" if n % 100 else "not"), False) for n in range(many)
        ]
        answers: list[list[Refused]] = [[], [], []]
        sender.send([replace_message(message) for message in messages], answers[0].append)
        sender.send_atomically([replace_message(message) for message in messages], answers[1].append)
        sender.send_atomically([replace_message(messages[1]) for _ in range(many)], answers[2].append)
        await settle(2_000)
        assert [[(place, type(error)) for place, error in answer] for [answer] in answers] == [
            [(0, NoMatchingSubscription), (100, NoMatchingSubscription), (200, NoMatchingSubscription)],
            [(0, NoMatchingSubscription)],
            [],
        ]
        assert await active(bench, A) == [2 * many - 3]
        assert begun(bench) == 0

    on_a_topic_bench(test)


def test_what_was_accepted_and_nobody_wants_any_more_is_gone_when_it_is_due() -> None:
    """E-53, S-34: prefiltering refuses senders; a scheduled message has none any more, and gets stuck nowhere."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t", filtering_messages_before_publishing=True)
        await bench.subscription("t", "a", sql("sys.Label = 'wanted'"))
        await schedule(bench, 5, subject="not")
        await schedule(bench, 3, subject="wanted")
        await bench.advance(12, step_s=1)
        await settle(LONG)
        assert (await bench.namespace.counts("t")).scheduled == 0
        assert await active(bench, A) == [3]

    on_a_topic_bench(test)


def replace_message(message: Message) -> Message:
    return Message(message.head, message.bare)
