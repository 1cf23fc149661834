"""A client that writes any bytes over AMQP, straight on a socket or in a WebSocket, and reads no more than it must.

It keeps little of what it hears, so that memory that is measured beside it is the server's.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from struct import pack
from typing import TYPE_CHECKING

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Close,
    Coordinator,
    Disposition,
    Fields,
    Flow,
    Open,
    Performative,
    Properties,
    SaslInit,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from busway.amqp.sasl import plain_response
from busway.amqp.sections import AmqpMessage, encode_message
from busway.amqp.types import Symbol
from tests.cost.world import WAIT_S, rule_of
from tests.harness.frame_factory import make_frame, sasl

if TYPE_CHECKING:
    from tests.cost.world import World

WINDOW = 1 << 30
FRAME_BYTES = 65_536
BEGIN = make_frame(Begin(None, 0, WINDOW, WINDOW))
SESSION_LINKS = 250
_CHUNK_BYTES = 60_000
#: What a socket of ours holds for a server that does not read at the moment.
_BUFFER_BYTES = 4 << 20


#: Where an answer tells how it went, as an int.
_STATUS = b"status-code\x71"
_HEAD_BYTES = 1_000


class AmqpClient:
    """Logged in with the rule of one right, or a stranger; with one session."""

    def __init__(self, world: World, right: str | None = None, *, opens: bool = True) -> None:
        self._world = world
        self._socket = socket.create_connection(("127.0.0.1", world.port), timeout=WAIT_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._unread = bytearray()
        self.heard: Counter[str] = Counter()
        #: Of the last answer to a request.
        self.status = 0
        self.answer = b""
        #: Of the last transfers: (delivery id, tag), and what else was said lately.
        self.deliveries: list[tuple[int, bytes]] = []
        self.said: list[Performative] = []
        self.is_over = False
        self._next_link = 0
        self._next_delivery = 0
        self._links: dict[str, int] = {}
        self._start()
        if opens:
            self.write(logged_in(right) + make_frame(Open("client", max_frame_size=FRAME_BYTES)) + BEGIN)
            self.hear(Begin=1)

    def _start(self) -> None: ...

    def close(self) -> None:
        self._socket.close()

    # -- out

    def write(self, data: bytes) -> None:
        """At once as far as the sockets hold it: the loop stands still while it is written."""
        self.write_raw(self._wrapped(data))

    def write_raw(self, data: bytes) -> None:
        """The same without a frame around it where there are any."""
        view = memoryview(data)
        self._socket.settimeout(0)
        try:
            with self._world.held():
                while len(view):
                    view = view[self._socket.send(view) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_over = True
        finally:
            self._socket.settimeout(WAIT_S)
        self._write_rest(view)

    def _write_rest(self, view: memoryview) -> None:
        """The server may read no more, which is its good right: what it has not taken after a moment is left."""
        self._socket.settimeout(0.2)
        try:
            while len(view) and not self.is_over:
                view = view[self._socket.send(view) :]
        except TimeoutError:
            pass
        except OSError:
            self.is_over = True
        finally:
            self._socket.settimeout(WAIT_S)

    def _wrapped(self, data: bytes) -> bytes:
        return data

    def say(self, performative: Performative, payload: bytes = b"") -> None:
        self.write(make_frame(performative, payload=payload))

    # -- in

    def hear(self, **wanted: int) -> None:
        """Until so many of each performative were heard since now, or the connection is over. Transfers count when
        they are complete."""
        until = {name: self.heard[name] + count for name, count in wanted.items()}
        while not self.is_over and any(self.heard[name] < count for name, count in until.items()):
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                missing = {name: count - self.heard[name] for name, count in until.items()}
                raise AssertionError(f"not heard: {missing}; heard: {dict(self.heard)}") from None
            except OSError:
                data = b""
            if not data:
                self.is_over = True
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._unread += data
        at = 0
        while len(self._unread) - at >= 8:
            if self._unread[at : at + 4] == b"AMQP":
                at += 8
                continue
            size = int.from_bytes(self._unread[at : at + 4])
            if len(self._unread) - at < size:
                break
            self._frame(bytes(self._unread[at : at + size]))
            at += size
        del self._unread[:at]

    def _frame(self, frame: bytes) -> None:
        body = frame[4] * 4
        if body == len(frame):
            return
        performative, start = decode_performative(frame, body, len(frame))
        if isinstance(performative, Transfer):
            found = frame.find(_STATUS, start, start + _HEAD_BYTES)
            if found >= 0:
                self.status = int.from_bytes(frame[found + len(_STATUS) :][:4])
                self.answer = frame[found : found + _HEAD_BYTES]
            if performative.delivery_id is not None and performative.delivery_tag is not None:
                self.deliveries.append((performative.delivery_id, performative.delivery_tag))
            if performative.more:
                return
        else:
            self.said.append(performative)
        if isinstance(performative, Disposition):
            first, last = performative.first, performative.last
            self.heard["Settled"] += 1 if last is None else last - first + 1
        self.heard[type(performative).__name__] += 1

    def closed_with(self) -> str | None:
        """The condition of the server's close; "dropped" when it said none."""
        for said in self.said:
            if isinstance(said, Close):
                return None if said.error is None else str(said.error.condition)
        return "dropped"

    # -- links

    def attach(self, address: str, *, sends: bool, **more: object) -> int:
        """Answered when this returns. Gives the link's number."""
        link, frame = self.attach_frame(address, sends=sends, **more)
        self.write(frame)
        self.hear(Attach=1)
        return link

    def attach_frame(
        self,
        address: str,
        *,
        sends: bool,
        deletes: bool = False,
        name: str = "",
        session: str | None = None,
        **more: object,
    ) -> tuple[int, bytes]:
        """`session`: of a receiver. `more` are fields of the attach. A session has so many links and no more: what
        is beyond them is on further ones."""
        link = self._next_link
        self._next_link += 1
        channel, handle = divmod(link, SESSION_LINKS)
        begins = (
            make_frame(Begin(None, 0, WINDOW, WINDOW), channel=channel) if channel and not handle else b""
        )
        made = Attach(
            name or f"link-{link}",
            handle,
            ROLE_SENDER if sends else ROLE_RECEIVER,
            snd_settle_mode=1 if deletes else 0,
            rcv_settle_mode=0 if deletes or sends else 1,
            source=Source("client" if sends else address, filter=_session_filter(session)),
            target=Target(address if sends else f"answers-{link}"),
            initial_delivery_count=0 if sends else None,
        )
        for field, value in more.items():
            setattr(made, field, value)
        return link, begins + make_frame(made, channel=channel)

    def control_link(self) -> int:
        return self.attach("", sends=True, target=Coordinator(None))

    def credit(self, link: int, credit: int) -> bytes:
        channel, handle = divmod(link, SESSION_LINKS)
        return make_frame(Flow(0, WINDOW, 0, WINDOW, handle, 0, credit), channel=channel)

    # -- deliveries

    def transfers(
        self,
        link: int,
        payloads: Sequence[bytes],
        *,
        state: object = None,
        message_format: int = 0,
        settled: bool = False,
        cut: int = 0,
    ) -> bytes:
        """Frames of so many deliveries, on a link of the first session; of each no more than `cut` frames."""
        frames: list[bytes] = []
        for payload in payloads:
            frames += list(self._parts(link, payload, state, message_format, settled))[: cut or None]
        return b"".join(frames)

    def _parts(
        self, link: int, payload: bytes, state: object, message_format: int, settled: bool
    ) -> Iterator[bytes]:
        delivery = self._next_delivery
        self._next_delivery += 1
        at = 0
        while True:
            end = at + _CHUNK_BYTES
            made = Transfer(link, delivery, pack(">I", delivery), message_format, settled, end < len(payload))
            made.state = state
            yield make_frame(made, payload=payload[at:end])
            at = end
            if at >= len(payload):
                return

    # -- requests

    def desk(self, node: str) -> Desk:
        return Desk(self, node)


