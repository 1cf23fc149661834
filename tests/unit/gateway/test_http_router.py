"""The table of routes: which row answers a request, and that each row answers one."""

import inspect
import re
from pathlib import Path

import pytest
from starlette.requests import Request

from busway.gateway.http.app import HttpGateway
from busway.gateway.http.call import Call
from busway.gateway.http.router import ANY, Row, table
from tests.unit.gateway.http_exchange import Exchange

TOKEN = "0f0e0d0c-0b0a-4908-8706-050403020100"
#: What stands for a name in an address.
EXAMPLES = {"hub": "clicks", "token": TOKEN, "partition": "0", "rest": "a/b/c/d"}
#: Headers by which a browser, a scraper and a program are told apart.
ASKING = [{"accept": "text/html"}, {}, {"authorization": "a token"}]
#: Methods and addresses that the how-to pages name.
PAGES = Path(__file__).parents[3] / "docs" / "how-to"
DOCUMENTED = sorted(
    {
        (method, path)
        for page in PAGES.glob("*.md")
        for method, path in re.findall(r"`(GET|HEAD|POST|PUT|DELETE) (/[^`?\s]*)", page.read_text())
    }
)


@pytest.fixture
def gateway(exchange: Exchange) -> HttpGateway:
    assert exchange.request("PUT", "/$eventhubs/clicks", '{"PartitionCount": 1}').status == 201
    return exchange.gateway


def call(method: str, path: str, headers: dict[str, str] | None = None) -> Call:
    sent = {"host": "localhost", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), text.encode()) for name, text in sent.items()],
    }
    return Call(Request(scope), None)  # type: ignore[arg-type] # nobody asks for rights here


def example(address: str) -> str:
    def stand_in(found: re.Match[str]) -> str:
        name, _, choice = found[1].removesuffix("...").partition("=")
        return EXAMPLES.get(name, choice.partition("|")[0] or f"some-{name}")

    return "/" + re.sub(r"\{([^}]*)\}", stand_in, address.removesuffix("/?"))


def rows(gateway: HttpGateway) -> list[Row]:
    return table(gateway._answering)


def found(gateway: HttpGateway, method: str, path: str) -> tuple[str, list[str]]:
    """Who answers, and with what names."""
    entry, names = gateway.router.find(call(method, path))
    answer = entry.answer_to(method)
    return ("nobody" if answer is None else answer.__qualname__), names


def test_each_row_is_reached_by_each_of_its_methods(gateway: HttpGateway) -> None:
    """House style: no row of the table is shadowed by those above it."""
    for row in rows(gateway):
        for methods, answer in row.answers.items():
            for method in ["PATCH"] if methods == ANY else methods.split(", "):
                path = (
                    "/t/subscriptions/s/x"
                    if row.address == "{path...}" and row.meant
                    else example(row.address)
                )
                asked = [gateway.router.find(call(method, path, headers))[0] for headers in ASKING]
                reached = [entry.answer_to(method) for entry in asked if entry.row.address == row.address]
                assert answer in reached, f"{method} {path} does not reach {row.address}"


def test_whoever_answers_is_given_the_names_of_the_address(gateway: HttpGateway) -> None:
    """House style: what an address names is what those behind it take."""
    for row in rows(gateway):
        names = re.findall(r"\{[^}]*\}", row.address)
        for behind in (*row.answers.values(), *filter(None, (row.guard, row.meant))):
            inspect.signature(behind).bind(None, *names)


def test_no_address_stands_there_twice_for_the_same_requests(gateway: HttpGateway) -> None:
    """House style: one row lists all methods of an address; a second one needs a condition."""
    unconditional = [row.address for row in rows(gateway) if row.meant is None]
    assert len(unconditional) == len(set(unconditional))


