"""Every operation over HTTP, for every rule and every token: allowed or refused as the rules say, cell by cell."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from busway.gateway.http.app import HttpSettings
from busway.model.descriptions import LISTEN, MANAGE, SEND
from tests.unit.gateway.http_exchange import VERSION, Answer, Exchange, queue_body
from tests.unit.gateway.sas_table import (
    DEEP_QUEUE,
    DEFECTS,
    FRESH_QUEUE,
    FRESH_RULE,
    FRESH_SUBSCRIPTION,
    FRESH_TOPIC,
    HOST,
    KNOWN_RULE,
    OTHER_QUEUE,
    PLACES,
    QUEUE,
    SESSIONS,
    SUBSCRIPTION,
    TOPIC,
    Cell,
    Wish,
    allows,
    build,
    cells,
    restore,
    token_of,
)

LOCK = "messages/1/00000000-0000-0000-0000-000000000001"
NOW = "?timeout=0"
ATOM = f"?{VERSION}"
UPDATE = {"If-Match": "*"}
SUBSCRIPTIONS, RULES = f"{TOPIC}/Subscriptions", f"{SUBSCRIPTION}/Rules"
#: A request has no audience but its own address.
TOKEN_KINDS = ("exact", "entity", "root", "secondary", *DEFECTS)


class Try(NamedTuple):
    """A request, whose rights count for it, and its status when it is allowed. `kind` is what a body describes."""

    method: str
    target: str
    entity: str
    right: str
    status: int
    kind: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012 - a tuple's default is never written to

    def __str__(self) -> str:
        return f"{self.method}{' If-Match' if self.headers else ''} /{self.target}"

    @property
    def wish(self) -> Wish:
        return Wish(self.entity, self.target.partition("?")[0], self.right)


TRIED = [
    # -- entities
    Try("GET", QUEUE + ATOM, QUEUE, MANAGE, 200),
    Try("GET", DEEP_QUEUE + ATOM, DEEP_QUEUE, MANAGE, 200),
    Try("GET", OTHER_QUEUE + ATOM, OTHER_QUEUE, MANAGE, 200),
    Try("GET", TOPIC + ATOM, TOPIC, MANAGE, 200),
    Try("GET", SUBSCRIPTION + ATOM, TOPIC, MANAGE, 200),
    Try("GET", f"{RULES}/{KNOWN_RULE}{ATOM}", TOPIC, MANAGE, 200),
    Try("GET", f"$Resources/queues{ATOM}", "", MANAGE, 200),
    Try("GET", f"$Resources/topics{ATOM}", "", MANAGE, 200),
    Try("GET", SUBSCRIPTIONS + ATOM, TOPIC, MANAGE, 200),
    Try("GET", RULES + ATOM, TOPIC, LISTEN, 200),
    Try("GET", f"$namespaceinfo{ATOM}", "", MANAGE, 200),
    Try("GET", ATOM, "", MANAGE, 200),
    Try("PUT", FRESH_QUEUE + ATOM, "", MANAGE, 201, "QueueDescription"),
    Try("PUT", FRESH_TOPIC + ATOM, "", MANAGE, 201, "TopicDescription"),
    Try("PUT", FRESH_SUBSCRIPTION + ATOM, TOPIC, MANAGE, 201, "SubscriptionDescription"),
    Try("PUT", f"{RULES}/{FRESH_RULE}{ATOM}", TOPIC, MANAGE, 201, "RuleDescription"),
    Try("PUT", QUEUE + ATOM, QUEUE, MANAGE, 200, "QueueDescription", UPDATE),
    Try("PUT", TOPIC + ATOM, TOPIC, MANAGE, 200, "TopicDescription", UPDATE),
    Try("PUT", SUBSCRIPTION + ATOM, TOPIC, MANAGE, 200, "SubscriptionDescription", UPDATE),
    Try("PUT", f"{RULES}/{KNOWN_RULE}{ATOM}", TOPIC, MANAGE, 200, "RuleDescription", UPDATE),
    Try("DELETE", QUEUE + ATOM, QUEUE, MANAGE, 200),
    Try("DELETE", DEEP_QUEUE + ATOM, DEEP_QUEUE, MANAGE, 200),
    Try("DELETE", TOPIC + ATOM, TOPIC, MANAGE, 200),
    Try("DELETE", SUBSCRIPTION + ATOM, TOPIC, MANAGE, 200),
    Try("DELETE", f"{RULES}/{KNOWN_RULE}{ATOM}", TOPIC, MANAGE, 200),
    # -- messages
    Try("POST", f"{QUEUE}/messages", QUEUE, SEND, 201),
    Try("POST", f"{DEEP_QUEUE}/messages", DEEP_QUEUE, SEND, 201),
    Try("POST", f"{TOPIC}/messages", TOPIC, SEND, 201),
    Try("POST", f"{QUEUE}/messages/head{NOW}", QUEUE, LISTEN, 204),
    Try("DELETE", f"{QUEUE}/messages/head{NOW}", QUEUE, LISTEN, 204),
    Try("DELETE", f"{QUEUE}/$DeadLetterQueue/messages/head{NOW}", QUEUE, LISTEN, 204),
    Try("POST", f"{SUBSCRIPTION}/messages/head{NOW}", TOPIC, LISTEN, 204),
    Try("DELETE", f"{SUBSCRIPTION}/messages/head{NOW}", TOPIC, LISTEN, 204),
    Try("DELETE", f"{SUBSCRIPTION}/$DeadLetterQueue/messages/head{NOW}", TOPIC, LISTEN, 204),
    Try("DELETE", f"{SESSIONS}/messages/head{NOW}", TOPIC, LISTEN, 400),
    *(
        Try(method, f"{path}/{LOCK}", entity, LISTEN, 404)
        for method in ("DELETE", "PUT", "POST")
        for path, entity in ((QUEUE, QUEUE), (SUBSCRIPTION, TOPIC), (f"{QUEUE}/$DeadLetterQueue", QUEUE))
    ),
    # -- for operators
    Try("GET", "$stores", "", MANAGE, 200),
    Try("POST", "$stores/store-1/enable", "", MANAGE, 200),
    Try("GET", "$rules", "", MANAGE, 200),
    Try("GET", "$rules/sender", "", MANAGE, 200),
    Try("PUT", "$rules/fresh", "", MANAGE, 201, "rights"),
    Try("DELETE", "$rules/sender", "", MANAGE, 200),
]
EVERY_CELL = [cell for tried in TRIED for cell in cells(tried.wish, TOKEN_KINDS)]


def test_the_table_is_large_and_has_two_sides() -> None:
    """A-9: every kind of token is tried, and most of the cells are refusals."""
    assert len(EVERY_CELL) > 9_000
    assert {cell.token_kind for cell in EVERY_CELL} == set(TOKEN_KINDS)
    verdicts = [allows(cell) for cell in EVERY_CELL]
    assert 300 < sum(verdicts) < len(verdicts) / 8


@pytest.mark.parametrize("tried", TRIED, ids=str)
def test_a_token_opens_exactly_what_the_rules_say(tried: Try) -> None:
    """A-1, A-2, A-4, A-5, A-6, A-9, E-61: {place} × {right} × {token}; whoever is refused gets 401."""
    wrong: list[str] = []
    with Exchange() as exchange:
        exchange.run(build(exchange.namespace))
        for cell in cells(tried.wish, TOKEN_KINDS):
            found = ask(exchange, tried, cell)
            wanted = tried.status if allows(cell) else 401
            if found.status != wanted:
                wrong.append(f"{cell}: {found.status} {found.text}, not {wanted}")
            if allows(cell):
                _drain(exchange, tried)
                exchange.run(restore(exchange.namespace))
    assert wrong == []


def test_figures_need_a_right_on_the_whole_namespace() -> None:
    """A-9, A-11: on a network listener Manage or Listen of a rule of the namespace; no entity's rule will do."""
    wrong: list[str] = []
    tried = Try("GET", "metrics", "", LISTEN, 200)
    with Exchange(HttpSettings(None)) as exchange:
        exchange.run(build(exchange.namespace))
        # They show the whole namespace: a token must be for that.
        for cell in cells(Wish("", "", LISTEN), TOKEN_KINDS):
            wanted = 200 if allows(cell) else 401
            if (found := ask(exchange, tried, cell)).status != wanted:
                wrong.append(f"{cell}: {found.status}, not {wanted}")
    assert wrong == []


