"""Idempotent producers."""

from __future__ import annotations

import asyncio

import pytest

from busway.message.event_record import Event
from busway.model.errors import (
    ArgumentOutOfRange,
    BadArgument,
    BrokerError,
    OutOfOrderSequence,
    ProducerStolen,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
)
from busway.model.limits import Limits
from busway.streams.hub_descriptions import RetentionDescription
from busway.streams.partition_log import PartitionLog
from busway.streams.producers import GROUPS_MAX, Producer
from tests.unit.streams.rig import HubRig, Told, event, play

LAST = (1 << 31) - 1


def group(first: int, *texts: str) -> list[Event]:
    events = []
    for place, text in enumerate(texts):
        made = event(text)
        made.producer_number = (first + place) % (LAST + 1)
        events.append(made)
    return events


def send_later(
    rig: HubRig, producer: Producer, first: int, *texts: str, log: PartitionLog | None = None
) -> Told:
    told = Told()
    (log or rig.log).append_as(producer, group(first, *texts), told)
    return told


async def send(rig: HubRig, producer: Producer, first: int, *texts: str) -> BrokerError | None:
    told = send_later(rig, producer, first, *texts)
    await rig.calm()
    return told.error


def test_a_new_producer_gets_an_id_of_its_own() -> None:
    """H-18: an epoch, and where it begins; ids stay exact in clients that count in doubles."""

    async def scenario(rig: HubRig) -> None:
        first = await rig.log.producers.attach()
        second = await rig.log.producers.attach()
        assert first.producer_id != second.producer_id
        assert 0 < first.producer_id < 1 << 53
        assert (first.epoch, first.last_sequence) == (0, 0)
        assert await send(rig, first, 1, "a", "b") is None
        assert first.last_sequence == 2

    play(scenario)


def test_a_repeated_group_is_acknowledged_and_dropped() -> None:
    """H-18: exactly once, also when what follows comes with it."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert await send(rig, producer, 1, "a", "b") is None
        assert await send(rig, producer, 1, "a", "b") is None
        assert await send(rig, producer, 1, "a", "b", "c") is None
        assert await send(rig, producer, 3, "c") is None
        assert await send(rig, producer, 1, "a", "b", "c") is None
        assert await send(rig, producer, 1, "a", "b") is None
        assert (await rig.read()).bodies() == ["a", "b", "c"]

    play(scenario)


def test_another_group_under_used_numbers_is_refused() -> None:
    """H-18: it was acknowledged and dropped. A client that gave a group up takes its numbers for the next one."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert await send(rig, producer, 1, "a", "b") is None
        for first, texts in (
            (1, ["x", "y"]),
            (1, ["a", "y"]),
            (1, ["x", "b", "c"]),
            (1, ["a"]),
            (2, ["b"]),
            (2, ["b", "c"]),
            (0, ["z", "a", "b"]),
        ):
            assert isinstance(await send(rig, producer, first, *texts), OutOfOrderSequence), (first, texts)
        assert producer.last_sequence == 2
        assert await send(rig, producer, 3, "c") is None
        assert (await rig.read()).bodies() == ["a", "b", "c"]

    play(scenario)


def test_the_same_body_with_another_annotation_is_another_group() -> None:
    """H-18: what is dropped must be what was stored, all of it."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert await send(rig, producer, 1, "a") is None
        (keyed,) = group(1, "a")
        keyed.set_partition_key("k")
        told = Told()
        rig.log.append_as(producer, [keyed], told)
        assert isinstance(told.error, OutOfOrderSequence)

    play(scenario)


def test_groups_are_known_again_over_restarts_and_take_overs() -> None:
    """H-18, H-19: the server is killed between a commit and its answer; what is not the same is refused then too."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        for first in range(1, 6):
            assert await send(rig, producer, first, f"e{first}") is None
        await rig.restart()
        same = await rig.log.producers.attach(producer.producer_id, producer.epoch, 3)
        assert await send(rig, same, 4, "e4") is None
        assert await send(rig, same, 5, "e5", "e6") is None
        assert isinstance(await send(rig, same, 4, "other"), OutOfOrderSequence)
        taken = await rig.log.producers.attach(producer.producer_id, None, None)
        assert await send(rig, taken, 6, "e6") is None
        assert isinstance(await send(rig, taken, 6, "other"), OutOfOrderSequence)
        anew = await rig.log.producers.attach(producer.producer_id, 9, 0)
        assert await send(rig, anew, 1, "f1") is None
        assert isinstance(await send(rig, anew, 0, "e1"), OutOfOrderSequence)
        assert (await rig.read()).bodies() == ["e1", "e2", "e3", "e4", "e5", "e6", "f1"]

    play(scenario)


