"""Assembly: what a server is made of, in the order it is put together. Nothing is decided here.

data directory → stores → namespace → config → gateways (`served_bus`) → certificates → listener → ready file

Where servers share their stores the listener comes first, and the bus when the stores are our own (`sharing`).

An `Announcement` is where a bus is to be found: connection string, console address, and the files that repeat
them. Beyond loopback the official SDKs look at port 5671 for AMQP and at 443 for HTTPS, whatever the endpoint
says, so the endpoint has no port when these two are served. Other ports are for clients that take one; both serve
AMQP and HTTPS, so one endpoint does for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import platform
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from busway.client.connection_string import compose
from busway.clock import Clock, Entropy
from busway.data_directory import DataDirectory, write_private
from busway.gateway import listener
from busway.gateway.certificates import dns_names, ensure_certificates, server_context
from busway.gateway.served_protocols import ServedProtocols
from busway.log_lines import log_to_stream, prepare
from busway.model.descriptions import ROOT_RULE_NAME
from busway.model.limits import Limits
from busway.serve_options import ServeOptions
from busway.served_bus import ServedBus, limits_of
from busway.served_bus import ServerFailed as ServerFailed
from busway.signals.measured_process import StallMeter
from busway.store.postgres.url import is_postgres

if TYPE_CHECKING:
    from busway.cluster.cluster_node import ClusterNode
    from busway.config.config import Config
    from busway.sharing import Sharing

AMQPS_PORT: Final = 5671
HTTPS_PORT: Final = 443


@dataclass(frozen=True)
class Announcement:
    """Where a bus is to be found: connection string, console address, and the files that repeat them."""

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

    def record(self, directory: DataDirectory, *, is_serving: bool = True) -> None:
        """For the verbs that look for the server of a data directory."""
        directory.write_server(
            {
                **self.facts(),
                **({} if is_serving else {"serving": False}),
                "port": self.endpoint_port,
                "emulator": self.is_loopback,
                "key_file": _absolute(self.key_file),
            }
        )

    def write_ready_file(self, path: Path) -> None:
        """Whole or not at all: who waits for the file may read it the moment it exists. It holds a key."""
        text = json.dumps({"connection_string": self.connection_string, **self.facts()}, indent=2)
        write_private(path, text + "\n")


def public_host(host: str, certificate: Path, key: Path) -> str:
    """An address that means "all of them" names no server: then the certificate's first name does, else the
    machine's."""
    try:
        is_all = ip_address(host).is_unspecified
    except ValueError:
        return host
    if not is_all:
        return host
    return next((name for name in dns_names(certificate, key) if "*" not in name), socket.gethostname())


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


_log = logging.getLogger("busway.server")

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
#: Of memory that is free at the end of a heap so much is kept; and only larger pieces are mapped by themselves, and
#: given back as soon as they are free.
FREED_KEPT_BYTES: Final = 16 << 20
MAPPED_ALONE_BYTES: Final = 4 << 20
#: Their names in glibc's `mallopt` and in the environment.
_GIVEN_BACK: Final = -1
_MAPPED_ALONE: Final = -3
_ALLOCATOR_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
SLICE_NS: Final = 300_000
#: The number of `sched_setattr`, for which Python has no function.
_CALL_NUMBERS: Final = {"x86_64": 314, "aarch64": 274}
#: size, policy, flags, nice, priority, runtime, deadline, period
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
_ORDINARY: Final = 0


def serve(options: ServeOptions, config: Config | None = None) -> None:
    """Runs until SIGTERM or SIGINT. `config`: what `options.config` holds, if it was read already."""
    log_to_stream(options.log_format, options.log_level)
    gc.freeze()  # what was imported stays, and there is hardly any garbage in it: nobody looks for that
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(options, config))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it exists: cheaper with many connections."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def slow_the_collector() -> None:
    """Before anything large is read. Neither descriptions nor messages hold cycles: reference counts free them, and
    the cyclic collector would look at every one of them again and again."""
    gc.set_threshold(250_000, 20, 50)
    gc.enable()  # it rests while a server is imported


