"""What a server has used for a piece of work: CPU and bytes written, until its store is idle again.

Part of the work of messages comes after the last outcome: a checkpoint, pages that are given back, a log that is
folded once nothing else is to be done. So counting goes on while the server rests (`rest_s`), and then until it is
quiet. What an idle server costs anyway is learnt once and taken off for that time, of every broker alike: else
whoever rests cheaply would seem to send cheaply.

CPU is that of the process with all its threads, in nanoseconds. Bytes are those that it has had written to disk, by
the kernel's account of dirtied pages and direct writes (`write_bytes` of /proc/PID/io).

A broker that keeps its messages in PostgreSQL is charged with the CPU of all of PostgreSQL's processes; what these
write is not in its bytes.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process_counters import cpu_ns, family_cpu_ns

#: Stores look so often for free pages, and a little more.
SOON_S = 1.1
#: The longest time that a store may lie idle before it does what it has put off (five seconds), and a little more.
REST_S = 6.0
#: A server is quiet that uses less than this beyond what it uses idle, in one look.
_LOOK_S, _QUIET_NS = 0.05, 500_000
_QUIET_S_MAX = 5.0
_IDLE_S = 2.0
_DATABASE_BEGINS_S, _DATABASE_IDLE_S = 3.0, 8.0


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
    """Of one process, and of the database behind it."""

    def __init__(self, pid: int, idle_share: float = 0.0, database_pid: int | None = None) -> None:
        """`idle_share`: of one core, what both use when they have nothing to do. `database_pid`: PostgreSQL's first
        process."""
        self._pid = pid
        self._database_pid = database_pid
        self.idle_share = idle_share

    def learn_idle(self) -> float:
        """To be called while nobody uses the server. A database that has just begun works for some seconds, and
        later looks now and then whether there is something to do."""
        self.idle_share = 0.0
        if self._database_pid is not None:
            time.sleep(_DATABASE_BEGINS_S)
        self.wait_until_quiet()
        self.idle_share = self.idle_over(_IDLE_S if self._database_pid is None else _DATABASE_IDLE_S)
        return self.idle_share

    def idle_over(self, seconds: float) -> float:
        before, begun = self._cpu_ns(), time.monotonic_ns()
        time.sleep(seconds)
        return (self._cpu_ns() - before) / (time.monotonic_ns() - begun)

    def now(self) -> Used:
        return Used(self._cpu_ns(), written_bytes(self._pid))

    def database_ns(self) -> int:
        return 0 if self._database_pid is None else family_cpu_ns(self._database_pid)

    def _cpu_ns(self) -> int:
        return cpu_ns(self._pid) + self.database_ns()

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
        before = self._cpu_ns()
        while time.monotonic() < give_up_at:
            time.sleep(_LOOK_S)
            now = self._cpu_ns()
            if now - before < limit_ns:
                return
            before = now


def written_bytes(pid: int) -> int:
    found = re.search(r"^write_bytes: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    assert found is not None, "the kernel counts no bytes of a process"
    return int(found[1])
