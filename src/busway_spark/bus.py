"""The bus that a source or sink talks to: its address, which kind of server it is, and connections to it.

A `Bus` travels to executors inside of readers and writers, so it holds text only; connections are made where they are
used. A certificate authority that was given as a file travels as its content. It is Busway when its HTTP door tells
its health as Busway does; anything else is spoken to as to Azure, by AMQP alone. The key never shows in a
representation.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from busway.client.connection_string import ConnectionString
from busway.client.sas_token import token_for
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.authority import authority_file, authority_text

BUSWAY: Final = "busway"
AZURE: Final = "azure"
CONNECT_TIMEOUT_S: Final = 10.0
HTTP_TIMEOUT_S: Final = 60.0
_HEALTH_BYTES_MAX: Final = 64 * 1024
#: Where only Azure answers: these need no question.
_AZURE_SUFFIXES: Final = (
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
)

#: Which kind each authority turned out to be, for the life of the process.
_kinds: dict[str, str] = {}


@dataclass(frozen=True)
class Bus:
    connection_string: str = field(repr=False)
    #: A path, or the certificate itself as PEM text: that travels.
    ca_file: str | None = field(default=None, repr=False)

    @cached_property
    def target(self) -> ConnectionString:
        """Raises BadConnectionString."""
        return ConnectionString.parse(self.connection_string)

    def __getstate__(self) -> dict[str, object]:
        return {"connection_string": self.connection_string, "ca_file": authority_text(self.ca_file)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    # -- AMQP

    def client(self) -> ServiceBusClient:
        """A new connection, opened with its first use."""
        return ServiceBusClient(self.target, self._ca_path())

    # -- HTTP

    def http_connection(self, timeout_s: float = HTTP_TIMEOUT_S) -> http.client.HTTPConnection:
        host, port = self.target.host, self.target.http_port
        if self.target.emulator:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._ca_path())
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def authorization(self, entity: str) -> str:
        """The value of the header `Authorization` for requests about an entity."""
        return token_for(self.target, self.target.audience(entity), time.time())

    def is_azure_host(self) -> bool:
        return self.target.host.lower().endswith(_AZURE_SUFFIXES)

    def kind(self) -> str:
        """BUSWAY or AZURE. An answer counts for the life of the process; silence is asked again next time."""
        authority = self.target.authority
        known = AZURE if self.is_azure_host() else _kinds.get(authority)
        if known is None:
            known = self._ask_kind()
            if known is not None:
                _kinds[authority] = known
        return AZURE if known is None else known

    def _ask_kind(self) -> str | None:
        """None when nobody answered."""
        connection = self.http_connection(CONNECT_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse().read(_HEALTH_BYTES_MAX)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return BUSWAY if _tells_health(answer) else AZURE

    def _ca_path(self) -> Path | None:
        return authority_file(self.ca_file)


def _tells_health(answer: bytes) -> bool:
    try:
        health = json.loads(answer)
    except ValueError:
        return False
    return isinstance(health, dict) and isinstance(health.get("status"), str)
