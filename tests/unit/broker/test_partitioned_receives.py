"""Receiving from all fragments behind one name."""

from __future__ import annotations

import asyncio

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.model.errors import (
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    OperationTimedOut,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
)
from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from busway.store.contract import first_number_base
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import (
    COUNT,
    PartitionBench,
    bodies,
    index_of,
    on_partitions,
    spread,
    text,
)
from tests.unit.broker.rig import Answer, Recorder, numbers

SESSIONS = {fragment_of_key(f"s{n}", COUNT): f"s{n}" for n in range(60)}


def test_a_receiver_takes_from_every_fragment_and_settles_where_it_took() -> None:
    """P-4, P-40, P-46: one link, one settlement for all; no delivery is counted that nobody had."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text(f"{n}") for n in range(12)])
        found = await bench.receive()
        assert sorted(map(int, bodies(found))) == list(range(12))
        assert spread(numbers(found)) == dict.fromkeys(range(COUNT), 3)
        assert {delivery.message.delivery_count for delivery in found} == {0}
        assert await bench.end(found) == []
        assert bench.queue.counts().active == 0
        assert await bench.end(found) == [MessageLockLost] * 12

    on_partitions(test)


def test_within_a_fragment_messages_come_in_order() -> None:
    """P-47, P-33: per key always; over fragments nothing is promised."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text(f"{n}", partition_key=f"k{n % 3}") for n in range(30)])
        found = await bench.receive(7)
        found += await bench.receive(100)
        for key in ("k0", "k1", "k2"):
            own = [int(d.message.bare) for d in found if d.message.partition_key == key]
            assert own == sorted(own)
            assert len(own) == 10

    on_partitions(test)


def test_no_fragment_starves() -> None:
    """P-40: one message at a time, each wake-up begins with another fragment."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text() for _ in range(COUNT * 10)])
        recorder = bench.receiver(0)
        for _ in range(COUNT * 4):
            recorder.credit = 1
            bench.outlet().wake(recorder)
            await settle()
        assert spread(recorder.numbers()) == dict.fromkeys(range(COUNT), 4)

    on_partitions(test)


def test_what_arrives_goes_to_whoever_waits() -> None:
    """P-40, R-8: a receiver with credit gets messages of any fragment, never more than it has room for."""

    async def test(bench: PartitionBench) -> None:
        recorder = bench.receiver(5)
        await bench.put(*[text(f"{n}") for n in range(8)])
        assert len(recorder.deliveries) == 5
        recorder.credit = 10
        bench.outlet().wake(recorder)
        await settle()
        assert len(recorder.deliveries) == 8

    on_partitions(test)


def test_receive_and_delete_takes_no_more_than_there_is_room_for() -> None:
    """P-46, R-1: what is being deleted elsewhere for the same receiver counts; nothing is lost or put back."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text(f"{n}") for n in range(20)])
        recorder = bench.receiver(3, deletes=True)
        await settle()
        assert len(recorder.deliveries) == 3
        assert bench.queue.counts().active == 17
        recorder.credit = 100
        bench.outlet().wake(recorder)
        await settle()
        assert sorted(int(d.message.bare) for d in recorder.deliveries) == list(range(20))

    on_partitions(test)


def test_nothing_is_locked_for_somebody_who_does_not_ask() -> None:
    """P-41, P-42, P-45: one message is taken of all fragments, the others are another receiver's at once."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text(f"{n}") for n in range(12)])
        slow = bench.receiver(1)
        await settle()
        assert len(slow.deliveries) == 1
        assert sum(len(fragment.locks.live) for fragment in bench.outlet().fragments()) == 1
        quick = bench.receiver(100)
        await settle()
        assert len(quick.deliveries) == 11

    on_partitions(test)


def test_a_drain_waits_for_every_fragment() -> None:
    """R-9: `is_fetching` is true while any of them reads, and the receiver is told when none does."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        await bench.restart()
        recorder = bench.receiver(10)
        assert bench.outlet().is_fetching(recorder)
        await settle()
        assert not bench.outlet().is_fetching(recorder)
        assert recorder.caught_up_after[-1] == COUNT

    on_partitions(test)


