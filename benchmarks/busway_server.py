"""Busway as a benchmark target: a real server process, compiled or pure."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from benchmarks.generator import Load, Target, run
from benchmarks.trees import Tree
from tests.harness.running_server import BUSWAY, RunningServer


class BuswayServer:
    """As a context manager it stops in the end, whatever happened; `start` is the caller's."""

    def __init__(self, folder: Path, *arguments: str, pure: bool = False, tree: Tree | None = None) -> None:
        """On the sources of this checkout, or on those of a tree."""
        environment = {"BUSWAY_PURE": "1" if pure else ""} if tree is None else tree.environment(pure)
        self.name = "Busway pure" if pure else "Busway"
        self.server = RunningServer(folder, *arguments, environment=environment)
        self._queue_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> float:
        """Seconds from the start of the process until it accepts connections."""
        begun = time.monotonic()
        self.server.start()
        return time.monotonic() - begun

    def stop(self) -> None:
        """Does nothing when it is not running."""
        if self.server.is_running:
            self.server.stop()

    def queue(self, *options: str) -> Target:
        """A fresh queue."""
        self._queue_count += 1
        name = f"bench-{self._queue_count}"
        command = [str(BUSWAY), "queue", "create", name, *options]
        subprocess.run(
            [*command, "--connection-string", self.server.connection_string], check=True, capture_output=True
        )
        return self.target(name)

    def hub(self, name: str, *options: str) -> Target:
        """A fresh event hub."""
        command = [str(BUSWAY), "eventhub", "create", name, *options]
        subprocess.run(
            [*command, "--connection-string", self.server.connection_string], check=True, capture_output=True
        )
        return self.target(name)

    def target(self, path: str) -> Target:
        key = re.search("SharedAccessKey=([^;]+)", self.server.connection_string)
        assert key is not None
        address = f"127.0.0.1:{self.server.port}"
        user = "RootManageSharedAccessKey"
        return Target(self.name, address, path, user, key[1], self.server.pid, self._database_pid())

    def _database_pid(self) -> int | None:
        return None

    def rss_mib(self) -> float:
        return float(psutil.Process(self.server.pid).memory_info().rss) / (1 << 20)

    def fill(self, target: Target, messages: int, body_bytes: int) -> None:
        run(target, "send", Load(messages, body_bytes))
