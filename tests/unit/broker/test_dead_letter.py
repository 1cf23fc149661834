"""Dead-lettering: by the application, by too many deliveries, by size."""

import pytest

from busway.broker.fragment.property_changes import read_changes
from busway.message.message import Message
from busway.model.errors import BadArgument, EntityDisabled, InvalidOperation
from busway.model.limits import Limits
from busway.model.settlement import Verb
from tests.unit.broker.rig import Answer, Rig, bodies, numbers, play, text


def properties(message: Message) -> dict[str, object]:
    return read_changes(message.changes)


def test_a_dead_lettered_message_is_in_the_dead_letter_queue_with_reason_and_number() -> None:
    """R-14, D-6, D-16, M-22, M-38: moved with these properties, keeping its number."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        got = await rig.receive()
        errors = await rig.settle(
            got[1:],
            Verb.DEAD_LETTER,
            dead_letter_reason="Bad",
            dead_letter_description="no price",
            properties={"tries": 3, "DeadLetterReason": "hidden"},
        )
        assert errors == []
        dead = await rig.receive(dead_letter=True)
        assert (bodies(dead), numbers(dead)) == (["b"], [2])
        assert properties(dead[0].message) == {
            "DeadLetterReason": "Bad",
            "DeadLetterErrorDescription": "no price",
            "tries": 3,
        }
        counts = rig.queue.counts()
        assert (counts.active, counts.dead_letter) == (1, 1)

    play(scenario)


def test_the_move_is_atomic() -> None:
    """D-5: never lost, never in both places; not receivable there before it is durable."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        receiver = rig.receiver(10, dead_letter=True)
        rig.store.hold_commits()
        await rig.settle_later(got, Verb.DEAD_LETTER)
        assert receiver.deliveries == []
        late = rig.receiver(10, dead_letter=True)
        await rig.calm()
        assert late.deliveries == []
        rig.store.release_commits()
        await rig.calm()
        assert bodies(receiver.deliveries) == ["a"]
        await rig.restart()
        assert await rig.receive() == []
        assert bodies(await rig.receive(dead_letter=True)) == ["a"]

    play(scenario)


def test_a_message_is_delivered_exactly_max_delivery_count_times() -> None:
    """R-41, R-42, D-10, K-3: then it is a dead letter that says why."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        for count in range(3):
            got = await rig.receive()
            assert [delivery.message.delivery_count for delivery in got] == [count]
            await rig.settle(got, Verb.ABANDON)
        assert await rig.receive() == []
        dead = (await rig.receive(dead_letter=True))[0].message
        assert dead.delivery_count == 3
        assert properties(dead) == {
            "DeadLetterReason": "MaxDeliveryCountExceeded",
            "DeadLetterErrorDescription": "Message could not be consumed after 3 delivery attempts.",
        }

    play(scenario, max_delivery_count=3)


def test_ended_locks_count_as_failed_deliveries_too() -> None:
    """R-40, R-41, R-72: ended locks count as failed deliveries too."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        assert len(await rig.receive()) == 1
        await rig.advance(60)
        assert len(await rig.receive()) == 1
        await rig.advance(60)
        assert await rig.receive() == []
        assert bodies(await rig.receive(dead_letter=True)) == ["a"]

    play(scenario, max_delivery_count=2)


def test_a_dead_letter_stays_however_often_it_is_abandoned() -> None:
    """R-43: its deliveries are not counted, whether it is abandoned, deferred or its lock ends."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.ABANDON)
        for _ in range(4):
            dead = await rig.receive(dead_letter=True)
            assert dead[0].message.delivery_count == 1
            assert await rig.settle(dead, Verb.ABANDON, dead_letter=True) == []
        assert len(await rig.receive(dead_letter=True)) == 1
        await rig.advance(60)
        dead = await rig.receive(dead_letter=True)
        assert dead[0].message.delivery_count == 1
        assert await rig.settle(dead, Verb.DEFER, dead_letter=True) == []
        await rig.restart()
        (fetched,) = await rig.dead_letter.receive_by_number([numbers(dead)[0]], deletes=False)
        assert fetched.message.delivery_count == 1

    play(scenario, max_delivery_count=1)


def test_a_dead_letter_cannot_be_dead_lettered_again() -> None:
    """D-2: an invalid operation; the lock stays."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        dead = await rig.receive(dead_letter=True)
        assert await rig.settle(dead, Verb.DEAD_LETTER, dead_letter=True) == [InvalidOperation]
        assert await rig.settle(dead, dead_letter=True) == []
        assert rig.queue.counts().total == 0

    play(scenario)


