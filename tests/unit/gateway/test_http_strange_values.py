"""Values that a store could not write, sent over HTTP: refused with a sentence, and nothing is kept of them."""

from __future__ import annotations

import pytest

from tests.unit.gateway.http_exchange import VERSION, Exchange, queue_body

HALF = "&#xD800;"


def is_untouched(exchange: Exchange) -> bool:
    namespace = exchange.namespace
    states = [store["state"] for store in namespace.stores.shown()]
    return namespace.queues() == [] and len(namespace.access.rules()) == 1 and states == ["open"] * 2


@pytest.mark.parametrize(
    "properties",
    [
        f"<UserMetadata>{HALF}</UserMetadata>",
        f"<Unknown>{HALF}</Unknown>",
        "<UserMetadata>&#0;</UserMetadata>",
        f"<MaxDeliveryCount>{1 << 31}</MaxDeliveryCount>",
        f"<MaxDeliveryCount>{1 << 64}</MaxDeliveryCount>",
        f"<MaxDeliveryCount>{'9' * 5_000}</MaxDeliveryCount>",
        f"<MaxSizeInMegabytes>{'9' * 18}</MaxSizeInMegabytes>",
        f"<LockDuration>P{'9' * 5_000}D</LockDuration>",
        f"<LockDuration>P{'9' * 20}D</LockDuration>",
        "<MaxDeliveryCount>٣</MaxDeliveryCount>",
    ],
)
def test_a_queue_with_strange_values_is_not_made(exchange: Exchange, properties: str) -> None:
    """E-20, E-21, E-28, E-36, ERR-41: 400, never 500."""
    answer = exchange.request("PUT", f"/orders?{VERSION}", queue_body(properties))
    assert answer.status == 400
    assert "SubCode=40000" in answer.detail or "XML" in answer.detail
    assert is_untouched(exchange)


@pytest.mark.parametrize(
    "body",
    [
        r'{"rights": ["Send"], "primaryKey": "\ud800"}',
        r'{"rights": ["Send"], "primaryKey": "\u0000"}',
        r'{"rights": ["Send"], "primaryKey": 18446744073709551616}',
        r'{"rights": ["\ud800"]}',
        r'{"rights": [18446744073709551616]}',
        r'{"rights": ["Send"], "\ud800": 1}',
        '{"rights": ["Send"], "primaryKey": %s}' % ("9" * 5_000),
        '{"rights": ["Send"], "primaryKey": NaN}',
    ],
)
def test_a_rule_with_strange_values_is_not_made(exchange: Exchange, body: str) -> None:
    """A-1, ERR-41: a rule with strange values is not made."""
    assert exchange.request("PUT", "/$rules/worker", body).status == 400
    assert is_untouched(exchange)


@pytest.mark.parametrize("name", ["%ED%A0%80", "a%00b", "%F4%90%80%80", "%C0%AF"])
def test_a_name_that_is_no_text_names_nothing(exchange: Exchange, name: str) -> None:
    """E-6, ERR-41: a name that is no text names nothing."""
    assert exchange.request("PUT", f"/{name}?{VERSION}", queue_body()).status == 400
    assert exchange.request("PUT", f"/$rules/{name}", '{"rights": ["Send"]}').status in (400, 401)
    assert is_untouched(exchange)


@pytest.mark.parametrize("number", ["18446744073709551616", "-1", "9" * 5_000, "%D9%A3", "1e3"])
def test_numbers_of_a_page_are_bounded(exchange: Exchange, number: str) -> None:
    """ERR-43: numbers of a page are bounded."""
    assert exchange.request("GET", f"/$Resources/queues?{VERSION}&$skip={number}").status == 400
