"""One port for every protocol: AMQP, AMQP over TLS, WebSocket and HTTP, plain or over TLS.

Theory of operation. A connection passes three stations before a gateway sees it:

1. accepted: the first byte is looked at without taking it (MSG_PEEK). 0x16 opens a TLS handshake, anything
   else is plain. The service it arrived at says whether plain or TLS is served there at all (A-11).
2. handshake: only for TLS, by the event loop's own transport, with a deadline.
3. sniffed: the first decrypted bytes are "AMQP" or the letters of an HTTP method; the transport is handed to
   that gateway's protocol together with the bytes already read. Everything else is closed without an answer.

A connection in these stations is an `Arrival`. All stations together have one deadline per station, and `Arrivals`
bounds how many exist, in all and per peer. Where there are too many the OLDEST is closed and the new one let in: an
honest client speaks within milliseconds, so a thousand silent connections cannot keep
it out, while refusing the newest would lock everybody out until the deadline.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, cast

from busway.event_loop import LOOP
from busway.host_addresses import Address, HostUnknown, addresses_of

_log = logging.getLogger("busway.listener")

ProtocolFactory = Callable[[], asyncio.Protocol]

BACKLOG: Final = 1024
ACCEPTS_PER_WAKEUP: Final = 64
ACCEPT_PAUSE_S: Final = 1.0
PEER_SILENCE_MAX_S: Final = 60
TLS_RECORD_HANDSHAKE: Final = 0x16
AMQP_MAGIC: Final = b"AMQP"
#: What an HTTP/1.1 request may begin with. HTTP/2's preface "PRI " is not here: junk like any other.
HTTP_BEGINNINGS: Final = (b"GET ", b"PUT ", b"POST ", b"DELETE ", b"HEAD ", b"OPTIONS ", b"PATCH ")
#: Errors of accept() that say "not now" about this process or machine, not about one connection.
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ListenError(Exception):
    """The server cannot listen where it was asked to; the text is one sentence for the user."""


@dataclass(frozen=True)
class Service:
    """What one listening socket serves."""

    plain: bool
    tls: bool
    amqp: bool
    http: bool


#: Loopback: everything on one port.
EVERYTHING: Final = Service(plain=True, tls=True, amqp=True, http=True)
#: Network addresses: nothing is plain (A-11).
EVERYTHING_OVER_TLS: Final = Service(plain=False, tls=True, amqp=True, http=True)


@dataclass(frozen=True)
class ListenerSettings:
    """Bounds on what strangers may hold before they have said a word."""

    first_byte_s: float = 10.0
    handshake_s: float = 5.0
    sniff_s: float = 10.0
    arrivals_max: int = 1_000
    arrivals_per_peer_max: int = 64
    arrivals_per_loopback_peer_max: int = 1_000


class Listener:
    """Accepts connections on any number of listening sockets and hands each to the gateway it asks for."""

    def __init__(
        self,
        amqp: ProtocolFactory,
        http: ProtocolFactory,
        tls: ssl.SSLContext | None,
        settings: ListenerSettings | None = None,
    ) -> None:
        self._amqp = amqp
        self._http = http
        self._tls = tls
        self._settings = settings if settings is not None else ListenerSettings()
        self._arrivals = Arrivals(self._settings)
        self._sockets: dict[socket.socket, Service] = {}
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, service: Service = EVERYTHING) -> int:
        """Listen on every address of `host`; port 0 takes a free one. Returns the bound port."""
        if service.tls and self._tls is None:
            raise ListenError(f"{host}:{port} is to serve TLS, but there is no certificate.")
        loop = asyncio.get_running_loop()
        sockets = bind_all(_addresses(host), host, port)
        for listening in sockets:
            self._sockets[listening] = service
            loop.add_reader(listening, self._accept_ready, listening)
        return int(sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop accepting and drop whoever has not been handed over yet. The gateways close the others."""
        loop = asyncio.get_running_loop()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        self._arrivals.clear()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    @property
    def sniff_s(self) -> float:
        return self._settings.sniff_s

    @property
    def arrivals(self) -> int:
        """Connections that have not been handed over yet."""
        return len(self._arrivals)

    # -- accepting --

    def _accept_ready(self, listening: socket.socket) -> None:
        began_s = LOOP.now()
        self._accept_some(listening)
        if LOOP.now() - began_s > LOOP.longest_s:
            LOOP.note(began_s, "new connections")

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_WAKEUP):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            self._admit(accepted, str(address[0]), self._sockets[listening])

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Out of descriptors or memory: without a pause the loop would spin on the still-readable socket."""
        if error.errno not in _OUT_OF_RESOURCES:
            _log.warning("accepting a connection failed: %s", error)
            return
        _log.error("cannot accept connections for %.0f s: %s", ACCEPT_PAUSE_S, error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._pauses[listening] = loop.call_later(ACCEPT_PAUSE_S, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        asyncio.get_running_loop().add_reader(listening, self._accept_ready, listening)

    def _admit(self, accepted: socket.socket, peer: str, service: Service) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _limit_unacknowledged(accepted)
        except OSError:
            accepted.close()
            return
        arrival = Arrival(self, accepted, peer, service)
        self._arrivals.enter(arrival)
        arrival.await_first_byte(self._settings.first_byte_s)

    # -- stations of an arrival --

    def first_byte_seen(self, arrival: "Arrival", first_byte: int) -> None:
        is_tls = first_byte == TLS_RECORD_HANDSHAKE
        if not (arrival.service.tls if is_tls else arrival.service.plain):
            arrival.drop()
            return
        task = asyncio.get_running_loop().create_task(self._connect(arrival, self._tls if is_tls else None))
        arrival.connecting = task
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _connect(self, arrival: "Arrival", tls: ssl.SSLContext | None) -> None:
        """Give the socket to the event loop, through a TLS handshake if it is one."""
        timeout_s = self._settings.handshake_s if tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Sniffer(self, arrival),
                arrival.release_socket(),
                ssl=tls,
                ssl_handshake_timeout=timeout_s,
            )
        except (OSError, TimeoutError) as error:
            # The peer's affair: a scanner, or a client that does not trust our authority.
            _log.debug("connection from %s ended before its first word: %s", arrival.peer, error)
            arrival.drop()

    def protocol_for(self, arrival: "Arrival", kind: str) -> asyncio.Protocol | None:
        if kind == "amqp" and arrival.service.amqp:
            return self._amqp()
        if kind == "http" and arrival.service.http:
            return self._http()
        return None


def recognise(first_bytes: bytes) -> str:
    """ "amqp", "http", "more" (could still become one of them) or "junk"."""
    if first_bytes.startswith(AMQP_MAGIC):
        return "amqp"
    if first_bytes.startswith(HTTP_BEGINNINGS):
        return "http"
    if any(known.startswith(first_bytes) for known in (AMQP_MAGIC, *HTTP_BEGINNINGS)):
        return "more"
    return "junk"


class Arrival:
    """A connection that has not yet said what it wants. Leaves `Arrivals` exactly once."""

    __slots__ = (
        "_arrivals",
        "_is_reading",
        "_listener",
        "_socket",
        "_timer",
        "connecting",
        "peer",
        "service",
        "transport",
    )

    def __init__(self, listener: Listener, accepted: socket.socket, peer: str, service: Service) -> None:
        self._listener = listener
        self.peer = peer
        self.service = service
        # The three stations: exactly one of these three holds the connection.
        self._socket: socket.socket | None = accepted
        self.connecting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self._is_reading = False
        self._timer: asyncio.TimerHandle | None = None
        self._arrivals: Arrivals | None = None

    def entered(self, arrivals: "Arrivals") -> None:
        self._arrivals = arrivals

    @property
    def is_gone(self) -> bool:
        return self._arrivals is None

    def await_first_byte(self, deadline_s: float) -> None:
        self._start_timer(deadline_s)
        self._peek()

    def _peek(self) -> None:
        assert self._socket is not None
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._start_reading()
            return
        except OSError:
            first = b""
        if not first:
            self.drop()
            return
        self._stop_timer()
        self._listener.first_byte_seen(self, first[0])

    def _start_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().add_reader(self._require_socket(), self._peek)

    def release_socket(self) -> socket.socket:
        """The socket leaves for the event loop's transport, which closes it from now on."""
        accepted = self._require_socket()
        if self._is_reading:
            asyncio.get_running_loop().remove_reader(accepted)
            self._is_reading = False
        self._socket = None
        return accepted

    def _require_socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def connected(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._start_timer(self._listener.sniff_s)

    def leave(self) -> None:
        """Handed over to a gateway."""
        self._stop_timer()
        if self._arrivals is not None:
            self._arrivals.left(self)
            self._arrivals = None

    def drop(self) -> None:
        """Close the connection, wherever it stands."""
        self.leave()
        if self._socket is not None:
            self.release_socket().close()
        if self.transport is not None:
            self.transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    def _start_timer(self, deadline_s: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(deadline_s, self.drop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Arrivals:
    """All arrivals, oldest first, in all and per peer."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._settings = settings
        self._all: OrderedDict[Arrival, None] = OrderedDict()
        self._by_peer: dict[str, OrderedDict[Arrival, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, arrival: Arrival) -> None:
        """Lets the newcomer in, at the expense of the oldest when there is no room."""
        peer = peer_group(arrival.peer)
        if len(self._by_peer.get(peer, ())) >= self._peer_max(peer):
            next(iter(self._by_peer[peer])).drop()
        if len(self._all) >= self._settings.arrivals_max:
            next(iter(self._all)).drop()
        self._all[arrival] = None
        self._by_peer.setdefault(peer, OrderedDict())[arrival] = None
        arrival.entered(self)

    def left(self, arrival: Arrival) -> None:
        peer = peer_group(arrival.peer)
        del self._all[arrival]
        of_peer = self._by_peer[peer]
        del of_peer[arrival]
        if not of_peer:
            del self._by_peer[peer]

    def clear(self) -> None:
        for arrival in list(self._all):
            arrival.drop()

    def _peer_max(self, peer: str) -> int:
        is_loopback = peer == "::1" or peer.startswith("127.")
        return (
            self._settings.arrivals_per_loopback_peer_max
            if is_loopback
            else self._settings.arrivals_per_peer_max
        )


def peer_group(address: str) -> str:
    """Whose share of the arrivals an address uses: its own, or in IPv6 its /64 (which one owner has whole)."""
    ip = ip_address(address.partition("%")[0])
    if ip.version == 4 or ip.is_loopback:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip_address(int(ip) >> 64 << 64))


class Sniffer(asyncio.Protocol):
    """The first protocol of every connection: reads until it knows which one comes next."""

    def __init__(self, listener: Listener, arrival: Arrival) -> None:
        self._listener = listener
        self._arrival = arrival
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's TLS transport is a transport in all but its class.
        self._transport = cast(asyncio.Transport, transport)
        if self._arrival.is_gone:
            self._transport.abort()
        else:
            self._arrival.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        kind = recognise(self._received)
        if kind == "more":
            return
        protocol = None if kind == "junk" else self._listener.protocol_for(self._arrival, kind)
        if protocol is None or self._transport is None or self._arrival.is_gone:
            self._arrival.drop()
            return
        self._arrival.leave()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._received)

    def eof_received(self) -> None:
        """Nothing was asked: the transport closes itself."""

    def connection_lost(self, _exc: Exception | None) -> None:
        self._arrival.drop()


# -- listening sockets --

_PORT_ATTEMPTS: Final = 16


def _addresses(host: str) -> Sequence[Address]:
    """Those that were asked for when it was decided what may be served on them (`host_addresses`)."""
    try:
        return addresses_of(host)
    except HostUnknown as error:
        raise ListenError(f"The host {host!r} is not an address of this machine: {error}.") from error


def bind_all(addresses: Sequence[Address], host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address with one port number; an absent IPv6 is no error beside an IPv4."""
    attempts = _PORT_ATTEMPTS if port == 0 else 1
    for attempt in range(1, attempts + 1):
        try:
            return _bind_once(addresses, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or attempt == attempts:
                raise ListenError(_bind_sentence(error, host, port)) from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _bind_once(addresses: Sequence[Address], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, address in addresses:
            try:
                bound.append(_bind(family, (address[0], port, *address[2:])))
            except OSError as error:
                if not bound or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
            port = int(bound[0].getsockname()[1])
    except OSError:
        for listening in bound:
            listening.close()
        raise
    return bound


def _bind(family: socket.AddressFamily, address: tuple[str | int, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _bind_sentence(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is already in use: stop the program that uses it, or choose another port."
        )
    if error.errno == errno.EACCES:
        return f"Listening on {host} port {port} is not permitted to this user: choose a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine."
    return f"Listening on {host} port {port} failed: {error.strerror or error}."


def _limit_unacknowledged(accepted: socket.socket) -> None:
    """The kernel ends a connection whose peer takes nothing for a minute, closing ones included."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_SILENCE_MAX_S * 1000)