def test_groups_are_remembered_for_a_while() -> None:
    """H-18: memory and rows are bounded; what is too old to be compared is refused, not believed."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        for first in range(1, GROUPS_MAX + 3):
            assert await send(rig, producer, first, f"e{first}") is None
        assert await send(rig, producer, 3, "e3") is None
        assert isinstance(await send(rig, producer, 2, "e2"), OutOfOrderSequence)
        (row,) = await rig.store.producers(rig.log.key)
        assert len(row.groups) == 12 * GROUPS_MAX

    play(scenario)


def test_a_repeat_is_acknowledged_only_when_the_first_is_durable() -> None:
    """H-18, S-1: the link broke before the answer came."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        log = rig.log
        rig.store.hold_commits()
        first = send_later(rig, producer, 1, "a")
        await rig.calm()
        repeat = send_later(rig, producer, 1, "a")
        await rig.calm()
        assert not first.is_told
        assert not repeat.is_told
        rig.store.lose_next_commit(is_applied=True)
        rig.store.release_commits()
        await rig.calm()
        assert isinstance(first.error, StoreOutcomeUnknown)
        assert isinstance(repeat.error, ServerBusy)
        assert isinstance(send_later(rig, producer, 1, "a", log=log).error, ServerBusy)
        await rig.reopen()
        again = await rig.log.producers.attach(producer.producer_id, producer.epoch, 0)
        assert again.last_sequence == 1
        assert await send(rig, again, 1, "a") is None
        assert (await rig.read()).bodies() == ["a"]

    play(scenario)


def test_a_gap_is_refused() -> None:
    """H-18: and changes nothing."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert isinstance(await send(rig, producer, 2, "b"), OutOfOrderSequence)
        assert await send(rig, producer, 1, "a") is None
        assert isinstance(await send(rig, producer, 3, "c"), OutOfOrderSequence)
        assert (await rig.read()).bodies() == ["a"]

    play(scenario)


def test_numbers_inside_a_group_follow_one_another() -> None:
    """H-18: else nothing of it is taken."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        events = group(1, "a") + group(3, "b")
        told = Told()
        rig.log.append_as(producer, events, told)
        assert isinstance(told.error, OutOfOrderSequence)
        told = Told()
        rig.log.append_as(producer, [event("unnumbered")], told)
        assert isinstance(told.error, BadArgument)
        assert await rig.numbers() == []

    play(scenario)


def test_numbers_go_round() -> None:
    """H-18: behind the last one comes 0, and repeats are known across."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach(7, 0, LAST - 1)
        assert await send(rig, producer, LAST, "a", "b") is None
        assert producer.last_sequence == 0
        assert await send(rig, producer, LAST, "a", "b") is None
        assert await send(rig, producer, 1, "c") is None
        assert isinstance(await send(rig, producer, LAST - 5, "old"), OutOfOrderSequence)
        assert (await rig.read()).bodies() == ["a", "b", "c"]

    play(scenario)


def test_an_event_speaks_for_the_producer_of_its_link() -> None:
    """H-18: another id is a mistake, an older epoch was taken over."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach(7, 3, 0)
        (other,) = group(1, "a")
        other.producer_id = 8
        told = Told()
        rig.log.append_as(producer, [other], told)
        assert isinstance(told.error, BadArgument)
        (older,) = group(1, "a")
        older.producer_id, older.producer_epoch = 7, 2
        told = Told()
        rig.log.append_as(producer, [older], told)
        assert isinstance(told.error, ProducerStolen)

    play(scenario)


