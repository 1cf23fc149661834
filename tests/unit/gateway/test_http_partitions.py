"""Partitioned entities over HTTP: their description, their fragments, their figures, their messages."""

import json

import pytest

from busway.message.message import Message
from busway.model.errors import ServerBusy
from tests.unit.gateway.http_exchange import VERSION, Answer, Exchange, queue_body

PARTITIONED = "<EnablePartitioning>true</EnablePartitioning>"


def create(exchange: Exchange, path: str = "orders", properties: str = PARTITIONED) -> Answer:
    answer = exchange.request("PUT", f"/{path}?{VERSION}", queue_body(properties))
    assert answer.status == 201, answer.text
    return answer


def get(exchange: Exchange, version: str = VERSION) -> str:
    return exchange.request("GET", f"/orders?{version}").text


def fragments(exchange: Exchange) -> list[dict[str, object]]:
    answer = exchange.request("GET", "/$fragments/orders")
    assert answer.status == 200, answer.text
    found: list[dict[str, object]] = json.loads(answer.text)
    return found


def test_the_size_of_all_fragments_is_shown(exchange: Exchange) -> None:
    """P-8, E-31: in the answer to the creation and in every later one; an update may send it back."""
    for text in (create(exchange).text, get(exchange)):
        assert "<MaxSizeInMegabytes>16384</MaxSizeInMegabytes>" in text
        assert PARTITIONED in text
    for size, status in ((16384, 200), (1024, 200), (32768, 400)):
        body = queue_body(f"<MaxSizeInMegabytes>{size}</MaxSizeInMegabytes>{PARTITIONED}")
        answer = exchange.request("PUT", f"/orders?{VERSION}", body, {"If-Match": "*"})
        assert answer.status == status, answer.text
    assert "<MaxSizeInMegabytes>16384</MaxSizeInMegabytes>" in get(exchange)


def test_the_flag_cannot_be_changed(exchange: Exchange) -> None:
    """P-7, E-31: 400 with sub-code 40000."""
    create(exchange)
    body = queue_body("<EnablePartitioning>false</EnablePartitioning>")
    answer = exchange.request("PUT", f"/orders?{VERSION}", body, {"If-Match": "*"})
    assert answer.status == 400
    assert "SubCode=40000" in answer.text


def test_older_clients_neither_see_nor_set_it(exchange: Exchange) -> None:
    """P-6, C-5: before api-version 2013-10."""
    create(exchange)
    assert "EnablePartitioning" not in get(exchange, "api-version=2012-03")
    assert PARTITIONED in get(exchange, "api-version=2013-10")
    answer = exchange.request("PUT", "/other?api-version=2012-03", queue_body(PARTITIONED))
    assert answer.status == 400
    assert "2013-10" in answer.text


def test_a_fragment_that_is_away_makes_the_entity_limited(exchange: Exchange) -> None:
    """E-90, E-91, E-103, E-104, P-61: Available, Limited, Unknown; counts are sums of what is there."""
    create(exchange)
    for _ in range(16):
        exchange.run(exchange.namespace.queue("orders").schedule([Message(b"", b"x")]))
    assert "<EntityAvailabilityStatus>Available<" in get(exchange)
    assert "<MessageCount>16<" in get(exchange)
    exchange.request("POST", "/$stores/store-1/disable")
    assert "<EntityAvailabilityStatus>Limited<" in get(exchange)
    assert "<MessageCount>8<" in get(exchange)
    assert "<MaxSizeInMegabytes>16384<" in get(exchange)
    exchange.request("POST", "/$stores/store-0/disable")
    assert "<EntityAvailabilityStatus>Unknown<" in get(exchange)
    for store in ("store-0", "store-1"):
        exchange.request("POST", f"/$stores/{store}/enable")
    assert "<EntityAvailabilityStatus>Available<" in get(exchange)
    assert "<MessageCount>16<" in get(exchange)


