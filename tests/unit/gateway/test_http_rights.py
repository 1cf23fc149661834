"""Who may do what over HTTP: every route of management, by every kind of key, by tokens that are nearly right."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.http_exchange import HOST, ROOT_TOKEN, VERSION, Exchange, queue_body, sas_token

KEY = "cHJpbWFyeQ=="
RIGHTS = ("Manage", "Send", "Listen")
#: (method, address, description, is an update)
ROUTES = [
    ("GET", "$Resources/topics", "", False),
    ("GET", "$Resources/queues", "", False),
    ("GET", "$namespaceinfo", "", False),
    ("GET", "t", "", False),
    ("PUT", "t", "TopicDescription", True),
    ("GET", "t/Subscriptions/", "", False),
    ("GET", "t/subscriptions/s", "", False),
    ("PUT", "t/subscriptions/s", "SubscriptionDescription", True),
    ("PUT", "t/subscriptions/new", "SubscriptionDescription", False),
    ("GET", "t/subscriptions/s/Rules/", "", False),
    ("GET", "t/subscriptions/s/rules/$Default", "", False),
    ("PUT", "t/subscriptions/s/rules/$Default", "RuleDescription", True),
    ("PUT", "t/subscriptions/s/rules/new", "RuleDescription", False),
    ("DELETE", "t/subscriptions/s/rules/new", "", False),
    ("DELETE", "t/subscriptions/new", "", False),
    ("DELETE", "t", "", False),
]
LIST_OF_RULES = "t/subscriptions/s/Rules/"


def rules() -> str:
    """One key for each right; whoever has Manage must list all three (A-1)."""
    written = ""
    for right in RIGHTS:
        held = RIGHTS if right == "Manage" else (right,)
        rights = "".join(f"<AccessRights>{name}</AccessRights>" for name in held)
        written += (
            f"<AuthorizationRule><KeyName>{right}</KeyName><Rights>{rights}</Rights>"
            f"<PrimaryKey>{KEY}</PrimaryKey><SecondaryKey>{KEY}</SecondaryKey></AuthorizationRule>"
        )
    return f"<AuthorizationRules>{written}</AuthorizationRules>"


@pytest.fixture(scope="module")
def kept() -> Iterator[Exchange]:
    """Refusals change nothing, so one namespace serves them all."""
    with Exchange() as exchange:
        build(exchange)
        yield exchange


def build(exchange: Exchange) -> None:
    for name in ("t", "tt", "t2"):
        body = queue_body(rules(), "TopicDescription")
        assert exchange.request("PUT", f"/{name}?{VERSION}", body).status == 201
    body = queue_body(kind="SubscriptionDescription")
    assert exchange.request("PUT", f"/t/subscriptions/s?{VERSION}", body).status == 201
    for right in RIGHTS:
        held = ", ".join(f'"{name}"' for name in (RIGHTS if right == "Manage" else (right,)))
        sent = f'{{"rights": [{held}], "primaryKey": "{KEY}", "secondaryKey": "{KEY}"}}'
        assert exchange.request("PUT", f"/$rules/space-{right}", sent).status == 201


def ask(exchange: Exchange, route: tuple[str, str, str, bool], token: str | None) -> int:
    method, path, kind, is_update = route
    body = queue_body(rules() if kind == "TopicDescription" else "", kind) if kind else b""
    headers = {"If-Match": "*"} if is_update else None
    return exchange.request(method, f"/{path}?{VERSION}", body, headers, token).status


@pytest.mark.parametrize("rule", ["Manage", "space-Manage"])
@pytest.mark.parametrize("is_narrow", [True, False], ids=["for the address", "for all"])
def test_manage_opens_every_route_of_its_level(exchange: Exchange, rule: str, is_narrow: bool) -> None:
    """A-2 A-5 A-9: the namespace's Manage opens all, the topic's opens the topic and what lies below it."""
    build(exchange)
    for route in ROUTES:
        scope = f"https://{HOST}/{route[1]}".lower() if is_narrow else f"https://{HOST}"
        status = ask(exchange, route, sas_token(scope, rule, KEY))
        is_open = rule == "space-Manage" or not route[1].startswith("$")
        assert (status in (200, 201)) if is_open else (status == 401), (route, status)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route[0]} {route[1]}")
@pytest.mark.parametrize("rule", ["Send", "Listen", "space-Send", "space-Listen"])
def test_less_than_manage_opens_nothing_but_the_list_of_rules(
    kept: Exchange, rule: str, route: tuple[str, str, str, bool]
) -> None:
    """A-9 T-12: Listen lists rules; everything else is 401."""
    status = ask(kept, route, sas_token(f"https://{HOST}", rule, KEY))
    may = rule.endswith("Listen") and route[1] == LIST_OF_RULES
    assert status == (200 if may else 401)


BELOW = "SubCode=40100: Unauthorized : Unauthorized access for"
WORDS = [
    ("GET", "t", "Manage,EntityRead claims required for this operation."),
    ("HEAD", "t", ""),
    ("GET", "$Resources/queues", "Manage,EntityRead claims required for this operation."),
    ("GET", "$namespaceinfo", "Manage,EntityRead claims required for this operation."),
    ("GET", "", "Manage,EntityRead claims required for this operation."),
    ("PUT", "t", "Authorization failed for specified action: Manage,EntityWrite."),
    ("PUT", "never", "Authorization failed for specified action: Manage,EntityWrite."),
    ("DELETE", "t", "Authorization failed for specified action: Manage,EntityDelete."),
    ("DELETE", "never", "Authorization failed for specified action: Manage,EntityDelete."),
    ("GET", "t/subscriptions/s", f"{BELOW} 'GetSubscription' operation"),
    ("GET", "t/subscriptions/never", f"{BELOW} 'GetSubscription'"),
    ("GET", "never/subscriptions/s", f"{BELOW} 'GetSubscription'"),
    ("GET", "t/subscriptions", f"{BELOW} 'EnumerateSubscriptions'"),
    ("PUT", "t/subscriptions/x", f"{BELOW} 'CreateOrUpdateSubscription'"),
    ("DELETE", "t/subscriptions/s", f"{BELOW} 'DeleteSubscription'"),
    ("GET", "t/subscriptions/s/rules", f"{BELOW} 'EnumerateRules'"),
    ("GET", "t/subscriptions/s/rules/r", f"{BELOW} 'GetRule'"),
    ("PUT", "t/subscriptions/s/rules/r", f"{BELOW} 'CreateOrUpdateRule'"),
    ("DELETE", "t/subscriptions/s/rules/r", f"{BELOW} 'DeleteRule'"),
]


@pytest.mark.parametrize(("method", "path", "words"), WORDS)
def test_who_may_not_manage_is_told_in_the_words_of_the_service(
    kept: Exchange, method: str, path: str, words: str
) -> None:
    """A-6 A-9: programs look for them."""
    token = sas_token(f"https://{HOST}", "space-Send", KEY)
    answer = kept.request(method, f"/{path}?{VERSION}", token=token)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "SharedAccessSignature")
    if method != "HEAD":
        assert answer.detail.startswith(words), answer.detail


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("rule", ["space-Send", "space-Listen"])
def test_what_is_missing_is_not_there_for_everybody_with_a_key(
    kept: Exchange, rule: str, method: str
) -> None:
    """ERR-43 A-6: a feed without entries; a token that is not valid for the address learns nothing."""
    token = sas_token(f"https://{HOST}", rule, KEY)
    answer = kept.request(method, f"/never?{VERSION}", token=token)
    assert answer.status == 200
    assert "<entry" not in answer.text
    for wrong in (
        sas_token(f"https://{HOST}/t", rule, KEY),
        sas_token(f"https://{HOST}", rule, KEY, expiry=1),
        sas_token(f"https://{HOST}", rule, "b3RoZXI="),
        sas_token(f"https://{HOST}", "Send", KEY),
    ):
        assert kept.request(method, f"/never?{VERSION}", token=wrong).status == 401


def test_a_hub_is_no_missing_queue(exchange: Exchange) -> None:
    """A-6: its name is taken, so it is 401."""
    build(exchange)
    assert exchange.request("PUT", "/$eventhubs/clicks", b"{}").status == 201
    token = sas_token(f"https://{HOST}", "space-Send", KEY)
    assert exchange.request("GET", f"/clicks?{VERSION}", token=token).status == 401


def nearly_right(path: str) -> dict[str, str | None]:
    good = sas_token(f"https://{HOST}/t", "Manage", KEY)
    return {
        "none": None,
        "empty": "",
        "expired": sas_token(f"https://{HOST}/t", "Manage", KEY, expiry=1),
        "another key": sas_token(f"https://{HOST}/t", "Manage", "b3RoZXI="),
        "cut signature": good.replace("&se=", "x&se=").replace("%3D", "", 1),
        "a neighbour": sas_token(f"https://{HOST}/tt", "Manage", KEY),
        "a part of the name": sas_token(f"https://{HOST}/{path}"[:-1] + "_", "Manage", KEY),
        "something below": sas_token(f"https://{HOST}/{path}/x", "Manage", KEY),
        "another host": sas_token("https://elsewhere.example/t", "Manage", KEY),
        "dots": sas_token(f"https://{HOST}/tt/../t", "Manage", KEY),
        "encoded dots": sas_token(f"https://{HOST}/tt/%2e%2e/t", "Manage", KEY),
        "a rule of another topic": sas_token(f"https://{HOST}/t2", "Manage", KEY),
        "an unknown rule": sas_token(f"https://{HOST}/t", "Nobody", KEY),
        "two tokens in one": f"{good}&sr=x",
        "no scheme": good.removeprefix("SharedAccessSignature "),
    }


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route[1].startswith("t/")],
    ids=lambda route: f"{route[0]} {route[1]}",
)
def test_a_token_that_is_nearly_right_opens_nothing(
    kept: Exchange, route: tuple[str, str, str, bool]
) -> None:
    """A-4 A-5 A-6: and tells nothing about what exists."""
    for name, token in nearly_right(route[1].removesuffix("/")).items():
        assert ask(kept, route, token) == 401, name


def test_scheme_case_and_a_slash_at_the_end_do_not_matter(kept: Exchange) -> None:
    """A-5: scheme case and a slash at the end do not matter."""
    for scope in (
        f"sb://{HOST}/t/",
        "http://LOCALHOST/T/SUBSCRIPTIONS/S/RULES/",
        "https://127.0.0.1:1/t/subscriptions/s/rules",
        f"amqps://{HOST}/",
    ):
        token = sas_token(scope, "Manage", KEY)
        assert ask(kept, ("GET", LIST_OF_RULES, "", False), token) == 200, scope


def test_a_refusal_is_the_same_whether_or_not_it_exists(kept: Exchange) -> None:
    """A-6: a stranger cannot find out names below a topic either."""
    token = sas_token(f"https://{HOST}", "Send", KEY)
    for there, missing in (
        ("t/subscriptions/s", "t/subscriptions/none"),
        ("t/subscriptions/s/rules/$Default", "t/subscriptions/s/rules/none"),
    ):
        answers = [kept.request("GET", f"/{path}?{VERSION}", token=token) for path in (there, missing)]
        assert {answer.status for answer in answers} == {401}
        details = [answer.detail.partition("TrackingId")[0] for answer in answers]
        assert details[0].replace(there, "") == details[1].replace(missing, "")
    assert kept.request("GET", f"/t/subscriptions/s?{VERSION}", token=ROOT_TOKEN).status == 200
