"""The bus that a source or sink talks to: its name, address and kind, connections to it, and its failures.

A connection string is given, or stands behind a name: `connection 'prod'`, for those who must not hold the key, or
whose language has no place for it, such as SQL. The name is looked up where queries are planned, on the driver or
on the server of Spark Connect or Thrift: first in the environment, BUSWAY_CONNECTION_PROD, then in the file that
BUSWAY_CONNECTIONS names:

    [prod]
    connectionString = "Endpoint=sb://…"
    caFile = "/etc/busway/ca.pem"

What was found travels on as if it had been given; no sentence ever repeats it. A job that ran elsewhere may bring
a connection string that cannot be used here: it is refused and told what to do instead.

A `Bus` travels to executors inside of readers and writers, so it holds text only; connections are made where they
are used. It is Busway when it tells its health over HTTP as Busway does; any other that is there is spoken to as
to Azure, by AMQP alone. The key never shows in a representation.

The option `caFile` names a file on the driver with the certificate authority that is trusted, or is the
certificate itself as PEM text. Either way the text travels with readers and writers, and a process that connects
writes it to a private file of its own once: executors need no copy of the file beforehand.

What goes wrong on the bus is said so that a reader of Spark's error knows what to do. No key is ever in it.

A `Bridge` leads from Spark's blocking calls to the asynchronous client. A Python process of Spark (a worker of an
executor, or the driver's process of a stream) gets one event loop in a thread of its own and one connection for
each bus and key; both live as long as the process, which Spark uses again for later tasks. A child that is forked
gets its own: an event loop does not survive that. A connection that broke is opened again by the client with the
next use.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.connection_string import BadConnectionString, ConnectionString, token_for
from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Unreachable
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.wire.patience import OPERATION_S, patiently

CONNECTION: Final = "connection"
FILE_VARIABLE: Final = "BUSWAY_CONNECTIONS"
VARIABLE_PREFIX: Final = "BUSWAY_CONNECTION_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_BYTES_MAX: Final = 1 << 20
_KEYS: Final = ("connectionString", "caFile")
#: What azure-event-hubs-spark makes of a connection string: AES, as base64.
_ENCRYPTED: Final = re.compile(r"[A-Za-z0-9+/\s]{40,}={0,2}\s*")
_ENTRA: Final = re.compile(r"(?i)(^|;)\s*authentication\s*=")
ENTRA_REFUSED: Final = (
    "signing in by Microsoft Entra ID is not supported; give a connectionString with SharedAccessKeyName and"
    " SharedAccessKey, or with a SharedAccessSignature."
)
ENCRYPTED_REFUSED: Final = (
    "it looks like one that EventHubsUtils.encrypt has encrypted, which only azure-event-hubs-spark can read. Leave"
    " that call out and give it as it is: Spark's redaction hides it, and `connection` with a name needs no key at"
    " all in the job."
)


@dataclass(frozen=True)
class NamedConnection:
    """Connection strings: by name where the job must not hold the key, and refused with advice where one cannot
    be used."""

    connection_string: str = field(repr=False)
    ca_file: str | None = None


def find_connection(name: str) -> NamedConnection:
    """Raises ValueError with a sentence that begins in lower case."""
    if _NAME.fullmatch(name) is None:
        raise ValueError("a name has letters, digits, '.', '_' and '-', at most 64 of them.")
    variable = VARIABLE_PREFIX + re.sub(r"[.-]", "_", name).upper()
    text = os.environ.get(variable)
    if text:
        return NamedConnection(text)
    path = os.environ.get(FILE_VARIABLE)
    known = {} if not path else _read_connections(Path(path))
    entry = known.get(name)
    if not isinstance(entry, dict):
        others = f" It knows {', '.join(sorted(known)[:20])}." if known else ""
        raise ValueError(
            f"{name!r} is known neither by the environment variable {variable} nor in the file that"
            f" {FILE_VARIABLE} names, where the query is planned.{others}"
        )
    return _of_entry(name, entry)


def _of_entry(name: str, entry: dict[str, object]) -> NamedConnection:
    string, ca_file = (entry.get(key) for key in _KEYS)
    if not isinstance(string, str) or not isinstance(ca_file, str | None) or not set(entry) <= set(_KEYS):
        raise ValueError(
            f"the entry {name!r} of the file that {FILE_VARIABLE} names must have connectionString, may have caFile,"
            " both texts, and nothing else."
        )
    return NamedConnection(string, ca_file)


def _read_connections(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(
            f"the file that {FILE_VARIABLE} names cannot be read where the query is planned: {reason}."
        ) from None
    if len(text) > _FILE_BYTES_MAX:
        raise ValueError(f"the file that {FILE_VARIABLE} names is larger than {_FILE_BYTES_MAX} bytes.")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError):
        # The parser's own words may repeat a line, and with it a key.
        raise ValueError(f"the file that {FILE_VARIABLE} names is no TOML.") from None


def over_websocket(text: str) -> str:
    """The connection string of the same bus, with AMQP by WebSockets."""
    parts = [part for part in text.split(";") if not part.strip().lower().startswith("transporttype=")]
    return ";".join([*filter(str.strip, parts), "TransportType=AmqpWebSockets"])


def parsed(text: str) -> ConnectionString:
    """Raises ValueError with a sentence that never holds a secret."""
    if _ENCRYPTED.fullmatch(text):
        raise ValueError(ENCRYPTED_REFUSED)
    if _ENTRA.search(text):
        raise ValueError(ENTRA_REFUSED)
    try:
        return ConnectionString.parse(text)
    except BadConnectionString as error:
        raise ValueError(str(error)) from None


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
    text = given if _MARK in given else _read_authority(Path(given))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ValueError("there is no certificate in PEM form in it.") from None
    return text


def _read_authority(path: Path) -> str:
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
    """The bus that a source or sink talks to: its address, which kind of server it is, connections to it, and its
    failures as sentences."""

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


T = TypeVar("T")


class Bridge:
    """Use `bridge()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._clients: dict[tuple[str, str | None], ServiceBusClient] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="busway-bridge", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts it; the answer's `result()` waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for it. An interrupted task takes its request back."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def client(self, bus: Bus) -> ServiceBusClient:
        """The process's connection for this bus and key; it opens itself with the first use."""
        key = (bus.connection_string, bus.ca_file)
        if key not in self._clients:
            self._clients[key] = self.run(_made(bus))
        return self._clients[key]

    def close(self) -> None:
        for client in self._clients.values():
            self.run(client.close())
        self._clients.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _made(bus: Bus) -> ServiceBusClient:
    """On the loop, where its locks belong."""
    return bus.client()


_bridge: Bridge | None = None


def bridge() -> Bridge:
    global _bridge
    if _bridge is None or _bridge.pid != os.getpid():
        _bridge = Bridge()
    return _bridge


def close_bridge() -> None:
    """For programs that read in their own process: says good-bye to the buses. The next use opens anew."""
    global _bridge
    if _bridge is not None and _bridge.pid == os.getpid():
        _bridge.close()
    _bridge = None


def ask(bus: Bus, operation_s: float, question: Callable[[ServiceBusClient], Coroutine[Any, Any, T]]) -> T:
    """The answer to a question that changes nothing; it is asked again while the bus is away. Raises ClientError."""

    def ask_once() -> T:
        work = bridge()
        return work.run(question(work.client(bus)))

    return patiently(bus.target.authority, operation_s, ask_once)
