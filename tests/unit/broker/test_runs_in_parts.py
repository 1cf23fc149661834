"""Sends to a partitioned entity that are answered store by store, and completions over several fragments."""

from __future__ import annotations

from itertools import pairwise

import pytest

from busway.broker.entity.fragment_choice import SLICE_MESSAGES_MAX, fragment_of_key
from busway.broker.entity.fragment_group import FragmentGroup
from busway.message.message import Message
from busway.model.errors import (
    BrokerError,
    EntityDisabled,
    MessageLockLost,
    MessageTooLarge,
    StoreOutcomeUnknown,
)
from busway.model.settlement import SendReport, Settlement, Verb
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import COUNT, PartitionBench, index_of, on_partitions, spread, text
from tests.unit.broker.rig import Answer


class Parts(SendReport):
    """A `PartDone` that remembers."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.refused: dict[int, type[BrokerError]] = {}
        self.calls = 0

    def done(self, refused: list[tuple[int, BrokerError]]) -> None:
        raise AssertionError(f"a partitioned entity tells of parts, not {refused}")

    def part_done(self, places: list[int], refused: list[tuple[int, BrokerError]]) -> None:
        assert not set(places) & set(self.places), "told twice"
        assert {place for place, _ in refused} <= set(places)
        self.calls += 1
        self.places += places
        self.refused.update({place: type(error) for place, error in refused})


def group(bench: PartitionBench) -> FragmentGroup:
    outlet = bench.outlet()
    assert isinstance(outlet, FragmentGroup)
    return outlet


def many(count: int) -> list[Message]:
    return [text(f"{n}") for n in range(count)]


def test_each_store_answers_once_for_all_its_slices() -> None:
    """P-30, S-4: two fragments in each of two stores; every message has one outcome, every fragment its order."""

    async def test(bench: PartitionBench) -> None:
        messages, parts = many(500), Parts()
        group(bench).append_in_parts(messages, parts)
        await settle()
        assert sorted(parts.places) == list(range(len(messages)))
        assert (parts.refused, parts.calls) == ({}, 2)
        for index in range(COUNT):
            own = [m.sequence_number for m in messages if index_of(m.sequence_number) == index]
            assert own == sorted(own)
        assert bench.queue.flow.messages_in == len(messages)

    on_partitions(test, stores=2)


def test_each_store_answers_once_for_all_keys_of_its_fragments() -> None:
    """P-24, S-4: in the order of the send, so that few ranges of it are told; keyless ones between them too."""

    async def test(bench: PartitionBench) -> None:
        keys = [None if n % 7 == 0 else f"key-{n % 64}" for n in range(500)]
        messages, parts = [text(partition_key=key) for key in keys], Parts()
        group(bench).append_in_parts(messages, parts)
        await settle()
        assert sorted(parts.places) == list(range(len(messages)))
        assert (parts.refused, parts.calls) == ({}, 2)
        assert sum(before > after for before, after in pairwise(parts.places)) == 1
        for message, key in zip(messages, keys, strict=True):
            assert key is None or index_of(message.sequence_number) == fragment_of_key(key, COUNT)
        for key in set(keys) - {None}:
            own = [m.sequence_number for m in messages if m.partition_key == key]
            assert own == sorted(own)
        assert bench.queue.flow.messages_in == len(messages)

    on_partitions(test, stores=2)


def test_a_store_that_hangs_holds_up_only_its_own_part() -> None:
    """P-2, P-31: what the other stores have stored is answered at once."""

    async def test(bench: PartitionBench) -> None:
        bench.stores[0].hold_commits()
        messages, parts = many(2 * SLICE_MESSAGES_MAX), Parts()
        group(bench).append_in_parts(messages, parts)
        await settle()
        assert parts.places == list(range(SLICE_MESSAGES_MAX, 2 * SLICE_MESSAGES_MAX))
        bench.stores[0].release_commits()
        await settle()
        assert sorted(parts.places) == list(range(2 * SLICE_MESSAGES_MAX))

    on_partitions(test)


def test_pipelined_runs_stay_close_to_even() -> None:
    """P-30: whatever their lengths, no fragment is more than 16 + n away from even, in any stretch of them."""

    async def test(bench: PartitionBench) -> None:
        messages: list[Message] = []
        for length in (17, 100, 333, 1000, 64, 20, 700, 500, 16, 15, 900):
            run = many(length)
            group(bench).append_in_parts(run, Parts())
            messages += run
            await settle()
        for start in range(0, len(messages), 16):
            for stretch in (64, 256, 1024, 2048):
                numbers = [message.sequence_number for message in messages[start : start + stretch]]
                even, counts = len(numbers) / COUNT, spread(numbers)
                assert max(abs(counts.get(index, 0) - even) for index in range(COUNT)) <= 16 + even

    on_partitions(test)


def test_short_runs_and_single_sends_go_round_all_fragments() -> None:
    """P-30: a run that fits into a slice is one turn; also after long runs."""

    async def test(bench: PartitionBench) -> None:
        group(bench).append_in_parts(many(200), Parts())
        await settle()
        counts = [0] * COUNT
        for n in range(COUNT * 3):
            run = many(1 + n % SLICE_MESSAGES_MAX)
            group(bench).append_in_parts(run, Parts())
            await settle()
            (index,) = {index_of(message.sequence_number) for message in run}
            counts[index] += 1
        assert counts == [3] * COUNT

    on_partitions(test)


def test_a_turn_visits_the_fragments_of_a_store_one_after_the_other() -> None:
    """P-30: so that a run touches few stores."""

    async def test(bench: PartitionBench) -> None:
        numbers = await bench.put(*many(COUNT * 2))
        assert [index_of(number) for number in numbers] == [0, 2, 1, 3] * 2

    on_partitions(test, stores=2)


def test_keyed_messages_of_a_run_find_their_fragments() -> None:
    """P-24: each fragment answers for its own."""

    async def test(bench: PartitionBench) -> None:
        keys = [f"key-{n % 10}" for n in range(50)]
        messages, parts = [text(partition_key=key) for key in keys], Parts()
        group(bench).append_in_parts(messages, parts)
        await settle()
        found = [index_of(message.sequence_number) for message in messages]
        assert found == [fragment_of_key(key, COUNT) for key in keys]
        assert sorted(parts.places) == list(range(50))

    on_partitions(test)


def test_one_message_that_is_refused_takes_no_other_along() -> None:
    """S-2, S-8: it is named by its place in the run."""

    async def test(bench: PartitionBench) -> None:
        messages, parts = many(40), Parts()
        messages[20] = Message(b"", b"x" * 300_000)
        group(bench).append_in_parts(messages, parts)
        await settle()
        assert sorted(parts.places) == list(range(40))
        assert parts.refused == {20: MessageTooLarge}
        assert bench.queue.counts().active == 39

    on_partitions(test)


def test_a_disabled_entity_refuses_every_part() -> None:
    """E-82: a disabled entity refuses every part."""

    async def test(bench: PartitionBench) -> None:
        parts = Parts()
        group(bench).append_in_parts(many(40), parts)
        await settle()
        assert parts.refused == dict.fromkeys(range(40), EntityDisabled)

    on_partitions(test, status="SendDisabled")


def test_a_failed_commit_leaves_its_part_unknown() -> None:
    """S-1, P-31: the other store's part is stored."""

    async def test(bench: PartitionBench) -> None:
        bench.stores[0].lose_next_commit(is_applied=False)
        parts = Parts()
        group(bench).append_in_parts(many(2 * SLICE_MESSAGES_MAX), parts)
        await settle()
        assert parts.refused == dict.fromkeys(range(SLICE_MESSAGES_MAX), StoreOutcomeUnknown)

    on_partitions(test)


