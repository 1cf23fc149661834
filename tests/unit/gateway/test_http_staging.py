"""Writes in two phases over HTTP: what is asked, answered and refused."""

from __future__ import annotations

import asyncio
import json

import pytest

from busway.gateway.http.bulk import admission
from busway.gateway.http.presence import ClientPresence
from tests.unit.broker.topic_bench import encoded
from tests.unit.gateway.http_exchange import HOST, ROOT_TOKEN, Answer, Exchange, queue_body, sas_token
from tests.unit.staging.staging_bench import part_of, stage_id

RULE = (
    "<AuthorizationRules><AuthorizationRule i:type='SharedAccessAuthorizationRule'><ClaimType>SharedAccessKey"
    "</ClaimType><ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights><KeyName>writer"
    "</KeyName><PrimaryKey>MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=</PrimaryKey></AuthorizationRule>"
    "</AuthorizationRules>"
)


def post(exchange: Exchange, target: str, body: bytes | str, token: str | None = None) -> Answer:
    if token is None:
        return exchange.request("POST", f"/$staging/{target}", body)
    return exchange.request("POST", f"/$staging/{target}", body, token=token)


@pytest.fixture(autouse=True)
def orders(exchange: Exchange) -> None:
    assert exchange.request("PUT", "/orders?api-version=2024-05", queue_body(RULE)).status == 201
    assert exchange.request("PUT", "/others?api-version=2024-05", queue_body()).status == 201


@pytest.mark.parametrize(
    "target",
    [
        f"q/0/{stage_id(1)}?part=0",
        f"q/0/{stage_id(1)}?entity=orders",
        f"q/0/{stage_id(1)}?entity=orders&part=x",
        f"q/0/{stage_id(1)}?entity=orders&part=0&again=2",
        f"q/0/{stage_id(1)}?entity=orders&part=0&kind=neither",
        f"q/0/{stage_id(1)}?entity=orders&part=0&partition=0",
        f"q/0/{'A' * 32}?entity=orders&part=0",
        f"q/-1/{stage_id(1)}?entity=orders&part=0",
        f"q/{(1 << 62) + 1}/{stage_id(1)}?entity=orders&part=0",
        f"{'q' * 129}/0/{stage_id(1)}?entity=orders&part=0",
        f"q/0/{stage_id(1)}/x?entity=orders&part=0",
    ],
)
def test_a_part_with_a_wrong_address_is_refused(exchange: Exchange, target: str) -> None:
    """Bad input: names, numbers and kinds are checked before anything is read."""
    assert post(exchange, target, part_of(encoded("x"))).status == 400


@pytest.mark.parametrize("body", [b"\x00", b"\x05\x00\x00\x00x", b"\xff\xff\xff\xff"])
def test_a_body_that_is_cut_is_refused(exchange: Exchange, body: bytes) -> None:
    """Bad input: nothing of it is staged."""
    assert post(exchange, f"q/0/{stage_id(1)}?entity=orders&part=0", body).status == 400
    assert not exchange.stagings.table.stages


def test_a_part_that_is_too_large_is_refused(exchange: Exchange) -> None:
    """Bad input: at most 4 MiB and 10,000 rows."""
    target = f"q/0/{stage_id(1)}?entity=orders&part=0"
    assert post(exchange, target, bytes(4 * 1024 * 1024 + 1)).status == 413
    assert post(exchange, target, part_of(*[encoded("x")] * 10_001)).status == 413
    assert post(exchange, target, part_of(*[encoded("x")] * 10_000)).status == 200


def test_a_refused_row_is_named(exchange: Exchange) -> None:
    """Staging: 400 with the row's index."""
    answer = post(exchange, f"q/0/{stage_id(1)}?entity=orders&part=0", part_of(encoded("a"), b"\x00Sx"))
    assert answer.status == 400
    assert json.loads(answer.text)["row"] == 1


def test_conflicts_have_a_code(exchange: Exchange) -> None:
    """Staging: 409 for what must not be repeated as it is."""
    stage = stage_id(1)
    assert _code(post(exchange, f"q/5/{stage}?entity=orders&part=1", part_of(encoded("a")))) == "gap"
    assert _code(post(exchange, "q/5", json.dumps({"kind": "stream", "stages": {stage: 1}}))) == "gone"
    assert post(exchange, "q/5", json.dumps({"kind": "stream", "stages": {}})).status == 200
    assert _code(post(exchange, f"q/4/{stage}?entity=orders&part=0", part_of(encoded("a")))) == "behind"
    known = post(exchange, f"q/5/{stage}?entity=orders&part=0", part_of(encoded("a")))
    assert (known.status, known.text) == (200, '{"known":true}')
    assert exchange.request("GET", "/$staging/other").status == 404


