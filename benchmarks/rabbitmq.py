"""RabbitMQ from Debian on loopback, the peer: AMQP 1.0 plugin, a classic and a quorum queue, all durable."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil

from benchmarks.generator import Target

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PORT = 25_672
DISTRIBUTION_PORT = 25_673


def is_installable() -> bool:
    """Installed already, or installed now where apt and root allow it."""
    if SERVER.exists():
        return True
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    subprocess.run(["apt-get", "install", "-y", "-qq", "rabbitmq-server"], check=False, capture_output=True)
    return SERVER.exists()


class RabbitMq:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0

    def __enter__(self) -> RabbitMq:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self._settings()}
        log = (self._folder / "output.log").open("wb")
        self._process = subprocess.Popen([str(SERVER)], env=environment, stdout=log, stderr=log)
        self._wait_for_port()
        self.pid = self._beam_pid()

    def _settings(self) -> dict[str, str]:
        (self._folder / "plugins").write_text("[rabbitmq_amqp1_0].")
        (self._folder / "definitions.json").write_text(json.dumps(_definitions()))
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{PORT}\n"
            f"load_definitions = {self._folder}/definitions.json\n"
            "amqp1_0.default_user = none\n"
        )
        return {
            "RABBITMQ_NODENAME": "busway_bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(DISTRIBUTION_PORT),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "HOME": str(self._folder),
        }

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", PORT), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"RabbitMQ did not start: see {self._folder}/output.log")

    def _beam_pid(self) -> int:
        assert self._process is not None
        starter = psutil.Process(self._process.pid)
        for process in (starter, *starter.children(recursive=True)):
            if process.name().startswith("beam"):
                return process.pid
        raise RuntimeError("the RabbitMQ process was not found")

    def target(self, queue: str) -> Target:
        address = f"/amq/queue/{queue}"
        return Target(f"RabbitMQ {queue}", f"127.0.0.1:{PORT}", address, "bench", "bench", self.pid)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None
            subprocess.run(["epmd", "-kill"], capture_output=True, check=False)


def _definitions() -> dict[str, object]:
    salt = b"salt"
    digest = base64.b64encode(salt + hashlib.sha256(salt + b"bench").digest()).decode()
    queue = {"vhost": "/", "durable": True, "auto_delete": False}
    return {
        "users": [{"name": "bench", "password_hash": digest, "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "bench", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            {**queue, "name": "classic", "arguments": {}},
            {**queue, "name": "quorum", "arguments": {"x-queue-type": "quorum"}},
        ],
    }
