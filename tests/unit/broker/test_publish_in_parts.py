"""Publishes that make too many copies: batches are refused with numbers, everything else goes in parts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from busway.broker.fragment import turns
from busway.gateway.amqp.message_mapping import message_of
from busway.model.entity_path import subscription_path
from busway.model.errors import (
    EntityUpdated,
    MessageNotFound,
    QuotaExceeded,
    ServerBusy,
)
from busway.model.limits import Limits
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
from tests.unit.broker.topic_bench import TopicBench, encoded, on_a_topic_bench, sql


@pytest.fixture(autouse=True, name="tiny_turns")
def _tiny_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    make_turns_tiny(monkeypatch)


# -- too many copies


LIMIT = 30
FEW = replace(Limits(), publish_copies_max=LIMIT)
TOO_MANY = (
    "Publishing 11 messages at once to the 3 subscriptions of 't' makes more than 30 copies, which is the most that"
    " one publish may make."
)


def test_a_batch_of_too_many_copies_is_refused_with_numbers() -> None:
    """Attack: an envelope of 26,000 messages to 2,000 subscriptions would take 28 GiB."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        fits, too_many = Sent(bench, 10, atomically=True), Sent(bench, 11, atomically=True)
        await settle(LONG)
        assert (fits.refused, too_many.errors()) == ([], [(0, QuotaExceeded)])
        assert too_many.refused[0][1].sentence == TOO_MANY
        assert await active(bench, A, B, C) == [10, 10, 10]
        assert begun(bench) == 0

    on_a_topic_bench(test, limits=FEW)


def test_copies_count_where_rules_decide_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: nobody knows before; work ends where the limit is passed, in slices or not."""
    for room in (0, 3_000):
        monkeypatch.setattr(turns, "TURN_STEPS", room)

        async def test(bench: TopicBench) -> None:
            await bench.topic("t")
            for name in "abc":
                await bench.subscription("t", name, sql("sys.MessageId >= '0'"))
            fits, too_many = Sent(bench, 10, atomically=True), Sent(bench, 11, atomically=True)
            await settle(LONG)
            assert (fits.refused, too_many.errors()) == ([], [(0, QuotaExceeded)])
            assert too_many.refused[0][1].sentence == TOO_MANY
            assert await active(bench, A, B, C) == [10, 10, 10]

        on_a_topic_bench(test, limits=FEW)


def test_messages_for_themselves_join_in_parts() -> None:
    """S-4: a run of single messages is not refused for being long; it is told once, when the last part is durable."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 25)
        seen: set[int] = set()
        while not sent.answers:
            counts = await active(bench, A, B, C)
            assert len(set(counts)) == 1
            seen.add(counts[0])
            await settle(1)
        assert seen >= {10, 20}
        assert (sent.refused, begun(bench)) == ([], 0)
        assert await bench.bodies(A) == [f"{number}" for number in range(25)]

    on_a_topic_bench(test, limits=FEW)


def test_a_part_that_fails_leaves_the_others() -> None:
    """S-1: each message has its own outcome."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        sent = Sent(bench, 25)
        while await active(bench, A) != [10]:
            await settle(1)
        bench.namespace.contents.entities.park(C.lower(), EntityUpdated())
        await settle(LONG)
        bench.namespace.contents.entities.unpark(C.lower())
        got = await active(bench, A, B, C)
        assert got in ([10, 10, 10], [20, 20, 20])
        assert sent.errors() == [(place, ServerBusy) for place in range(got[0], 25)]
        assert begun(bench) == 0

    on_a_topic_bench(test, limits=FEW)


def test_a_message_that_makes_too_many_copies_by_itself_is_refused_alone() -> None:
    """Attack: it is named by its place; those around it go their way."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        many = [sql("big = 1", f"SET n = {n}", name=f"r{n}") for n in range(LIMIT + 1)]
        await bench.subscription("t", "d", *many)
        texts = [encoded(f"{n}", properties={"big": 1} if n == 4 else {}) for n in range(8)]
        ended: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        bench.namespace.sender("t").send([message_of(text, False) for text in texts], ended.set_result)
        [(place, error)] = await ended
        assert (place, type(error)) == (4, QuotaExceeded)
        assert error.sentence.startswith(
            "Publishing 1 message at once to the 4 subscriptions of 't' makes more"
        )
        assert await bench.bodies(A) == ["0", "1", "2", "3", "5", "6", "7"]
        assert await active(bench, subscription_path("t", "d")) == [0]

    on_a_topic_bench(test, limits=FEW)


