"""A program in another language: what it needs, how it is built, and what it printed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent
BUILD = ROOT / "build" / "sdk"
BUILD_SECONDS_MAX = 1_800
RUN_SECONDS_MAX = 900
_DECLARED = re.compile(r"\boperation\(\s*\"([a-z0-9_]+)\"")


class Missing(Exception):
    """Something that this machine does not have; says what."""


@dataclass(frozen=True)
class Outcome:
    operation: str
    passed: bool
    found: str


@dataclass(frozen=True)
class Program:
    name: str
    #: The package and its version.
    sdk: str
    version: str
    #: What is looked for on the machine, in this order.
    tools: tuple[str, ...]
    #: Where its operations are declared, below this folder; the build depends on these and on `beside`.
    sources: tuple[str, ...]
    beside: tuple[str, ...]
    #: Makes it in a folder, and what to run there.
    build: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    #: Made for each operation before the program runs: `hub`, `queue`, `topic`.
    entities: tuple[str, ...] = ()
    ways: tuple[str, ...] = ("loopback", "tls", "websocket")

    @property
    def operations(self) -> list[str]:
        return self._declared(self._files(self.sources))

    def capabilities(self) -> dict[str, list[str]]:
        """Operations by the file that declares them, which is named after what they are about."""
        found = {path.stem: self._declared([path]) for path in self._files(self.sources)}
        return {stem: names for stem, names in found.items() if names}

    def operations_by(self, way: str) -> list[str]:
        """Administration goes over HTTP: it knows no WebSocket."""
        files = self._files(self.sources)
        if way == "websocket":
            files = [path for path in files if "administration" not in path.name.lower()]
        return self._declared(files)

    def missing(self) -> str | None:
        """The first thing that it needs and this machine does not have."""
        for tool in self.tools:
            if shutil.which(tool) is None:
                return f"{tool} is not installed: {self.name} was not tried"
        return None

    @cache  # noqa: B019 - as long as the process; the table of programs lives as long
    def built(self) -> Path:
        """Builds it if anything has changed since it was built. Raises Missing."""
        if (missing := self.missing()) is not None:
            raise Missing(missing)
        folder, stamp = BUILD / self.name, BUILD / f"{self.name}.stamp"
        content = self._content()
        if not stamp.exists() or stamp.read_text() != content:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self.build(folder)
            stamp.write_text(content)
        return folder

    def run(self, environment: dict[str, str], log: Path, chosen: Iterable[str]) -> dict[str, Outcome]:
        """Operations by their names. What it prints is kept beside the log."""
        command = [*self.command(self.built()), *chosen]
        own = {name: value for name, value in os.environ.items() if not name.startswith("BUSWAY_")}
        printed = log.with_suffix(".jsonl")
        with log.open("w") as errors, printed.open("w") as out:
            running = subprocess.Popen(command, stdout=out, stderr=errors, env={**own, **environment})
            try:
                running.wait(RUN_SECONDS_MAX)
            finally:
                running.kill()
                running.wait()
        lines = [json.loads(line) for line in printed.read_text().splitlines() if line.startswith("{")]
        return {
            line["operation"]: Outcome(line["operation"], line["passed"], str(line["found"]))
            for line in lines
        }

    @staticmethod
    def _declared(files: list[Path]) -> list[str]:
        return [name for path in files for name in _DECLARED.findall(path.read_text())]

    def _files(self, patterns: tuple[str, ...]) -> list[Path]:
        return [path for pattern in patterns for path in sorted(SOURCES.glob(pattern))]

    def _content(self) -> str:
        digest = hashlib.sha256()
        for path in self._files((*self.sources, *self.beside)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()


def run_tool(*command: str, folder: Path, environment: dict[str, str] | None = None) -> None:
    """A step of a build; its last words are the reason when it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
