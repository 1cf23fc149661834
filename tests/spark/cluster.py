"""A cluster of Spark's own kind on this machine, started straight from the package, and an interpreter for its
executors that does not know Busway."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark

import busway
from busway_spark.start.session import prepare_environment
from tests.spark.class_archive import java_options

_HOME = Path(pyspark.__file__).parent
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
#: Small: the machine has two cores and many Javas. The second keeps the start of each short.
EXECUTOR_SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.driver.memory": "700m",
    "spark.executor.extraJavaOptions": java_options(),
    "spark.driver.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.enabled": "false",
}


class StandaloneCluster:
    """`with StandaloneCluster(folder) as cluster:` a master and its workers; `cluster.url` is for `--master`."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, *, are_apart: bool = False) -> None:
        """`are_apart`: each worker is a host of its own to Spark."""
        self._folder = folder
        self._hosts = [f"127.0.0.{at + 1 if are_apart else 1}" for at in range(workers)]
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Workers end their executors with themselves."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(100)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self) -> None:
        master = self._run("master", "master.Master", "--port", "0")
        self.url = self._wait_for(master, _MASTER_AT).group(1)
        logs = [
            self._run(
                f"worker-{at}", "worker.Worker", "--cores", str(self._cores), "--memory", "700m",
                "--work-dir", str(self._folder / "work"), self.url, host=host,
            )
            for at, host in enumerate(self._hosts)
        ]  # fmt: skip
        for log in logs:
            self._wait_for(log, re.compile(_REGISTERED))

    def _run(self, name: str, daemon: str, *arguments: str, host: str = "127.0.0.1") -> Path:
        prepare_environment()
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
            "SPARK_LOCAL_IP": host,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}",
                 "--host", host, "--webui-port", "0", *arguments],
                stdout=output, stderr=output, env=environment,
            )  # fmt: skip
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, sign: re.Pattern[str], seconds_max: float = 200.0) -> re.Match[str]:
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            found = sign.search(log.read_text(errors="replace"))
            if found is not None:
                return found
            time.sleep(0.05)
        raise RuntimeError(
            f"{log.name} never said {sign.pattern}:\n{log.read_text(errors='replace')[-3000:]}"
        )


class Driver:
    """`with Driver(plan) as driver:` runs `tests.spark.flows` in a process of its own, with a Java of its own."""

    def __init__(self, plan: Path, **environment: str) -> None:
        self._command = [sys.executable, "-m", "tests.spark.flows", str(plan)]
        work = str(plan.parent / "work")
        self._environment = {**os.environ, "SPARK_WORKER_DIR": work, **environment}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Driver:
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """What it started ends with it."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, seconds_max: float = 540.0) -> subprocess.CompletedProcess[str]:
        assert self._process is not None
        output, errors = self._process.communicate(timeout=seconds_max)
        return subprocess.CompletedProcess(self._command, self._process.returncode, output, errors[-3000:])


def told(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a driver printed: an object a line, also when it was killed behind them."""
    assert ended.stdout, ended
    found: dict[str, Any] = {}
    for line in ended.stdout.splitlines():
        found.update(json.loads(line))
    return found


def bare_python(folder: Path) -> Path:
    """This interpreter with all its packages but ours: what a worker looks like where nobody installed Busway."""
    source = str(Path(busway.__file__).parent.parent)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path[:] = [p for p in sys.path if p != {source!r}]\n"
    )
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
