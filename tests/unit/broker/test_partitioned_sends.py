"""Which fragment a send goes to, and what happens when that one is not there."""

from __future__ import annotations

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from busway.broker.fragment.numbering import NUMBER_MAX, RESERVE_FROM
from busway.message.message import Message
from busway.model.errors import InvalidOperation, QuotaExceeded, ServerBusy, StoreOutcomeUnknown
from busway.model.limits import Limits
from busway.store.contract import first_number_base
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, index_of, on_partitions, spread, text
from tests.unit.broker.rig import Answer

#: Keys by the fragment they belong to.
KEYS = {fragment_of_key(f"key-{n}", COUNT): f"key-{n}" for n in range(100)}


def test_fragments_are_spread_evenly_over_the_stores() -> None:
    """P-1, P-9: sixteen over three stores, none with more than one above another; each bears its index."""

    async def test(bench: PartitionBench) -> None:
        made = await bench.namespace.create([])
        assert made == []
        row = bench.namespace.contents.entities.rows["orders"]
        assert [share.store_name for share in row.shares] == ["store-0", "store-1", "store-2", "store-0"]
        for share in row.shares:
            assert {share.main, share.dead_letter} <= bench.namespace.contents.keepers[
                share.store_name
            ].counters.keys()

    on_partitions(test, stores=3)


@pytest.mark.parametrize("fields", [{"session_id": "k"}, {"partition_key": "k"}])
def test_a_key_always_means_the_same_fragment(fields: dict[str, str]) -> None:
    """P-20, P-21, P-24, P-26, M-36: a thousand messages with one key have one value in the upper 16 bits."""

    async def test(bench: PartitionBench) -> None:
        messages = [text(f"{n}", **fields) for n in range(1000)]
        answer = await bench.try_send(*messages)
        assert answer.refused == []
        assert spread([m.sequence_number for m in messages]) == {fragment_of_key("k", COUNT): 1000}
        await bench.restart()
        (later,) = await bench.put(text(**fields))
        assert later == messages[-1].sequence_number + 1

    on_partitions(test)


def test_the_hash_is_part_of_the_data_format() -> None:
    """P-24: these values never change, or keys would lose their fragments."""
    assert [fragment_of_key(key, 16) for key in ("", "a", "order-17", "ключ", "鍵")] == [0, 3, 4, 10, 8]


def test_session_and_partition_key_must_be_the_same() -> None:
    """P-21: invalid operation; equal ones are fine."""

    async def test(bench: PartitionBench) -> None:
        answer = await bench.try_send(
            text(session_id="a", partition_key="b"), text(session_id="a", partition_key="a")
        )
        assert answer.errors() == [InvalidOperation]
        assert answer.refused is not None
        assert answer.refused[0][0] == 0

    on_partitions(test)


@pytest.mark.parametrize("requires_session", [False, True])
def test_an_empty_session_id_differs_from_no_partition_key(requires_session: bool) -> None:
    """P-20 P-21: it is taken beside any PartitionKey, and its messages lie together in one fragment."""

    async def test(bench: PartitionBench) -> None:
        sent = [text(session_id="", partition_key=key) for key in ("a", "order-17", "")]
        numbers = await bench.put(*sent, text(session_id=""))
        assert {index_of(number) for number in numbers} == {fragment_of_key("", COUNT)}

    on_partitions(test, requires_session=requires_session)


def test_a_message_id_is_a_key_only_where_duplicates_are_detected() -> None:
    """P-22, S-42: the same id reaches the same fragment and is found there; elsewhere it rotates."""

    async def detecting(bench: PartitionBench) -> None:
        await bench.put(*[text(message_id="one") for _ in range(8)])
        assert bench.queue.counts().active == 1
        numbers = await bench.put(*[text(message_id=f"{n}") for n in range(40)])
        assert [index_of(number) for number in numbers] == [fragment_of_key(f"{n}", COUNT) for n in range(40)]

    async def plain(bench: PartitionBench) -> None:
        numbers = await bench.put(*[text(message_id="one") for _ in range(8)])
        assert spread(numbers) == dict.fromkeys(range(COUNT), 2)

    on_partitions(detecting, requires_duplicate_detection=True)
    on_partitions(plain)


