"""Messages over HTTP without taking them, and handling one that was chosen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from busway.broker.fragment.locks import Receiver
from busway.gateway.http.messages import browsing
from tests.unit.gateway.http_exchange import HOST, VERSION, Exchange, queue_body, sas_token


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with Exchange() as made:
        yield made


def make(exchange: Exchange, name: str = "orders", properties: str = "") -> None:
    assert exchange.request("PUT", f"/{name}?{VERSION}", queue_body(properties)).status == 201


def send(exchange: Exchange, name: str, body: str, properties: Any = None, **custom: str) -> None:
    headers = {"BrokerProperties": json.dumps(properties or {}), **custom}
    assert exchange.request("POST", f"/{name}/messages", body, headers).status == 201


def listed(exchange: Exchange, name: str, query: str = "") -> dict[str, Any]:
    answer = exchange.request("GET", f"/{name}/$messages?{query}")
    assert answer.status == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text)
    return found


def bodies(told: dict[str, Any]) -> list[str]:
    return [message["Body"] for message in told["messages"]]


def locked(exchange: Exchange, name: str) -> str:
    """Locks the next message; its token."""
    answer = exchange.request("POST", f"/{name}/messages/head?timeout=0")
    assert answer.status == 201
    return urlsplit(answer.headers["Location"]).path.rpartition("/")[2]


def test_messages_are_looked_at_without_taking_them(exchange: Exchange) -> None:
    """R-60: all that a receiver would get, and no delivery counted."""
    make(exchange)
    send(exchange, "orders", "hello", {"Label": "new", "MessageId": "m-1"}, region='"north"', pieces="2")
    (message,) = listed(exchange, "orders")["messages"]
    assert (message["Body"], message["BodyBytes"], message["BodyKind"]) == ("hello", 5, "data")
    assert message["UserProperties"] == {"region": "north", "pieces": 2}
    known = message["BrokerProperties"]
    assert (known["Label"], known["MessageId"], known["State"]) == ("new", "m-1", "Active")
    assert listed(exchange, "orders")["messages"] == [message]


def test_a_list_goes_on_from_where_it_ended(exchange: Exchange) -> None:
    """R-62: page by page to the end."""
    make(exchange)
    for n in range(5):
        send(exchange, "orders", str(n))
    first = listed(exchange, "orders", "count=3")
    assert bodies(first) == ["0", "1", "2"]
    rest = listed(exchange, "orders", f"count=3&from={first['next']}")
    assert (bodies(rest), rest["next"]) == (["3", "4"], None)


def test_a_filter_selects_on_the_server(exchange: Exchange) -> None:
    """T-20: by the language of rules, and no rule is made for it."""
    make(exchange)
    for n in range(6):
        send(exchange, "orders", str(n), {"Label": "even" if n % 2 == 0 else "odd"}, total=str(n))
    sql = quote("sys.Label = 'even' AND total > 1")
    assert bodies(listed(exchange, "orders", f"filter={sql}")) == ["2", "4"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("filter=a%20%3D", "filter: At character"),
        ("filter=" + "x" * 2000, "at most 1024 characters"),
        ("count=0", "count must be between 1 and 100"),
        ("count=x", "not a whole number"),
        ("from=-1", "from must be between"),
        ("since=yesterday", "is not a time"),
        ("state=lost", "is not active, deferred or scheduled"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(exchange: Exchange, query: str, sentence: str) -> None:
    """ERR-28: a sentence for the field that is wrong."""
    make(exchange)
    answer = exchange.request("GET", f"/orders/$messages?{query}")
    assert (answer.status, sentence in answer.detail) == (400, True), answer.detail


def test_one_request_looks_at_so_many_and_says_where_to_go_on(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a filter that selects nothing walks over a million messages a piece at a time."""
    monkeypatch.setattr(browsing, "LOOKED_MAX", 3)
    make(exchange)
    for n in range(10):
        send(exchange, "orders", str(n))
    told = listed(exchange, "orders", "count=1&filter=1%3D2")
    assert (told["messages"], told["looked"] <= 5, told["next"] is not None) == ([], True, True)


