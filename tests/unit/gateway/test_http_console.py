"""The console's page, its files, its codes, and the figures that it shows, for whoever asks."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator

import pytest

from busway.gateway.http.app import HttpSettings
from busway.gateway.http.console.page_files import PageFiles
from busway.gateway.http.console.sign_in_codes import CODE_S, CODES_MAX
from tests.unit.gateway.http_exchange import HOST, ROOT_TOKEN, VERSION, Exchange, queue_body, sas_token


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with Exchange() as made:
        yield made


# -- the page


def test_the_page_runs_nothing_but_its_own_files(exchange: Exchange) -> None:
    """Attack: no script or style of anybody else's, none written into the page, no frame around it."""
    answer = exchange.request("GET", "/$console", token=None)
    policy = answer.headers["content-security-policy"]
    assert answer.status == 200
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert f"connect-src 'self' ws://{HOST} wss://{HOST};" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert not re.search(r"\son\w+=|style=|<script>", answer.text)
    assert set(re.findall(r'(?:src|href)="(/[^/]*)/', answer.text)) == {"/$console"}


def test_the_page_says_nothing_of_the_bus(exchange: Exchange) -> None:
    """A-11: it needs no key, so there is nothing in it."""
    exchange.request("PUT", f"/secret-project?{VERSION}", queue_body())
    before = exchange.request("GET", "/$console", token=None).text
    assert "secret-project" not in before
    assert "busway-test" not in before


def test_every_file_that_the_page_names_is_there_for_ever(exchange: Exchange) -> None:
    """Speed: files have their content's version in their address, and are never asked for again."""
    page = exchange.request("GET", "/$console", token=None).text
    addresses = {*re.findall(r'(?:src|href)="([^"]+)"', page), *re.findall(r'":"([^"]+)"', page)}
    assert len(addresses) > 15
    for address in addresses:
        answer = exchange.request("GET", address, token=None)
        assert answer.status == 200, address
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_page_that_has_not_changed_is_not_sent_again(exchange: Exchange) -> None:
    """Speed: the page itself is asked for each time, and told by its tag."""
    tag = exchange.request("GET", "/$console", token=None).headers["etag"]
    again = exchange.request("GET", "/$console", token=None, headers={"If-None-Match": tag})
    assert (again.status, again.text) == (304, "")


def test_files_are_compressed_for_who_can_read_that(exchange: Exchange) -> None:
    """Speed: the whole first screen is small."""
    files = PageFiles()
    address = files.address("page/console.css")
    plain = exchange.request("GET", address, token=None)
    small = exchange.request("GET", address, token=None, headers={"Accept-Encoding": "gzip, br"})
    assert small.headers["content-encoding"] == "gzip"
    assert gzip.decompress(small.content) == plain.content
    tag = plain.headers["etag"]
    assert exchange.request("GET", address, token=None, headers={"If-None-Match": tag}).status == 304


@pytest.mark.parametrize(
    "name",
    [
        "page/../console_routes.py",
        "..%2fconsole_routes.py",
        "console_routes.py",
        "page/nothing.js",
        "page",
        "vendor/",
    ],
)
def test_nothing_else_is_handed_out(exchange: Exchange, name: str) -> None:
    """Attack: names lead to files of the page, never to a path."""
    assert exchange.request("GET", f"/$console/{PageFiles().version}/{name}", token=None).status == 404


def test_files_of_another_version_are_not_there(exchange: Exchange) -> None:
    """Change under traffic: a page of the server before is told to load itself anew."""
    answer = exchange.request("GET", "/$console/0123456789abcdef/page/app.js", token=None)
    assert (answer.status, "load the page anew" in answer.detail) == (404, True)


def test_off_leaves_the_plain_status_page() -> None:
    """A-11: --console off serves no page that runs anything, and no codes."""
    with Exchange(HttpSettings(console="off")) as exchange:
        page = exchange.request("GET", "/$console", token=None)
        assert page.headers["content-security-policy"].startswith("default-src 'none'; base-uri")
        assert "<script" not in page.text
        assert exchange.request("GET", PageFiles().address("page/app.js"), token=None).status == 404
        body = json.dumps({"token": ROOT_TOKEN, "below": ""})
        assert exchange.request("POST", "/$console/codes", body).status == 404
        assert exchange.request("POST", "/$console/codes/redeem", '{"code": "x"}', token=None).status == 404


# -- one-time codes


def left_code(exchange: Exchange, token: str = ROOT_TOKEN, below: str = "") -> str:
    answer = exchange.request(
        "POST", "/$console/codes", json.dumps({"token": token, "below": below}), token=token
    )
    assert answer.status == 201, answer.text
    return str(json.loads(answer.text)["code"])


def redeemed(exchange: Exchange, code: str) -> tuple[int, str]:
    answer = exchange.request("POST", "/$console/codes/redeem", json.dumps({"code": code}), token=None)
    return answer.status, answer.text


