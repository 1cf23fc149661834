"""RabbitMQ from Debian on loopback, the peer: AMQP 1.0 plugin, a classic and a quorum queue, all durable; on request
headers exchanges, each with a number of queues bound to it."""

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
QUEUE_TYPES = ("classic", "quorum")


def is_installable() -> bool:
    """Installed already, or installed now where apt and root allow it."""
    if SERVER.exists():
        return True
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    subprocess.run(["apt-get", "install", "-y", "-qq", "rabbitmq-server"], check=False, capture_output=True)
    return SERVER.exists()


class RabbitMq:
    def __init__(self, folder: Path, fan_outs: tuple[int, ...] = ()) -> None:
        """`fan_outs`: for each number a headers exchange of either queue type with so many queues."""
        self._folder = folder
        self._fan_outs = fan_outs
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
        (self._folder / "definitions.json").write_text(json.dumps(_definitions(self._fan_outs)))
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
        return self._target(queue, f"/amq/queue/{queue}")

    def fan_out(self, queue_type: str, count: int) -> tuple[Target, list[Target]]:
        """An exchange, and the queues that get what is sent to it."""
        exchange = exchange_name(queue_type, count)
        queues = [self.target(f"{exchange}-{number}") for number in range(count)]
        return self._target(exchange, f"/exchange/{exchange}"), queues

    def _target(self, name: str, address: str) -> Target:
        return Target(f"RabbitMQ {name}", f"127.0.0.1:{PORT}", address, "bench", "bench", self.pid)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None
            subprocess.run(["epmd", "-kill"], capture_output=True, check=False)


def exchange_name(queue_type: str, count: int) -> str:
    return f"fan-{queue_type}-{count}"


def _definitions(fan_outs: tuple[int, ...]) -> dict[str, object]:
    salt = b"salt"
    digest = base64.b64encode(salt + hashlib.sha256(salt + b"bench").digest()).decode()
    fans = [(queue_type, count) for queue_type in QUEUE_TYPES for count in fan_outs]
    return {
        "users": [{"name": "bench", "password_hash": digest, "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "bench", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            *(_queue(queue_type, queue_type) for queue_type in QUEUE_TYPES),
            *(
                _queue(f"{exchange_name(queue_type, count)}-{number}", queue_type)
                for queue_type, count in fans
                for number in range(count)
            ),
        ],
        "exchanges": [_headers_exchange(exchange_name(*fan)) for fan in fans],
        "bindings": [
            _binding(exchange_name(queue_type, count), number)
            for queue_type, count in fans
            for number in range(count)
        ],
    }


def _queue(name: str, queue_type: str) -> dict[str, object]:
    arguments = {"x-queue-type": queue_type}
    return {"vhost": "/", "durable": True, "auto_delete": False, "name": name, "arguments": arguments}


def _headers_exchange(name: str) -> dict[str, object]:
    flags = {"durable": True, "auto_delete": False, "internal": False}
    return {"vhost": "/", "name": name, "type": "headers", "arguments": {}, **flags}


def _binding(exchange: str, number: int) -> dict[str, object]:
    """Without a condition: the plugin hides application properties of AMQP 1.0 from the exchange. So the peer finds
    its queues by walking the bindings, and has nothing to compare."""
    return {
        "vhost": "/",
        "source": exchange,
        "destination": f"{exchange}-{number}",
        "destination_type": "queue",
        "routing_key": "",
        "arguments": {"x-match": "all"},
    }