@pytest.mark.parametrize("field", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
def test_whoever_forwards_manages_both_ends(field: str) -> None:
    """F-5: with one token for both, or with one for the target in a header of its own."""
    header = {
        "ForwardTo": "ServiceBusSupplementaryAuthorization",
        "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
    }[field]
    found: dict[tuple[str, str], int] = {}
    wanted: dict[tuple[str, str], int] = {}
    with Exchange() as exchange:
        exchange.run(build(exchange.namespace))
        for source_place in PLACES:
            for target_place in ("none", *PLACES):
                source = Cell(Wish(QUEUE, QUEUE, MANAGE), source_place, "manager", "exact")
                target = Cell(Wish(OTHER_QUEUE, OTHER_QUEUE, MANAGE), target_place, "manager", "exact")
                own = token_of(Cell(source.wish, source_place, "manager", "root"), "https")
                headers = {**UPDATE}
                if target_place != "none":
                    headers[header] = token_of(target, "https") or ""
                body = queue_body(f"<{field}>sb://{HOST}/{OTHER_QUEUE}</{field}>")
                answer = exchange.request("PUT", f"/{QUEUE}{ATOM}", body, headers, own, HOST)
                pair = (source_place, target_place)
                found[pair] = answer.status
                may_target = source_place == "" or target_place in ("", OTHER_QUEUE)
                wanted[pair] = 200 if allows(source) and may_target else 401
                if answer.status == 200:
                    exchange.run(restore(exchange.namespace))
    assert found == wanted


# -- how it is tried


def ask(exchange: Exchange, tried: Try, cell: Cell) -> Answer:
    headers = dict(tried.headers)
    if tried.kind == "rights":
        body = '{"rights": ["Send"]}'
    elif tried.kind:
        body = queue_body(kind=tried.kind)
    else:
        body = ""
    token = token_of(cell, "https")
    return exchange.request(tried.method, f"/{tried.target}", body, headers, token, HOST)


def _drain(exchange: Exchange, tried: Try) -> None:
    """What was sent is taken away again, so that the next cell finds nothing."""
    if tried.status == 201 and tried.target.endswith("/messages"):
        path = SUBSCRIPTION if tried.entity == TOPIC else tried.entity
        assert exchange.request("DELETE", f"/{path}/messages/head{NOW}").status == 200
