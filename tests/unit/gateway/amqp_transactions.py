"""A client that declares, takes part in and discharges transactions, without a socket."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.link import Link
from busway.amqp.performatives import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Performative,
    Properties,
    Rejected,
    Source,
)
from busway.amqp.performatives import TransactionalState as InTransaction
from busway.amqp.sections import VALUE, AmqpMessage, decode_message, encode_composite, encode_message
from busway.amqp.session import Session
from tests.unit.gateway.amqp_peer import Peer, body_of


class Controller:
    """The control link of a client."""

    def __init__(self, peer: Peer, link: Link) -> None:
        self.peer = peer
        self.link = link

    @classmethod
    async def attached(cls, peer: Peer, session: Session | None = None) -> Controller:
        chosen = peer.session if session is None else session
        link = chosen.attach(
            f"coordinator-{uuid4()}",
            is_sender=True,
            source=Source("here"),
            target=Coordinator(["amqp:local-transactions"]),
        )
        await peer.attach(link)
        return cls(peer, link)

    async def ask(self, request: object) -> object:
        payload = (
            encode_composite(request)
            if isinstance(request, Performative)
            else encode_message(AmqpMessage(request, VALUE))
        )
        [outcome] = await self.peer.sent(self.link, payload)
        return outcome

    async def declare(self) -> bytes:
        outcome = await self.ask(Declare())
        assert isinstance(outcome, Declared)
        assert len(outcome.txn_id) == 16
        return outcome.txn_id

    async def discharge(self, txn_id: bytes, *, fail: bool = False) -> object:
        return await self.ask(Discharge(txn_id, fail))


async def sent_in(
    peer: Peer, link: Link, txn_id: bytes, payload: bytes, *, message_format: int = 0
) -> object:
    """The outcome of a transactional send."""
    delivery = link.send(
        uuid4().bytes, payload, settled=False, message_format=message_format, state=InTransaction(txn_id)
    )
    await peer.room.until(lambda: delivery.delivery_id in peer.outcomes(link))
    return peer.outcomes(link)[delivery.delivery_id]


async def settled_in(
    peer: Peer, link: Link, txn_id: bytes, deliveries: list[IncomingDelivery], outcome: object
) -> list[object]:
    return await peer.settle(link, deliveries, InTransaction(txn_id, outcome))


async def asked_in(
    peer: Peer, links: tuple[Link, Link], txn_id: bytes, operation: str, body: dict[str, object]
) -> tuple[int, dict[Any, Any], str | None]:
    """(status, body, condition) of a management request in a transaction."""
    requests, answers = links
    before = len(peer.deliveries(answers))
    message = AmqpMessage(
        body,
        VALUE,
        properties=Properties(message_id=str(uuid4()), reply_to="answers"),
        application_properties={"operation": f"com.microsoft:{operation}"},
    )
    requests.send(uuid4().bytes, encode_message(message), settled=False, state=InTransaction(txn_id))
    found = await peer.received(answers, before + 1)
    answer = decode_message(found[before].payload)
    properties = answer.application_properties or {}
    condition = properties.get("errorCondition")
    told = answer.body if isinstance(answer.body, dict) else {}
    return int(properties["statusCode"]), told, None if condition is None else str(condition)


def condition_of(outcome: object) -> str | None:
    """The condition of a rejection; None for any other outcome."""
    if isinstance(outcome, Rejected) and outcome.error is not None:
        return str(outcome.error.condition)
    return None


async def bodies_in(peer: Peer, address: str, count: int) -> list[bytes]:
    """What a receiver that deletes gets, after everything has calmed down."""
    own, peer.session = peer.session, peer.engine.begin()  # TX-4: one on which everything can be looked at
    link = await peer.receiver(address, deletes=True)
    peer.session = own
    link.grant_credit(100)
    await peer.room.turns()
    found = [body_of(delivery) for delivery in peer.deliveries(link)]
    assert len(found) == count
    link.detach()
    await peer.room.turns()
    return found
