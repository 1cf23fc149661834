"""`V/$Transfer/$DeadLetterQueue` over HTTP, and what the figures say of messages sent via `V` (D-22, O-1)."""

from __future__ import annotations

import json

from busway.message.message import Message
from busway.model.descriptions import NewEntity, QueueDescription, TopicDescription
from busway.model.errors import BrokerError
from tests.unit.broker.namespace_bench import settle
from tests.unit.gateway.http_exchange import Exchange
from tests.unit.gateway.test_http_metrics import scrape

TRANSFER_DEAD_LETTERS = "via/$Transfer/$DeadLetterQueue"


async def _sent_via(exchange: Exchange, via: str, destination: str, body: bytes) -> None:
    """Stored in the transfer queue; then whatever the destination has to say."""
    namespace = exchange.namespace
    await namespace.transfer_queues.prepare(via)
    link = namespace.transfer_queues.send_via(via, destination)
    assert link is not None
    refused: list[tuple[int, BrokerError]] = []
    link.send([Message(b"", b"\x00\x53\x75\xa0" + bytes([len(body)]) + body)], refused.extend)
    assert refused == []
    await settle(60)


def _with_dead_letter(exchange: Exchange, via: QueueDescription | TopicDescription) -> None:
    async def prepare() -> None:
        await exchange.namespace.create([NewEntity(via), NewEntity(QueueDescription("final"))])
        await exchange.namespace.update(QueueDescription("final", status="SendDisabled"))
        await _sent_via(exchange, "via", "final", b"stuck")
        for _ in range(8):
            exchange.clock.advance(1)
            exchange.namespace.tick()
            await settle(60)

    exchange.run(prepare())


def test_a_failed_transfer_is_received_and_completed_over_http() -> None:
    """D-22, E-8: peek-lock, then delete by its token; then there is none."""
    with Exchange() as exchange:
        _with_dead_letter(exchange, QueueDescription("via"))
        locked = exchange.request("POST", f"/{TRANSFER_DEAD_LETTERS}/messages/head?timeout=0")
        assert (locked.status, locked.text) == (201, "stuck")
        broker = json.loads(locked.headers["BrokerProperties"])
        assert exchange.request("POST", f"/{TRANSFER_DEAD_LETTERS}/messages/head?timeout=0").status == 204
        path = f"/{TRANSFER_DEAD_LETTERS}/messages/{broker['SequenceNumber']}/{broker['LockToken']}"
        assert exchange.request("PUT", path).status == 200
        again = exchange.request("DELETE", f"/{TRANSFER_DEAD_LETTERS}/messages/head?timeout=0")
        assert (again.status, again.text) == (200, "stuck")
        assert exchange.request("DELETE", f"/{TRANSFER_DEAD_LETTERS}/messages/head?timeout=0").status == 204


def test_a_failed_transfer_of_a_topic_is_received_over_http() -> None:
    """D-22, TX-3: a topic has no messages of its own but may have these."""
    with Exchange() as exchange:
        _with_dead_letter(exchange, TopicDescription("via"))
        taken = exchange.request("DELETE", f"/{TRANSFER_DEAD_LETTERS}/messages/head?timeout=0")
        assert (taken.status, taken.text) == (200, "stuck")


def test_the_figures_know_the_via_entity_only() -> None:
    """O-1, O-4, TX-3: what is sent via an entity counts as its own, like what it forwards; no other name appears."""
    with Exchange() as exchange:
        _with_dead_letter(exchange, QueueDescription("via"))
        found = scrape(exchange)
        assert not [key for key in found if "$transfer" in key[1].lower()]
        assert found[("busway_incoming_messages_total", "via")] == 1
