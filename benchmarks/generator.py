"""The load generator: builds abench.c on first use and runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BINARY = HERE / "abench"
#: Debian's development package has no plain symlink for the core library, hence the full name.
BUILD = ["gcc", "-O2", "-o", str(BINARY), str(HERE / "abench.c"), "-l:libqpid-proton-core.so.10"]


class Unavailable(Exception):
    """The benchmark cannot run here; the text says what to install."""


def build() -> None:
    if BINARY.exists() and all(
        BINARY.stat().st_mtime > source.stat().st_mtime for source in HERE.glob("abench*.[ch]")
    ):
        return
    if shutil.which("gcc") is None or not Path("/usr/include/proton").exists():
        raise Unavailable("make bench needs gcc and Debian's libqpid-proton11-dev.")
    subprocess.run(BUILD, check=True)


@dataclass(frozen=True)
class Target:
    """A broker's queue, topic or exchange as the generator reaches it."""

    name: str
    host_port: str
    address: str
    user: str
    password: str
    pid: int
    #: PostgreSQL's first process, where messages lie there.
    database_pid: int | None = None


@dataclass(frozen=True)
class Load:
    messages: int = 100_000
    body_bytes: int = 1024
    window: int = 1000
    connections: int = 1
    #: Without a partition key, and without the other properties that clients of the service send.
    is_bare: bool = False
    #: Ends it, however many messages are left.
    seconds_max: float | None = None
    #: Application properties besides the one that every message has, each "name=value".
    properties: tuple[str, ...] = ()
    #: Messages in one transfer.
    batch: int = 1
    #: Messages a second, evenly; as fast as it goes when there is none.
    rate: int | None = None
    #: Partition keys, and a message id of its own for each message.
    keys: int | None = None
    #: Ends it when nothing has come or gone for so long.
    stall_s: int = 30


def command(target: Target, mode: str, load: Load) -> list[str]:
    return [
        *(str(BINARY), "-m", mode, "-h", target.host_port, "-a", target.address),
        *("-u", target.user, "-p", target.password, "-i", str(load.stall_s)),
        *(() if load.is_bare else ("-x",)),
        *(() if load.seconds_max is None else ("-t", str(load.seconds_max))),
        *("-n", str(load.messages), "-b", str(load.body_bytes)),
        *("-w", str(load.window), "-c", str(load.connections)),
        *(("-B", str(load.batch)) if load.batch > 1 else ()),
        *(() if load.rate is None else ("-r", str(load.rate))),
        *(() if load.keys is None else ("-k", str(load.keys))),
        *(word for each in load.properties for word in ("-P", each)),
    ]


def run(target: Target, mode: str, load: Load) -> dict[str, float]:
    done = subprocess.run(command(target, mode, load), capture_output=True, text=True, check=False)
    return _result(target, mode, done.returncode, done.stdout, done.stderr)


def run_both(target: Target, load: Load) -> dict[str, float]:
    """Sender and receiver at once: the slower of the two rates, and the CPU of both."""
    pair = {
        mode: subprocess.Popen(
            command(target, mode, load), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for mode in ("recv", "send")
    }
    results = []
    for mode, process in pair.items():
        out, error = process.communicate()
        results.append(_result(target, mode, process.returncode, out, error))
    slower = min(results, key=lambda result: result["rate"])
    return {**slower, "cpu_s": sum(result["cpu_s"] for result in results)}


def _result(target: Target, mode: str, status: int, out: str, error: str) -> dict[str, float]:
    if status != 0:
        raise RuntimeError(f"{mode} on {target.name} failed (status {status}): {out.strip()} {error.strip()}")
    loaded: dict[str, float] = json.loads(out)
    return loaded