@pytest.mark.parametrize(("method", "path"), DOCUMENTED)
def test_what_the_pages_promise_is_answered(gateway: HttpGateway, method: str, path: str) -> None:
    """Documentation: each address of a how-to page has somebody who answers it, and not as a queue of that name."""
    for name, stands_for in {"HUB": "clicks", "E": "orders", "TOKEN": TOKEN, "N": "0"}.items():
        path = re.sub(rf"(?<=/){name}\b", stands_for, path)
    who, _ = found(gateway, method, path)
    assert who != "nobody"
    assert not who.startswith("EntityRoutes.")


def test_few_rows_are_tried_for_a_request(gateway: HttpGateway) -> None:
    """House style: the first segment decides, so a table that grows by its own words costs nobody else."""
    router = gateway.router
    assert len(router._others) < 30
    assert max(len(entries) - len(router._others) for entries in router._by_first.values()) < 10


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/orders/messages", ("Messages.send", ["orders"])),
        ("POST", "/orders/messages/", ("Messages.send", ["orders"])),
        ("POST", "/a/messages/messages", ("Messages.send", ["a/messages"])),
        ("DELETE", "/t/subscriptions/s/messages/head", ("Messages.receive", ["t/subscriptions/s"])),
        ("PUT", f"/q/Messages/5/{TOKEN}", ("Messages.settle", ["q", "5", TOKEN])),
        ("POST", f"/q/messages/a%2Fb/{TOKEN}", ("Messages.renew", ["q", "a/b", TOKEN])),
        ("DELETE", f"/q/messages/subscriptions/{TOKEN}", ("Messages.settle", ["q", "subscriptions", TOKEN])),
        ("GET", "/orders/messages", ("EntityRoutes.entity", ["orders/messages"])),
        ("PUT", "/a/messages", ("EntityRoutes.put", ["a/messages"])),
        ("POST", "/clicks/messages", ("HubMessages.publish", ["clicks"])),
        ("POST", "/clicks/Partitions/0/messages", ("HubMessages.publish", ["clicks", "Partitions", "0"])),
        ("POST", "/clicks/partitions/0/messages/", ("HubMessages.publish", ["clicks", "partitions", "0"])),
        ("POST", "/clicks/other/0/messages", ("Messages.send", ["clicks/other/0"])),
    ],
)
def test_the_parts_of_the_message_api(
    gateway: HttpGateway, method: str, path: str, expected: tuple[str, list[str]]
) -> None:
    """S-5, R-23, H-15: what is not about messages is management's; an id may hold a slash."""
    assert found(gateway, method, path) == expected


@pytest.mark.parametrize(("method", "answers"), [("PUT", "put"), ("DELETE", "delete")])
def test_a_topic_whose_name_ends_in_messages_has_subscriptions(
    gateway: HttpGateway, method: str, answers: str
) -> None:
    """E-5, E-8: no token of a lock can stand where a subscription's name does."""
    expected = (f"SubscriptionRoutes.{answers}", ["a/messages", "mine"])
    assert found(gateway, method, "/a/messages/Subscriptions/mine") == expected


@pytest.mark.parametrize(
    "path", ["orders", "$claims", "orders/$claims/s", "$claims/s/take", "a/$claims/s/take/more"]
)
def test_what_is_not_about_claims(gateway: HttpGateway, path: str) -> None:
    """E-8: whatever else such a path may be."""
    assert not found(gateway, "POST", f"/{path}")[0].startswith("ClaimsRoute.")


def test_addresses_of_claims(gateway: HttpGateway) -> None:
    """E-8: of any entity, in any case."""
    names = ["t/subscriptions/s/$DeadLetterQueue", "x"]
    assert found(gateway, "POST", f"/{names[0]}/$Claims/x/TAKE") == ("ClaimsRoute.take", names)


def test_the_first_subscriptions_of_a_path_ends_its_topic(gateway: HttpGateway) -> None:
    """E-8: a subscription may be called so, too."""
    assert found(gateway, "GET", "/t/subscriptions/subscriptions") == (
        "SubscriptionRoutes.subscription",
        ["t", "subscriptions"],
    )
    assert found(gateway, "GET", "/a/t/Subscriptions/s/Rules/subscriptions") == (
        "RuleRoutes.rule",
        ["a/t", "s", "subscriptions"],
    )