def keep_freed_memory() -> None:
    """Some of what is freed stays with the process, for what comes next. By default glibc gives it back as soon as
    twice the largest piece is free: then each chunk of a megabyte that is written or read costs a fault for every
    page of it, several times what is done with it. Whoever sets this in the environment has his way."""
    if sys.platform != "linux" or any(name in os.environ for name in _ALLOCATOR_SETTINGS):
        return
    with contextlib.suppress(OSError, AttributeError):  # another library than glibc
        set_option = ctypes.CDLL(None).mallopt
        set_option(_MAPPED_ALONE, MAPPED_ALONE_BYTES)
        set_option(_GIVEN_BACK, FREED_KEPT_BYTES)


def ask_for_short_slices() -> bool:
    """Asks the kernel for processor time in short slices, for this thread and those that it starts.

    By default Linux lets a thread run for some 3 ms before another one that was woken gets its turn, also when that
    other one is worth ten times as much. A server that answers in a fraction of a millisecond then waits for whatever
    the machine does beside it. Whoever asks for short slices gets no more time, but gets it sooner (Linux 6.12 and
    later). False where the kernel knows nothing of it."""
    number = _CALL_NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, _ORDINARY, 0, os.nice(0), 0, SLICE_NS, 0, 0)
    try:
        answer = ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(wanted), 0)
    except (OSError, AttributeError):
        return False
    return bool(answer == 0)


def _freeze_what_is_there() -> None:
    """What the start has made stays; the collector does not look at it any more."""
    gc.collect()
    gc.freeze()


