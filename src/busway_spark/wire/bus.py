"""The bus that a source or sink talks to: its address, which kind of server it is, connections to it, and its
failures as sentences.

A `Bus` travels to executors inside of readers and writers, so it holds text only; connections are made where they are
used. It is Busway when it tells its health over HTTP as Busway does; any other that is there is spoken to as to
Azure, by AMQP alone. The key never shows in a representation.

The option `caFile` names a file on the driver with the certificate authority that is trusted, or is the certificate
itself as PEM text. Either way the text travels with readers and writers, and a process that connects writes it to a
private file of its own once: executors need no copy of the file beforehand.

What goes wrong on the bus is said so that a reader of Spark's error knows what to do. No key is ever in it.
"""

from __future__ import annotations

import atexit
import hashlib
import http.client
import json
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.connection_string import ConnectionString
from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Unreachable
from busway.client.sas_token import token_for
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.patience import OPERATION_S, patiently

_MARK: Final = "-----BEGIN "
_BYTES_MAX: Final = 1 << 20
BUSWAY: Final = "busway"
AZURE: Final = "azure"
CONNECT_TIMEOUT_S: Final = 10.0
HTTP_TIMEOUT_S: Final = 60.0
#: Needs no token.
HEALTH: Final = "/health"
_HEALTH_BYTES_MAX: Final = 64 * 1024
#: Where only Azure answers: these need no question.
_AZURE_SUFFIXES: Final = (
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
)


class BusFailure(Exception):
    """Spark shows the sentence in its PYTHON_DATA_SOURCE_ERROR or STREAM_FAILED."""


@contextmanager
def failing(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise BusFailure(f"Could not {what}: {_reason(error)}") from error


def _reason(error: ClientError) -> str:
    if isinstance(error, EntityMissing):
        return f"there is no such entity. {error}"
    if isinstance(error, NotAuthorised):
        return f"the key does not allow it. {error}"
    if isinstance(error, Unreachable):
        return f"the bus cannot be reached. {error}"
    return str(error)


#: Files that this process has written, by their content; its children write their own.
_files: dict[str, Path] = {}


def authority_text(given: str | None) -> str | None:
    """The PEM text of what the option says. Raises ValueError with a sentence that begins in lower case."""
    if given is None or not given.strip():
        return None
    text = given if _MARK in given else _read(Path(given))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("there is no certificate in PEM form in it.") from None
    return text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode("ascii", errors="replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"{str(path)[:260]!r} cannot be read where the query is planned: {reason}."
        ) from None


def authority_file(given: str | None) -> Path | None:
    """A file with it, on this machine: for what wants a path."""
    if given is None:
        return None
    if _MARK not in given:
        return Path(given)
    name = hashlib.sha256(given.encode()).hexdigest()
    path = _files.get(name)
    if path is None or not path.is_file():
        folder = Path(tempfile.mkdtemp(prefix="busway-authority-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = _files[name] = folder / "ca.pem"
        path.write_text(given)
    return path


#: Which kind each authority turned out to be, for the life of the process.
_kinds: dict[str, str] = {}
#: By the file of the authority that is trusted; making one reads all of them.
_contexts: dict[Path | None, ssl.SSLContext] = {}


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
        """A new one, not yet connected; requests go by `http_client`, which keeps them."""
        host, port = self.target.host, self.target.http_port
        if self.target.emulator:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        path = self._ca_path()
        if path not in _contexts:
            _contexts[path] = ssl.create_default_context(cafile=path)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=_contexts[path])

    def authorization(self, entity: str) -> str:
        """The value of the header `Authorization` for requests about an entity."""
        return token_for(self.target, self.target.audience(entity), time.time())

    def is_azure_host(self) -> bool:
        return self.target.host.lower().endswith(_AZURE_SUFFIXES)

    def kind(self, limit_s: float = OPERATION_S) -> str:
        """BUSWAY or AZURE. An answer counts for the life of the process; silence on HTTP is asked again next time.
        Raises Unreachable when nobody is there, neither by HTTP nor by AMQP."""
        authority = self.target.authority
        known = AZURE if self.is_azure_host() else _kinds.get(authority)
        if known is None:
            known = patiently(authority, limit_s, self._ask_kind)
            if known is not None:
                _kinds[authority] = known
        return AZURE if known is None else known

    def _ask_kind(self) -> str | None:
        """None when somebody is there who does not speak HTTP."""
        connection = self.http_connection(CONNECT_TIMEOUT_S)
        try:
            try:
                connection.connect()
            except ssl.SSLError:
                return None
            except OSError as error:
                self._check_amqp(error)
                return None
            connection.request("GET", HEALTH)
            answer = connection.getresponse().read(_HEALTH_BYTES_MAX)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return BUSWAY if _tells_health(answer) else AZURE

    def _check_amqp(self, error: OSError) -> None:
        """Nobody answers at the port of HTTP. Raises Unreachable when nobody does at that of AMQP either."""
        host, port = self.target.host, self.target.amqp_port
        if port == self.target.http_port:
            raise Unreachable.at(host, port, error)
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as second:
            raise Unreachable.at(host, port, second) from error

    def _ca_path(self) -> Path | None:
        return authority_file(self.ca_file)


def _tells_health(answer: bytes) -> bool:
    try:
        health = json.loads(answer)
    except ValueError:
        return False
    return isinstance(health, dict) and isinstance(health.get("status"), str)


def administration(bus: Bus) -> ServiceBusAdministrationClient:
    """A client to be closed; `with` does that."""
    return ServiceBusAdministrationClient(bus.target, authority_file(bus.ca_file))
