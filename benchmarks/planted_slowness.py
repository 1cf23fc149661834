"""Proof that a comparison can tell: two equal trees are equal, and 5 % more is found.

The slow tree is a copy of the one under test in which `AmqpProtocol.data_received`, the loop's entry into the AMQP
engine, burns CPU when it has done its work: a twentieth of what the whole process, with its threads, has used since
it was here last, burnt time not counted. After whatever a burst costs there is a next entry within milliseconds, so
the plant hits the CPU time of the process by 5 % and not only the engine's share. A copy that kept count of what it
burnt said 5.0 % for most workloads and up to 5.4 % for sessions.

That module is not compiled, so the compiled modules of the original go with the copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.pair_ratios import Interval
from benchmarks.trees import Tree, TreeFault, changed_copy

SHARE = 0.05
_FILE = "src/busway/gateway/amqp/gateway.py"
_ENTRY = "    def data_received(self, data: bytes) -> None:\n"
_PLANT = f"""

# -- planted by benchmarks.planted_slowness: this copy costs {SHARE:.0%} more

import time as _time

_entered = AmqpProtocol.data_received
_seen_s = _time.process_time()


def _entered_and_burnt(self: AmqpProtocol, data: bytes) -> None:
    global _seen_s
    _entered(self, data)
    now_s = _time.process_time()
    end_s = now_s + (now_s - _seen_s) * {SHARE}
    while now_s < end_s:
        now_s = _time.process_time()
    _seen_s = now_s


AmqpProtocol.data_received = _entered_and_burnt  # type: ignore[method-assign]
"""
#: An interval must come so near to the truth, 1 or 1 + SHARE. It need not contain it: of eight intervals of 95 % one
#: does not every third time.
WITHIN = 0.01


@dataclass(frozen=True)
class Finding:
    workload: str
    interval: Interval
    is_planted: bool

    @property
    def holds(self) -> bool:
        truth = 1 + SHARE if self.is_planted else 1.0
        is_near = self.interval.low <= truth + WITHIN and self.interval.high >= truth - WITHIN
        return is_near and (self.interval.low > 1.0 or not self.is_planted)

    def sentence(self) -> str:
        wanted = f"a planted {SHARE:.0%} is found" if self.is_planted else "equal trees are equal"
        shown = f"{self.interval.middle:.3f} ({self.interval.low:.3f} … {self.interval.high:.3f})"
        return f"{'holds' if self.holds else 'FAILS'}: {self.workload}, {wanted}: {shown}"


def planted(tree: Tree) -> Tree:
    source = (tree.folder / _FILE).read_text() if (tree.folder / _FILE).is_file() else ""
    if "class AmqpProtocol" not in source or _ENTRY not in source:
        raise TreeFault(f"{tree.title} has no AmqpProtocol.data_received in {_FILE}: nothing can be planted.")
    return changed_copy(tree, f"{tree.title} with {SHARE:.0%} planted", _FILE, source + _PLANT)