async def _serve(options: ServeOptions, config: Config | None) -> None:
    server = Server(options, config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.stop_at_eof:
        Thread(target=_wait_for_end_of_input, args=(loop, stopping), daemon=True).start()
    async with contextlib.AsyncExitStack() as stack:
        await server.start(stack)
        await server.run(stopping)
        _log.info("stopping")


def _wait_for_end_of_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """In a thread, because standard input may be a file, which no loop can watch. Nobody waits for it at the end."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(stopping.set)


class Server:
    """Built by `start`, taken down in reverse by the exit stack that it is given."""

    def __init__(self, options: ServeOptions, config: Config | None = None) -> None:
        self._options = options
        self._config = config
        self._clock = Clock()
        self._entropy = Entropy()
        self._directory = DataDirectory(options.data)
        self._host = options.host
        self._port = 0
        self._https_port: int | None = None
        self._ca_file: Path | None = None
        self._stalls = StallMeter()
        self.bus: ServedBus | None = None
        self._protocols = ServedProtocols()
        #: Where servers share their stores.
        self._sharing: Sharing | None = None
        self._is_stopping = False

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """The bus is served then; where servers share their stores, it has come as far as to wait for them."""
        options = self._options
        self._directory.acquire()
        stack.callback(self._directory.release)
        config = self.read_config()
        if config is not None and "File" in config.log_types:
            self._log_to_file(stack)
        if any(is_postgres(address) for address in options.store_urls):
            await self._share(stack)
            return
        bus = self.bus = self.new_bus()
        await bus.start(stack, config)
        self._protocols.begin(bus.amqp, bus.http)
        self._watch_loop(stack)
        await self._listen(stack)

    def _watch_loop(self, stack: contextlib.AsyncExitStack) -> None:
        """Once the start is over: nobody waits during it."""
        self._stalls.start()
        stack.callback(self._stalls.stop)

    async def run(self, stopping: asyncio.Event) -> None:
        """Serves until then."""
        if self._sharing is not None:
            await self._sharing.run(stopping)
        else:
            self.announce()
            await stopping.wait()
        self._is_stopping = True

    def read_config(self) -> Config | None:
        """What was read already, if it was, and only once: it may be large."""
        options = self._options
        config, self._config = self._config, None
        if options.config is not None and (config is None or limits_of(options) != Limits()):
            from busway.config.config import read_config  # for those who have such a file

            return read_config(options.config, limits_of(options))
        return config

    def new_bus(self, node: ClusterNode | None = None) -> ServedBus:
        return ServedBus(
            self._options,
            self._directory,
            self._clock,
            self._entropy,
            self._stalls,
            self.readiness,
            node,
        )

    def readiness(self) -> str:
        """`ready`, or why a balancer should send nobody here."""
        if self._is_stopping:
            return "stopping"
        return "ready" if self._sharing is None else self._sharing.readiness()

    async def _share(self, stack: contextlib.AsyncExitStack) -> None:
        """With other servers on the same databases. It listens at once, so that balancers can ask."""
        try:
            # For those who have one: psycopg need not be there.
            from busway.sharing import Sharing
        except ImportError as error:
            raise ServerFailed(
                f"Stores in PostgreSQL need psycopg: pip install 'busway[postgres]' ({error})."
            ) from error
        sharing = self._sharing = Sharing(
            self._options, self._directory, self._clock, self._entropy, self._protocols, self
        )
        stack.push_async_callback(self._protocols.close)
        await self._listen(stack)
        self._announcement("").record(self._directory, is_serving=False)
        host = f"[{self._host}]" if ":" in self._host else self._host
        await sharing.enter(stack, f"{host}:{self._port}")
        self._watch_loop(stack)

    def _log_to_file(self, stack: contextlib.AsyncExitStack) -> None:
        """Besides the terminal; the oldest lines go when it has grown."""
        from logging.handlers import RotatingFileHandler  # for those who want one: it brings pickle along

        handler = RotatingFileHandler(self._directory.log, maxBytes=LOG_BYTES_MAX, backupCount=1)
        prepare(handler, self._options.log_format)
        logging.getLogger().addHandler(handler)
        stack.callback(handler.close)
        stack.callback(logging.getLogger().removeHandler, handler)

    async def _listen(self, stack: contextlib.AsyncExitStack) -> None:
        options = self._options
        certificate, key = options.tls_cert, options.tls_key
        if certificate is None or key is None:
            files = ensure_certificates(self._directory.tls, self._clock, self._entropy, [options.host])
            certificate, key, self._ca_file = files.server, files.server_key, files.ca
        ports = listener.Listener(
            self._protocols.amqp, self._protocols.http, server_context(certificate, key)
        )
        stack.push_async_callback(ports.close)
        if options.is_loopback:
            self._port = await ports.start(options.host, options.port)
            return
        self._host = public_host(options.host, certificate, key)
        tls_port = AMQPS_PORT if options.tls_port is None else options.tls_port
        https_port = HTTPS_PORT if options.https_port is None else options.https_port
        self._port = await ports.start(options.host, tls_port, listener.EVERYTHING_OVER_TLS)
        self._https_port = await ports.start(options.host, https_port, listener.EVERYTHING_OVER_TLS)

    def announce(self) -> None:
        """The bus is served: tells where, in the ready file, in server.json for other verbs, and on the terminal."""
        assert self.bus is not None, "it is served"
        told = self._announcement(self.bus.root_key)
        told.record(self._directory)
        print(f"connection string: {told.shown}\nconsole:           {told.console_url}", flush=True)
        if self._options.ready_file is not None:
            told.write_ready_file(self._options.ready_file)
        _freeze_what_is_there()

    def withdraw(self) -> None:
        """It is not served here any more."""
        self.bus = None
        gc.unfreeze()  # what it was made of is garbage now
        self._announcement("").record(self._directory, is_serving=False)
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)

    def _announcement(self, root_key: str) -> Announcement:
        return Announcement(
            host=self._host,
            port=self._port,
            root_key=root_key,
            is_loopback=self._options.is_loopback,
            https_port=self._https_port,
            ca_file=self._ca_file,
            key_file=self._options.key_file,
        )
