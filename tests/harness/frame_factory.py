"""Any frame, legal or not, and a server engine at any point of its life."""

from __future__ import annotations

from struct import pack, unpack_from

from busway.amqp.connection import Connection, Role
from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import ConnectionEvent, ConnectionOpened, SaslInitArrived
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    SaslInit,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)


def make_frame(
    performative: Performative | bytes,
    *,
    channel: int = 0,
    payload: bytes = b"",
    frame_type: int = 0,
    doff: int = 2,
    size: int | None = None,
) -> bytes:
    """Any part of the frame head can be a lie."""
    body = performative if isinstance(performative, bytes) else encode_performative(performative)
    body += payload
    extended = b"\x00" * max(0, doff * 4 - 8)
    true_size = 8 + len(extended) + len(body)
    head = pack(">IBBH", true_size if size is None else size, doff, frame_type, channel)
    return head + extended + body


def sasl(performative: Performative | bytes) -> bytes:
    return make_frame(performative, frame_type=1)


def split_frames(data: bytes) -> list[tuple[int, int, Performative | None, bytes]]:
    """(frame type, channel, performative or None, payload) of everything an engine wrote; headers are skipped."""
    found: list[tuple[int, int, Performative | None, bytes]] = []
    at = 0
    while at < len(data):
        if data[at : at + 4] == b"AMQP":
            at += 8
            continue
        size, doff, kind, channel = unpack_from(">IBBH", data, at)
        body, end = at + doff * 4, at + size
        if body == end:
            found.append((kind, channel, None, b""))
        else:
            performative, payload_at = decode_performative(data, body, end)
            found.append((kind, channel, performative, data[payload_at:end]))
        at = end
    return found


def performatives(data: bytes) -> list[Performative]:
    return [performative for _, _, performative, _ in split_frames(data) if performative is not None]


class FrameFactory:
    """A server engine, fed with raw frames by a client that is under the test's full control."""

    def __init__(self, settings: EngineSettings | None = None, now: float = 1_000.0) -> None:
        self.now = now
        self.server = Connection(Role.SERVER, settings or EngineSettings(container_id="server"), now)
        self.events: list[ConnectionEvent] = []

    def feed(self, data: bytes) -> list[ConnectionEvent]:
        """The events of these bytes; logins and opens are answered."""
        news: list[ConnectionEvent] = []
        for event in self.server.receive(data, self.now):
            news += self._see(event)
        self.events += news
        return news

    def _see(self, event: ConnectionEvent) -> list[ConnectionEvent]:
        news = [event]
        if isinstance(event, SaslInitArrived):
            for following in self.server.sasl_outcome(True):
                news += self._see(following)
        elif isinstance(event, ConnectionOpened):
            self.server.open()
        return news

    def send(
        self, performative: Performative, channel: int = 0, payload: bytes = b""
    ) -> list[ConnectionEvent]:
        return self.feed(make_frame(performative, channel=channel, payload=payload))

    def written(self) -> list[Performative]:
        """What the server has written since the last look."""
        return performatives(self.server.bytes_to_send())

    def logged_in(self) -> FrameFactory:
        self.feed(SASL_HEADER + sasl(SaslInit("ANONYMOUS")) + AMQP_HEADER)
        return self

    def opened(self, client: Open | None = None) -> FrameFactory:
        self.logged_in()
        self.send(client or Open("client"))
        return self

    def begun(self, channel: int = 0) -> FrameFactory:
        if self.server.peer is None:
            self.opened()
        self.send(Begin(None, 0, 65_536, 65_536), channel)
        return self

    def attach(
        self, *, name: str = "link", handle: int = 0, sends: bool = True, channel: int = 0
    ) -> list[ConnectionEvent]:
        """The client attaches; `sends` is the client's role."""
        return self.send(
            Attach(
                name,
                handle,
                ROLE_SENDER if sends else ROLE_RECEIVER,
                source=Source("there"),
                target=Target("here"),
                initial_delivery_count=0 if sends else None,
            ),
            channel,
        )

    def transfer(
        self, delivery_id: int, payload: bytes = b"x", *, handle: int = 0, more: bool = False
    ) -> list[ConnectionEvent]:
        return self.send(Transfer(handle, delivery_id, b"tag", 0, False, more), payload=payload)

    def credit(
        self, credit: int, *, handle: int = 0, drain: bool = False, delivery_count: int = 0
    ) -> list[ConnectionEvent]:
        return self.send(Flow(1, 65_536, 0, 65_536, handle, delivery_count, credit, None, drain))
