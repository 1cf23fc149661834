"""What a running process has used so far: CPU nanoseconds, and instructions where the machine counts them.

CPU time is read from the process's own POSIX clock: all its threads, the dead ones too, user and kernel, in
nanoseconds. The hundredths of a second of /proc would be 2 % of a burst of half a second.

Instructions are those of user mode, counted by the processor for each thread and for all that they start. They
hardly depend on what else the machine does, so they tell tenths of a percent; but they know nothing of caches and of
the kernel, so they stand beside the CPU time and do not replace it. Many virtual machines have no such counter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time
from contextlib import suppress
from pathlib import Path

#: perf_event_open(2): its number on this architecture, and the fields that are not zero.
_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 112
_HARDWARE, _INSTRUCTIONS = 0, 1
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
#: CPU, group and flags of the call: any, none, close on exec.
_PLACE = (-1, -1, 8)


def cpu_ns(pid: int) -> int:
    """See clock_getcpuclockid(3), whose formula this is. Raises OSError when there is no such process."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def family_cpu_ns(pid: int) -> int:
    """Of a process that starts others for its work, as PostgreSQL's first one does: of those that are there, to the
    nanosecond, and of those that have ended, in hundredths of a second."""
    used = cpu_ns(pid) + _ended_children_ns(pid)
    for child in _children(pid):
        with suppress(OSError):  # it has ended meanwhile: its parent has it, the next time
            used += cpu_ns(child)
    return used


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def _ended_children_ns(pid: int) -> int:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class NoCounter(Exception):
    """The text says why instructions cannot be counted here."""


class InstructionCounter:
    """Of one process, from now on. `close` it."""

    def __init__(self, pid: int, kind: int = _HARDWARE, event: int = _INSTRUCTIONS) -> None:
        self._files: list[int] = []
        try:
            for task in sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()):
                with suppress(ProcessLookupError):  # a thread that has ended meanwhile
                    self._files.append(_opened(task, kind, event))
        except NoCounter:
            self.close()
            raise

    def read(self) -> int:
        return sum(int.from_bytes(os.read(file, 8), "little") for file in self._files)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def why_no_counter() -> str | None:
    """None when instructions of this very process can be counted."""
    try:
        counter = InstructionCounter(os.getpid())
    except NoCounter as error:
        return str(error)
    try:
        before = counter.read()
        return None if counter.read() > before else "the counter stands still"
    finally:
        counter.close()


def _opened(task: int, kind: int, event: int) -> int:
    number = _SYSTEM_CALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        raise NoCounter(f"not known how on {platform.system()} {platform.machine()}")
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    head = struct.pack("=IIQQQQQ", kind, _ATTRIBUTE_BYTES, event, 0, 0, 0, flags)
    attribute = ctypes.create_string_buffer(head, _ATTRIBUTE_BYTES)
    file = ctypes.CDLL(None, use_errno=True).syscall(number, attribute, task, *_PLACE)
    if file < 0 and ctypes.get_errno() == errno.ESRCH:
        raise ProcessLookupError(task)
    if file < 0:
        raise NoCounter(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    return int(file)
