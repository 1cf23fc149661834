"""What a server has used for a piece of work: CPU and bytes written, until its store is idle again.

Part of the work of messages comes after the last outcome: a checkpoint, pages that are given back, a log that is
folded once nothing else is to be done. So counting goes on while the server rests (`rest_s`), and then until it is
quiet. What an idle server costs anyway is learnt once and taken off for that time, of every broker alike: else
whoever rests cheaply would seem to send cheaply.

CPU is that of the process with all its threads, in nanoseconds. Bytes are those that it has had written to disk, by
the kernel's account of dirtied pages and direct writes (`write_bytes` of /proc/PID/io).
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process_counters import cpu_ns

#: Stores look so often for free pages, and a little more.
SOON_S = 1.1
#: The longest time that a store may lie idle before it does what it has put off (five seconds), and a little more.
REST_S = 6.0
#: A server is quiet that uses less than this beyond what it uses idle, in one look.
_LOOK_S, _QUIET_NS = 0.05, 500_000
_QUIET_S_MAX = 5.0
_IDLE_S = 2.0


@dataclass(frozen=True)
class Used:
    cpu_ns: int
    written_bytes: int

    def __add__(self, other: Used) -> Used:
        return Used(self.cpu_ns + other.cpu_ns, self.written_bytes + other.written_bytes)

    def __sub__(self, other: Used) -> Used:
        return Used(self.cpu_ns - other.cpu_ns, self.written_bytes - other.written_bytes)


NOTHING = Used(0, 0)


class Meter:
    """Of one process."""

    def __init__(self, pid: int, idle_share: float = 0.0) -> None:
        """`idle_share`: of one core, what it uses when it has nothing to do."""
        self._pid = pid
        self.idle_share = idle_share

    def learn_idle(self, seconds: float = _IDLE_S) -> float:
        """To be called while nobody uses the server."""
        self.idle_share = 0.0
        self.wait_until_quiet()
        self.idle_share = self.idle_over(seconds)
        return self.idle_share

    def idle_over(self, seconds: float) -> float:
        before, begun = cpu_ns(self._pid), time.monotonic_ns()
        time.sleep(seconds)
        return (cpu_ns(self._pid) - before) / (time.monotonic_ns() - begun)

    def now(self) -> Used:
        return Used(cpu_ns(self._pid), written_bytes(self._pid))

    def rested(self, rest_s: float = REST_S) -> Used:
        """What has been used by the time that the store is idle again, without what the rest itself costs."""
        begun = time.monotonic_ns()
        time.sleep(rest_s)
        self.wait_until_quiet()
        rest_ns = time.monotonic_ns() - begun
        return self.now() - Used(round(rest_ns * self.idle_share), 0)

    def wait_until_quiet(self) -> None:
        """A server that never becomes quiet is measured all the same: it is what it costs."""
        give_up_at = time.monotonic() + _QUIET_S_MAX
        limit_ns = _QUIET_NS + 2 * self.idle_share * _LOOK_S * 1e9
        before = cpu_ns(self._pid)
        while time.monotonic() < give_up_at:
            time.sleep(_LOOK_S)
            now = cpu_ns(self._pid)
            if now - before < limit_ns:
                return
            before = now


def written_bytes(pid: int) -> int:
    found = re.search(r"^write_bytes: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    assert found is not None, "the kernel counts no bytes of a process"
    return int(found[1])
