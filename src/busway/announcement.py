"""Where a bus is to be found: connection string, console address, and the files that repeat them.

Beyond loopback the official SDKs look at port 5671 for AMQP and at 443 for HTTPS, whatever the endpoint says, so
the endpoint has no port when these two are served. Other ports are for clients that take one; both serve AMQP
and HTTPS, so one endpoint does for all of them.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from busway.client.connection_string import compose
from busway.data_directory import DataDirectory, write_private
from busway.gateway.certificates import dns_names
from busway.model.sas_keys import ROOT_RULE_NAME

AMQPS_PORT: Final = 5671
HTTPS_PORT: Final = 443


@dataclass(frozen=True)
class Announcement:
    host: str  # as clients name it
    port: int
    root_key: str = field(repr=False)
    is_loopback: bool
    https_port: int | None = None  # beyond loopback
    ca_file: Path | None = None
    key_file: Path | None = None

    @property
    def endpoint_port(self) -> int | None:
        is_usual = (self.port, self.https_port) == (AMQPS_PORT, HTTPS_PORT)
        return None if is_usual and not self.is_loopback else self.port

    @property
    def connection_string(self) -> str:
        return compose(
            self.host, self.endpoint_port, ROOT_RULE_NAME, self.root_key, emulator=self.is_loopback
        )

    @property
    def shown(self) -> str:
        """The connection string for the terminal. Beyond loopback what a server prints ends in somebody's log:
        there the key stays in its file."""
        if self.is_loopback:
            return self.connection_string
        key = f"(the key in {self.key_file})"
        return compose(self.host, self.endpoint_port, ROOT_RULE_NAME, key, emulator=False)

    @property
    def console_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.https_port is None:
            return f"http://{host}:{self.port}/$console"
        return f"https://{host}{'' if self.https_port == HTTPS_PORT else f':{self.https_port}'}/$console"

    def facts(self) -> dict[str, object]:
        """Without secrets."""
        return {
            "host": self.host,
            "port": self.port,
            "console_url": self.console_url,
            "ca_file": _absolute(self.ca_file),
            "pid": os.getpid(),
        }

    def record(self, directory: DataDirectory) -> None:
        """For the verbs that look for the server of a data directory."""
        directory.write_server(
            {
                **self.facts(),
                "port": self.endpoint_port,
                "emulator": self.is_loopback,
                "key_file": _absolute(self.key_file),
            }
        )

    def write_ready_file(self, path: Path) -> None:
        """Whole or not at all: who waits for the file may read it the moment it exists. It holds a key."""
        text = json.dumps({"connection_string": self.connection_string, **self.facts()}, indent=2)
        write_private(path, text + "\n")


def public_host(host: str, certificate: Path) -> str:
    """An address that means "all of them" names no server: then the certificate's first name does, else the
    machine's."""
    try:
        is_all = ip_address(host).is_unspecified
    except ValueError:
        return host
    if not is_all:
        return host
    return next((name for name in dns_names(certificate) if "*" not in name), socket.gethostname())


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
