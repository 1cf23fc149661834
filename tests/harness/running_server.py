"""A real server process on a free port and a data directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
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
        #: Of its present life, in the file.
        self._log_began = 0

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
        self.launch()
        return self.wait_until_served(seconds_max)

    def launch(self) -> None:
        """Without waiting: a server that shares its stores may have to wait itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        port = str(self.ready.get("port", 0))  # the same port again after a restart
        (self.data / "server.json").unlink(missing_ok=True)
        command = [str(BUSWAY), "serve", "--data", str(self.data), "--port", port]
        with self.log.open("ab") as log:
            self._log_began = log.tell()
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready_file), *self._arguments],
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    def wait_until_served(self, seconds_max: float = 200.0) -> RunningServer:
        self.ready = self._wait_for(self._ready_file, seconds_max)
        return self

    def start_standby(self, seconds_max: float = 60.0) -> RunningServer:
        """It listens, and another server has its stores."""
        self.launch()
        self.ready = self._wait_for(self.data / "server.json", seconds_max)
        deadline = time.monotonic() + seconds_max
        while b"standby: " not in self.log.read_bytes()[self._log_began :]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server is no standby:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)
        return self

    @property
    def _ready_file(self) -> Path:
        return self.folder / "ready.json"

    def _wait_for(self, file: Path, seconds_max: float) -> dict[str, object]:
        assert self._process is not None
        deadline = time.monotonic() + seconds_max
        while not file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not become ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.005)
        found: dict[str, object] = json.loads(file.read_text())
        return found

    def asked(self, path: str, seconds_max: float = 5.0) -> tuple[int, str]:
        """Status and body of a request without a key; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/{path}", timeout=seconds_max
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def pause(self) -> None:
        """SIGSTOP: everything stays, nothing moves."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

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