def test_abandoned_deferred_and_dead_lettered_messages_stay_in_their_fragment() -> None:
    """P-4, M-38, P-55: and are found there again by their number."""

    async def test(bench: PartitionBench) -> None:
        sent = await bench.put_one_in_each()
        found = await bench.receive()
        assert await bench.end(found[:1], Verb.ABANDON) == []
        assert await bench.end(found[1:3], Verb.DEFER) == []
        assert await bench.end(found[3:], Verb.DEAD_LETTER) == []
        counts = bench.queue.counts()
        assert (counts.active, counts.deferred, counts.dead_letter) == (1, 2, 1)
        again = await bench.receive()
        assert [d.message.delivery_count for d in again] == [1]
        deferred = numbers(found[1:3])
        fetched = await bench.outlet().receive_by_number(deferred, deletes=False)
        assert sorted(numbers(fetched)) == sorted(deferred)
        assert await bench.end(fetched) == []
        dead = await bench.receive(dead_letter=True)
        assert numbers(dead) == numbers(found[3:])
        assert set(sent) >= set(numbers(dead))

    on_partitions(test)


def test_messages_by_number_are_all_or_none_over_fragments() -> None:
    """R-51, R-55: one that is missing leaves the others unlocked, or where they were."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        found = await bench.receive()
        await bench.end(found, Verb.DEFER)
        known = numbers(found)
        for wrong in (known[-1] + 1, -1, 99 << 48, first_number_base(COUNT) + 1):
            for deletes in (False, True):
                with pytest.raises(MessageNotFound):
                    await bench.outlet().receive_by_number([*known, wrong], deletes=deletes)
                await settle()
        fetched = await bench.outlet().receive_by_number(known[:2], deletes=False)
        assert sorted(numbers(fetched)) == sorted(known[:2])
        bench.outlet().undeliver(fetched)
        deleted = await bench.outlet().receive_by_number(known, deletes=True)
        assert [(sorted(numbers(deleted)), {d.token for d in deleted})] == [(sorted(known), {b""})]
        assert bench.queue.counts().deferred == 0

    on_partitions(test)


def test_locks_of_several_fragments_are_renewed_together() -> None:
    """R-30, P-70: all of them or none."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        found = await bench.receive()
        tokens = [delivery.token for delivery in found]
        await bench.advance(40)
        ends = await bench.outlet().renew(tokens)
        assert len(set(ends)) == 1
        await bench.advance(40)
        assert await bench.end(found[:1]) == []
        for wrong in (tokens[0], b"\xff" * 16):
            with pytest.raises(MessageLockLost):
                await bench.outlet().renew([*tokens[1:], wrong])
        assert bench.outlet().locked_number(tokens[1]) == numbers(found)[1]
        assert bench.outlet().locked_number(tokens[0]) is None
        assert bench.outlet().locked_number(b"\xff" * 16) is None

    on_partitions(test)


def test_locks_end_by_themselves() -> None:
    """R-5, P-42: available again in their fragment, one failed delivery more."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        assert len(await bench.receive()) == COUNT
        await bench.advance(61)
        again = await bench.receive()
        assert [d.message.delivery_count for d in again] == [1] * COUNT

    on_partitions(test)


def test_a_peek_walk_sees_every_message_once() -> None:
    """P-50, P-51, P-52, P-53, R-67, C-6: with last + 1, fragments in order, then nothing."""

    async def test(bench: PartitionBench) -> None:
        sent = sorted(await bench.put(*[text("x" * 50) for _ in range(30)]))
        for page in (1, 3, 7, 100):
            seen: list[int] = []
            start = 0
            while found := await bench.outlet().peek(start, page):
                assert len(found) <= page
                seen += [message.sequence_number for message in found]
                start = seen[-1] + 1
            assert seen == sent
        assert await bench.outlet().peek(first_number_base(COUNT), 10) == []

    on_partitions(test)


def test_a_peek_is_limited_in_bytes_and_skips_nothing() -> None:
    """P-52, R-65: a cut inside a fragment ends the answer there."""

    async def test(bench: PartitionBench) -> None:
        sent = sorted(await bench.put(*[text("x" * 400) for _ in range(12)]))
        seen: list[int] = []
        start, answers = 0, 0
        while found := await bench.outlet().peek(start, 100):
            assert sum(message.size() for message in found) <= 1000
            seen += [message.sequence_number for message in found]
            start, answers = seen[-1] + 1, answers + 1
        assert seen == sent
        assert answers >= 5

    on_partitions(test, limits=Limits(peek_bytes_max=1000))


def test_batch_delete_is_refused() -> None:
    """R-82: on a partitioned entity."""

    async def test(bench: PartitionBench) -> None:
        with pytest.raises(InvalidOperation, match="partitioned"):
            await bench.outlet().delete_messages(10, 1 << 50)

    on_partitions(test)


def test_receivers_outlive_a_store_and_stand_on_it_again() -> None:
    """P-2, P-48: messages of a fragment that is away come back later, to the same link, without a restart."""

    async def test(bench: PartitionBench) -> None:
        recorder = bench.receiver(0)
        sent = await bench.put_one_in_each()
        await bench.lose(2)
        recorder.credit = 100
        bench.outlet().wake(recorder)
        await settle()
        assert sorted(map(index_of, recorder.numbers())) == [0, 1, 3]
        assert recorder.evicted_with == []
        assert [index_of(m.sequence_number) for m in await bench.outlet().peek(0, 10)] == [0, 1, 3]
        await bench.regain(2)
        assert sorted(recorder.numbers()) == sorted(sent)
        assert await bench.end(recorder.deliveries) == []
        await bench.put(*[text() for _ in range(COUNT)])
        assert set(spread(recorder.numbers()[COUNT:])) == set(range(COUNT))

    on_partitions(test)


def test_locks_of_a_lost_fragment_are_refused_for_the_moment() -> None:
    """P-48, R-17: settlement is told to try again; afterwards the lock is lost and the message is there."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        found = await bench.receive()
        await bench.lose(1)
        assert await bench.end(found) == [ServerBusy]
        with pytest.raises(ServerBusy):
            await bench.outlet().renew([d.token for d in found if index_of(d.message.sequence_number) == 1])
        await bench.regain(1)
        lost = [d for d in found if index_of(d.message.sequence_number) == 1]
        assert await bench.end(lost) == [MessageLockLost]
        assert len(await bench.receive()) == 1

    on_partitions(test)


