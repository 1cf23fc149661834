"""How far a hub is, over HTTP, and waiting until it goes on: what a stream of Spark asks when nothing is new."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from busway.gateway.http import event_hubs
from busway.message.event_record import Event
from busway.model.descriptions import AuthorizationRule
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.http_exchange import (
    HOST,
    ROOT_TOKEN,
    VERSION,
    Answer,
    Exchange,
    queue_body,
    sas_token,
)
from tests.unit.gateway.test_http_hubs import create

LONG = "?known=0,0,0,0&wait=10"


def ask(exchange: Exchange, query: str = "") -> dict[str, Any]:
    answer = exchange.request("GET", f"/clicks/partitions{query}")
    assert answer.status == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text)
    return found


def nexts(told: dict[str, Any]) -> list[int]:
    return [each["next"] for each in told["partitions"]]


def publish(exchange: Exchange, partition: int = 2) -> None:
    event = Event(b"\x00Su\xa0\x01x", 5)
    exchange.hubs.hub("clicks").partition(str(partition)).append([event], lambda _: None)


def while_waiting(exchange: Exchange, work: Callable[[], Coroutine[Any, Any, None]]) -> Answer:
    """The answer to a question that waits, and what happens when it does."""

    async def both() -> Answer:
        headers = {"host": HOST, "authorization": ROOT_TOKEN}
        waiting = asyncio.create_task(exchange._exchange("GET", f"/clicks/partitions{LONG}", b"", headers))
        for _ in range(100):
            await asyncio.sleep(0)
        assert waiters(exchange) == 1
        await work()
        async with asyncio.timeout(5):
            return await waiting

    return exchange.run(both())


def waiters(exchange: Exchange) -> int:
    hubs = exchange.gateway._answering.hubs
    assert hubs is not None
    return len(hubs.partitions._waiting)


def watchers(exchange: Exchange) -> int:
    return sum(len(log.cursors._watchers) for log in exchange.hubs.hub("clicks").logs())


def test_a_hub_tells_how_far_its_partitions_are(exchange: Exchange) -> None:
    """H-27: the same as over AMQP, in one answer."""
    create(exchange)
    told = ask(exchange)
    assert told["createdAtMs"] == exchange.hubs.description("clicks").created_at_ms
    assert told["partitions"] == [{"first": 0, "next": 0, "lastOffset": "-1", "lastAtMs": 0}] * 4
    exchange.run(_published(exchange))
    assert ask(exchange)["partitions"][2] == {
        "first": 0,
        "next": 1,
        "lastOffset": "0",
        "lastAtMs": exchange.clock.wall_ms(),
    }


async def _published(exchange: Exchange) -> None:
    publish(exchange)
    await exchange.hubs.hub("clicks").partition("2").durable()


def test_a_question_about_an_unchanged_hub_waits_for_the_next_event(exchange: Exchange) -> None:
    """A good neighbour: one request a second instead of hundreds; the answer comes with the event."""
    create(exchange)
    told = json.loads(while_waiting(exchange, lambda: _published(exchange)).text)
    assert nexts(told) == [0, 0, 1, 0]
    assert (waiters(exchange), watchers(exchange)) == (0, 0)
    # Whoever knows less, or something else, is told at once.
    assert nexts(ask(exchange, LONG)) == [0, 0, 1, 0]
    assert nexts(ask(exchange, "?known=0&wait=10")) == [0, 0, 1, 0]
    assert nexts(ask(exchange, "?wait=10")) == [0, 0, 1, 0]
    assert nexts(ask(exchange, "?known=0,0,1,0")) == [0, 0, 1, 0]


def test_its_time_ends_the_wait(exchange: Exchange) -> None:
    """A good neighbour: the caller asks again, and can be stopped between."""
    create(exchange)
    assert nexts(ask(exchange, "?known=0,0,0,0&wait=0.01")) == [0, 0, 0, 0]
    assert (waiters(exchange), watchers(exchange)) == (0, 0)


def test_a_server_that_stops_answers_whoever_waits(exchange: Exchange) -> None:
    """A good neighbour: nobody holds up the end of the server, and later questions do not wait."""
    create(exchange)

    async def stop() -> None:
        await exchange.gateway.close()

    assert while_waiting(exchange, stop).status == 200
    assert nexts(ask(exchange, LONG)) == [0, 0, 0, 0]


def test_a_hub_that_goes_meanwhile_is_told(exchange: Exchange) -> None:
    """H-2: at once; one of the same name is another one, which its time of creation tells."""
    create(exchange)
    first = ask(exchange)["createdAtMs"]
    assert while_waiting(exchange, lambda: exchange.hubs.delete("clicks")).status == 404
    exchange.clock.advance(5)
    create(exchange)
    assert ask(exchange, "?known=0,0,0,0&wait=0.01")["createdAtMs"] == first + 5_000


def test_more_than_may_wait_are_answered_at_once(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a wait costs the server something, so they are counted."""
    create(exchange)
    monkeypatch.setattr(event_hubs, "WAITING_MAX", 0)
    assert nexts(ask(exchange, LONG)) == [0, 0, 0, 0]


@pytest.mark.parametrize("query", ["?known=a", "?known=1,", "?known=-1", "?wait=x", "?wait=1e9", "?wait=-1"])
def test_a_question_that_makes_no_sense_is_refused(exchange: Exchange, query: str) -> None:
    """Attack: numbers are numbers."""
    create(exchange)
    assert exchange.request("GET", f"/clicks/partitions{query}").status == 400


def test_whoever_may_use_the_hub_may_ask(exchange: Exchange) -> None:
    """A-6, A-9: Listen or Send on the hub; nobody without a token, nobody of another hub."""
    rules = [
        AuthorizationRule(right.lower(), frozenset({right}), "k" * 44, "s" * 44)
        for right in ("Listen", "Send")
    ]
    hub = EventHubDescription("clicks", partition_count=1, authorization_rules=tuple(rules))
    exchange.run(exchange.hubs.create(hub, []))
    create(exchange, "other")
    for name in ("listen", "send"):
        token = sas_token(f"https://{HOST}/clicks", name, "k" * 44)
        assert exchange.request("GET", "/clicks/partitions", token=token).status == 200
        assert exchange.request("GET", "/other/partitions", token=token).status == 401
    assert exchange.request("GET", "/clicks/partitions", token=None).status == 401
    assert exchange.request("POST", "/clicks/partitions").status != 200


def test_a_queue_whose_name_ends_like_that_stays_one(exchange: Exchange) -> None:
    """E-8: there is no hub before it."""
    made = exchange.request("PUT", f"/nothing/partitions?{VERSION}", queue_body())
    assert made.status == 201, made.text
    assert "QueueDescription" in exchange.request("GET", f"/nothing/partitions?{VERSION}").text
