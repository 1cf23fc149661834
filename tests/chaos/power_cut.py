"""F3: power cuts. The data directory lies on an ext4 file system in a loop-mounted file; the shutdown ioctl drops
everything that was not synced, as a real power cut does. kill -9 alone cannot show that fsync is missing.

After each cut the files are looked at before anybody serves them, as after a kill.

Traps. An answer that arrives while the ioctl runs is not durable although fsync said ok, so only answers stamped
before the cut count. And the server that outlives its disk for a moment logs that its stores cannot be read because
the "database disk image is malformed": so SQLite calls every read that the system answers with an input/output error.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import subprocess
import time
from pathlib import Path

from tests.chaos.checker import Verdict
from tests.chaos.kill import damage_in
from tests.chaos.mixed_load import MixedLoad
from tests.chaos.scenario import Outcome, add_verdict, outcome
from tests.harness.running_server import RunningServer

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
IMAGE_MIB = 512
BUSY_S_MAX = 30
#: A round counts only when at least so many sends were acknowledged before its cut.
ACKNOWLEDGED_MIN = 40


class LoopDisk:
    """A small ext4 disk whose power can be cut."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.mount_point = folder / "disk"

    def create(self) -> None:
        self.mount_point.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(IMAGE_MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True, capture_output=True)
        self.mount()

    def mount(self) -> None:
        command = ["mount", "-o", "loop", str(self._image), str(self.mount_point)]
        subprocess.run(command, check=True, capture_output=True)

    def unmount(self) -> None:
        """Whoever looks through the machine's files may be in it for a moment."""
        until = time.monotonic() + BUSY_S_MAX
        while os.path.ismount(self.mount_point):
            ended = subprocess.run(["umount", str(self.mount_point)], check=False, capture_output=True)
            if ended.returncode and time.monotonic() > until:
                raise RuntimeError(f"the disk cannot be taken out: {ended.stderr!r}")
            time.sleep(0.05 if ended.returncode else 0)

    def cut_power(self) -> None:
        handle = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)


def why_not_here() -> str | None:
    """None where power can be cut; else the reason."""
    if os.geteuid() != 0:
        return "needs root for loop mounts"
    return None


def power_cuts(folder: Path, rounds: int, seed: int) -> Outcome:
    reason = why_not_here()
    if reason is not None:
        return Outcome("power cut under load", 0, rounds, skipped=reason)
    disk = LoopDisk(folder)
    try:
        disk.create()
    except subprocess.CalledProcessError as error:
        return Outcome("power cut under load", 0, rounds, skipped=f"loop mount refused: {error.stderr!r}")
    try:
        return asyncio.run(_power_cuts(disk, folder, rounds, random.Random(seed)))
    finally:
        disk.unmount()


async def _power_cuts(disk: LoopDisk, folder: Path, rounds: int, chance: random.Random) -> Outcome:
    """Each round has queues and histories of its own: its answers are judged against its own cut."""
    server = RunningServer(folder / "server")
    server.data = disk.mount_point / "data"
    done = 0
    together = Verdict()
    try:
        await asyncio.to_thread(server.start)
        for number in range(rounds):
            load = MixedLoad(server, f"cut-{number}")
            did_enough, verdict = await _one_cut(server, disk, load, chance.uniform(0.0, 0.4))
            done += did_enough
            add_verdict(together, verdict)
    finally:
        await asyncio.to_thread(server.__exit__)
    return outcome("power cut under load", done, rounds, together)


async def _one_cut(
    server: RunningServer, disk: LoopDisk, load: MixedLoad, wait_s: float
) -> tuple[bool, Verdict]:
    load.create_queues()
    load.start()
    did_enough = await load.wait_for_work(ACKNOWLEDGED_MIN)
    await asyncio.sleep(wait_s)
    cut_at = time.monotonic()
    disk.cut_power()
    await asyncio.to_thread(server.kill)
    load.note_restart(cut_at, time.monotonic())
    await load.stop()
    disk.unmount()
    disk.mount()
    damage = await asyncio.to_thread(damage_in, server.data)
    await asyncio.to_thread(server.start)
    verdict = await load.verdict(acknowledged_before=cut_at)
    for sentence in damage:
        verdict.found("a power cut is no damage", sentence)
    return did_enough, verdict
