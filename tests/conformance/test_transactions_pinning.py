"""SB-91x: receivers beside a control link, with a client that is not ours (python-qpid-proton)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from busway.client.connection_string import ConnectionString
from tests.conformance.traffic import receive_all, send
from tests.harness.running_server import RunningServer

pytestmark = pytest.mark.sdk

try:
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container
except ImportError:
    HAS_PROTON = False
else:
    HAS_PROTON = True

needs_proton = pytest.mark.skipif(
    not HAS_PROTON, reason="python-qpid-proton is not installed: its transactions were not tried"
)
SECONDS_MAX = 30.0
SENTENCE = "Local transactions cannot span multiple top-level entities such as queue or topic."


class Receivers:
    """Attaches a control link and receivers, one after the other on one session, and says how each was answered."""

    def __init__(self, server: RunningServer, *addresses: str, control_first: bool) -> None:
        self._server = server
        self._left = list(addresses)
        self._control_first = control_first
        #: By address the condition and the sentence of a refusal; None when it stands.
        self.refusals: dict[str, tuple[str, str] | None] = {}
        self.is_declared = False

    def run(self) -> Receivers:
        handler = MessagingHandler(prefetch=0, auto_accept=False)
        for name in ("on_start", "on_link_opened", "on_link_error", "on_timer_task"):
            setattr(handler, name, getattr(self, name))
        Container(handler).run()
        return self

    def on_start(self, event: Any) -> None:
        parts = ConnectionString.parse(self._server.connection_string)
        self._container = event.container
        self._connection = event.container.connect(
            f"amqp://127.0.0.1:{self._server.port}",
            user=parts.key_name,
            password=parts.key,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self._alarm = event.container.schedule(SECONDS_MAX, self)
        if self._control_first:
            self._declare()
        else:
            self._next()

    def on_timer_task(self, _event: Any) -> None:
        self._connection.close()

    def _declare(self) -> None:
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, _event: Any) -> None:
        self.is_declared = True
        self._next()

    def _next(self) -> None:
        if self._left:
            self._container.create_receiver(self._connection, self._left.pop(0))
        else:
            self._alarm.cancel()
            self._connection.close()

    def on_link_opened(self, event: Any) -> None:
        """A link that is refused is opened without a source first; then its end comes."""
        if event.receiver is not None and event.receiver.remote_source.address:
            self._answered(event.receiver.source.address, None)

    def on_link_error(self, event: Any) -> None:
        condition = event.link.remote_condition
        self._answered(event.link.source.address, (condition.name, condition.description or ""))

    def _answered(self, address: str, refusal: tuple[str, str] | None) -> None:
        self.refusals[address] = refusal
        if not self._control_first and not self.is_declared:
            self._declare()
        else:
            self._next()


class CrossEntity:
    """Receives from one queue and sends the result to another in one transaction, on a session whose control link
    came first."""

    def __init__(self, server: RunningServer, source: str, target: str) -> None:
        self._server = server
        self._source = source
        self._target = target
        self.ended = ""

    def run(self) -> CrossEntity:
        handler = MessagingHandler(prefetch=0, auto_accept=False)
        for name in ("on_start", "on_message", "on_delivery", "on_timer_task"):
            setattr(handler, name, getattr(self, name))
        Container(handler).run()
        return self

    def on_start(self, event: Any) -> None:
        parts = ConnectionString.parse(self._server.connection_string)
        self._container = event.container
        self._connection = event.container.connect(
            f"amqp://127.0.0.1:{self._server.port}",
            user=parts.key_name,
            password=parts.key,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self._alarm = event.container.schedule(SECONDS_MAX, self)
        event.container.declare_transaction(self._connection, handler=self)

    def on_timer_task(self, _event: Any) -> None:
        self._connection.close()

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._sender = self._container.create_sender(self._connection, self._target)
        self._container.create_receiver(self._connection, self._source).flow(1)

    def on_message(self, event: Any) -> None:
        self._transaction.accept(event.delivery)
        self._transaction.send(self._sender, Message(body="result"))

    def on_delivery(self, event: Any) -> None:
        if event.delivery.link == getattr(self, "_sender", None) and event.delivery.updated:
            self._transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self._over("committed", event)

    def on_transaction_aborted(self, event: Any) -> None:
        self._over("aborted", event)

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._over("failed", event)

    def _over(self, how: str, event: Any) -> None:
        self.ended = how
        self._alarm.cancel()
        event.connection.close()


@needs_proton
def test_sb_910_receivers_beside_a_control_link_keep_to_the_first_entity(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """TX-4, TX-22: a receiver on another queue is refused with the service's sentence; the first queue stays open."""
    first, second = new_queue(), new_queue()
    dead_letters = f"{first}/$DeadLetterQueue"
    played = Receivers(server, first, second, dead_letters, control_first=True).run()
    assert played.is_declared
    assert (played.refusals[first], played.refusals[dead_letters]) == (None, None)
    refusal = played.refusals[second]
    assert refusal is not None
    assert refusal[0] == "amqp:not-allowed"
    assert refusal[1].startswith(SENTENCE)


@needs_proton
def test_sb_911_a_control_link_that_comes_later_binds_nothing(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """TX-4: clients that keep all their links on one session, whatever they are for."""
    first, second = new_queue(), new_queue()
    played = Receivers(server, first, second, control_first=False).run()
    assert played.is_declared
    assert played.refusals == {first: None, second: None}


@needs_proton
def test_sb_912_a_bound_session_sends_to_other_entities(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """TX-4, TX-22, TX-8: by way of the entity that it receives from, in one transaction."""
    source, target = new_queue(), new_queue()
    send(client, source, "job")
    assert CrossEntity(server, source, target).run().ended == "committed"
    assert [message.body for message in receive_all(client, target, 1)] == [b"result"]
    with client.get_queue_receiver(source) as receiver:
        assert receiver.peek_messages() == []
