"""One side of a comparison: a server that stands on a tree, the load it gets, and what each burst of it cost.

A burst ends for us when the server has settled: its cost counts on while the server rests, and until it is quiet
(`meter` says why). What the server uses idle is learnt before and taken off for that time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import generator
from benchmarks.generator import Load, Target
from benchmarks.meter import Meter
from benchmarks.process_counters import InstructionCounter, cpu_ns
from benchmarks.trees import Tree, TreeFault
from benchmarks.workloads import Order, entities
from tests.harness.running_server import RunningServer

_BODY_BYTES = 1024


@dataclass(frozen=True)
class Cost:
    """Of one burst, for each of its messages."""

    cpu_us: float
    #: None where nothing counts them.
    instructions: float | None


class GeneratorRun:
    """The load generator at work, from the start; a context manager that leaves no process behind."""

    def __init__(self, command: list[str], title: str, server_says: Callable[[], str]) -> None:
        self._title = title
        self._server_says = server_says
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> GeneratorRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def wait(self) -> None:
        """Until every message has been accepted or received."""
        _, error = self._process.communicate()
        if self._process.returncode != 0:
            why = error.strip() or f"status {self._process.returncode}"
            raise TreeFault(f"{self._title}, failed: {why}\n{self._server_says()}")


class Contender:
    """A context manager: the server stands inside it, and no process is left behind it."""

    def __init__(self, tree: Tree, folder: Path, *, is_pure: bool, counts_instructions: bool) -> None:
        self.tree = tree
        self._is_pure = is_pure
        self._counts_instructions = counts_instructions
        folder.mkdir(parents=True)
        config = folder / "entities.json"
        config.write_text(json.dumps(entities()))
        environment = tree.environment(is_pure)
        self._server = RunningServer(folder, "--config", str(config), environment=environment)
        self._counter: InstructionCounter | None = None
        self._began = self._ended = (0, 0, 0)
        #: CPU nanoseconds and instructions that an idle second costs.
        self._idle = (0.0, 0.0)

    def __enter__(self) -> Contender:
        try:
            self._server.start()
            self._check_what_runs()
            if self._counts_instructions:
                self._counter = InstructionCounter(self.pid)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, RuntimeError):
                raise TreeFault(f"{self.tree.title} does not start: {error}") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._counter is not None:
            self._counter.close()
        if self._server.is_running:
            self._server.kill()  # nothing that it holds is needed any more

    def _check_what_runs(self) -> None:
        """By the compiled modules that the process has mapped."""
        maps = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        mapped = [line for line in maps if f"/{self.tree.compiled.name}/" in line]
        own = [line for line in mapped if f"{self.tree.compiled}/" in line]
        if len(own) < len(mapped):
            raise TreeFault(f"{self.tree.title} runs compiled modules of another tree.")
        if not own and not self._is_pure:
            raise TreeFault(
                f"{self.tree.title} runs as pure Python. Is a C compiler there? --pure compares the Python sources."
            )
        if own and self._is_pure:
            raise TreeFault(f"{self.tree.title} runs compiled although the Python sources were asked for.")

    @property
    def pid(self) -> int:
        return self._server.pid

    # -- bursts

    def begin(self) -> None:
        """What is used from now on belongs to the burst."""
        self._began = self._ended = self._used()

    def end(self) -> None:
        """From now on the server rests, or does what the burst has left to be done."""
        self._ended = self._used()

    def learn_idle(self) -> None:
        """Nobody has used the server since `begin`."""
        cpu, instructions, took_s = self._since(self._began)
        self._idle = (cpu / took_s, instructions / took_s)

    def loaded(self, order: Order, messages: int) -> GeneratorRun:
        title = f"{order.mode} on {order.address}, {self.tree.title}"
        return GeneratorRun(self._command(order, messages), title, self._last_words)

    def settled(self, messages: int) -> Cost:
        """After a rest: waits for what the burst left to be done, and says what it cost in all."""
        Meter(self.pid, self._idle[0] / 1e9).wait_until_quiet()
        cpu, instructions, _ = self._since(self._began)
        rest_s = self._since(self._ended)[2]
        cpu, instructions = cpu - self._idle[0] * rest_s, instructions - self._idle[1] * rest_s
        counted = instructions / messages if self._counter is not None else None
        return Cost(cpu / messages / 1000, counted)

    def _last_words(self) -> str:
        status = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        state = "The server has ended" if status == "Z" else "The server still runs"
        return f"{state}; its log: {self._server.log.read_text()[-2000:].strip() or 'empty'}"

    def _used(self) -> tuple[int, int, int]:
        """CPU nanoseconds, instructions, and when that was."""
        instructions = 0 if self._counter is None else self._counter.read()
        return cpu_ns(self.pid), instructions, time.monotonic_ns()

    def _since(self, before: tuple[int, int, int]) -> tuple[float, float, float]:
        """CPU nanoseconds, instructions and seconds."""
        cpu, instructions, at_ns = self._used()
        return cpu - before[0], instructions - before[1], (at_ns - before[2]) / 1e9

    def _command(self, order: Order, messages: int) -> list[str]:
        if order.mode == "bulk":
            words = [self._server.connection_string, order.address, str(order.messages(messages))]
            return [sys.executable, "-m", "benchmarks.bulk_read", *words, *order.options]
        key = re.search("SharedAccessKey=([^;]+)", self._server.connection_string)
        assert key is not None
        host_port = f"127.0.0.1:{self._server.port}"
        user = "RootManageSharedAccessKey"
        target = Target(self.tree.title, host_port, order.address, user, key[1], self.pid)
        load = Load(order.messages(messages), _BODY_BYTES, is_bare=True)
        return [*generator.command(target, order.mode, load), *order.options]
