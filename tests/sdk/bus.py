"""The two servers, and the ways to them: `loopback` with the emulator's switch; to one that serves a network with a
certificate, `tls` and `websocket`."""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPSConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from azure.servicebus.management import ServiceBusAdministrationClient

from busway.client.connection_string import sas_token
from busway.clock import Clock, Entropy
from busway.gateway.certificates import ensure_certificates
from tests.harness.running_server import RunningServer
from tests.sdk.program import Program

ENTITY_PARTITIONS = 2
SHORT_LOCK = timedelta(seconds=5)


class Bus(NamedTuple):
    """A way to a server."""

    way: str
    #: As a user has it: without a port where the usual ones would be served.
    connection_string: str
    ca_file: str
    #: Where it in fact listens, for an SDK's custom endpoint or what it has instead; empty if the string says it.
    address: str = ""

    @property
    def facts(self) -> dict[str, str]:
        return dict(part.split("=", 1) for part in self.connection_string.split(";") if part)

    def environment(self, program: Program) -> dict[str, str]:
        return {
            "BUSWAY_CONNECTION_STRING": self.connection_string,
            "BUSWAY_CA_FILE": self.ca_file,
            "BUSWAY_ADDRESS": self.address,
            "BUSWAY_MODE": self.way,
            "BUSWAY_PREFIX": self.prefix(program),
            "NODE_EXTRA_CA_CERTS": self.ca_file,
            "SSL_CERT_FILE": self.ca_file,
        }

    def prefix(self, program: Program) -> str:
        """Programs meet on the servers; their entities do not."""
        return f"{program.name}-{self.way}-"

    def make_entities(self, program: Program) -> None:
        """For SDKs that cannot make them."""
        with ServiceBusAdministrationClient.from_connection_string(
            self._with_port(), connection_verify=self.ca_file
        ) as admin:
            for operation in program.operations:
                name = self.prefix(program) + operation
                if "hub" in program.entities:
                    self._ask_hub("PUT", name, {"PartitionCount": ENTITY_PARTITIONS})
                    self._ask_hub("PUT", f"{name}/consumergroups/second", {})
                if "queue" in program.entities:
                    admin.create_queue(name, lock_duration=SHORT_LOCK)
                if "topic" in program.entities:
                    admin.create_topic(f"{name}-topic")
                    admin.create_subscription(f"{name}-topic", "s")

    def _with_port(self) -> str:
        return self.connection_string.replace("sb://localhost;", f"sb://{self.address};")

    def _ask_hub(self, method: str, path: str, body: object) -> None:
        endpoint = urlsplit(self.facts["Endpoint"])
        host, _, port = (self.address or endpoint.netloc).partition(":")
        token = sas_token(
            f"sb://{endpoint.netloc}/",
            self.facts["SharedAccessKeyName"],
            self.facts["SharedAccessKey"],
            int(time.time()) + 600,
        )
        trust = ssl.create_default_context(cafile=self.ca_file)
        connection = HTTPSConnection(host, int(port), context=trust)
        connection.request(method, f"/$eventhubs/{quote(path)}", json.dumps(body), {"Authorization": token})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status in (200, 201), text


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, Bus]]:
    """Both servers, as ways to them."""
    names = ["localhost", "127.0.0.1", "busway.servicebus.windows.net"]
    files = ensure_certificates(folder / "own", Clock(), Entropy(), names)
    key_file = folder / "root.key"
    key_file.write_text(secrets.token_urlsafe(32) + "\n")
    network = ["--host", "0.0.0.0", "--tls-cert", str(files.server), "--tls-key", str(files.server_key)]
    network += ["--key-file", str(key_file), "--tls-port", "0", "--https-port", "0"]
    with (
        RunningServer(folder / "loopback") as loopback,
        RunningServer(folder / "network", *network) as server,
    ):
        facts = dict(part.split("=", 1) for part in server.connection_string.split(";") if part)
        https_port = urlsplit(str(server.ready["console_url"])).port
        # The certificate is for this name too.
        named = (
            f"Endpoint=sb://localhost;SharedAccessKeyName={facts['SharedAccessKeyName']};"
            f"SharedAccessKey={facts['SharedAccessKey']}"
        )
        yield {
            "loopback": Bus("loopback", loopback.connection_string, loopback.ca_file),
            "tls": Bus("tls", named, str(files.ca), f"localhost:{server.port}"),
            "websocket": Bus("websocket", named, str(files.ca), f"localhost:{https_port}"),
        }