def test_the_dead_letter_queue_can_be_received_deferred_and_consumed() -> None:
    """D-1, D-2: peek-lock, receive-and-delete, defer, peek."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a", "b")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        assert [m.sequence_number for m in await rig.dead_letter.peek(0, 10)] == [1, 2]
        dead = await rig.receive(1, dead_letter=True)
        await rig.settle(dead, Verb.DEFER, dead_letter=True)
        again = await rig.dead_letter.receive_by_number([1], deletes=True)
        assert bodies(again) == ["a"]
        assert bodies(await rig.receive(dead_letter=True, deletes=True)) == ["b"]
        assert rig.queue.counts().total == 0
        assert rig.queue.counts().size_bytes == 0

    play(scenario)


def test_nobody_sends_to_a_dead_letter_queue() -> None:
    """E-10, D-2: nobody sends to a dead letter queue."""

    async def scenario(rig: Rig) -> None:
        answer = Answer()
        rig.dead_letter.append([text("a")], answer)
        assert answer.errors() == [EntityDisabled]

    play(scenario)


def test_dead_letters_in_any_order_come_out_by_number() -> None:
    """R-6, D-5: also below what was received already."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts(*"abcdef")
        got = await rig.receive()
        receiver = rig.receiver(1, dead_letter=True)
        for index in (4, 1, 5, 0):
            await rig.settle([got[index]], Verb.DEAD_LETTER)
        assert numbers(receiver.deliveries) == [5]
        assert numbers(await rig.receive(dead_letter=True)) == [1, 2, 6]

    play(scenario)


def test_dead_letter_properties_that_are_too_large_give_way_to_a_reason() -> None:
    """D-13, L-7: HeaderSizeExceeded."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        await rig.settle(got, Verb.DEAD_LETTER, dead_letter_reason="x" * 2_000, properties={"kept": 1})
        dead = (await rig.receive(dead_letter=True))[0].message
        assert properties(dead) == {
            "DeadLetterReason": "HeaderSizeExceeded",
            "DeadLetterErrorDescription": "The size quota for this stream has been exceeded.",
        }

    play(scenario, Limits(header_bytes_max=1_000))


@pytest.mark.parametrize("verb", [Verb.ABANDON, Verb.DEFER])
def test_properties_that_grow_too_large_lead_to_the_dead_letter_queue(verb: Verb) -> None:
    """D-13: whatever verb made them grow."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.ABANDON, properties={"kept": "yes"})
        await rig.settle(await rig.receive(), verb, properties={"big": "x" * 2_000})
        dead = await rig.receive(dead_letter=True)
        assert properties(dead[0].message)["DeadLetterReason"] == "HeaderSizeExceeded"
        assert properties(dead[0].message)["kept"] == "yes"
        assert await rig.settle(dead, verb, dead_letter=True, properties={"big": "x" * 2_000}) == [
            BadArgument
        ]
        assert await rig.settle(dead, dead_letter=True) == []
        assert rig.queue.counts().size_bytes == 0

    play(scenario, Limits(header_bytes_max=1_000))


def test_changed_properties_are_merged_and_kept() -> None:
    """R-11, R-21: a later change wins, a null is stored as null, a restart keeps them."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.ABANDON, properties={"a": 1, "b": 2})
        await rig.settle(await rig.receive(), Verb.ABANDON, properties={"b": None, "c": "x"})
        await rig.restart()
        got = await rig.receive()
        assert properties(got[0].message) == {"a": 1, "b": None, "c": "x"}
        size = rig.queue.counts().size_bytes
        assert size == got[0].message.size()
        await rig.settle(got)
        assert rig.queue.counts().size_bytes == 0

    play(scenario)


def test_a_property_that_amqp_cannot_carry_is_refused_and_the_lock_stays() -> None:
    """R-21: an argument error."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        got = await rig.receive()
        assert await rig.settle(got, Verb.ABANDON, properties={"a": object()}) == [BadArgument]
        assert await rig.settle(got) == []

    play(scenario)


def test_dead_letters_count_in_the_size_of_the_entity() -> None:
    """D-3: no automatic clean-up; S-9: they use the quota."""

    async def scenario(rig: Rig) -> None:
        await rig.send(text("x" * 100))
        before = rig.queue.counts().size_bytes
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        assert rig.queue.counts().size_bytes == before
        await rig.advance(30 * 24 * 3600)
        assert rig.queue.counts().dead_letter == 1

    play(scenario)