def test_bytes_of_changed_copies_count() -> None:
    """T-6: what an action changes has bytes of its own; each KiB counts like a copy."""

    async def test(bench: TopicBench) -> None:
        await bench.topic("t")
        await bench.subscription("t", "a", sql("1=1", "SET x = 1", name="one"))
        small, large = encoded("x" * 5_000), encoded("x" * 40_000)
        assert await bench.try_publish("t", *[small] * 4, atomically=True) == []
        [(_, error)] = await bench.try_publish("t", large, atomically=True)
        assert isinstance(error, QuotaExceeded)
        assert await active(bench, A) == [4]

    on_a_topic_bench(test, limits=FEW)


# -- duplicates


def test_a_retry_meets_its_first_try_on_its_way() -> None:
    """S-40, S-1: it is dropped, and told when the first one is durable."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench, requires_duplicate_detection=True)
        first = Sent(bench, 12)
        await settle(12)
        again = Sent(bench, 14)
        assert (first.answers, again.answers) == ([], [])
        await settle(LONG)
        assert (first.refused, again.refused) == ([], [])
        assert await bench.bodies(B) == [f"{number}" for number in range(14)]

    on_a_topic_bench(test)


def test_a_publish_that_is_refused_on_its_way_leaves_no_id() -> None:
    """S-40, T-9: its next try is no duplicate."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench, requires_duplicate_detection=True)
        first = Sent(bench, 12)
        await settle(12)
        bench.namespace.contents.entities.park(C.lower(), EntityUpdated())
        await settle(LONG)
        assert {error for _, error in first.errors()} == {ServerBusy}
        bench.namespace.contents.entities.unpark(C.lower())
        again = Sent(bench, 12)
        await settle(LONG)
        assert again.refused == []
        assert await active(bench, A, B, C) == [12, 12, 12]

    on_a_topic_bench(test)


def test_parts_keep_their_ids_and_duplicates_stand_with_their_firsts() -> None:
    """S-40, S-1: 4 is repeated in a send whose second part fails: it comes again, and once."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench, requires_duplicate_detection=True)
        names = [*range(14), 4, 13, *range(14, 24)]
        answers: list[Refused] = []

        def send() -> None:
            texts = [encoded(f"{name}", message_id=f"{name}") for name in names]
            bench.namespace.sender("t").send([message_of(text, True) for text in texts], answers.append)

        send()
        while await active(bench, A) != [10]:
            await settle(1)
        bench.namespace.contents.entities.park(C.lower(), EntityUpdated())
        await settle(LONG)
        bench.namespace.contents.entities.unpark(C.lower())
        got = await active(bench, A, B, C)
        assert got in ([10, 10, 10], [20, 20, 20])
        refused = {place for place, _ in answers[0]}
        stored = {names[place] for place in range(26) if place not in refused}
        assert stored <= set(range(got[0]))
        send()
        await settle(LONG)
        assert answers[1] == []
        assert await bench.bodies(B) == [f"{name}" for name in range(24)]

    on_a_topic_bench(test, limits=FEW)


# -- scheduled messages


def test_scheduled_messages_become_active_in_parts() -> None:
    """S-34: nothing is refused that was accepted, however many copies it makes."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await schedule(bench, 25)
        await bench.advance(11, step_s=11)
        await settle(2 * LONG)
        assert await active(bench, A, B, C) == [25, 25, 25]
        assert await bench.bodies(C) == [f"{number}" for number in range(25)]
        counts = await bench.namespace.counts("t")
        assert counts.scheduled == 0

    on_a_topic_bench(test, limits=FEW)