def test_the_same_id_under_different_keys_is_two_messages() -> None:
    """S-41: MessageId and key together are compared, also where two keys meet in one fragment."""

    async def test(bench: PartitionBench) -> None:
        same = [key for key in (f"k{n}" for n in range(50)) if fragment_of_key(key, COUNT) == 2][:2]
        for key in (*same, *same):
            await bench.put(text(message_id="one", partition_key=key))
        await bench.put(text(message_id="one", session_id=same[0]))
        assert bench.queue.counts().active == 2

    on_partitions(test, requires_duplicate_detection=True)


def test_keyless_messages_go_round() -> None:
    """P-30, P-33, C-8: n times the number of fragments, sent singly, put n into each."""

    async def test(bench: PartitionBench) -> None:
        numbers = await bench.put(*[text() for _ in range(COUNT * 5)])
        assert spread(numbers) == dict.fromkeys(range(COUNT), 5)
        assert [index_of(number) for number in numbers[:COUNT]] == list(range(COUNT))

    on_partitions(test)


def test_a_run_is_cut_into_slices_of_sixteen() -> None:
    """P-30: neighbours stay together, and no fragment is more than a slice away from even."""

    async def test(bench: PartitionBench) -> None:
        messages = [text(f"{n}") for n in range(16 * 5 + 3)]
        assert (await bench.try_send(*messages)).refused == []
        indexes = [index_of(message.sequence_number) for message in messages]
        slices = [set(indexes[at : at + 16]) for at in range(0, len(indexes), 16)]
        assert slices == [{0}, {1}, {2}, {3}, {0}, {1}]
        for index in range(COUNT):
            own = [m.sequence_number for m in messages if index_of(m.sequence_number) == index]
            assert own == sorted(own)

    on_partitions(test)


def test_a_batch_is_one_unit() -> None:
    """S-25, S-23: without keys as a whole to one fragment, the next batch to the next; equal keys to theirs."""

    async def test(bench: PartitionBench) -> None:
        for index in (0, 1):
            batch = [text() for _ in range(40)]
            assert (await bench.try_send(*batch, atomically=True)).refused == []
            assert spread([message.sequence_number for message in batch]) == {index: 40}
        batch = [text(partition_key=KEYS[3]), text(session_id=KEYS[3])]
        assert (await bench.try_send(*batch, atomically=True)).refused == []
        assert spread([message.sequence_number for message in batch]) == {3: 2}

    on_partitions(test)


@pytest.mark.parametrize(
    "pair",
    [
        (text(partition_key="a"), text(partition_key="b")),
        (text(session_id="a"), text(partition_key="b")),
        (text(partition_key="a"), text()),
        (text(), text(session_id="a")),
    ],
)
def test_a_batch_with_distinct_keys_is_refused_whole(pair: tuple[Message, Message]) -> None:
    """S-23, S-26: every inner message is checked against the first."""

    async def test(bench: PartitionBench) -> None:
        answer = await bench.try_send(*pair, atomically=True)
        assert answer.errors() == [InvalidOperation]
        assert bench.queue.counts().active == 0

    on_partitions(test)


def test_batches_where_duplicates_are_detected() -> None:
    """S-24, P-23: distinct ids without a key, and neither id nor key, have their own sentences."""

    async def test(bench: PartitionBench) -> None:
        answer = await bench.try_send(text(message_id="1"), text(message_id="2"), atomically=True)
        assert answer.refused is not None
        assert answer.refused[0][1].sentence == (
            "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an"
            " entity with partitioning and duplicate detection enabled."
        )
        for atomically in (True, False):
            answer = await bench.try_send(text(), atomically=atomically)
            assert answer.refused is not None
            assert answer.refused[0][1].sentence == (
                "Message to a partitioned entity with duplicate detection enabled must have either PartitionKey or"
                " MessageId set"
            )
        both = [text(message_id="1", partition_key="k"), text(message_id="2", partition_key="k")]
        assert (await bench.try_send(*both, atomically=True)).refused == []
        assert bench.queue.counts().active == 2

    on_partitions(test, requires_duplicate_detection=True)