def _code(answer: Answer) -> str:
    assert answer.status == 409
    assert json.loads(answer.text)["reason"]
    return str(json.loads(answer.text)["code"])


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"kind": "stream"}',
        '{"kind": "x", "stages": {}}',
        '{"kind": "stream", "stages": {"1": 1}}',
    ]
    + [
        f'{{"kind": "stream", "stages": {{"{stage_id(1)}": {rows}}}}}'
        for rows in ("-1", "true", '"1"', "1.5")
    ],
)
def test_a_decision_with_a_wrong_body_is_refused(exchange: Exchange, body: str) -> None:
    """Bad input: nothing is decided."""
    assert post(exchange, "q/0", body).status == 400
    assert exchange.stagings.decisions.get("q") is None


def test_whoever_may_send_to_an_entity_may_stage_and_decide_for_it_and_nothing_else(
    exchange: Exchange,
) -> None:
    """A-6: Send on every entity of the stages, and of the write's last decision."""
    key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    writer = sas_token(f"https://{HOST}/orders", "writer", key)
    first, second = stage_id(1), stage_id(2)
    assert post(exchange, f"q/0/{first}?entity=others&part=0", part_of(encoded("a")), writer).status == 401
    assert post(exchange, f"q/0/{first}?entity=orders&part=0", part_of(encoded("a")), writer).status == 200
    assert post(exchange, f"q/0/{second}?entity=others&part=0", part_of(encoded("a"))).status == 200
    both = json.dumps({"kind": "stream", "stages": {first: 1, second: 1}})
    assert post(exchange, "q/0?entity=orders", both, writer).status == 401
    drop = f"/$staging/q/0/{second}?entity=orders"
    assert exchange.request("DELETE", drop, token=writer).status == 401
    assert post(exchange, "q/0", both).status == 200
    empty = json.dumps({"kind": "stream", "stages": {}})
    assert post(exchange, "q/1?entity=orders", empty, writer).status == 401  # the write is somebody else's
    assert post(exchange, "other/1?entity=orders", empty, writer).status == 200
    assert exchange.request("GET", "/$staging/q", token=writer).status == 401
    for target in (f"q/0/{first}?entity=orders&part=0", "q/0"):
        assert exchange.request("POST", f"/$staging/{target}", token=None).status == 401


def test_an_operator_may_have_a_write_forgotten(exchange: Exchange) -> None:
    """Staging: with Manage on the namespace; otherwise nothing is forgotten before its time."""
    key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    writer = sas_token(f"https://{HOST}/orders", "writer", key)
    assert exchange.request("DELETE", "/$staging/q").text == '{"forgotten":false}'
    assert post(exchange, "q/5", json.dumps({"kind": "stream", "stages": {}})).status == 200
    assert exchange.request("DELETE", "/$staging/q", token=writer).status == 401
    assert exchange.request("DELETE", "/$staging/q").text == '{"forgotten":true}'
    assert exchange.request("GET", "/$staging/q").status == 404
    assert post(exchange, "q/0", json.dumps({"kind": "stream", "stages": {}})).status == 200


def test_a_busy_server_says_when_to_come_again(exchange: Exchange) -> None:
    """Staging: 503 with a short Retry-After while a store is away."""
    for name in ("store-1", "store-0"):
        exchange.run(exchange.namespace.stores.disable(name))
    answer = post(exchange, f"q/0/{stage_id(1)}?entity=orders&part=0", part_of(encoded("a")))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_a_part_is_read_when_it_is_its_turn_among_all_bulk_work(exchange: Exchange) -> None:
    """Admission: it waits for memory that others hold, is bounded by the share of its caller, and gives back."""

    async def play() -> Answer:
        bulk = exchange.gateway.bulk
        other = bulk.enter("another", ClientPresence())
        await other.hold(bulk.bytes_max)
        target, body = f"/$staging/q/0/{stage_id(1)}?entity=orders&part=0", part_of(encoded("a"))
        headers = {"host": HOST, "authorization": ROOT_TOKEN, "content-length": str(len(body))}
        asked = asyncio.create_task(exchange._exchange("POST", target, body, headers))
        for _ in range(50):
            await asyncio.sleep(0)
        assert (asked.done(), bulk.is_short, len(exchange.stagings.table.stages)) == (False, True, 0)
        other.close()
        answer = await asked
        assert (bulk.requests, bulk.held_bytes) == (0, 0)
        return answer

    assert json.loads(exchange.run(play()).text) == {"rows": 1, "parts": 1}


def test_more_writers_than_may_be_inside_are_told_to_come_back(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admission: the line is bounded, and the answer says when to come again."""
    monkeypatch.setattr(admission, "REQUESTS_MAX", 0)
    answer = post(exchange, f"q/0/{stage_id(1)}?entity=orders&part=0", part_of(encoded("a")))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
