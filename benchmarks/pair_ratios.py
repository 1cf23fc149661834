"""How two trees compare: the median of the ratios of pairs, its 95 % interval, and the verdict.

**Why pairs.** A shared machine becomes slower and faster by far more than what is looked for. The two bursts of a
pair meet the same machine (`processors`), so most of that is gone from their ratio. What is left, such as who
begins, is turned round with every pair.

**Why the median and order statistics.** What disturbs a pair (another program, a disk that stalls) is seldom and
large, and has no distribution that anybody knows. The median does not care how far an outlier lies. Its interval
needs no assumption either: the number of ratios below the true median is that of heads among as many tosses of a
coin, so the k-th smallest and the k-th largest ratio enclose the true median with a probability that is only counted
(the sign test turned round). With 10 pairs they are the second and the last but one, 97.9 %; fewer than 6 pairs have
no such interval.

**Looking again.** Pairs may be added while the interval is wide. That looks at its width and never at where it lies,
so it does not favour an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb
from statistics import median

CONFIDENCE = 0.95
#: Fewer have no interval of that confidence: all of them lie on one side once in 2 ** (pairs - 1) times.
PAIRS_MIN = 6
#: "Not worse" means that the interval reaches down to this.
WORSE_FROM = 1.03
#: An interval whose half is wider can tell nothing about 3 %.
HALF_WIDTH_MAX = 0.03


class Verdict(Enum):
    NOT_WORSE = "not worse"
    WORSE = "WORSE"
    #: Not worse by the rule, but a difference that matters would not have been seen.
    WIDE = "wide"


@dataclass(frozen=True)
class Interval:
    """Of new ÷ base: above 1 the new tree costs more."""

    middle: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def verdict(self) -> Verdict:
        if self.low > WORSE_FROM:
            return Verdict.WORSE
        return Verdict.WIDE if self.half_width > HALF_WIDTH_MAX else Verdict.NOT_WORSE


def interval_of(ratios: Sequence[float]) -> Interval:
    """Of the median of at least `PAIRS_MIN` ratios."""
    if len(ratios) < PAIRS_MIN:
        raise ValueError(f"{len(ratios)} pairs have no interval: at least {PAIRS_MIN} are needed.")
    ordered = sorted(ratios)
    outside = _outside(len(ordered))
    return Interval(median(ordered), ordered[outside], ordered[-1 - outside])


def _outside(count: int) -> int:
    """How many of the smallest may be left out, and as many of the largest."""
    outside, likely = -1, 0.0
    while True:
        likely += comb(count, outside + 1) / 2**count
        if 2 * likely > 1 - CONFIDENCE:
            return outside
        outside += 1