def test_a_mixed_run_is_answered_once_with_every_refusal_in_its_place() -> None:
    """P-25, S-4: keyed ones of a fragment that is away are refused, all others are stored."""

    async def test(bench: PartitionBench) -> None:
        await bench.lose(2)
        answer = await bench.try_send(
            text(), text(partition_key=KEYS[2]), text(partition_key=KEYS[1]), text(session_id=KEYS[2]), text()
        )
        assert answer.refused is not None
        assert [(place, type(error)) for place, error in answer.refused] == [(1, ServerBusy), (3, ServerBusy)]
        assert bench.queue.counts().active == 3

    on_partitions(test)


def test_a_fragment_that_is_away_takes_only_its_keys_with_it() -> None:
    """P-2, P-25, P-31, P-65: keyless sends go on at once, keyed ones get a transient error until it is back."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        await bench.lose(1)
        numbers = await bench.put(*[text() for _ in range(9)])
        assert spread(numbers) == {0: 3, 2: 3, 3: 3}
        for atomically in (False, True):
            answer = await bench.try_send(text(partition_key=KEYS[1]), atomically=atomically)
            assert answer.errors() == [ServerBusy]
        await bench.put(text(partition_key=KEYS[0]))
        await bench.regain(1)
        (number,) = await bench.put(text(partition_key=KEYS[1]))
        assert index_of(number) == 1
        assert 1 in spread(await bench.put(*[text() for _ in range(COUNT)]))

    on_partitions(test)


def test_a_send_whose_commit_is_in_flight_does_not_move() -> None:
    """P-31: its outcome is unknown; nothing is sent twice."""

    async def test(bench: PartitionBench) -> None:
        bench.queue  # noqa: B018 - loaded
        bench.stores[0].lose_next_commit(is_applied=True)
        answer = await bench.try_send(text("only once"))
        assert answer.errors() == [StoreOutcomeUnknown]
        await bench.advance(1)
        found = await bench.receive()
        assert [delivery.message.bare for delivery in found] == [b"only once"]

    on_partitions(test)


def test_a_store_that_hangs_is_passed_by() -> None:
    """P-31, P-32: what needs no particular fragment does not wait behind a slow commit."""

    async def test(bench: PartitionBench) -> None:
        await settle()
        bench.stores[2].hold_commits()
        stuck = [Answer() for _ in range(3)]
        for answer in stuck:
            bench.queue.send([text()], answer)
        await settle()
        assert [answer.is_done for answer in stuck] == [True, True, False]
        numbers = await bench.put(*[text() for _ in range(6)])
        assert spread(numbers) == {3: 2, 0: 2, 1: 2}
        bench.stores[2].release_commits()
        await settle()
        assert stuck[2].refused == []

    on_partitions(test)


def test_a_full_fragment_refuses_its_keys_and_is_passed_by() -> None:
    """P-10: each fragment holds the base size; when all are full everybody is told so."""

    async def test(bench: PartitionBench) -> None:
        fragments = bench.outlet().fragments()
        fragments[0].counters.bytes = 1024 * 1024 * 1024
        assert spread(await bench.put(*[text() for _ in range(6)])) == {1: 2, 2: 2, 3: 2}
        assert (await bench.try_send(text(partition_key=KEYS[0]))).errors() == [QuotaExceeded]
        await bench.put(text(partition_key=KEYS[1]))
        for fragment in fragments:
            fragment.counters.bytes = 1024 * 1024 * 1024
        assert (await bench.try_send(text())).errors() == [QuotaExceeded]

    on_partitions(test)


def test_nothing_is_taken_while_every_store_is_away() -> None:
    """P-31: a transient error for everybody, and all is well again afterwards."""

    async def test(bench: PartitionBench) -> None:
        queue = bench.queue
        for store in (1, 2, 3):
            await bench.lose(store)
        bench.stores[0].refuse_next_commit()
        assert (await bench.try_send(text())).errors() == [ServerBusy]
        answer = Answer()
        queue.send([text()], answer)
        assert answer.errors() == [ServerBusy]
        await bench.advance(1)
        assert bench.queue is queue
        await bench.put(text())

    on_partitions(test)


def test_scheduling_chooses_the_fragment_and_cancelling_finds_it() -> None:
    """S-38, P-55: the number that comes back carries the fragment."""

    async def test(bench: PartitionBench) -> None:
        later_ms = bench.clock.wall_ms() + 60_000
        keyed = await bench.queue.schedule([text(partition_key=KEYS[3], scheduled_at_ms=later_ms)])
        assert [index_of(number) for number in keyed] == [3]
        others = [(await bench.queue.schedule([text(scheduled_at_ms=later_ms)]))[0] for _ in range(COUNT)]
        assert set(spread(others)) == set(range(COUNT))
        await bench.queue.cancel_scheduled([keyed[0], others[0], others[1]])
        assert bench.queue.counts().scheduled == 2
        await bench.advance(61)
        found = await bench.receive()
        assert sorted(index_of(d.message.sequence_number) for d in found) == [2, 3]

    on_partitions(test)


def test_namespace_limits_count_each_entity_once() -> None:
    """L-2, P-11, C-12: so many partitioned entities and no more; each counts once among all."""

    async def test(bench: PartitionBench) -> None:
        with pytest.raises(QuotaExceeded, match="EnablePartitioning == true"):
            await bench.create("second", enable_partitioning=True)
        await bench.create("plain")
        await bench.namespace.delete("orders")
        await bench.create("second", enable_partitioning=True)

    on_partitions(test, limits=Limits(partitioned_entities_max=1, entities_max=2))


def test_numbers_start_again_inside_their_fragment() -> None:
    """M-37, M-36: at the end of its numbers an empty fragment begins anew behind its own index; others go on."""

    async def test(bench: PartitionBench) -> None:
        fragment = bench.outlet().member(2)
        fragment.counters.last_counter = fragment.number_base + RESERVE_FROM
        (number,) = await bench.put(text(partition_key=KEYS[2]))
        assert number == first_number_base(2) + 1
        assert await bench.put(text(partition_key=KEYS[1])) == [first_number_base(1) + 1]
        fragment.counters.last_counter = fragment.number_base + NUMBER_MAX
        assert (await bench.try_send(text(partition_key=KEYS[2]))).errors() == [QuotaExceeded]
        assert 2 not in spread(await bench.put(*[text() for _ in range(6)]))

    on_partitions(test)


def test_messages_expire_in_every_fragment() -> None:
    """M-44, D-11, P-4: by their own time to live, into the dead letters of their fragment."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*[text(ttl_ms=5_000) for _ in range(COUNT)])
        await bench.put(*[text() for _ in range(COUNT)])
        await bench.put(*[text(ttl_ms=3_000) for _ in range(COUNT)])
        await bench.advance(70, 1.0)
        counts = bench.queue.counts()
        assert (counts.active, counts.dead_letter) == (COUNT, 2 * COUNT)
        dead = await bench.receive(dead_letter=True)
        assert spread([d.message.sequence_number for d in dead]) == dict.fromkeys(range(COUNT), 2)

    on_partitions(test, dead_lettering_on_message_expiration=True)


def test_an_idle_partitioned_queue_is_deleted_whole() -> None:
    """E-110, P-60: with the fragments of all stores; use of any fragment is use of the queue."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(text(partition_key=KEYS[3]))
        await bench.advance(200)
        assert bench.namespace.exists("orders")
        await bench.put(text(partition_key=KEYS[2]))
        await bench.advance(200)
        assert bench.namespace.exists("orders")
        await bench.advance(400)
        assert not bench.namespace.exists("orders")
        for store in bench.stores:
            assert await store.fragments() == []

    on_partitions(test, auto_delete_on_idle_ms=300_000)
