"""A server of one's own: a process on a free port with a folder of its own, which ends with whoever started it.

Used by `busway exec --serve` and by the pytest plug-in. The server's standard input is a pipe that only we hold:
should we be killed, it ends, and the server with it (`serve --stop-at-eof`). It has a session of its own, so that
Ctrl-C in a terminal reaches whoever works with it first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final

from busway.cli.program_environment import environment_of
from busway.cli.verbs import CommandFailed, connection_string_of
from busway.client.administration import ServiceBusAdministrationClient
from busway.data_directory import DataDirectory

_PROGRAM: Final = "from busway.cli import main; main()"
_START_S_MAX: Final = 120.0
_STOP_S_MAX: Final = 20.0
_LOOK_EVERY_S: Final = 0.01
#: Of the log, when it did not start.
_SHOWN_CHARACTERS: Final = 2_000


class OwnServer:
    """`with OwnServer(folder) as server:`. `options`: more of `busway serve`."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.data = folder / "data"
        self.log = folder / "server.log"
        self._ready_file = folder / "ready.json"
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._facts: dict[str, object] = {}

    def __enter__(self) -> OwnServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- where it is

    @property
    def connection_string(self) -> str:
        """As of now: the root key may have been rotated."""
        return connection_string_of(DataDirectory(self.data))

    @property
    def host(self) -> str:
        return str(self._facts["host"])

    @property
    def port(self) -> int:
        return int(str(self._facts["port"]))

    @property
    def ca_file(self) -> Path:
        return Path(str(self._facts["ca_file"]))

    @property
    def environment(self) -> dict[str, str]:
        """What `busway exec` adds to a program's environment, but for Java's options."""
        return {
            **self._trust,
            **{name: self.connection_string for name in self._trust if name.endswith("CONNECTION_STRING")},
        }

    @cached_property
    def _trust(self) -> dict[str, str]:
        found = environment_of({"PATH": ""}, self.connection_string, self.ca_file)
        del found["PATH"]
        return found

    # -- what it does

    def reset(self) -> None:
        """An empty bus. Raises ClientError."""
        text = self.connection_string
        with ServiceBusAdministrationClient.from_connection_string(text, self.ca_file) as client:
            client.reset()

    def start(self) -> None:
        """Returns when it accepts connections. Raises CommandFailed with what it said."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-c", _PROGRAM, "serve", "--data", str(self.data), "--port", "0"]
        guards = ["--allow-reset", "--stop-at-eof", "--ready-file", str(self._ready_file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *guards, *self._options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait(self._process)
        except BaseException:
            self.stop()
            raise
        self._facts = json.loads(self._ready_file.read_text())

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_S_MAX
        while not self._ready_file.exists():
            if process.poll() is not None:
                raise CommandFailed(f"The server did not start:\n{self._last_words()}")
            if time.monotonic() > until:
                raise CommandFailed(
                    f"The server did not start within {_START_S_MAX:.0f} seconds:\n{self._last_words()}"
                )
            time.sleep(_LOOK_EVERY_S)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip()

    def stop(self) -> None:
        """Cleanly; what does not end in time is killed. Told again it does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()
