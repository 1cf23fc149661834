"""SB-90x: transactions of a client that is not ours (python-qpid-proton), looked at with the SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from busway.client.connection_string import ConnectionString
from tests.conformance.traffic import bodies, peek_count, receive_all, send
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


class Transacting:
    """Takes one message, sends so many in the same transaction, discharges it and leaves."""

    def __init__(self, server: RunningServer, queue: str, sends: list[str], *, commits: bool) -> None:
        self._server = server
        self._queue = queue
        self._sends = sends
        self._commits = commits
        self._transaction: Any = None
        self._delivery: Any = None
        self.ended = ""
        self.told: list[object] = []

    def run(self) -> Transacting:
        handler = MessagingHandler(prefetch=0, auto_accept=False)
        for name in ("on_start", "on_message", "on_delivery", "on_timer_task"):
            setattr(handler, name, getattr(self, name))
        Container(handler).run()
        return self

    def on_start(self, event: Any) -> None:
        parts = ConnectionString.parse(self._server.connection_string)
        self._connection = event.container.connect(
            f"amqp://127.0.0.1:{self._server.port}",
            user=parts.key_name,
            password=parts.key,
            allowed_mechs="PLAIN",
            reconnect=False,
        )
        self._sender = event.container.create_sender(self._connection, self._queue)
        # One and no more: what comes after the job would be locked by somebody who leaves.
        event.container.create_receiver(self._connection, self._queue).flow(1)
        event.container.declare_transaction(self._connection, handler=self)
        self._alarm = event.container.schedule(SECONDS_MAX, self)

    def on_timer_task(self, _event: Any) -> None:
        self._connection.close()

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._work()

    def on_message(self, event: Any) -> None:
        self._delivery = event.delivery
        self._work()

    def _work(self) -> None:
        if self._transaction is None or self._delivery is None:
            return
        self._transaction.accept(self._delivery)
        for body in self._sends:
            self._transaction.send(self._sender, Message(body=body))

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.link == self._sender and delivery.updated:
            self.told.append(delivery.remote_state)
            if len(self.told) == len(self._sends):
                self._transaction.discharge(not self._commits)

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
def test_sb_900_proton_commits_a_transaction(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """TX-1, TX-5, TX-8: the job is gone and its results are there."""
    queue = new_queue()
    send(client, queue, "job")
    played = Transacting(server, queue, ["one", "two"], commits=True).run()
    assert played.ended == "committed"
    assert [message.body for message in receive_all(client, queue, 2)] == [b"one", b"two"]
    assert peek_count(client, queue) == 0


@needs_proton
def test_sb_901_proton_aborts_a_transaction(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """TX-5, TX-9: nothing was sent, and the job is still there."""
    queue = new_queue()
    send(client, queue, "job")
    played = Transacting(server, queue, ["one", "two"], commits=False).run()
    assert played.ended == "aborted"
    with client.get_queue_receiver(queue) as receiver:
        assert bodies(receiver.peek_messages(max_message_count=10)) == ["job"]


@needs_proton
def test_sb_902_what_proton_sends_beyond_the_limit_is_refused(
    server: RunningServer, client: ServiceBusClient, new_queue: Callable[..., str]
) -> None:
    """TX-7, TX-5: of a hundred and one messages one is refused; Proton commits, and nothing is stored."""
    queue = new_queue()
    send(client, queue, "job")
    played = Transacting(server, queue, [str(number) for number in range(101)], commits=True).run()
    assert played.ended == "failed"
    with client.get_queue_receiver(queue) as receiver:
        assert bodies(receiver.peek_messages(max_message_count=10)) == ["job"]
