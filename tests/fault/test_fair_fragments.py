"""No fragment of a partitioned entity is left behind: receivers take from all of them in turn."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest

from busway.model.limits import Limits
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.namespace_bench import settle
from tests.unit.broker.partition_bench import PartitionBench, index_of, text
from tests.unit.broker.rig import Answer, Recorder

pytestmark = pytest.mark.fault

FRAGMENTS = 16
#: Messages of each fragment that wait when the receivers come, and stay waiting: as many come as go.
BACKLOG = 20
TICKS = 120
TICK_S = 0.01
OLDER_MAX = 2.0
BURST = 4
#: By the number of receivers, chance and the tick: what each of them asks for, one time after another.
Asking = Callable[[int, random.Random, int], list[list[int]]]


class Ages:
    """What waits in each fragment, by the tick it was sent in."""

    def __init__(self) -> None:
        self._sent: list[deque[int]] = [deque() for _ in range(FRAGMENTS)]

    def sent(self, number: int, tick: int) -> None:
        self._sent[index_of(number)].append(tick)

    def taken(self, number: int) -> None:
        self._sent[index_of(number)].popleft()

    def ratio(self, now: int) -> float:
        """How much older the oldest of any fragment is than is usual."""
        oldest = [now - waiting[0] if waiting else 0 for waiting in self._sent]
        return max(oldest) / max(1.0, median(oldest))


async def _send_one_to_each(bench: PartitionBench, ages: Ages, tick: int) -> None:
    for number in await bench.put(*[text(f"{tick}-{place}") for place in range(FRAGMENTS)]):
        ages.sent(number, tick)


async def _take(bench: PartitionBench, ages: Ages, receivers: list[Recorder], credits_: list[int]) -> None:
    """Each receiver asks for so many and completes them."""
    for receiver, credit in zip(receivers, credits_, strict=True):
        receiver.credit += credit
        bench.outlet().wake(receiver)
        await settle()
        taken = receiver.take()
        if not taken:
            continue
        answer = Answer()
        bench.outlet().settle([each.token for each in taken], Settlement(Verb.COMPLETE), answer)
        await settle()
        assert answer.errors() == []
        for delivery in taken:
            ages.taken(delivery.message.sequence_number)


def _in_shares(receivers: int, chance: random.Random, _tick: int) -> list[list[int]]:
    """As much as comes in a tick, in all, at once; who asks for how much changes."""
    cuts = sorted(chance.randint(0, FRAGMENTS) for _ in range(receivers - 1))
    return [[end - start for start, end in zip([0, *cuts], [*cuts, FRAGMENTS], strict=True)]]


def _one_by_one(receivers: int, chance: random.Random, tick: int) -> list[list[int]]:
    (shares,) = _in_shares(receivers, chance, tick)
    return [[int(step < share) for share in shares] for step in range(max(shares))]


def _in_bursts(receivers: int, chance: random.Random, tick: int) -> list[list[int]]:
    """Every few ticks, for all of them together."""
    if tick % BURST:
        return []
    (shares,) = _in_shares(receivers, chance, tick)
    return [[BURST * share for share in shares]]


async def _worst_ratio(receiver_count: int, asking: Asking) -> float:
    chance = random.Random(receiver_count)
    bench = PartitionBench(4, replace(Limits(), partition_count=FRAGMENTS))
    await bench.namespace.open()
    try:
        await bench.make()
        ages = Ages()
        for tick in range(BACKLOG):
            bench.clock.advance(TICK_S)
            await _send_one_to_each(bench, ages, tick)
        receivers = [bench.receiver(0) for _ in range(receiver_count)]
        worst = 0.0
        for tick in range(BACKLOG, BACKLOG + TICKS):
            bench.clock.advance(TICK_S)
            await _send_one_to_each(bench, ages, tick)
            for wanted in asking(receiver_count, chance, tick):
                await _take(bench, ages, receivers, wanted)
            worst = max(worst, ages.ratio(tick))
        return worst
    finally:
        await bench.namespace.close()


CASES = [
    pytest.param(count, asking, id=f"{count} receivers {asking.__name__.lstrip('_')}")
    for count in (1, 3)
    for asking in (_one_by_one, _in_shares, _in_bursts)
]


@pytest.mark.parametrize(("receivers", "asking"), CASES)
def test_under_equal_load_no_fragment_falls_behind(receivers: int, asking: Asking) -> None:
    """P-40: the oldest message of no fragment is more than twice as old as is usual."""
    assert asyncio.run(_worst_ratio(receivers, asking)) <= OLDER_MAX
