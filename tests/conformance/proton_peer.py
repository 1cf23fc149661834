"""A blocking client made of python-qpid-proton, which knows nothing of Service Bus: links, requests, transactions.

Proton's `Delivery.tag` reads tags as UTF-8, which lock tokens are not: nothing here touches it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import pytest

from busway.client.connection_string import ConnectionString
from tests.harness.running_server import RunningServer

try:
    from proton import Described, Endpoint, Message, Terminus, symbol, ulong
    from proton.utils import BlockingConnection, LinkDetached
except ImportError:
    HAS_PROTON = False
else:
    HAS_PROTON = True

needs_proton = pytest.mark.skipif(
    not HAS_PROTON, reason="python-qpid-proton is not installed: proton was not tried"
)

ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
WAIT_S: Final = 60.0


class Told(NamedTuple):
    """What the server said about a delivery: its state, and why when it was refused."""

    state: int
    condition: str | None
    description: str

    @property
    def is_part(self) -> bool:
        """It is part of the transaction, which is told in the transaction's terms."""
        return self.state == TRANSACTIONAL


class _LinkOption:
    """What Proton asks of an option of a link."""

    def test(self, _link: Any) -> bool:
        return True


class _AsCoordinator(_LinkOption):
    def apply(self, link: Any) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))


class _WithProperties(_LinkOption):
    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = {symbol(name): value for name, value in properties.items()}

    def apply(self, link: Any) -> None:
        link.properties = self._properties


class Answer(NamedTuple):
    """Of a management node."""

    status: int
    condition: str | None
    body: Any


class ProtonPeer:
    """One connection, logged in with rule name and key. All links share one session unless another is asked for."""

    def __init__(self, server: RunningServer, rule: str | None = None, key: str | None = None) -> None:
        parts = ConnectionString.parse(server.connection_string)
        self._connection: Any = BlockingConnection(
            f"amqp://127.0.0.1:{server.port}",
            timeout=WAIT_S,
            user=parts.key_name if rule is None else rule,
            password=parts.key if key is None else key,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        self._control: Any = None
        self._nodes: dict[str, tuple[Any, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._connection.close()

    # -- links

    def sender(self, address: str) -> Any:
        return self._connection.create_sender(address)

    def sender_via(self, via: str, destination: str) -> Any:
        wish = {"com.microsoft:transfer-destination-address": destination}
        return self._connection.create_sender(via, options=_WithProperties(wish))

    def sender_on_another_session(self, address: str) -> Any:
        session = self._connection.conn.session()
        session.open()
        link = self._connection.container.create_sender(session, address)
        self._wait(lambda: not link.state & Endpoint.REMOTE_UNINIT)
        return link

    def receiver(self, address: str) -> Any:
        """Without credit: `received` gives as much as it takes, so nothing more is locked."""
        return self._connection.create_receiver(address, credit=0)

    def refusal(self, attach: Any) -> tuple[str, str]:
        """(condition, description) with which an attach is refused; `attach` tries it."""
        with pytest.raises(LinkDetached) as refused:
            attach()
        return str(refused.value.condition), str(refused.value)

    def _wait(self, condition: Any) -> None:
        self._connection.wait(condition)

    # -- messages

    def send(self, link: Any, message: Any, txn_id: Any = None) -> Told:
        delivery = getattr(link, "link", link).send(message)
        if txn_id is not None:
            delivery.local.data = [txn_id]
            delivery.update(TRANSACTIONAL)
        return self._told(delivery)

    def received(self, receiver: Any, count: int) -> list[tuple[Any, Any]]:
        """So many (message, delivery), not settled."""
        found = []
        for _ in range(count):
            message = receiver.receive(timeout=WAIT_S)
            found.append((message, receiver.fetcher.unsettled.pop()))
        return found

    def settle(self, delivery: Any, outcome: int, txn_id: Any = None) -> Told:
        if txn_id is None:
            delivery.update(outcome)
        else:
            delivery.local.data = [txn_id, Described(ulong(outcome), [])]
            delivery.update(TRANSACTIONAL)
        return self._told(delivery)

    def _told(self, delivery: Any) -> Told:
        self._wait(lambda: delivery.settled)
        reason = delivery.remote.condition
        told = Told(
            int(delivery.remote_state),
            None if reason is None else str(reason.name),
            "" if reason is None else str(reason.description),
        )
        delivery.settle()
        return told

    # -- transactions

    def control(self) -> Any:
        """A new control link."""
        return self._connection.create_sender(None, options=_AsCoordinator())

    def _own_control(self) -> Any:
        if self._control is None:
            self._control = self.control()
        return self._control

    def declare(self, control: Any = None) -> Any:
        """The id of a new transaction."""
        link = self._own_control() if control is None else control
        delivery = link.link.send(Message(body=Described(symbol("amqp:declare:list"), [None])))
        self._wait(lambda: delivery.settled)
        assert delivery.remote_state == DECLARED, delivery.remote_state
        txn_id = delivery.remote.data[0]
        delivery.settle()
        return txn_id

    def discharge(self, txn_id: Any, *, fail: bool = False, control: Any = None) -> Told:
        link = self._own_control() if control is None else control
        return self.send(link, Message(body=Described(symbol("amqp:discharge:list"), [txn_id, fail])))

    # -- requests

    def ask(self, node: str, operation: str, body: Any, txn_id: Any = None) -> Answer:
        """To `node`/$management."""
        address = f"{node}/$management"
        if node not in self._nodes:
            answers = self._connection.create_receiver(address, credit=100)
            self._nodes[node] = (self._connection.create_sender(address), answers)
        requests, answers = self._nodes[node]
        properties = {"operation": f"com.microsoft:{operation}"}
        request = Message(id=operation, reply_to=address, properties=properties, body=body)
        self.send(requests, request, txn_id)
        answer = answers.receive(timeout=WAIT_S)  # answers come settled
        assert answer.correlation_id == operation
        failure = answer.properties.get("errorCondition")
        return Answer(
            int(answer.properties["statusCode"]), None if failure is None else str(failure), answer.body
        )
