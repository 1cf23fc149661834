"""Python processes of a driver as forks of one. Mostly without Spark: a test starts them as Spark does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busway_spark.shared_python.lent_python import NURSERY, LentPython
from tests.spark.driver_memory import Process, processes_below

ENTRANCE = Path(sys.modules[LentPython.__module__].__file__ or "").parent / "entrance"
DAEMON = ["-m", "pyspark.daemon", "pyspark.worker"]
#: How it ends when Spark closes its standard input.
ENDED = 1
_WAIT_S_MAX = 100.0


@pytest.fixture(scope="module")
def nursery() -> Iterator[LentPython]:
    lent = LentPython({"PYTHONHASHSEED": "0"})
    assert lent.wait()
    yield lent
    lent.end()


class Daemons:
    """Processes as Spark starts them, each of which says where it listens."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[bytes]] = []

    def start(
        self, nursery: LentPython, *more_path: str, parent: int | None = None
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ENTRANCE), *more_path]),
            "PYTHONHASHSEED": "0",
            NURSERY: f"{os.getpid() if parent is None else parent}:{nursery.address}",
        }
        process = subprocess.Popen(
            [sys.executable, *DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._all.append(process)
        assert process.stdout is not None
        assert int.from_bytes(process.stdout.read(4), "big") > 0
        return process

    def end(self) -> None:
        for process in self._all:
            end(process)


@pytest.fixture
def daemons(nursery: LentPython) -> Iterator[Daemons]:
    daemons = Daemons()
    yield daemons
    daemons.end()
    wait_until(lambda: not forks(nursery))


def end(process: subprocess.Popen[bytes]) -> int:
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    return process.wait(_WAIT_S_MAX)


def forks(nursery: LentPython) -> list[Process]:
    return processes_below(nursery.process_id)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def program(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0].decode()


def test_what_spark_starts_is_a_fork_with_little_of_its_own(nursery: LentPython, daemons: Daemons) -> None:
    """Driver memory: what Spark knows is a shell; the fork has imported Arrow and Spark and shares them."""
    both = [daemons.start(nursery) for _ in range(2)]
    wait_until(lambda: [program(process) for process in both] == ["/bin/sh", "/bin/sh"])
    found = forks(nursery)
    assert len(found) == 2
    assert max(fork.own_mib for fork in found) < 15
    assert {Path(f"/proc/{fork.pid}/comm").read_text() for fork in found} == {"worker\n"}
    assert [end(process) for process in both] == [ENDED, ENDED]


def test_a_process_that_spark_kills_takes_its_fork_along(nursery: LentPython, daemons: Daemons) -> None:
    """Driver memory: no fork outlives what Spark knows it by, and the others do not notice."""
    killed, other = daemons.start(nursery), daemons.start(nursery)
    killed.kill()
    killed.wait(_WAIT_S_MAX)
    wait_until(lambda: len(forks(nursery)) == 1)
    assert end(other) == ENDED


def test_a_fork_that_dies_is_seen_by_spark(nursery: LentPython, daemons: Daemons) -> None:
    """Driver memory: the process that Spark knows ends with it."""
    process = daemons.start(nursery)
    (fork,) = forks(nursery)
    os.kill(fork.pid, 9)
    assert process.wait(_WAIT_S_MAX) == (-9) & 255


def test_whoever_cannot_be_served_goes_on_by_itself(
    nursery: LentPython, daemons: Daemons, tmp_path: Path
) -> None:
    """Driver memory: a process of an executor, one with another path, one that finds nobody."""
    served = daemons.start(nursery)
    of_an_executor = daemons.start(nursery, parent=os.getppid())
    with_other_code = daemons.start(nursery, str(tmp_path))
    gone = LentPython({})
    gone.end()
    alone = daemons.start(gone)
    for process in (of_an_executor, with_other_code, alone):
        assert program(process) == sys.executable
    assert len(forks(nursery)) == 1
    assert [end(process) for process in (served, of_an_executor, with_other_code, alone)] == [ENDED] * 4


def test_a_caller_that_says_nothing_holds_up_nobody_for_long(nursery: LentPython, daemons: Daemons) -> None:
    """Driver memory: it is let go after ten seconds, and whoever came behind it is served."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(nursery.address)
        process = daemons.start(nursery)
        wait_until(lambda: len(forks(nursery)) == 1)
        assert end(process) == ENDED


def test_a_customisation_behind_ours_is_kept(tmp_path: Path) -> None:
    """Driver memory: somebody else's `sitecustomize` runs as it would without us."""
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ENTRANCE), str(tmp_path)])}
    said = subprocess.run(
        [sys.executable, "-c", "print('mine')"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said == "theirs\nmine\n"


def test_the_nursery_ends_with_its_driver(tmp_path: Path) -> None:
    """Driver memory: also when the driver is killed: nothing is left running. Nor does it mind a folder for temporary
    files whose name is too long for a socket's."""
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    code = (
        "import sys, time; from busway_spark.shared_python.lent_python import LentPython;"
        "lent = LentPython({}); assert lent.wait(); print(lent.process_id, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary)}
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        driver.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in _state(pid))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
