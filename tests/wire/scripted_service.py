"""The smallest service that an SDK talks to: logins, `$cbs`, and one queue in memory. Deterministic, so that what it
writes depends only on what it reads; transcripts are recorded from it and replayed into it."""

from __future__ import annotations

from collections import deque

from busway.amqp.connection import Connection, Role
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import (
    ConnectionEvent,
    ConnectionOpened,
    CreditArrived,
    DeliveriesArrived,
    LinkAttached,
    OutcomesArrived,
    SaslInitArrived,
)
from busway.amqp.link import Link
from busway.amqp.performatives import ACCEPTED, Accepted, Properties, Rejected
from busway.amqp.sections import VALUE, AmqpMessage, decode_message, encode_message, split_batch
from busway.amqp.types import Int

BATCH_FORMAT = 0x80013700


class ScriptedService:
    """One connection. `receive` takes what the client wrote and gives what it gets back."""

    def __init__(self) -> None:
        # Small frames, so that small messages need several.
        settings = EngineSettings(container_id="transcript", max_frame_size=4_096)
        self.engine = Connection(Role.SERVER, settings, 0.0)
        self.events: list[ConnectionEvent] = []
        #: What was sent to the queue and is not locked.
        self.messages: deque[bytes] = deque()
        #: Each outcome the client gave, in order.
        self.outcomes: list[object] = []
        self.sent = 0
        #: A link forgets what its attach said as soon as that is answered.
        self._addresses: dict[Link, str] = {}

    def receive(self, data: bytes) -> bytes:
        for event in self.engine.receive(data, 0.0):
            self._see(event)
        return self.engine.bytes_to_send()

    def _see(self, event: ConnectionEvent) -> None:
        self.events.append(event)
        match event:
            case SaslInitArrived():
                for following in self.engine.sasl_outcome(True):
                    self._see(following)
            case ConnectionOpened():
                self.engine.open()
            case LinkAttached(link=link):
                self._attach(link)
            case DeliveriesArrived():
                self._store(event)
            case CreditArrived(link=link):
                self._deliver(link)
            case OutcomesArrived():
                self._settle(event)
            case _:
                pass

    def _attach(self, link: Link) -> None:
        self._addresses[link] = _address(link)
        link.accept(source=link.source, target=link.target, max_message_size=262_144)
        if not link.is_sender:
            link.grant_credit(100)

    def _store(self, event: DeliveriesArrived) -> None:
        first, last = event.deliveries[0], event.deliveries[-1]
        event.link.settle(first.delivery_id, last.delivery_id, ACCEPTED)
        event.link.grant_credit(100)
        for delivery in event.deliveries:
            if self._addresses[event.link] == "$cbs":
                self._answer_token(event.link, delivery.payload)
            elif delivery.message_format == BATCH_FORMAT:
                self.messages.extend(split_batch(delivery.payload))
            else:
                self.messages.append(delivery.payload)

    def _answer_token(self, link: Link, payload: bytes) -> None:
        request = decode_message(payload)
        assert request.properties is not None
        answer = AmqpMessage(
            None,
            VALUE,
            properties=Properties(correlation_id=request.properties.message_id),
            application_properties={"status-code": Int(202), "status-description": "Accepted"},
        )
        for other in link.session.links.values():
            if other.is_sender and self._addresses[other] == "$cbs":
                other.send(b"cbs", encode_message(answer), settled=True)

    def _deliver(self, link: Link) -> None:
        if self._addresses[link] != "$cbs":
            while self.messages and link.room() > 0:
                self.sent += 1
                link.send(self.sent.to_bytes(16, "big"), self.messages.popleft(), settled=False)
        link.drained()

    def _settle(self, event: OutcomesArrived) -> None:
        self.outcomes += [event.state] * len(event.deliveries)
        if not event.settled:
            # A dead-letter wish is answered without an error, everything else in kind.
            state = Rejected() if isinstance(event.state, Rejected) else event.state
            event.link.answer(event.deliveries, ACCEPTED if isinstance(state, Accepted) else state)


def _address(link: Link) -> str:
    terminus = link.source if link.is_sender else link.target
    address = None if terminus is None else getattr(terminus, "address", None)
    return address.decode() if isinstance(address, bytes) else str(address)
