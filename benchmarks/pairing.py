"""How two trees are measured: pairs of equal bursts, in changing order, until enough is known.

A *pair* is the same burst on both servers, at the same time on one processor (`processors` says why). Which of them
begins changes from pair to pair (`order_of`). A *round* is a pair of every workload that still needs one.

Every round has servers of its own, on empty data. Two processes of the same program differ for as long as they live,
presumably by where their memory lies. Of two equal trees, the mean of five pairs on the same two processes lay at
1.04, on the next two processes at 0.95, and no number of pairs on any of them would have mended that. With new
processes for each pair it is noise like any other; pairs do not depend on each other, which the interval relies on;
and no data grow. The price is some five seconds a round.

Before anything counts, each workload runs on both servers for a while (`_WARM_UP_MESSAGES`), so that what is made
once is made. In the first round that also tells how many messages cost the base tree about `BURST_S` of CPU.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.contender import Contender, Cost
from benchmarks.meter import SOON_S
from benchmarks.pair_ratios import Interval, interval_of
from benchmarks.processors import Processors
from benchmarks.trees import Tree
from benchmarks.workloads import Burst, Group

#: CPU of the base tree for one burst.
BURST_S = 0.5
_WARM_UP_MESSAGES = 4_000
_MESSAGES_STEP = 1_000
_MESSAGES_MAX = 100_000
_IDLE_S = 2.0

Say = Callable[[str], None]
#: The server of the base tree and that of the new one.
Both = tuple[Contender, Contender]


@dataclass(frozen=True)
class Plan:
    pairs_min: int = 10
    pairs_max: int = 60
    #: Of measuring. At least `pairs_min` pairs are measured, however long that takes.
    seconds_max: float = 1_800.0
    #: Pairs are added while half of the interval is wider.
    half_width: float = 0.015
    #: How long servers rest after each burst, which counts what they do meanwhile.
    rest_s: float = SOON_S


@dataclass
class Pairs:
    """The costs of one workload, one entry for each pair."""

    base: list[Cost] = field(default_factory=list)
    new: list[Cost] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.base)

    def cpu_us(self) -> tuple[float, float]:
        return median(cost.cpu_us for cost in self.base), median(cost.cpu_us for cost in self.new)

    def cpu_ratios(self) -> list[float]:
        return [new.cpu_us / base.cpu_us for base, new in zip(self.base, self.new, strict=True)]

    def cpu(self) -> Interval:
        return interval_of(self.cpu_ratios())

    def counted(self) -> list[tuple[float, float]]:
        """Instructions of the base and of the new tree, of pairs that have them."""
        return [
            (base.instructions, new.instructions)
            for base, new in zip(self.base, self.new, strict=True)
            if base.instructions is not None and new.instructions is not None
        ]

    def instructions(self) -> Interval | None:
        counted = self.counted()
        return interval_of([new / base for base, new in counted]) if counted else None

    def is_told(self, plan: Plan) -> bool:
        """Whether more pairs would tell nothing that matters."""
        if len(self) < plan.pairs_min:
            return False
        return len(self) >= plan.pairs_max or self.cpu().half_width <= plan.half_width


def order_of(pair: int) -> tuple[int, int]:
    """Whose turn it is: 0 is the base tree."""
    return (0, 1) if pair % 2 == 0 else (1, 0)


class Comparison:
    """`run` fills `found`, workload by workload."""

    def __init__(
        self,
        trees: tuple[Tree, Tree],
        groups: Sequence[Group],
        plan: Plan,
        *,
        is_pure: bool,
        counts_instructions: bool,
        say: Say,
    ) -> None:
        self.trees = trees
        self.found = {burst.workload: Pairs() for group in groups for burst in group.bursts}
        self._groups = list(groups)
        self._plan = plan
        self._is_pure = is_pure
        self._counts_instructions = counts_instructions
        self._say = say
        self._messages: dict[Group, int] = {}
        self._processors = Processors()
        self._ends_at = 0.0

    def run(self) -> None:
        self._ends_at = time.monotonic() + self._plan.seconds_max
        number = 0
        with self._processors:
            while self._wanted():
                with tempfile.TemporaryDirectory(prefix="busway-compare-") as folder, ExitStack() as stack:
                    self._round(self._started(Path(folder), stack, number), number)
                number += 1

    def _started(self, folder: Path, stack: ExitStack, number: int) -> Both:
        started: dict[int, Contender] = {}
        for side in order_of(number):
            started[side] = stack.enter_context(
                Contender(
                    self.trees[side],
                    folder / ("base", "new")[side],
                    is_pure=self._is_pure,
                    counts_instructions=self._counts_instructions,
                )
            )
        return started[0], started[1]

    def _round(self, both: Both, number: int) -> None:
        wanted = self._wanted()
        self._say(f"round {number + 1}: servers started, warming up")
        for group in wanted:
            self._warm_up(both, group)
        time.sleep(self._plan.rest_s)
        self._learn_idle(both)
        for group in wanted:
            self._measure(both, group)

    def _learn_idle(self, both: Both) -> None:
        """Both at once, since nobody uses either."""
        for each in both:
            each.begin()
        time.sleep(_IDLE_S)
        for each in both:
            each.learn_idle()

    def _wanted(self) -> list[Group]:
        """Groups with a workload that needs more pairs and may have them."""
        is_late = time.monotonic() > self._ends_at
        return [group for group in self._groups if self._needs_more(group, is_late)]

    def _needs_more(self, group: Group, is_late: bool) -> bool:
        pairs = [self.found[name] for name in group.names]
        if is_late:
            return min(map(len, pairs)) < self._plan.pairs_min
        return not all(each.is_told(self._plan) for each in pairs)

    def _warm_up(self, both: Both, group: Group) -> None:
        """Its costs count for nothing but the number of messages, so nobody waits for what they leave behind."""
        is_first = group not in self._messages
        for turn in range(2 if is_first else 1):
            least_us = inf
            for burst in group.bursts:
                self._run(both, burst, _WARM_UP_MESSAGES, turn)
                least_us = min(least_us, both[0].settled(_WARM_UP_MESSAGES).cpu_us)
            if is_first:
                self._messages[group] = messages_of(least_us)

    def _measure(self, both: Both, group: Group) -> None:
        for burst in group.bursts:
            pairs = self.found[burst.workload]
            base, new = self._pair(both, burst, self._messages[group], len(pairs))
            pairs.base.append(base)
            pairs.new.append(new)
            self._say(
                f"{burst.workload} {len(pairs)}: {base.cpu_us:.2f} and {new.cpu_us:.2f} µs/message,"
                f" {new.cpu_us / base.cpu_us:.3f}x"
            )

    def _pair(self, both: Both, burst: Burst, messages: int, number: int) -> tuple[Cost, Cost]:
        self._run(both, burst, messages, number)
        time.sleep(self._plan.rest_s)
        return both[0].settled(messages), both[1].settled(messages)

    def _run(self, both: Both, burst: Burst, messages: int, number: int) -> None:
        ordered = [both[side] for side in order_of(number)]
        self._processors.share(number, [each.pid for each in ordered])
        for each in ordered:
            each.begin()
        for stage in burst.stages:
            with ExitStack() as stack:
                loads = ((each, order) for each in ordered for order in stage)
                runs = [stack.enter_context(each.loaded(order, messages)) for each, order in loads]
                for run in runs:
                    run.wait()
        for each in ordered:
            each.end()


def messages_of(cost_us: float) -> int:
    """How many make a burst, in whole thousands: sessions and batches divide that."""
    steps = round(BURST_S * 1e6 / cost_us / _MESSAGES_STEP)
    return min(max(steps, 1) * _MESSAGES_STEP, _MESSAGES_MAX)