def test_a_store_that_fails_in_the_middle_loses_nothing_and_doubles_nothing() -> None:
    """P-2, P-31: whatever the fate of the commit, the survivors go on and the fragment comes back as it is."""

    async def test(bench: PartitionBench) -> None:
        recorder = bench.receiver(100)
        await settle()
        bench.stores[3].lose_next_commit(is_applied=False)
        answers = [await bench.try_send(text(f"{n}")) for n in range(8)]
        stored = [n for n, answer in enumerate(answers) if answer.refused == []]
        assert len(stored) == 7
        await bench.advance(2)
        await settle()
        assert sorted(int(d.message.bare) for d in recorder.deliveries) == stored
        await bench.put(*[text("later") for _ in range(COUNT)])
        assert len(recorder.deliveries) == 7 + COUNT
        assert recorder.evicted_with == []

    on_partitions(test)


# -- sessions


async def _accept(bench: PartitionBench, name: str | None, timeout_s: float = 5) -> tuple[Recorder, str]:
    recorder = Recorder(100)
    session = await bench.outlet().accept_session(recorder, name, timeout_s)
    bench.outlet().wake(recorder)
    await settle()
    return recorder, session.session_id


def test_a_session_lies_in_one_fragment() -> None:
    """X-19, X-22: by its name; its messages come in order, its state and its lock are kept there."""

    async def test(bench: PartitionBench) -> None:
        for name in SESSIONS.values():
            await bench.put(*[text(f"{n}", session_id=name) for n in range(3)])
        for index, name in SESSIONS.items():
            recorder, held = await _accept(bench, name)
            assert held == name
            assert bodies(recorder.deliveries) == ["0", "1", "2"]
            assert set(spread(recorder.numbers())) == {index}
            await bench.outlet().set_session_state(name, b"state of " + name.encode())
            assert await bench.outlet().session_state(name) == b"state of " + name.encode()
            assert await bench.outlet().renew_session(name) > bench.clock.wall_ms()
            found = await bench.outlet().peek(0, 10, name)
            assert [message.session_id for message in found] == [name] * 3
            with pytest.raises(SessionCannotBeLocked):
                await bench.outlet().accept_session(Recorder(1), name, 1)
            assert await bench.end(recorder.deliveries, session_id=name) == []
        listed = await bench.outlet().list_sessions(None, 0, 100)
        assert listed == sorted(SESSIONS.values())
        assert await bench.outlet().list_sessions(None, 1, 2) == listed[1:3]

    on_partitions(test, requires_session=True)


