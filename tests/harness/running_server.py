"""A real server process on a free port and a data directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BUSWAY = Path(sys.executable).with_name("busway")


class RunningServer:
    """`with RunningServer(tmp_path) as server:` starts `busway serve` and stops it with SIGTERM."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "server.log"
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, object] = {}

    def __enter__(self) -> RunningServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()

    @property
    def is_running(self) -> bool:
        """Started, and neither stopped nor killed by us since."""
        return self._process is not None

    @property
    def connection_string(self) -> str:
        return str(self.ready["connection_string"])

    @property
    def port(self) -> int:
        return int(str(self.ready["port"]))

    @property
    def ca_file(self) -> str:
        return str(self.ready["ca_file"])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, seconds_max: float = 200.0) -> RunningServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        ready_file = self.folder / "ready.json"
        ready_file.unlink(missing_ok=True)
        port = str(self.ready.get("port", 0))  # the same port again after a restart
        command = [str(BUSWAY), "serve", "--data", str(self.data), "--port", port]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(ready_file), *self._arguments],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        deadline = time.monotonic() + seconds_max
        while not ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not become ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)
        self.ready = json.loads(ready_file.read_text())
        return self

    def stop(self) -> int:
        """SIGTERM; the exit status of a clean stop is 0."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        try:
            status = self._process.wait(100)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        self._process = None
        return status