# -- completing


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_completions_over_all_fragments_have_one_answer(stores: int) -> None:
    """R-10, R-17: a token that is no lock is named by its place."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(*many(COUNT * 3))
        found = await bench.receive()
        tokens = [delivery.token for delivery in found]
        tokens.insert(5, b"\x00\x01" + b"?" * 14)
        tokens.append(b"\xff\xff" + b"?" * 14)
        answer = Answer()
        bench.outlet().settle(tokens, Settlement(Verb.COMPLETE), answer)
        await settle()
        assert answer.refused is not None
        assert [(place, type(error)) for place, error in answer.refused] == [
            (5, MessageLockLost),
            (len(tokens) - 1, MessageLockLost),
        ]
        assert bench.queue.counts().active == 0
        assert bench.queue.flow.completed == COUNT * 3

    on_partitions(test, stores=stores)


def test_completions_of_a_failed_store_are_unknown() -> None:
    """R-16: the others are durable."""

    async def test(bench: PartitionBench) -> None:
        await bench.put_one_in_each()
        found = await bench.receive()
        answer = Answer()
        bench.stores[2].lose_next_commit(is_applied=False)
        bench.outlet().settle([delivery.token for delivery in found], Settlement(Verb.COMPLETE), answer)
        await settle()
        assert answer.refused is not None
        lost = [place for place, error in answer.refused if isinstance(error, StoreOutcomeUnknown)]
        assert [index_of(found[place].message.sequence_number) for place in lost] == [2]
        assert len(answer.refused) == 1

    on_partitions(test)


# -- fairness


def test_the_fragment_with_the_oldest_message_is_served_first() -> None:
    """P-40: whatever the turn was, and none gives everything before the others' turn."""

    async def test(bench: PartitionBench) -> None:
        await bench.put(text("old", partition_key="a"))
        bench.clock.advance(1)
        await bench.put(*many(COUNT * 100))
        recorder = bench.receiver(0)
        for _ in range(COUNT):
            recorder.credit = 1
            bench.outlet().wake(recorder)
        await settle()
        assert recorder.deliveries[0].message.bare == b"old"
        recorder.credit = COUNT * 64
        bench.outlet().wake(recorder)
        await settle()
        assert min(spread(recorder.numbers()).values()) >= 60

    on_partitions(test)