def test_the_next_available_session_may_lie_in_any_fragment() -> None:
    """X-20: each is given out once; who finds none waits, and is given the first that comes, wherever."""

    async def test(bench: PartitionBench) -> None:
        for name in SESSIONS.values():
            await bench.put(text(session_id=name))
        held = [(await _accept(bench, None))[1] for _ in SESSIONS]
        assert sorted(held) == sorted(SESSIONS.values())
        waiting = asyncio.get_running_loop().create_task(_accept(bench, None))
        await settle()
        await bench.put(text(session_id="new"))
        assert (await waiting)[1] == "new"
        late = asyncio.get_running_loop().create_task(_accept(bench, None, 3))
        await settle()
        await bench.advance(4)
        with pytest.raises(OperationTimedOut):
            await late

    on_partitions(test, requires_session=True)


def test_nobody_keeps_a_second_session_that_came_at_the_same_moment() -> None:
    """X-20: the one that is not taken is free at once."""

    async def test(bench: PartitionBench) -> None:
        for name in SESSIONS.values():
            await bench.put(text(session_id=name))
        _, first = await _accept(bench, None)
        rest = sorted([(await _accept(bench, name))[1] for name in SESSIONS.values() if name != first])
        assert sorted([*rest, first]) == sorted(SESSIONS.values())

    on_partitions(test, requires_session=True)


def test_a_lost_fragment_hides_only_its_sessions() -> None:
    """X-20: its holder is told, naming one of its sessions is an error, the next available one is another."""

    async def test(bench: PartitionBench) -> None:
        for name in SESSIONS.values():
            await bench.put(text(session_id=name))
        lost, _ = await _accept(bench, SESSIONS[1])
        kept, _ = await _accept(bench, SESSIONS[0])
        await bench.lose(1)
        assert [type(error) for error in lost.evicted_with] == [ServerBusy]
        assert kept.evicted_with == []
        with pytest.raises(ServerBusy):
            await _accept(bench, SESSIONS[1])
        others = {(await _accept(bench, None))[1] for _ in range(2)}
        assert others == {SESSIONS[2], SESSIONS[3]}
        waiting = asyncio.get_running_loop().create_task(_accept(bench, None))
        await settle()
        assert not waiting.done()
        await bench.regain(1)
        assert (await waiting)[1] == SESSIONS[1]

    on_partitions(test, requires_session=True)


def test_a_session_whose_lock_ends_is_lost_once() -> None:
    """X-10, X-19: the receiver is evicted once, the messages are available again."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(text(session_id="s"))
        recorder, _ = await _accept(bench, "s")
        await bench.advance(61)
        assert [type(error) for error in recorder.evicted_with] == [SessionLockLost]
        assert bench.outlet().receivers() == []
        bench.outlet().remove_receiver(recorder)
        again, _ = await _accept(bench, "s")
        assert [d.message.delivery_count for d in again.deliveries] == [1]
        bench.outlet().remove_receiver(again)
        await settle()
        third, _ = await _accept(bench, "s")
        assert [d.message.delivery_count for d in third.deliveries] == [1]

    on_partitions(test, requires_session=True)


def test_an_entity_that_goes_evicts_everybody_once() -> None:
    """E-84, E-86, P-60: receivers, waiting accepts, and nobody twice."""

    async def test(bench: PartitionBench) -> None:
        recorder = bench.receiver(10)
        bench.queue.attach(recorder, sends=False)
        await bench.namespace.delete("orders")
        assert len(recorder.evicted_with) == 1

    async def sessions(bench: PartitionBench) -> None:
        waiting = asyncio.get_running_loop().create_task(_accept(bench, None))
        await settle()
        await bench.namespace.delete("orders")
        with pytest.raises(Exception, match="orders"):
            await waiting

    on_partitions(test)
    on_partitions(sessions, requires_session=True)


def test_what_is_handed_back_goes_to_its_fragment() -> None:
    """P-46: unlocked without a count, or put back under its number."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        for deletes in (False, True):
            found = await bench.receive(deletes=deletes)
            assert len(found) == COUNT
            bench.outlet().undeliver(found)
            await settle()
        again = await bench.receive()
        assert [d.message.delivery_count for d in again] == [0] * COUNT

    on_partitions(test)


def test_settling_without_waiting_for_a_sick_store() -> None:
    """P-65: messages of other fragments are settled while one store hangs."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        found = await bench.receive()
        bench.stores[0].hold_commits()
        answers = []
        for delivery in found:
            answers.append(Answer())
            bench.outlet().settle([delivery.token], Settlement(Verb.COMPLETE), answers[-1])
        await settle()
        assert sum(answer.is_done for answer in answers) == COUNT - 1
        bench.stores[0].release_commits()
        await settle()
        assert all(answer.refused == [] for answer in answers)

    on_partitions(test)