def test_a_scheduled_message_with_too_many_copies_comes_all_the_same() -> None:
    """S-34: it was accepted when there were fewer rules; it goes by itself, and nothing gets stuck behind it."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await schedule(bench, 3)
        many = [sql("1=1", f"SET n = {n}", name=f"r{n}") for n in range(2 * LIMIT)]
        await bench.subscription("t", "d", *many)
        await bench.advance(11, step_s=11)
        await settle(2 * LONG)
        assert await active(bench, A, subscription_path("t", "d")) == [3, 6 * LIMIT]

    on_a_topic_bench(test, limits=FEW)


def test_what_is_being_activated_can_no_longer_be_cancelled() -> None:
    """S-33, S-34: either or, never both."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        numbers = await schedule(bench, 12)
        bench.clock.advance(11)
        bench.namespace.tick()
        await settle(12)
        sender = bench.namespace.sender("t")
        with pytest.raises(MessageNotFound):
            await sender.cancel_scheduled(numbers[:1])  # type: ignore[union-attr]
        await settle(LONG)
        assert await active(bench, A, B, C) == [12, 12, 12]
        assert not bench.namespace.sender("t").inlet.member(0).intake.withheld

    on_a_topic_bench(test)


def test_an_activation_that_is_refused_comes_again() -> None:
    """S-34, S-35: the rows stay where they are, and can be cancelled in between."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        numbers = await schedule(bench, 12)
        bench.clock.advance(11)
        bench.namespace.tick()
        await settle(8)
        bench.namespace.contents.entities.park(C.lower(), EntityUpdated())
        await settle(60)
        assert await active(bench, A, B) == [0, 0]
        await bench.namespace.sender("t").cancel_scheduled(numbers[:2])  # type: ignore[union-attr]
        bench.namespace.contents.entities.unpark(C.lower())
        await bench.advance(3, step_s=0.5)
        await settle(LONG)
        assert await active(bench, A, B, C) == [10, 10, 10]

    on_a_topic_bench(test)


# -- forwarding


@pytest.mark.parametrize("stores", [1, 2])
def test_what_is_forwarded_into_a_topic_moves_in_parts(stores: int) -> None:
    """F-1, F-7, F-11: in order, each once; the source keeps what has not arrived."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await bench.queue("q")
        for start in range(0, 25, 5):
            await bench.publish("q", *[encoded(f"{number}") for number in range(start, start + 5)])
        await bench.change("q", forward_to="t")
        await settle(4 * LONG)
        assert await bench.bodies(B) == [f"{number}" for number in range(25)]
        counts = await bench.namespace.counts("q")
        assert (counts.active, counts.transfer, counts.dead_letter) == (0, 0, 0)
        await bench.advance(3, step_s=1)
        assert [await store.transfer_marks() for store in bench.stores] == [[]] * stores

    on_a_topic_bench(test, stores, FEW)


def test_a_forwarded_message_with_too_many_copies_goes_to_the_dead_letters() -> None:
    """F-12, D-17: after some patience; those behind it go on."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        many = [sql("big = 1", f"SET n = {n}", name=f"r{n}") for n in range(LIMIT + 1)]
        await bench.subscription("t", "d", *many)
        await bench.queue("q", forward_to="t")
        await bench.publish("q", encoded("0"), encoded("1", properties={"big": 1}), encoded("2"))
        await bench.advance(12, step_s=0.5)
        await settle(LONG)
        assert await bench.bodies(A) == ["0", "2"]
        [dead] = await bench.peek("q", dead_letter=True)
        assert (dead.body, dead.properties["DeadLetterReason"]) == ("1", "TransferDestinationQuotaExceeded")

    on_a_topic_bench(test, limits=FEW)


def test_forwarding_that_is_removed_meanwhile_leaves_nothing_twice() -> None:
    """F-1: what was on its way has arrived, or stays; never both."""

    async def test(bench: TopicBench) -> None:
        await three_subscriptions(bench)
        await bench.queue("q", forward_to="t")
        await bench.publish("q", *[encoded(f"{number}") for number in range(20)])
        await settle(6)
        await bench.change("q", forward_to=None)
        await settle(LONG)
        arrived, stayed = await bench.bodies(A), await bench.bodies("q")
        assert arrived + stayed == [f"{number}" for number in range(20)]

    on_a_topic_bench(test, limits=FEW)