def test_a_crashed_writer_comes_back_and_goes_on() -> None:
    """H-19: id, epoch and last number lie beside the events."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert await send(rig, producer, 1, "a", "b") is None
        await rig.restart()
        back = await rig.log.producers.attach(producer.producer_id, None, None)
        assert (back.producer_id, back.epoch, back.last_sequence) == (producer.producer_id, 1, 2)
        assert await send(rig, back, 1, "a", "b", "c") is None
        assert (await rig.read()).bodies() == ["a", "b", "c"]

    play(scenario)


def test_the_next_epoch_takes_over() -> None:
    """H-18: the one before is refused, over a restart too; a client's own epoch is confirmed."""

    async def scenario(rig: HubRig) -> None:
        old = await rig.log.producers.attach()
        assert await send(rig, old, 1, "a") is None
        assert await rig.log.producers.attach(old.producer_id, 0, 1) is old
        fresh = await rig.log.producers.attach(old.producer_id, None, None)
        assert fresh.epoch == 1
        assert isinstance(await send(rig, old, 2, "b"), ProducerStolen)
        assert await send(rig, fresh, 2, "c") is None
        jumped = await rig.log.producers.attach(old.producer_id, 9, 2)
        assert jumped.epoch == 9
        with pytest.raises(ProducerStolen):
            await rig.log.producers.attach(old.producer_id, 1, 2)
        await rig.restart()
        with pytest.raises(ProducerStolen):
            await rig.log.producers.attach(old.producer_id, 8, 2)

    play(scenario)


def test_a_take_over_that_says_0_begins_a_new_count() -> None:
    """H-18: a writer whose rounds are epochs counts anew in each; how far a round came is told again and again."""

    async def scenario(rig: HubRig) -> None:
        attach = rig.log.producers.attach
        first = await attach(77, 0, 0)
        assert await send(rig, first, 1, "a", "b", "c") is None
        assert (await attach(77, 0, 0)).last_sequence == 3
        second = await attach(77, 1, 0)
        assert (second.epoch, second.last_sequence) == (1, 0)
        assert await send(rig, second, 1, "d") is None
        assert isinstance(await send(rig, first, 4, "x"), ProducerStolen)
        await rig.restart()
        again = await rig.log.producers.attach(77, 1, 0)
        assert again.last_sequence == 1
        assert await send(rig, again, 1, "d", "e") is None
        assert (await rig.read()).bodies() == ["a", "b", "c", "d", "e"]

    play(scenario)


def test_a_take_over_with_an_old_number_stores_nothing_twice() -> None:
    """H-19: a crashed writer that comes back behind what the log has of it is told so, and goes on there."""

    async def scenario(rig: HubRig) -> None:
        first = await rig.log.producers.attach(77, 0, 0)
        assert await send(rig, first, 1, "a", "b", "c") is None
        second = await rig.log.producers.attach(77, 1, 1)
        assert (second.epoch, second.last_sequence) == (1, 3)
        assert isinstance(await send(rig, second, 2, "b", "c", "d"), OutOfOrderSequence)
        assert await send(rig, second, 4, "d") is None
        assert (await rig.read()).bodies() == ["a", "b", "c", "d"]

    play(scenario)


def test_a_take_over_is_durable_before_it_is_told() -> None:
    """H-18: else a crash could let the one before come back."""

    async def scenario(rig: HubRig) -> None:
        old = await rig.log.producers.attach()
        assert await send(rig, old, 1, "a") is None
        rig.store.hold_commits()
        attaching = asyncio.ensure_future(rig.log.producers.attach(old.producer_id))
        await rig.turns(30)
        assert not attaching.done()
        rig.store.release_commits()
        assert (await attaching).epoch == 1
        await rig.restart()
        with pytest.raises(ProducerStolen):
            await rig.log.producers.attach(old.producer_id, 0, 1)

    play(scenario)


def test_epochs_end() -> None:
    """H-18: they are 16 bits with a sign."""

    async def scenario(rig: HubRig) -> None:
        await rig.log.producers.attach(7, 32_767, 0)
        with pytest.raises(QuotaExceeded):
            await rig.log.producers.attach(7, None, None)

    play(scenario)