def test_messages_of_an_instant_are_found_by_halving(exchange: Exchange) -> None:
    """R-62: from the first that was enqueued at or after then."""
    make(exchange)
    for n in range(20):
        send(exchange, "orders", str(n))
        exchange.clock.advance(60)
    seventh = listed(exchange, "orders", "count=100")["messages"][7]["EnqueuedAtMs"]
    from datetime import UTC, datetime

    instant = quote(datetime.fromtimestamp(seventh / 1000, UTC).isoformat())
    assert bodies(listed(exchange, "orders", f"since={instant}&count=2")) == ["7", "8"]
    assert bodies(listed(exchange, "orders", "since=2090-01-01T00:00:00Z")) == []


def test_bodies_in_a_list_are_short_and_whole_when_asked_for(exchange: Exchange) -> None:
    """Memory: a page of large messages is small."""
    make(exchange)
    send(exchange, "orders", "x" * 100_000)
    (message,) = listed(exchange, "orders")["messages"]
    assert (len(message["Body"]), message["BodyBytes"]) == (1024, 100_000)
    number = message["BrokerProperties"]["SequenceNumber"]
    whole = json.loads(exchange.request("GET", f"/orders/$messages/{number}").text)
    assert len(whole["Body"]) == 100_000
    assert exchange.request("GET", f"/orders/$messages/{number + 1}").status == 404


def test_a_body_that_is_no_text_comes_as_base64(exchange: Exchange) -> None:
    """M-31: nothing is guessed and nothing is lost."""
    make(exchange)
    assert exchange.request("POST", "/orders/messages", b"\xff\x00\x01").status == 201
    (message,) = listed(exchange, "orders")["messages"]
    assert message["BodyBase64"] == "/wAB"
    assert "Body" not in message


def test_messages_are_deleted_by_number_in_any_state(exchange: Exchange) -> None:
    """R-80: active, scheduled and deferred ones; what is locked stays."""
    make(exchange)
    for body in ("held", "deferred", "gone", "stays"):
        send(exchange, "orders", body)
    send(exchange, "orders", "later", {"ScheduledEnqueueTimeUtc": "2090-01-01T00:00:00Z"})
    held, deferred = locked(exchange, "orders"), locked(exchange, "orders")
    assert exchange.request("POST", f"/orders/$messages/locked/{deferred}/defer", "{}").status == 200
    by_body = {
        message["Body"]: message["BrokerProperties"]["SequenceNumber"]
        for message in listed(exchange, "orders")["messages"]
    }
    wanted = [by_body[name] for name in ("held", "deferred", "gone", "later")]
    answer = exchange.request("POST", "/orders/$messages/delete", json.dumps({"numbers": [*wanted, 9999]}))
    assert json.loads(answer.text) == {"deleted": sorted(wanted[1:])}
    assert sorted(bodies(listed(exchange, "orders"))) == ["held", "stays"]
    counts = exchange.run(exchange.namespace.counts("orders"))
    assert (counts.active, counts.deferred, counts.scheduled) == (2, 0, 0)
    assert held


def test_messages_of_a_partitioned_queue_are_deleted_by_number(exchange: Exchange) -> None:
    """P-5: numbers tell the fragment."""
    make(exchange, "wide", "<EnablePartitioning>true</EnablePartitioning>")
    for n in range(8):
        send(exchange, "wide", str(n), {"PartitionKey": f"key-{n}"})
    numbers = [m["BrokerProperties"]["SequenceNumber"] for m in listed(exchange, "wide")["messages"]]
    assert len(numbers) == 8
    answer = exchange.request("POST", "/wide/$messages/delete", json.dumps({"numbers": numbers[:5]}))
    assert json.loads(answer.text)["deleted"] == sorted(numbers[:5])
    assert len(listed(exchange, "wide")["messages"]) == 3
    assert exchange.request("GET", "/wide/$messages?since=2020-01-01T00:00:00Z").status == 400


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"numbers": []}',
        '{"numbers": ["one"]}',
        '{"numbers": [1.5]}',
        '{"numbers": [-1]}',
        '{"numbers": [true]}',
    ],
)
def test_numbers_that_are_none_are_refused(exchange: Exchange, body: str) -> None:
    """Attack: nothing is deleted by a mistake."""
    make(exchange)
    send(exchange, "orders", "x")
    assert exchange.request("POST", "/orders/$messages/delete", body).status == 400
    assert len(listed(exchange, "orders")["messages"]) == 1