def logged_in(right: str | None = None) -> bytes:
    init = SaslInit("ANONYMOUS") if right is None else SaslInit("PLAIN", plain_response(*rule_of(right)))
    return SASL_HEADER + sasl(init) + AMQP_HEADER


def _session_filter(session: str | None) -> Fields | None:
    return None if session is None else {Symbol("com.microsoft:session-filter"): session}


class Desk:
    """The two links of a node for requests."""

    def __init__(self, client: AmqpClient, node: str) -> None:
        self._client = client
        self.answers = client.attach(node, sends=False)
        self.requests = client.attach(node, sends=True)
        client.write(client.credit(self.answers, 100_000))
        self._reply_to = f"answers-{self.answers}"
        self._asked = 0

    def request(
        self,
        operation: str,
        body: object,
        *,
        times: int = 1,
        properties: dict[str, object] | None = None,
        state: object = None,
    ) -> bytes:
        named = {"operation": operation, **(properties or {})}
        payloads = []
        for _ in range(times):
            self._asked += 1
            message = AmqpMessage(
                body,
                properties=Properties(message_id=f"m{self._asked}", reply_to=self._reply_to),
                application_properties=dict(named),
            )
            payloads.append(encode_message(message))
        return self._client.transfers(self.requests, payloads, state=state)

    def operation(self, name: str, body: dict[str, object], *, times: int = 1, **more: object) -> bytes:
        return self.request(f"com.microsoft:{name}", body, times=times, properties=dict(more))


class WebSocketClient(AmqpClient):
    """The same bytes in WebSocket messages."""

    #: How the bytes of one write are cut.
    message_bytes = 1 << 20

    def _start(self) -> None:
        self._frames = bytearray()
        self._socket.sendall(
            b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._socket.recv(65_536)
        assert b" 101 " in head.split(b"\r\n")[0], head
        self._frames += head.partition(b"\r\n\r\n")[2]

    def _wrapped(self, data: bytes) -> bytes:
        step = self.message_bytes
        return b"".join(web_frame(data[at : at + step]) for at in range(0, len(data), step))

    def _take(self, data: bytes) -> None:
        self._frames += data
        at = 0
        while len(self._frames) - at >= 2:
            start, size = at + 2, self._frames[at + 1] & 0x7F
            if size > 125:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(self._frames[start : start + width]), start + width
            if len(self._frames) < start + size:
                break
            if self._frames[at] & 0x0F == 8:
                self.is_over = True
            elif self._frames[at] & 0x0F == 2:
                super()._take(bytes(self._frames[start : start + size]))
            at = start + size
        del self._frames[:at]


def web_frame(data: bytes, opcode: int = 2, *, is_last: bool = True) -> bytes:
    """Masked with zeros, which changes nothing of the bytes."""
    first = (0x80 if is_last else 0) | opcode
    if len(data) < 126:
        head = pack(">BB", first, 0x80 | len(data))
    elif len(data) < 65_536:
        head = pack(">BBH", first, 0x80 | 126, len(data))
    else:
        head = pack(">BBQ", first, 0x80 | 127, len(data))
    return head + b"\x00\x00\x00\x00" + data


Connect = Callable[[], AmqpClient]
