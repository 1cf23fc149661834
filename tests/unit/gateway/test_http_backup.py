"""`/$backup`: who may have the bus copied."""

import json

import pytest

from tests.unit.gateway.http_exchange import HOST, Exchange, sas_token


@pytest.mark.parametrize("rights", [["Send"], ["Listen"], ["Send", "Listen"]])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_whoever_may_not_manage_the_namespace_has_nothing_copied(
    exchange: Exchange, method: str, rights: list[str]
) -> None:
    """A-9: nor told about, nor stopped; a stranger does not learn whether there are backups."""
    body = json.dumps({"rights": rights, "primaryKey": "abc"})
    assert exchange.request("PUT", "/$rules/worker", body).status == 201
    token = sas_token(f"https://{HOST}", "worker", "abc")
    assert exchange.request(method, "/$backup", token=token).status == 401


def test_where_there_are_no_files_nothing_is_copied(exchange: Exchange) -> None:
    """Backup: a bus in memory says so."""
    answer = exchange.request("GET", "/$backup")
    assert (answer.status, "makes no backups" in answer.detail) == (404, True)
    body = json.dumps({"to": "/tmp/copy", "note": "x"})
    assert exchange.request("POST", "/$backup", body).status == 404


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"to": "/x"}', '{"to": 1, "note": ""}', '{"to": "/x", "note": "", "a": 1}']
)
def test_a_request_that_is_none_is_refused(exchange: Exchange, body: str) -> None:
    """Attack: a sentence, whatever was sent."""
    assert exchange.request("POST", "/$backup", body).status in (400, 404)
