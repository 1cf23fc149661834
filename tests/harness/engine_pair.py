"""Two engines back to back: what one writes the other reads, in slices of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from busway.amqp.connection import Connection, Role
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import ConnectionEvent, ConnectionOpened, LinkAttached, SaslFinished, SaslInitArrived
from busway.amqp.link import Link
from busway.amqp.performatives import Source, Target
from busway.amqp.session import Session
from tests.harness.manual_clock import ManualClock

E = TypeVar("E", bound=ConnectionEvent)


def accept_as_asked(link: Link) -> None:
    """What a friendly server does with an attach."""
    link.accept(source=link.source, target=link.target, max_message_size=262_144)


class EnginePair:
    """A client engine and a server engine. `pump` carries bytes until both are quiet.

    The server says yes to every login and open; `on_attach` decides about links (None: a test answers itself).
    """

    def __init__(
        self,
        *,
        server: EngineSettings | None = None,
        client: EngineSettings | None = None,
        slice_bytes: int | None = None,
        on_attach: Callable[[Link], None] | None = accept_as_asked,
    ) -> None:
        self.clock = ManualClock()
        now = self.clock.monotonic()
        self.server = Connection(Role.SERVER, server or EngineSettings(container_id="server"), now)
        self.client = Connection(Role.CLIENT, client or EngineSettings(container_id="client"), now)
        self.slice_bytes = slice_bytes
        self.on_attach = on_attach
        self.server_events: list[ConnectionEvent] = []
        self.client_events: list[ConnectionEvent] = []
        #: Everything each side has written.
        self.from_server = b""
        self.from_client = b""

    def opened(self) -> EnginePair:
        """Through SASL and both opens."""
        self.pump()
        return self

    def pump(self) -> None:
        while self.client.has_bytes() or self.server.has_bytes():
            data = self.client.bytes_to_send()
            self.from_client += data
            self._carry(data, self.server, self._server_saw)
            data = self.server.bytes_to_send()
            self.from_server += data
            self._carry(data, self.client, self._client_saw)

    def _carry(self, data: bytes, to: Connection, saw: Callable[[ConnectionEvent], None]) -> None:
        step = self.slice_bytes or max(len(data), 1)
        for at in range(0, len(data), step):
            for event in to.receive(data[at : at + step], self.clock.monotonic()):
                saw(event)

    def _server_saw(self, event: ConnectionEvent) -> None:
        self.server_events.append(event)
        if isinstance(event, SaslInitArrived):
            for following in self.server.sasl_outcome(True):
                self._server_saw(following)
        elif isinstance(event, ConnectionOpened):
            self.server.open()
        elif isinstance(event, LinkAttached) and self.on_attach is not None:
            self.on_attach(event.link)

    def _client_saw(self, event: ConnectionEvent) -> None:
        self.client_events.append(event)
        if isinstance(event, SaslFinished) and event.ok:
            self.client.open()

    def tick(self, seconds: float) -> None:
        """Time passes for both."""
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        for event in self.server.tick(now):
            self._server_saw(event)
        for event in self.client.tick(now):
            self._client_saw(event)

    # --- shortcuts ----------------------------------------------------------------------------------------------

    def begin(self) -> Session:
        session = self.client.begin()
        self.pump()
        return session

    def sender(
        self, name: str = "to-queue", session: Session | None = None, credit: int = 100
    ) -> tuple[Link, Link]:
        """(client's sending link, server's receiving link)."""
        session = session or self.begin()
        ours = session.attach(name, is_sender=True, source=Source("client"), target=Target("queue"))
        self.pump()
        theirs = self.last_server(LinkAttached).link
        if credit:
            theirs.grant_credit(credit)
            self.pump()
        return ours, theirs

    def receiver(
        self, name: str = "from-queue", session: Session | None = None, credit: int = 100
    ) -> tuple[Link, Link]:
        """(client's receiving link, server's sending link)."""
        session = session or self.begin()
        ours = session.attach(name, is_sender=False, source=Source("queue"), target=Target("client"))
        self.pump()
        theirs = self.last_server(LinkAttached).link
        if credit:
            ours.grant_credit(credit)
            self.pump()
        return ours, theirs

    def server_saw(self, kind: type[E]) -> list[E]:
        return [event for event in self.server_events if isinstance(event, kind)]

    def client_saw(self, kind: type[E]) -> list[E]:
        return [event for event in self.client_events if isinstance(event, kind)]

    def last_server(self, kind: type[E]) -> E:
        return self.server_saw(kind)[-1]

    def last_client(self, kind: type[E]) -> E:
        return self.client_saw(kind)[-1]