@pytest.mark.parametrize(
    "values", [(-1, 0, 0), (1 << 63, 0, 0), (1, -1, 0), (1, 1 << 15, 0), (1, 0, -1), (1, 0, 1 << 31)]
)
def test_values_out_of_range_are_refused(values: tuple[int, int, int]) -> None:
    """H-18: at the attach."""

    async def scenario(rig: HubRig) -> None:
        with pytest.raises(ArgumentOutOfRange) as refused:
            await rig.log.producers.attach(*values)
        if min(values) < 0:
            assert "Invalid range for idempotent producer state." in refused.value.sentence
            assert "must be zero or positive." in refused.value.sentence
        assert len(rig.log.producers) == 0

    play(scenario)


@pytest.mark.parametrize(("epoch", "sequence"), [(1, None), (None, 7), (1, 7)])
def test_a_producer_that_brings_only_a_part_is_given_the_rest(
    epoch: int | None, sequence: int | None
) -> None:
    """H-18: an id that nobody has; what it brought counts, each time anew."""

    async def scenario(rig: HubRig) -> None:
        first = await rig.log.producers.attach(None, epoch, sequence)
        second = await rig.log.producers.attach(None, epoch, sequence)
        assert first.producer_id != second.producer_id
        assert (first.epoch, first.last_sequence) == (epoch or 0, sequence or 0)
        assert await send(rig, first, (sequence or 0) + 1, "a") is None
        with pytest.raises(ArgumentOutOfRange):
            await rig.log.producers.attach(None, -1, sequence)

    play(scenario)


def test_who_was_taken_over_is_told_both_epochs() -> None:
    """H-18: programs look for them; one that comes with used numbers is told that these are old."""

    async def scenario(rig: HubRig) -> None:
        old = await rig.log.producers.attach()
        assert await send(rig, old, 1, "a") is None
        fresh = await rig.log.producers.attach(old.producer_id, 1, 1)
        assert await send(rig, fresh, 2, "b") is None
        told = await send(rig, old, 2, "c")
        assert isinstance(told, ProducerStolen)
        assert "Received:0 Current:1" in told.sentence
        with pytest.raises(ProducerStolen, match="Received:0 Current:1"):
            await rig.log.producers.attach(old.producer_id, 0, 2)
        late = await send(rig, fresh, 1, "other")
        assert isinstance(late, OutOfOrderSequence)
        assert "old sequence" in late.sentence

    play(scenario)


def test_memory_of_producers_is_bounded() -> None:
    """H-19: those that never sent go first; then no more are taken."""

    async def scenario(rig: HubRig) -> None:
        for _ in range(20):
            unused = await rig.log.producers.attach()
        assert len(rig.log.producers) <= 3
        assert await send(rig, unused, 1, "a") is None
        while len(rig.log.producers) < 3 or not all(p.is_stored for p in producers(rig)):
            producer = await rig.log.producers.attach()
            assert await send(rig, producer, 1, "b") is None
        with pytest.raises(QuotaExceeded):
            await rig.log.producers.attach()

    play(scenario, Limits(producers_per_log_max=3))


def producers(rig: HubRig) -> list[Producer]:
    return list(rig.log.producers._producers.values())


def test_producers_are_forgotten_after_the_retention_time() -> None:
    """H-19: a day at least."""

    async def scenario(rig: HubRig) -> None:
        producer = await rig.log.producers.attach()
        assert await send(rig, producer, 1, "a") is None
        await rig.advance(3600.0 * 23)
        assert len(await rig.store.producers(rig.log.key)) == 1
        assert len(rig.log.producers) == 1
        await rig.advance(3600.0 * 2)
        assert await rig.store.producers(rig.log.key) == []
        assert len(rig.log.producers) == 0
        # Its link is still there and goes on.
        assert await send(rig, producer, 2, "b") is None
        assert len(await rig.store.producers(rig.log.key)) == 1

    play(scenario, retention=RetentionDescription(retention_hours=1))


def test_an_unreadable_store_is_busy() -> None:
    """H-19: nobody is taken without a look at what is known."""

    async def scenario(rig: HubRig) -> None:
        log = rig.log
        await rig.store.disable()
        with pytest.raises(ServerBusy):
            await log.producers.attach()

    play(scenario)
