"""What holds for every HTTP request: tokens, hosts, origins, errors, the status page, the operator's routes."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from busway import __version__
from busway.gateway.http.app import HttpSettings
from tests.unit.gateway.http_exchange import HOST, ROOT_KEY, VERSION, Exchange, queue_body, sas_token

ROUTES = [
    ("GET", "/orders"),
    ("PUT", "/orders"),
    ("DELETE", "/orders"),
    ("POST", "/orders/messages"),
    ("GET", "/$Resources/queues"),
    ("GET", "/$namespaceinfo"),
    ("GET", "/t/subscriptions/s"),
    ("GET", "/"),
    ("GET", "/$stores"),
    ("POST", "/$stores/store-0/disable"),
    ("POST", "/$reset"),
    ("GET", "/$rules"),
    ("GET", "/$rules/RootManageSharedAccessKey"),
    ("PUT", "/$rules/x"),
    ("DELETE", "/$rules/RootManageSharedAccessKey"),
]
TOKENS = [
    (None, "SubCode=40102. MissingToken"),
    ("", "SubCode=40105. "),
    ("Bearer eyJhbGciOiJub25lIn0.e30.", "SubCode=40105. "),
    (
        sas_token(f"https://{HOST}", key="wrong"),
        "InvalidSignature: The token has an invalid signature. TrackingId:",
    ),
    (
        sas_token(f"https://{HOST}", "Nobody"),
        "InvalidSignature: The token has an invalid signature. TrackingId:",
    ),
    (sas_token(f"https://{HOST}", expiry=1_600_000_000), "SubCode=40106. ExpiredToken"),
    (sas_token(f"https://{HOST}/elsewhere"), "SubCode=40104. "),
    (sas_token("https://other.example"), "SubCode=40104. "),
    (sas_token(f"https://{HOST}").replace("&se=4000000000", ""), "SubCode=40108. "),
]


def is_untouched(exchange: Exchange) -> bool:
    namespace = exchange.namespace
    states = [store["state"] for store in namespace.stores.shown()]
    return namespace.queues() == [] and len(namespace.access.rules()) == 1 and states == ["open"] * 2


@pytest.mark.parametrize(("token", "says"), TOKENS)
@pytest.mark.parametrize(("method", "target"), ROUTES)
def test_without_a_good_token_no_route_does_anything(
    exchange: Exchange, method: str, target: str, token: str | None, says: str
) -> None:
    """A-6 A-9 ERR-42 ERR-4: 401 with the sub-code of the fault, and nothing happens."""
    answer = exchange.request(method, f"{target}?{VERSION}", queue_body(), token=token)
    assert answer.status == 401
    assert answer.detail.startswith(says)
    assert answer.headers["www-authenticate"] == "SharedAccessSignature"
    assert is_untouched(exchange)


@pytest.mark.parametrize("rights", [["Send"], ["Listen"], ["Send", "Listen"]])
@pytest.mark.parametrize(("method", "target"), [route for route in ROUTES if "messages" not in route[1]])
def test_less_than_manage_opens_no_route(
    exchange: Exchange, method: str, target: str, rights: list[str]
) -> None:
    """A-9 A-6: a namespace rule without Manage gets 401 and a sentence that names the missing claim."""
    assert exchange.request("PUT", f"/orders?{VERSION}", queue_body()).status == 201
    body = json.dumps({"rights": rights, "primaryKey": "abc"})
    assert exchange.request("PUT", "/$rules/worker", body).status == 201
    token = sas_token(f"https://{HOST}", "worker", "abc")
    answer = exchange.request(method, f"{target}?{VERSION}", queue_body(), token=token)
    assert answer.status == 401
    assert answer.detail.startswith(
        (
            "Unauthorized access. 'Manage' claim(s) are required to perform this operation. TrackingId:",
            "Manage,EntityRead claims required for this operation. TrackingId:",
            "Authorization failed for specified action: Manage,Entity",
            "SubCode=40100: Unauthorized : Unauthorized access for '",
        )
    )


def test_two_tokens_are_none(exchange: Exchange) -> None:
    """A-6: whichever a proxy in front would look at, we look at neither, even if one is good."""
    answer = exchange.request("GET", "/$rules", headers={"Authorization": "SharedAccessSignature sr=x"})
    assert (answer.status, answer.detail[:15]) == (401, "SubCode=40105. ")


def test_every_error_carries_the_tracking_tail(exchange: Exchange) -> None:
    """ERR-41: TrackingId, SystemTracker and Timestamp."""
    detail = exchange.request("DELETE", f"/orders?{VERSION}").detail
    assert ", SystemTracker:busway-test:orders, Timestamp:2023-11-14T22:13:20" in detail


def test_a_fault_of_ours_shows_no_traceback(exchange: Exchange, caplog: pytest.LogCaptureFixture) -> None:
    """ERR-18 ERR-41: the client gets a TrackingId, the log the same one and the cause; no key is in either."""

    def broken() -> list[object]:
        raise ZeroDivisionError("secret detail")

    exchange.namespace.queues = broken
    with caplog.at_level(logging.ERROR):
        answer = exchange.request("GET", f"/$Resources/queues?{VERSION}")
    assert answer.status == 500
    assert answer.detail.startswith("SubCode=50000. ")
    assert "secret" not in answer.text
    assert "Zero" not in answer.text
    tracking = answer.detail.partition("TrackingId:")[2].partition(",")[0]
    assert tracking in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert ROOT_KEY not in caplog.text


# -- hosts and origins --


@pytest.mark.parametrize("host", ["localhost:5672", "127.0.0.1:5672", "[::1]:5672", "LOCALHOST", "127.9.9.9"])
def test_this_machines_names_are_served(exchange: Exchange, host: str) -> None:
    """A-11: loopback by any of its names."""
    answer = exchange.request("GET", "/$console", host=host, token=None)
    assert answer.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example:5672", "localhost.evil.example", "10.0.0.1:5672", "evil.example"]
)
@pytest.mark.parametrize("target", ["/$console", "/health", "/$rules", "/orders"])
def test_another_name_is_refused_on_loopback(exchange: Exchange, host: str, target: str) -> None:
    """A-11: DNS rebinding: a page whose own name points at this machine gets 403, with and without a token."""
    for token in (None, sas_token(f"https://{host}")):
        assert exchange.request("GET", target, host=host, token=token).status == 403


@pytest.mark.parametrize(
    "host", ["", "a b", "x\r\ny", "host/evil", "user@host", "<b>", "host:port", "ü.example"]
)
def test_a_host_header_that_is_no_host_is_refused(exchange: Exchange, host: str) -> None:
    """ERR-42: it would go into every address we write."""
    assert exchange.request("GET", "/health", host=host, token=None).status == 400


def test_any_name_is_served_off_loopback() -> None:
    """A-11: there the certificate names the server."""
    token = sas_token("https://bus.example")
    with Exchange(HttpSettings.for_host("0.0.0.0", is_loopback=False)) as exchange:
        assert (
            exchange.request("GET", f"/$namespaceinfo?{VERSION}", host="bus.example", token=token).status
            == 200
        )


def test_the_configured_host_is_served() -> None:
    """A-11: the name given to --host counts as this machine's."""
    with Exchange(HttpSettings.for_host("Bus.Local", is_loopback=True)) as exchange:
        assert exchange.request("GET", "/health", host="bus.local:5672", token=None).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", "x"])