def test_a_code_is_good_once(exchange: Exchange) -> None:
    """Attack: an address that somebody reads later opens nothing."""
    code = left_code(exchange)
    status, text = redeemed(exchange, code)
    assert (status, json.loads(text)) == (200, {"token": ROOT_TOKEN, "below": ""})
    assert redeemed(exchange, code)[0] == 401
    assert redeemed(exchange, "guessed")[0] == 401


def test_a_code_is_good_for_a_minute(exchange: Exchange) -> None:
    """Attack: one that nobody used is worth nothing later."""
    code = left_code(exchange)
    exchange.clock.advance(CODE_S + 1)
    assert redeemed(exchange, code)[0] == 401


def test_only_a_token_that_counts_can_be_left(exchange: Exchange) -> None:
    """Attack: nobody without a key fills the places, or leaves somebody else's words there."""
    body = json.dumps({"token": "SharedAccessSignature x", "below": ""})
    assert exchange.request("POST", "/$console/codes", body).status == 401
    assert exchange.request("POST", "/$console/codes", body, token="SharedAccessSignature x").status == 401
    expired = sas_token(f"https://{HOST}", expiry=1)
    body = json.dumps({"token": expired, "below": ""})
    assert exchange.request("POST", "/$console/codes", body, token=expired).status == 401


def test_the_oldest_code_goes_when_there_are_many(exchange: Exchange) -> None:
    """Memory: some dozens of codes wait at once."""
    codes = [left_code(exchange) for _ in range(CODES_MAX + 1)]
    assert redeemed(exchange, codes[0])[0] == 401
    assert redeemed(exchange, codes[1])[0] == 200


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"code": 1}', '{"code": "x", "more": 1}', "[" * 5000])
def test_what_is_no_code_is_refused_in_a_sentence(exchange: Exchange, body: str) -> None:
    """Attack: strangers may ask here."""
    answer = exchange.request("POST", "/$console/codes/redeem", body, token=None)
    assert (answer.status, answer.detail.startswith("SubCode=40000. ")) == (400, True)


# -- figures


def rule(exchange: Exchange, name: str, *rights: str) -> str:
    """A token of a fresh rule of the namespace."""
    made = exchange.request("PUT", f"/$rules/{name}", json.dumps({"rights": rights}))
    return sas_token(f"https://{HOST}", name, str(json.loads(made.text)["primaryKey"]))


def test_the_overview_has_a_row_for_each_entity(exchange: Exchange) -> None:
    """E-100: what a console shows, for whoever asks."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    exchange.request("PUT", f"/events?{VERSION}", queue_body(kind="TopicDescription"))
    exchange.request("PUT", f"/events/subscriptions/a?{VERSION}", queue_body(kind="SubscriptionDescription"))
    exchange.request("PUT", "/$eventhubs/clicks", '{"PartitionCount": 2}')
    exchange.request("POST", "/orders/messages", "hello")
    told = json.loads(exchange.request("GET", "/$overview").text)
    assert told["namespace"] == "busway-test"
    rows = {row[0]: dict(zip(told["columns"], row, strict=True)) for row in told["rows"]}
    assert {path: row["kind"] for path, row in rows.items()} == {
        "orders": "queue",
        "events": "topic",
        "events/Subscriptions/a": "subscription",
        "clicks": "hub",
    }
    assert (rows["orders"]["active"], rows["orders"]["status"], rows["orders"]["fragments"]) == (
        1,
        "Active",
        1,
    )
    assert rows["clicks"]["fragments"] == 2


def test_what_lies_in_a_store_that_is_away_is_unknown(exchange: Exchange) -> None:
    """E-104: unknown is not zero."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    for name in ("store-0", "store-1"):
        exchange.request("POST", f"/$stores/{name}/disable")
    told = json.loads(exchange.request("GET", "/$overview").text)
    row = dict(zip(told["columns"], told["rows"][0], strict=True))
    assert (row["active"], row["availability"]) == (None, "Unknown")


@pytest.mark.parametrize("target", ["/$overview", "/$rates"])
def test_figures_ask_for_manage_or_listen(exchange: Exchange, target: str) -> None:
    """A-9: as /metrics does beyond loopback."""
    assert exchange.request("GET", target, token=None).status == 401
    assert exchange.request("GET", target, token=rule(exchange, "listens", "Listen")).status == 200
    assert exchange.request("GET", target, token=rule(exchange, "sends", "Send")).status == 401
    assert exchange.request("POST", target).status == 405


def test_rates_of_one_entity_ask_for_a_right_on_it(exchange: Exchange) -> None:
    """A-9: a token for one queue opens the figures of that queue."""
    exchange.request("PUT", f"/orders?{VERSION}", queue_body())
    own = sas_token(f"https://{HOST}/orders")
    assert exchange.request("GET", "/$rates/orders", token=own).status == 200
    assert exchange.request("GET", "/$rates/orders").status == 200
    assert exchange.request("GET", "/$rates/others", token=own).status == 401
    assert exchange.request("GET", "/$rates", token=own).status == 401
    assert exchange.request("GET", "/$rates/orders", token=rule(exchange, "sends", "Send")).status == 401
