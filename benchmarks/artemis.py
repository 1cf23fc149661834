"""Apache ActiveMQ Artemis from Maven Central on loopback, the second peer: one durable queue over AMQP 1.0.

The broker is set up by its own `artemis create`, which also tunes it to the disk, and keeps its defaults: the journal
is synced before a message is accepted. With libaio that is a direct write and an fdatasync (`ASYNCIO`), without it a
write and a sync by Java (`NIO`). The archive lies in the cache of this user and is fetched once, by Maven.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from socket import create_connection

import psutil

from benchmarks.generator import Target

VERSION = "2.38.0"
PORT = 25_674
QUEUE = "bench"
CACHE = Path.home() / ".cache" / "busway"
HOME = CACHE / f"apache-artemis-{VERSION}"
_ARTIFACT = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"
_FETCH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_FETCH_S_MAX = 600
_START_S_MAX = 60


def why_not_here() -> str | None:
    """None when it can be had; it is fetched now when it is not there yet."""
    for program in ("java", *(() if HOME.exists() else ("mvn",))):
        if shutil.which(program) is None:
            return f"{program} is not there"
    if not HOME.exists():
        try:
            _fetch()
        except (subprocess.SubprocessError, OSError) as error:
            return f"it could not be fetched: {error}"
    return None


def _fetch() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    fetched = CACHE / "artemis-being-fetched"
    command = ["mvn", "-q", "-B", _FETCH, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fetched}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S_MAX, cwd=CACHE)
    try:
        shutil.unpack_archive(fetched / f"{HOME.name}-bin.tar.gz", fetched)
        (fetched / HOME.name).rename(HOME)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def _has_libaio() -> bool:
    """It is the faster way to the disk, so it is installed where apt and root allow it."""
    if ctypes.util.find_library("aio") is None and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "-qq", "libaio1"], check=False, capture_output=True)
    return ctypes.util.find_library("aio") is not None


class Artemis:
    """A context manager: no process is left behind it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.journal = "ASYNCIO" if _has_libaio() else "NIO"
        self.pid = 0

    def __enter__(self) -> Artemis:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Its own start script runs Java as a child."""
        instance = self._folder / "instance"
        if not instance.exists():
            self._create(instance)
        with (self._folder / "output.log").open("wb") as log:
            self._process = subprocess.Popen([instance / "bin" / "artemis", "run"], stdout=log, stderr=log)
        self._wait_for_port()
        self.pid = self._java().pid

    def _create(self, instance: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        words = ["--silent", "--user", "bench", "--password", "bench", "--require-login", "--no-web"]
        words += ["--host", "127.0.0.1", "--default-port", str(PORT), "--queues", f"{QUEUE}:anycast"]
        words += [f"--no-{protocol}-acceptor" for protocol in ("amqp", "hornetq", "mqtt", "stomp")]
        words += ["--aio" if self.journal == "ASYNCIO" else "--nio"]
        command = [HOME / "bin" / "artemis", "create", instance, *words]
        subprocess.run(command, check=True, capture_output=True, timeout=_START_S_MAX)
        settings = (instance / "etc" / "broker.xml").read_text()
        for wanted in (
            f"<journal-type>{self.journal}<",
            "<journal-datasync>true<",
            "<persistence-enabled>true<",
        ):
            assert wanted in settings, f"Artemis was set up without {wanted}>"

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + _START_S_MAX
        while time.monotonic() < deadline:
            try:
                create_connection(("127.0.0.1", PORT), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"Artemis did not start: see {self._folder}/output.log")

    def _java(self) -> psutil.Process:
        assert self._process is not None
        starter = psutil.Process(self._process.pid)
        for process in (starter, *starter.children(recursive=True)):
            if process.name() == "java":
                return process
        raise RuntimeError("the process of Artemis was not found")

    def target(self) -> Target:
        return Target("Artemis", f"127.0.0.1:{PORT}", QUEUE, "bench", "bench", self.pid)

    def stop(self) -> None:
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process = None