def test_a_page_of_another_site_is_refused(exchange: Exchange, origin: str) -> None:
    """A-11: no cross-site request, and no CORS header ever."""
    answer = exchange.request("PUT", f"/orders?{VERSION}", queue_body(), {"Origin": origin})
    assert answer.status == 403
    assert is_untouched(exchange)
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_page_of_this_machine_may_ask(exchange: Exchange) -> None:
    """A-11: a page served from localhost is at home."""
    answer = exchange.request(
        "GET", f"/$namespaceinfo?{VERSION}", headers={"Origin": "http://localhost:3000"}
    )
    assert answer.status == 200


def test_a_preflight_gets_nothing(exchange: Exchange) -> None:
    """A-11: OPTIONS is no way in."""
    answer = exchange.request("OPTIONS", "/orders", headers={"Origin": f"https://{HOST}"})
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


# -- what needs no token --


@pytest.fixture
def without_console() -> Iterator[Exchange]:
    with Exchange(HttpSettings(console="off")) as made:
        yield made


def test_the_status_page_says_little_and_runs_nothing(without_console: Exchange) -> None:
    """A-11: version and counts, a policy that allows nothing, no key, no name of an entity."""
    exchange = without_console
    exchange.request("PUT", f"/secret-project?{VERSION}", queue_body())
    contents = exchange.namespace.contents
    contents.row = replace(contents.row, name="<script>alert(1)</script>")
    answer = exchange.request("GET", "/$console", token=None)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert f"<dd>{__version__}</dd>" in answer.text
    assert "<dt>Queues</dt><dd>1</dd>" in answer.text
    assert "2 open" in answer.text
    for hidden in ("<script", ROOT_KEY, "secret-project", "hunter2"):
        assert hidden not in answer.text