def test_every_fragment_is_shown_with_its_store_and_health(exchange: Exchange) -> None:
    """O-8, P-1: evenly over the stores; one out of service says so."""
    create(exchange)
    exchange.run(exchange.namespace.queue("orders").schedule([Message(b"", b"x" * 100, partition_key="k")]))
    found = fragments(exchange)
    assert [each["index"] for each in found] == list(range(16))
    assert sorted(str(each["store"]) for each in found) == ["store-0"] * 8 + ["store-1"] * 8
    assert [(each["active"], each["sizeInBytes"]) for each in found if each["active"]] == [(1, 100)]
    exchange.request("POST", "/$stores/store-1/disable")
    health = {str(each["store"]): (each["health"], each["availability"]) for each in fragments(exchange)}
    assert health == {"store-0": ("open", "Available"), "store-1": ("disabled", "Unknown")}
    exchange.request("POST", "/$stores/store-1/enable")


def test_fragments_of_plain_and_missing_entities(exchange: Exchange) -> None:
    """O-8, A-9: a plain queue has one; nothing has none; only Manage may look."""
    create(exchange, properties="")
    assert [each["index"] for each in fragments(exchange)] == [0]
    assert exchange.request("GET", "/$fragments/nothing").status == 404
    assert exchange.request("DELETE", "/$fragments/orders").status == 405
    assert exchange.request("GET", "/$fragments/orders", token=None).status == 401


def test_fragments_have_figures(exchange: Exchange) -> None:
    """O-8: up or not, messages and bytes; none for plain entities, none but `up` without their store."""
    create(exchange)
    create(exchange, "plain", "")
    exchange.run(exchange.namespace.queue("orders").schedule([Message(b"", b"x" * 100, partition_key="k")]))
    exchange.request("POST", "/$stores/store-1/disable")
    text = exchange.request("GET", "/metrics", token=None).text
    assert text.count('busway_fragment_up{entity="orders"') == 16
    assert text.count('busway_fragment_messages{entity="orders"') == 8
    assert 'entity="orders",fragment="1",store="store-1"} 0.0' in text
    assert 'busway_fragment_up{entity="plain"' not in text
    exchange.request("POST", "/$stores/store-1/enable")
    text = exchange.request("GET", "/metrics", token=None).text
    assert text.count('busway_fragment_size_bytes{entity="orders"') == 16
    assert "} 100.0" in text


def test_messages_come_and_go_over_http(exchange: Exchange) -> None:
    """P-3, R-23, P-43: locked, renewed, unlocked and completed by the token, whichever fragment it is of."""
    create(exchange)
    for n in range(20):
        assert exchange.request("POST", "/orders/messages", f"{n}").status == 201
    seen = set()
    for _ in range(20):
        answer = exchange.request("POST", "/orders/messages/head?timeout=1")
        assert answer.status == 201
        seen.add(answer.text)
        place = answer.headers["Location"].split("/orders/", 1)[1]
        assert exchange.request("POST", f"/orders/{place}").status == 200
        assert exchange.request("DELETE", f"/orders/{place}").status == 200
        assert exchange.request("DELETE", f"/orders/{place}").status == 404
    assert seen == {f"{n}" for n in range(20)}
    assert exchange.request("DELETE", "/orders/messages/head?timeout=0").status == 204


def test_creation_without_a_store_leaves_nothing(exchange: Exchange) -> None:
    """P-60: 503, and the name is free."""
    exchange.request("POST", "/$stores/store-1/disable")
    answer = exchange.request("PUT", f"/orders?{VERSION}", queue_body(PARTITIONED))
    assert answer.status == 503
    assert not exchange.namespace.exists("orders")
    exchange.request("POST", "/$stores/store-1/enable")
    create(exchange)


def test_a_keyed_message_of_a_lost_fragment_is_503(exchange: Exchange) -> None:
    """P-25: transient over HTTP too; without a key it is stored."""
    create(exchange)
    exchange.request("POST", "/$stores/store-1/disable")
    statuses = set()
    for n in range(16):
        properties = {"BrokerProperties": json.dumps({"PartitionKey": f"key-{n}"})}
        statuses.add(exchange.request("POST", "/orders/messages", "x", properties).status)
    assert statuses == {201, 503}
    for _ in range(16):
        assert exchange.request("POST", "/orders/messages", "x").status == 201
    exchange.request("POST", "/$stores/store-0/disable")
    with pytest.raises(ServerBusy):
        exchange.namespace.queue("orders").inlet.member(0)
    for store in ("store-0", "store-1"):
        exchange.request("POST", f"/$stores/{store}/enable")
