"""`POST /$reset`: who may empty a bus, and where."""

import json

import pytest

from tests.unit.gateway.http_exchange import HOST, ROOT_KEY, VERSION, Exchange, queue_body, sas_token


def test_a_server_that_does_not_allow_it_refuses_everybody(exchange: Exchange) -> None:
    """A-9: not even the root key empties a bus that was not started for it."""
    assert exchange.request("PUT", f"/orders?{VERSION}", queue_body()).status == 201
    answer = exchange.request("POST", "/$reset")
    assert answer.status == 403
    assert "was started without busway serve --allow-reset" in answer.detail
    assert [queue.path for queue in exchange.namespace.queues()] == ["orders"]


def test_where_it_is_allowed_the_bus_is_empty_afterwards() -> None:
    """Reset: entities, hubs, rules and reports of streams are gone, and the same key goes on."""
    with Exchange(allows_reset=True) as exchange:
        exchange.request("PUT", f"/orders?{VERSION}", queue_body())
        exchange.request("PUT", "/$rules/worker", json.dumps({"rights": ["Listen"]}))
        report = {"query": "q-1", "run": "r-1", "sources": [{"entity": "orders"}]}
        assert exchange.request("POST", "/$pipelines/stream", json.dumps(report)).status < 300
        assert exchange.request("POST", "/$reset").status == 204
        assert exchange.namespace.queues() == []
        assert [rule["name"] for rule in json.loads(exchange.request("GET", "/$rules").text)] == [
            "RootManageSharedAccessKey"
        ]
        assert exchange.request("GET", "/$pipelines/stream").status == 404
        assert exchange.namespace.access.root_key == ROOT_KEY


@pytest.mark.parametrize("rights", [["Send"], ["Listen"], ["Send", "Listen"]])
def test_whoever_may_not_manage_the_namespace_cannot_empty_it(rights: list[str]) -> None:
    """A-9: 401, and everything stays; also where it is allowed."""
    with Exchange(allows_reset=True) as exchange:
        exchange.request("PUT", f"/orders?{VERSION}", queue_body())
        body = json.dumps({"rights": rights, "primaryKey": "abc"})
        assert exchange.request("PUT", "/$rules/worker", body).status == 201
        token = sas_token(f"https://{HOST}", "worker", "abc")
        assert exchange.request("POST", "/$reset", token=token).status == 401
        assert [queue.path for queue in exchange.namespace.queues()] == ["orders"]


def test_only_a_post_empties_it() -> None:
    """Attack: a link that somebody follows changes nothing."""
    with Exchange(allows_reset=True) as exchange:
        exchange.request("PUT", f"/orders?{VERSION}", queue_body())
        assert exchange.request("GET", "/$reset").status == 405
        assert len(exchange.namespace.queues()) == 1


def test_two_resets_at_once_both_succeed() -> None:
    """Reset: the second one finds an empty bus."""
    with Exchange(allows_reset=True) as exchange:
        exchange.request("PUT", f"/orders?{VERSION}", queue_body())
        answers = exchange.request_together(("POST", "/$reset"), ("POST", "/$reset"))
        assert [answer.status for answer in answers] == [204, 204]