def test_a_browser_at_the_root_is_sent_to_the_status_page(exchange: Exchange) -> None:
    """ERR-43: only somebody who asks for HTML without a token."""
    answer = exchange.request("GET", "/", headers={"Accept": "text/html,*/*"}, token=None)
    assert (answer.status, answer.headers["location"]) == (307, "/$console")


def test_health_needs_no_token_and_hides_no_queue(exchange: Exchange) -> None:
    """E-6: `/health` answers a probe; with a token it is the queue of that name."""
    probe = exchange.request("GET", "/health", token=None)
    assert (probe.status, json.loads(probe.text)) == (200, {"status": "healthy"})
    assert "feed" in exchange.request("GET", f"/health?{VERSION}").text
    assert exchange.request("POST", "/health", token=None).status == 405


# -- the operator's routes --


def test_stores_are_listed(exchange: Exchange) -> None:
    """A-9: name, url, state and number of fragments, for no cache to keep."""
    answer = exchange.request("GET", "/$stores")
    assert json.loads(answer.text) == [
        {
            "name": "store-0",
            "url": "memory:store-0",
            "state": "open",
            "owner": "this server",
            "epoch": None,
            "lost_commits": 0,
            "fragments": 0,
        },
        {
            "name": "store-1",
            "url": "memory:store-1",
            "state": "open",
            "owner": "this server",
            "epoch": None,
            "lost_commits": 0,
            "fragments": 0,
        },
    ]
    assert answer.headers["cache-control"] == "no-store"


def test_a_store_is_taken_out_and_put_back(without_console: Exchange) -> None:
    """A-9: POST disable, POST enable; an unknown store is 404, another verb is nobody's route."""
    exchange = without_console
    assert exchange.request("POST", "/$stores/store-1/disable").status == 200
    assert [store["state"] for store in exchange.namespace.stores.shown()] == ["open", "disabled"]
    assert "1 disabled, 1 open" in exchange.request("GET", "/$console", token=None).text
    assert exchange.request("POST", "/$stores/store-1/enable").status == 200
    assert is_untouched(exchange)
    assert exchange.request("POST", "/$stores/store-9/disable").status == 404
    assert exchange.request("POST", "/$stores/store-1/erase").status in (400, 405)
    assert exchange.request("GET", "/$stores/store-1/disable").status == 405


def test_a_rule_is_made_changed_and_deleted(exchange: Exchange) -> None:
    """A-1 A-10: keys are drawn when left out and stay when left out later."""
    made = exchange.request("PUT", "/$rules/worker", '{"rights": ["send", "Listen"]}')
    assert made.status == 201
    rule = json.loads(made.text)
    assert rule["rights"] == ["Listen", "Send"]
    assert len(rule["primaryKey"]) == 44
    changed = json.loads(
        exchange.request("PUT", "/$rules/WORKER", '{"rights": ["Send"], "primaryKey": "new"}').text
    )
    assert (changed["name"], changed["primaryKey"], changed["secondaryKey"]) == (
        "worker",
        "new",
        rule["secondaryKey"],
    )
    listed = json.loads(exchange.request("GET", "/$rules").text)
    assert [known["name"] for known in listed] == ["RootManageSharedAccessKey", "worker"]
    assert exchange.request("DELETE", "/$rules/worker").status == 200
    assert exchange.request("DELETE", "/$rules/worker").status == 404


@pytest.mark.parametrize(
    "body",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"rights": "Send"}',
        '{"rights": ["Root"]}',
        '{"rights": []}',
        '{"rights": ["Manage"]}',
        '{"rights": ["Send"], "primaryKey": 5}',
        '{"rights": ["Send"], "keys": 1}',
        "[" * 60_000,
        '{"rights": [["Send"]]}',
    ],
)
def test_a_senseless_rule_is_refused(exchange: Exchange, body: str) -> None:
    """A-1 ERR-42: 400, and the rules stay."""
    assert exchange.request("PUT", "/$rules/worker", body).status == 400
    assert len(exchange.namespace.access.rules()) == 1


def test_the_last_manager_stays(exchange: Exchange) -> None:
    """A-3: the namespace cannot be locked for ever by mistake."""
    root = "/$rules/RootManageSharedAccessKey"
    assert exchange.request("DELETE", root).status == 403
    assert exchange.request("PUT", root, '{"rights": ["Send"]}').status == 403
    assert len(exchange.namespace.access.rules()) == 1


def test_the_twelfth_rule_is_the_last(exchange: Exchange) -> None:
    """L-10: twelve on the namespace."""
    for number in range(11):
        assert exchange.request("PUT", f"/$rules/r{number}", '{"rights": ["Send"]}').status == 201
    answer = exchange.request("PUT", "/$rules/r11", '{"rights": ["Send"]}')
    assert (answer.status, answer.detail[:15]) == (403, "SubCode=40300. ")
