"""Claims over HTTP: routes, rights, bodies of strangers, what comes back."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from busway.broker.bulk.claims import COUNT_MAX
from busway.gateway.http.bulk.claims_route import numbers_of, runs_of
from tests.unit.gateway.http_exchange import HOST, VERSION, Answer, Exchange, queue_body, sas_token

KEY = "cHJpbWFyeQ=="
ROOT = "/orders/$claims"


def rule(right: str) -> str:
    return (
        f"<AuthorizationRules><AuthorizationRule><KeyName>{right}</KeyName><Rights><AccessRights>{right}"
        f"</AccessRights></Rights><PrimaryKey>{KEY}</PrimaryKey><SecondaryKey>{KEY}</SecondaryKey>"
        "</AuthorizationRule></AuthorizationRules>"
    )


@pytest.fixture
def bus() -> Iterator[Exchange]:
    with Exchange() as exchange:
        assert exchange.request("PUT", f"/orders?{VERSION}", queue_body()).status == 201
        yield exchange


def send(bus: Exchange, *bodies: str, queue: str = "orders", **headers: str) -> None:
    for body in bodies:
        assert bus.request("POST", f"/{queue}/messages", body, headers).status == 201


def ask(bus: Exchange, verb: str, runs: object = None, stamp: str = "s1", root: str = ROOT) -> Any:
    body = "" if runs is None else json.dumps({"held": runs})
    answer = bus.request("POST", f"{root}/{stamp}/{verb}", body)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def frames(content: bytes) -> list[tuple[list[int], list[bytes], dict[str, Any]]]:
    """(numbers, bare messages, details) of each frame."""
    found = []
    at = 0
    while at < len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        start = at + 8
        magic, count, details_bytes = struct.unpack_from("<4sII", content, start)
        assert magic == b"BWQ1"
        numbers = list(struct.unpack_from(f"<{count}q", content, start + 12))
        ends = struct.unpack_from(f"<{count}q", content, start + 12 + 24 * count)
        details_at = start + 12 + 36 * count
        first = details_at + details_bytes
        bares = [content[first + low : first + high] for low, high in zip((0, *ends), ends, strict=False)]
        details = json.loads(content[details_at:first] or b"{}")
        found.append((numbers, bares, details))
        at = start + size
        assert first + ends[-1] == at
    return found


def test_a_claim_is_taken_held_read_and_settled(bus: Exchange) -> None:
    """R-2, R-50, R-10: the whole way; peek and counts show what there is on it."""
    send(bus, "a", "b", "c")
    now_ms = bus.clock.wall_ms()
    taken = ask(bus, "take?count=2")
    assert taken == {
        "held": [[1, 2]],
        "oldest_ms": now_ms,
        "locked_until_ms": now_ms + 60_000,
        "available": 1,
    }
    assert ask(bus, "take?count=2") == taken
    assert ask(bus, "renew") == {"locked_until_ms": now_ms + 60_000}
    assert ask(bus, "hold", [[1, 2]]) == {"held": [[1, 2]]}
    counts = bus.namespace.queue("orders").counts()
    assert (counts.active, counts.deferred) == (1, 2)
    listed = bus.request("GET", ROOT)
    assert json.loads(listed.text) == {"claims": [{"stamp": "s1", "messages": 2}], "last": [3]}
    read = bus.request("POST", f"{ROOT}/s1/read", json.dumps({"held": [[1, 3]]}))
    assert read.headers["content-type"] == "application/vnd.busway.claimed"
    ((numbers, bares, details),) = frames(read.content)
    assert (numbers, details) == ([1, 2], {})
    assert [bare[-1:] for bare in bares] == [b"a", b"b"]
    assert ask(bus, "settle", [[1, 2]]) == {"settled": 2, "locked": 0}
    assert ask(bus, "settle", [[1, 2]]) == {"settled": 0, "locked": 0}
    assert json.loads(bus.request("GET", ROOT).text) == {"claims": [], "last": [3]}


def test_what_few_messages_have_comes_beside_the_columns(bus: Exchange) -> None:
    """M-11, M-16: partition keys, for each message or not at all."""
    send(bus, "a", BrokerProperties='{"PartitionKey": "north"}')
    send(bus, "b")
    ask(bus, "take")
    ask(bus, "hold", [[1, 2]])
    ((_, _, details),) = frames(bus.request("POST", f"{ROOT}/s1/read", '{"held":[[1,2]]}').content)
    assert details == {"partitionKey": ["north", None]}


def test_a_released_claim_is_received_by_others(bus: Exchange) -> None:
    """What a stream left behind that is no more."""
    send(bus, "a")
    ask(bus, "take")
    ask(bus, "hold", [[1, 1]])
    assert bus.request("DELETE", "/orders/messages/head?timeout=0").status == 204
    assert ask(bus, "release") == {"released": 1, "locked": 0}
    got = bus.request("DELETE", "/orders/messages/head?timeout=0")
    assert (got.status, got.text) == (200, "a")
    assert "busway-claim" not in {name.lower() for name in got.headers}


def test_an_answer_without_messages_is_empty(bus: Exchange) -> None:
    assert ask(bus, "take?count=5&wait=0")["held"] == []
    read = bus.request("POST", f"{ROOT}/s1/read", '{"held":[[1,100]]}')
    assert (read.status, read.content) == (200, b"")


def test_subscriptions_dead_letters_and_sessions_have_claims(bus: Exchange) -> None:
    """E-8, D-22, X-4: every place that is received from."""
    bus.request("PUT", f"/t?{VERSION}", queue_body(kind="TopicDescription"))
    bus.request("PUT", f"/t/subscriptions/s?{VERSION}", queue_body(kind="SubscriptionDescription"))
    bus.request("PUT", f"/chat?{VERSION}", queue_body("<RequiresSession>true</RequiresSession>"))
    send(bus, "a", queue="t")
    send(bus, "b", queue="chat", BrokerProperties='{"SessionId": "x"}')
    assert ask(bus, "take", root="/t/subscriptions/s/$claims")["held"] == [[1, 1]]
    assert ask(bus, "take?count=1", root="/chat/$claims")["held"] == [[1, 1, "x"]]
    for place in ("orders/$DeadLetterQueue", "orders/$Transfer/$DeadLetterQueue"):
        assert ask(bus, "take", root=f"/{place}/$claims")["held"] == []
        assert ask(bus, "hold", [[1, 1]], root=f"/{place}/$claims") == {"held": []}
        assert ask(bus, "settle", [[1, 1]], root=f"/{place}/$claims") == {"settled": 0, "locked": 0}
        assert ask(bus, "release", root=f"/{place}/$claims")["released"] == 0


def test_a_claim_that_is_held_tells_its_sessions_to_whoever_asks(bus: Exchange) -> None:
    """X-13: a driver that was started again knows numbers only."""
    bus.request("PUT", f"/chat?{VERSION}", queue_body("<RequiresSession>true</RequiresSession>"))
    for session in ("x", "y", "x"):
        send(bus, "a", queue="chat", BrokerProperties=f'{{"SessionId": "{session}"}}')
    root = "/chat/$claims"
    assert ask(bus, "take?count=3", root=root)["held"] == [[1, 1, "x"], [3, 1, "x"], [2, 1, "y"]]
    for _ in range(2):
        assert ask(bus, "hold", [[1, 3]], root=root) == {"held": [[1, 3]]}
        told = ask(bus, "hold?sessions=true", [[1, 3]], root=root)["held"]
        assert sorted(told) == [[1, 1, "x"], [2, 1, "y"], [3, 1, "x"]]
    refused = bus.request("POST", f"{root}/s1/hold?sessions=perhaps", '{"held": [[1, 3]]}')
    assert (refused.status, "true or false" in refused.text) == (400, True)


def test_dead_letters_have_the_numbers_of_their_queue(bus: Exchange) -> None:
    """M-38: the newest number of a dead-letter queue is that of the entity whose messages it keeps."""
    send(bus, "a", "b")
    for place in ("orders", "orders/$DeadLetterQueue"):
        assert json.loads(bus.request("GET", f"/{place}/$claims").text)["last"] == [2]


@pytest.mark.parametrize(
    ("right", "status"), [("Listen", 200), ("Send", 401)], ids=["who may listen", "who may only send"]
)
def test_claims_need_the_right_to_listen(bus: Exchange, right: str, status: int) -> None:
    """A-5, A-9: all of them; also by a token for no more than this."""
    assert bus.request("PUT", f"/guarded?{VERSION}", queue_body(rule(right))).status == 201
    for scope in ("guarded", "guarded/$claims"):
        token = sas_token(f"https://{HOST}/{scope}", right, KEY)
        assert bus.request("GET", "/guarded/$claims", token=token).status == status
        for verb in ("take", "release"):
            assert bus.request("POST", f"/guarded/$claims/s/{verb}", token=token).status == status
        for verb in ("hold", "read", "settle"):
            answer = bus.request("POST", f"/guarded/$claims/s/{verb}", '{"held":[[1,1]]}', token=token)
            assert answer.status == status
    assert bus.request("GET", "/guarded/$claims", token=None).status == 401


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        '{"held": 1}',
        '{"held": [1]}',
        '{"held": [[1]]}',
        '{"held": [[1, 2, "x"]]}',
        '{"held": [[0, 1]]}',
        '{"held": [[-5, 1]]}',
        '{"held": [[1, 0]]}',
        '{"held": [[true, 1]]}',
        '{"held": [[1.5, 1]]}',
        '{"held": [["1", 1]]}',
        '{"held": [[1, 2], [2, 1]]}',
        '{"held": [[5, 1], [1, 1]]}',
        f'{{"held": [[1, {COUNT_MAX + 1}]]}}',
        f'{{"held": [[{(1 << 63) - 1}, 2]]}}',
        f'{{"held": [[1, {10**30}]]}}',
        '{"held": [], "held": []}',
        '{"held": [[1, NaN]]}',
    ],
)
def test_a_body_that_is_no_list_of_runs_is_refused(bus: Exchange, body: str) -> None:
    """ERR-41: 400 with a sentence, before anything happens."""
    for verb in ("hold", "read", "settle"):
        answer = bus.request("POST", f"{ROOT}/s1/{verb}", body)
        assert answer.status == 400, answer.text
        assert answer.detail


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", f"{ROOT}/s1/eat", 404),
        ("POST", "/nobody/$claims/s1/take", 404),
        ("GET", "/nobody/$claims", 404),
        ("POST", f"{ROOT}/{'s' * 65}/take", 400),
        ("POST", f"{ROOT}/s%20s/take", 400),
        ("POST", f"{ROOT}/s%00/take", 400),
        ("GET", f"{ROOT}/s1/take", 405),
        ("DELETE", f"{ROOT}/s1/settle", 405),
        ("POST", ROOT, 405),
        ("POST", f"{ROOT}/s1/take?count=0", 400),
        ("POST", f"{ROOT}/s1/take?count={COUNT_MAX + 1}", 400),
        ("POST", f"{ROOT}/s1/take?count=-1", 400),
        ("POST", f"{ROOT}/s1/take?count=1&count=2", 400),
        ("POST", f"{ROOT}/s1/take?count=٣", 400),
        ("POST", f"{ROOT}/s1/take?wait=forever", 400),
        ("POST", f"{ROOT}/s1/take?wait=1e9", 400),
        ("POST", f"{ROOT}/s1/renew", 410),
        ("POST", "/a//b/$claims/s1/take", 400),
    ],
)
def test_what_is_not_there_or_not_allowed_is_told(
    bus: Exchange, method: str, target: str, status: int
) -> None:
    answer = bus.request(method, target)
    assert answer.status == status, answer.text


def test_a_topic_has_no_claims(bus: Exchange) -> None:
    """E-9: a topic has no claims."""
    bus.request("PUT", f"/t?{VERSION}", queue_body(kind="TopicDescription"))
    answer: Answer = bus.request("POST", "/t/$claims/s1/take")
    assert answer.status in (400, 403)


def test_a_body_that_is_too_long_is_not_read(bus: Exchange) -> None:
    body = '{"held": [' + " " * (5 * 1024 * 1024) + "]}"
    assert bus.request("POST", f"{ROOT}/s1/hold", body).status == 400


def test_runs_and_numbers_are_two_forms_of_one_thing() -> None:
    for numbers in ([], [1], [1, 2, 3], [1, 3, 4, 9], [5, 1 << 48, (1 << 48) + 1]):
        body = json.dumps({"held": runs_of(numbers)}).encode()
        assert asyncio.run(numbers_of(body)) == numbers
