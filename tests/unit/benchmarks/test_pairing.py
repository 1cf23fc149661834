"""Benchmarks: in which order and on which processors two trees are measured, and when that ends."""

from __future__ import annotations

import pytest

from benchmarks.contender import Cost
from benchmarks.pairing import BURST_S, Pairs, Plan, messages_of, order_of
from benchmarks.processors import divided
from benchmarks.workloads import GROUPS, SESSIONS, TITLES, entities

PLAN = Plan(pairs_min=10, pairs_max=20, half_width=0.015)


def pairs(count: int, scatter: float, instructions: float | None = None) -> Pairs:
    found = Pairs()
    for number in range(count):
        found.base.append(Cost(10.0, instructions))
        found.new.append(Cost(10.0 * (1 + scatter * (-1) ** number), instructions))
    return found


def test_whoever_begins_changes_with_every_pair() -> None:
    """Benchmarks: both trees begin equally often, in turns."""
    assert [order_of(pair) for pair in range(4)] == [(0, 1), (1, 0), (0, 1), (1, 0)]


def test_every_processor_sees_both_orders() -> None:
    """Benchmarks: the servers' processor changes after two pairs; generators have the others."""
    usable = [0, 3, 5]
    found = [(divided(usable, pair)[0], order_of(pair)) for pair in range(6)]
    assert len({(*one, *order) for one, order in found}) == 6
    for pair in range(6):
        one, others = divided(usable, pair)
        assert one | others == set(usable)
        assert not one & others


def test_a_single_processor_serves_all() -> None:
    """Benchmarks: a machine with one processor can compare too."""
    assert divided([2], 7) == ({2}, {2})


@pytest.mark.parametrize(
    ("count", "scatter", "is_told"),
    [(9, 0.0, False), (10, 0.01, True), (10, 0.02, False), (19, 0.02, False), (20, 0.02, True)],
)
def test_pairs_are_added_while_the_interval_is_wide(count: int, scatter: float, is_told: bool) -> None:
    """Benchmarks: never fewer than the least number, never more than the most."""
    assert pairs(count, scatter).is_told(PLAN) is is_told


def test_a_pair_gives_the_ratio_of_new_to_base() -> None:
    """Benchmarks: above 1 the new tree costs more; without a counter there are no instructions."""
    found = pairs(10, 0.0)
    found.new = [Cost(11.0, None)] * 10
    assert found.cpu().middle == pytest.approx(1.1)
    assert found.instructions() is None
    counted = pairs(10, 0.0, instructions=500.0).instructions()
    assert counted is not None
    assert counted.middle == 1.0


@pytest.mark.parametrize("cost_us", [0.1, 3.0, 17.3, 70.0, 10_000.0])
def test_a_burst_has_whole_thousands_of_messages(cost_us: float) -> None:
    """Benchmarks: sessions and batches divide them, and they cost about as much as is wanted."""
    messages = messages_of(cost_us)
    assert messages % SESSIONS == 0
    assert messages % 1_000 == 0
    assert messages >= 1_000
    if 5.0 <= cost_us <= 70.0:
        assert messages * cost_us / 1e6 == pytest.approx(BURST_S, rel=0.1)


def test_every_workload_leaves_what_it_found() -> None:
    """Benchmarks: each queue gets as many messages as are taken; a hub is only read."""
    assert {name for group in GROUPS for name in group.names} == set(TITLES)
    for group in GROUPS:
        orders = [order for burst in group.bursts for stage in burst.stages for order in stage]
        sent = sum(order.messages(10_000) for order in orders if order.mode == "send")
        for order in orders:
            assert order.mode == "send" or order.messages(10_000) == sent


def test_every_workload_has_its_entity() -> None:
    """Benchmarks: the servers' configuration file makes what the load generator is sent to."""
    text = str(entities())
    for group in GROUPS:
        for burst in group.bursts:
            for stage in burst.stages:
                for order in stage:
                    assert all(f"'Name': '{name}'" in text for name in order.address.split("/")[:1])
