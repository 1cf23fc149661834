"""Benchmarks: what a comparison of two trees says about ratios whose truth is known."""

from __future__ import annotations

from math import comb
from random import Random

import pytest

from benchmarks.pair_ratios import PAIRS_MIN, WORSE_FROM, Interval, Verdict, interval_of


def ratios(true: float, pairs: int, seed: int, noise: float = 0.012) -> list[float]:
    """As pairs give them: scattered by a percent, and one in ten disturbed by something large."""
    chance = Random(seed)
    found = []
    for _ in range(pairs):
        disturbed = chance.choice((0.7, 1.5)) if chance.random() < 0.1 else 1.0
        found.append(true * disturbed * chance.lognormvariate(0.0, noise))
    return found


def test_the_interval_of_equal_trees_lies_around_one() -> None:
    """Benchmarks: the 95 % interval contains the truth in at least 95 of 100 runs."""
    intervals = [interval_of(ratios(1.0, 15, seed)) for seed in range(400)]
    assert sum(each.low <= 1.0 <= each.high for each in intervals) >= 380
    assert not [each for each in intervals if each.verdict is Verdict.WORSE]


def test_five_percent_are_found() -> None:
    """Benchmarks: a tree that costs 5 % more never passes for equal, and its median says how much it is."""
    intervals = [interval_of(ratios(1.05, 20, seed)) for seed in range(200)]
    assert sum(each.low > 1.0 for each in intervals) >= 198
    assert sum(abs(each.middle - 1.05) < 0.02 for each in intervals) >= 190
    assert sum(each.verdict is Verdict.WORSE for each in intervals) >= 150


@pytest.mark.parametrize("pairs", [PAIRS_MIN, 9, 10, 15, 40, 61])
def test_the_interval_is_the_narrowest_that_the_coin_allows(pairs: int) -> None:
    """Benchmarks: as many ratios are left out on both sides as the sign test lets go, and not one more."""
    interval = interval_of([float(each) for each in range(pairs)])
    outside = round(interval.low)
    assert interval.high == pairs - 1 - outside
    missed = [2 * sum(comb(pairs, k) for k in range(n + 1)) / 2**pairs for n in (outside, outside + 1)]
    assert missed[0] <= 0.05 < missed[1]


def test_the_order_of_pairs_does_not_matter() -> None:
    """Benchmarks: ratios are taken as they come."""
    assert interval_of([1.1, 0.9, 1.0, 1.2, 0.8, 1.0]) == Interval(1.0, 0.8, 1.2)


def test_too_few_pairs_have_no_interval() -> None:
    """Benchmarks: five pairs lie on one side of the truth too often."""
    with pytest.raises(ValueError, match="at least 6"):
        interval_of([1.0] * (PAIRS_MIN - 1))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.99, 1.01, Verdict.NOT_WORSE),
        (WORSE_FROM, 1.06, Verdict.NOT_WORSE),
        (1.031, 1.04, Verdict.WORSE),
        (1.2, 1.6, Verdict.WORSE),
        (0.9, 1.2, Verdict.WIDE),
        (0.5, 0.6, Verdict.WIDE),
    ],
)
def test_not_worse_is_an_interval_that_reaches_three_percent(
    low: float, high: float, verdict: Verdict
) -> None:
    """Benchmarks: worse is an interval that lies above 1.03 as a whole; a wide one tells nothing."""
    assert Interval((low + high) / 2, low, high).verdict is verdict
