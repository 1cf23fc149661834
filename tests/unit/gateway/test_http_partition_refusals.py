"""Refusals of partitioned entities over HTTP: exact status and sub code, and that nothing was changed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from busway.broker.entity.fragment_choice import fragment_of_key
from tests.unit.gateway.http_exchange import VERSION, Answer, Exchange, queue_body
from tests.unit.gateway.test_http_partitions import PARTITIONED, create

OTHERWISE = "<EnablePartitioning>false</EnablePartitioning>"
UPDATE = {"If-Match": "*"}
KEYS = {fragment_of_key(f"key-{n}", 16): f"key-{n}" for n in range(400)}


def _everything(exchange: Exchange) -> dict[str, object]:
    """Descriptions and counts."""
    entities = exchange.namespace.contents.entities
    return {key: (row.description, entities.counts.of(row)) for key, row in entities.rows.items()}


def _send(exchange: Exchange, **broker_properties: str) -> Answer:
    headers = {"BrokerProperties": json.dumps(broker_properties)}
    return exchange.request("POST", "/orders/messages", "x", headers)


def _switched_off(exchange: Exchange) -> Answer:
    return exchange.request("PUT", f"/orders?{VERSION}", queue_body(OTHERWISE), UPDATE)


def _switched_on(exchange: Exchange) -> Answer:
    return exchange.request("PUT", f"/plain?{VERSION}", queue_body(PARTITIONED), UPDATE)


def _two_keys(exchange: Exchange) -> Answer:
    return _send(exchange, SessionId=KEYS[2], PartitionKey="b")


def _full_fragment(exchange: Exchange) -> Answer:
    return _send(exchange, PartitionKey=KEYS[0])


def _lost_fragment(exchange: Exchange) -> Answer:
    return _send(exchange, PartitionKey=KEYS[1])


def _batch(exchange: Exchange) -> Answer:
    body = [{"Body": "x", "BrokerProperties": {"PartitionKey": KEYS[index]}} for index in (0, 1)]
    headers = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
    return exchange.request("POST", "/orders/messages", json.dumps(body), headers)


@pytest.mark.parametrize(
    ("attempt", "status", "sub_code"),
    [
        (_switched_off, 400, 40000),
        (_switched_on, 400, 40000),
        (_two_keys, 400, 40301),
        (_full_fragment, 403, 40300),
        (_lost_fragment, 503, 50004),
        (_batch, 400, 40301),
    ],
)
def test_a_refusal_has_its_status_and_changes_nothing(
    exchange: Exchange, attempt: Callable[[Exchange], Answer], status: int, sub_code: int
) -> None:
    """P-7, P-10, P-21, P-25, S-23, ERR-6, ERR-9, ERR-17, ERR-42: a refusal has its status and changes
    nothing."""
    create(exchange)
    create(exchange, "plain", "")
    assert _send(exchange, PartitionKey=KEYS[2]).status == 201
    exchange.namespace.queue("orders").inlet.member(0).counters.bytes = 1024 * 1024 * 1024
    exchange.request("POST", "/$stores/store-1/disable")
    before = _everything(exchange)
    answer = attempt(exchange)
    assert (answer.status, f"SubCode={sub_code}." in answer.text) == (status, True), answer.text
    assert _everything(exchange) == before
    exchange.request("POST", "/$stores/store-1/enable")