def test_a_locked_message_is_dead_lettered_with_a_reason(exchange: Exchange) -> None:
    """D-3: as a client would over AMQP."""
    make(exchange)
    send(exchange, "orders", "bad")
    token = locked(exchange, "orders")
    said = json.dumps({"reason": "NoAddress", "description": "It has none."})
    assert exchange.request("POST", f"/orders/$messages/locked/{token}/deadletter", said).status == 200
    (message,) = listed(exchange, "orders/$DeadLetterQueue")["messages"]
    assert message["UserProperties"]["DeadLetterReason"] == "NoAddress"
    again = exchange.request("POST", f"/orders/$messages/locked/{token}/deadletter", said)
    assert again.status in (404, 410, 400)


def test_sessions_are_listed_with_their_state(exchange: Exchange) -> None:
    """X-22: who has messages, and what was kept for them."""
    make(exchange, "carts", "<RequiresSession>true</RequiresSession>")
    for name in ("b", "a"):
        send(exchange, "carts", "x", {"SessionId": name})
    queue = exchange.namespace.queue("carts")
    exchange.run(queue.outlet(False).accept_session(_Nobody(), "a", 0))
    exchange.run(queue.outlet(False).set_session_state("a", b"half way"))
    told = json.loads(exchange.request("GET", "/carts/$sessions").text)
    assert {each["id"]: (each["isLocked"], each["state"]) for each in told} == {
        "a": (True, "half way"),
        "b": (False, None),
    }
    make(exchange)
    assert exchange.request("GET", "/orders/$sessions").status == 400


def test_a_subscription_is_looked_at_by_its_address(exchange: Exchange) -> None:
    """E-8: as everywhere."""
    exchange.request("PUT", f"/events?{VERSION}", queue_body(kind="TopicDescription"))
    exchange.request("PUT", f"/events/subscriptions/a?{VERSION}", queue_body(kind="SubscriptionDescription"))
    send(exchange, "events", "copy")
    assert bodies(listed(exchange, "events/Subscriptions/a")) == ["copy"]
    assert exchange.request("GET", "/a b/$messages").status == 400
    assert exchange.request("GET", "/events/$messages").status == 400
    assert exchange.request("GET", "/nothing/$messages").status == 404


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "$messages"),
        ("GET", "$messages/1"),
        ("POST", "$messages/delete"),
        ("POST", "$messages/locked/00000000-0000-0000-0000-000000000000/defer"),
        ("GET", "$sessions"),
    ],
)
def test_all_of_it_asks_for_listen_on_the_entity(exchange: Exchange, method: str, target: str) -> None:
    """A-9: a token of the queue opens the queue; one of another does not, nor one that may only send."""
    make(exchange, "orders", "<RequiresSession>true</RequiresSession>")
    make(exchange, "others")
    made = exchange.request("PUT", "/$rules/sends", '{"rights": ["Send"]}')
    sends = sas_token(f"https://{HOST}", "sends", str(json.loads(made.text)["primaryKey"]))
    assert exchange.request(method, f"/orders/{target}", "{}", token=None).status == 401
    assert exchange.request(method, f"/orders/{target}", "{}", token=sends).status == 401
    other = sas_token(f"https://{HOST}/others")
    assert exchange.request(method, f"/orders/{target}", "{}", token=other).status == 401
    own = sas_token(f"https://{HOST}/orders")
    assert exchange.request(method, f"/orders/{target}", "{}", token=own).status != 401


class _Nobody(Receiver):
    """A receiver that takes a session and nothing from it."""

    deletes = False

    def room(self) -> int:
        return 0

    def deliver(self, deliveries: list[Any]) -> list[Any]:
        return deliveries

    def caught_up(self) -> None: ...

    def evict(self, error: Any) -> None: ...
