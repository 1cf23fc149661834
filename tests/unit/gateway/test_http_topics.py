"""Topics, subscriptions and rules over HTTP: creation, reading, lists, updates, deletion, every refusal."""

import pytest

from busway.gateway.http.atom.entity_xml import RuntimeNumbers, entity_element
from busway.model.descriptions import (
    LINK_WORDS,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
    description_json,
    description_of_json,
)
from tests.unit.gateway.http_exchange import ATOM, HOST, VERSION, Answer, Exchange, queue_body, sas_token

FOREVER = "P10675199DT2H48M5.4775807S"
DETAILS = (
    '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
    "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>"
    "<d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>"
    "<d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount>"
    "<d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>"
    "<d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount></CountDetails>"
)
SQL = '<Filter i:type="SqlFilter"><SqlExpression>{}</SqlExpression></Filter>'
CORRELATION = '<Filter i:type="CorrelationFilter"><CorrelationId>{}</CorrelationId></Filter>'
RULE = (
    '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
    "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
    "<Rights>{rights}</Rights><KeyName>worker</KeyName><PrimaryKey>cHJpbWFyeQ==</PrimaryKey>"
    "<SecondaryKey>c2Vjb25k</SecondaryKey></AuthorizationRule></AuthorizationRules>"
)
ALL = (
    "<AccessRights>Manage</AccessRights><AccessRights>Listen</AccessRights><AccessRights>Send</AccessRights>"
)
KINDS = {0: "TopicDescription", 2: "SubscriptionDescription", 4: "RuleDescription"}


def put(exchange: Exchange, path: str, properties: str = "", *, is_update: bool = False) -> Answer:
    """What lies how deep below the topic `t` tells what it is."""
    body = queue_body(properties, KINDS[path.partition("t")[2].count("/")])
    return exchange.request("PUT", f"/{path}?{VERSION}", body, {"If-Match": "*"} if is_update else None)


def create(exchange: Exchange, *paths: str) -> None:
    for path in paths:
        answer = put(exchange, path)
        assert answer.status == 201, answer.text


def get(exchange: Exchange, path: str, query: str = VERSION) -> Answer:
    return exchange.request("GET", f"/{path}?{query}")


def titles(answer: Answer) -> list[str | None]:
    return [entry.findtext(f"{ATOM}title") for entry in answer.xml.findall(f"{ATOM}entry")]


# -- topics --


def test_a_created_topic_is_answered_in_the_recorded_shape(exchange: Exchange) -> None:
    """E-50 E-51 E-52 E-53 E-54: element order and defaults, no numbers in the answer to a creation."""
    answer = exchange.request("PUT", "/t?api-version=2021-05", queue_body(kind="TopicDescription"))
    assert answer.status == 201
    assert "etag" not in answer.headers
    assert answer.text == (
        '<entry xmlns="http://www.w3.org/2005/Atom"><id>https://localhost:5672/t?api-version=2021-05</id>'
        '<title type="text">t</title><published>2023-11-14T22:13:20Z</published>'
        "<updated>2023-11-14T22:13:20Z</updated><author><name>busway-test</name></author>"
        '<link rel="self" href="https://localhost:5672/t?api-version=2021-05"/>'
        '<content type="application/xml"><TopicDescription'
        ' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
        ' xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        f"<DefaultMessageTimeToLive>{FOREVER}</DefaultMessageTimeToLive>"
        "<MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
        "<RequiresDuplicateDetection>false</RequiresDuplicateDetection>"
        "<DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>"
        "<EnableBatchedOperations>true</EnableBatchedOperations><SizeInBytes>0</SizeInBytes>"
        "<FilteringMessagesBeforePublishing>false</FilteringMessagesBeforePublishing>"
        "<IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules></AuthorizationRules>"
        "<Status>Active</Status><CreatedAt>2023-11-14T22:13:20Z</CreatedAt>"
        "<UpdatedAt>2023-11-14T22:13:20Z</UpdatedAt><SupportOrdering>true</SupportOrdering>"
        f"<AutoDeleteOnIdle>{FOREVER}</AutoDeleteOnIdle><EnablePartitioning>false</EnablePartitioning>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus>"
        "<EnableSubscriptionPartitioning>false</EnableSubscriptionPartitioning>"
        "<EnableExpress>false</EnableExpress><MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"
        "</TopicDescription></content></entry>"
    )


def test_a_topic_that_is_read_has_its_numbers(exchange: Exchange) -> None:
    """E-55 E-72 E-40: subscriptions, and from 2024-05 on filters of each kind, between counts and times."""
    create(exchange, "t", "t/subscriptions/a", "t/subscriptions/b")
    assert put(exchange, "t/subscriptions/a/rules/c", CORRELATION.format("x")).status == 201
    answer = get(exchange, "t")
    assert answer.headers["etag"].isdigit()
    assert (
        f"<AccessedAt>2023-11-14T22:13:20Z</AccessedAt><SupportOrdering>true</SupportOrdering>{DETAILS}"
        "<SubscriptionCount>2</SubscriptionCount><SqlFilterCount>2</SqlFilterCount>"
        "<CorrelationFilterCount>1</CorrelationFilterCount><AutoDeleteOnIdle>"
    ) in answer.text
    older = get(exchange, "t", "api-version=2021-05").text
    assert "<SubscriptionCount>2</SubscriptionCount><AutoDeleteOnIdle>" in older


def test_numbers_of_a_topic_are_written_where_clients_look() -> None:
    """E-55 E-56: numbers of a topic are written where clients look."""
    numbers = RuntimeNumbers(RuntimeCounts(scheduled=3, size_bytes=77), 1, 2, 4)
    text = entity_element(TopicDescription("t"), numbers, "https://host", "2024-05")
    for element in (
        "<d2p1:ScheduledMessageCount>3<",
        "<SizeInBytes>77<",
        "<SubscriptionCount>1<",
        "<SqlFilterCount>2<",
        "<CorrelationFilterCount>4<",
    ):
        assert element in text
    assert "MessageCount>77" not in text


def test_topics_are_listed_apart_from_queues(exchange: Exchange) -> None:
    """ERR-43 E-1: each list has its own; a name is used once."""
    create(exchange, "t", "a/t")
    assert exchange.request("PUT", f"/q?{VERSION}", queue_body()).status == 201
    topics, queues = get(exchange, "$Resources/topics"), get(exchange, "$Resources/queues")
    assert (titles(topics), titles(queues)) == (["a/t", "t"], ["q"])
    assert topics.xml.findtext(f"{ATOM}title") == "Topics"
    assert f'<link rel="self" href="../a/t?{VERSION}"/>' in topics.text
    assert exchange.request("PUT", f"/T?{VERSION}", queue_body()).status == 409


def test_what_is_deleted_while_a_list_is_made_is_not_in_it(exchange: Exchange) -> None:
    """ERR-43: a list never fails because of it."""
    names = [f"t{number}" for number in range(9)]
    for name in names:
        exchange.request("PUT", f"/{name}?{VERSION}", queue_body(kind="TopicDescription"))
    listed, gone = exchange.request_together(
        ("GET", f"/$Resources/topics?{VERSION}"), ("DELETE", f"/t8?{VERSION}")
    )
    assert (listed.status, gone.status) == (200, 200)
    assert titles(listed) == names[:8]


def test_a_topic_is_updated_and_deleted(exchange: Exchange) -> None:
    """ERR-43 E-50 E-52 E-65: what may change changes; with it go its subscriptions."""
    create(exchange, "t", "t/subscriptions/s")
    exchange.clock.advance(5)
    changes = "<SupportOrdering>false</SupportOrdering><MaxSizeInMegabytes>2048</MaxSizeInMegabytes>"
    answer = put(exchange, "t", changes, is_update=True)
    assert (answer.status, answer.property("SupportOrdering")) == (200, "false")
    assert (answer.property("MaxSizeInMegabytes"), answer.property("SubscriptionCount")) == ("2048", "1")
    assert answer.property("UpdatedAt") == "2023-11-14T22:13:25Z"
    refused = put(
        exchange, "t", "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>", is_update=True
    )
    assert (refused.status, refused.detail[:14]) == (400, "SubCode=40000.")
    assert exchange.request("DELETE", f"/t?{VERSION}").status == 200
    assert get(exchange, "t").xml.findtext(f"{ATOM}title") == "Publicly Listed Services"
    assert get(exchange, "t/subscriptions/s").status == 404
    assert put(exchange, "t", "", is_update=True).status == 404


def test_prefiltering_survives_clients_that_do_not_know_it(exchange: Exchange) -> None:
    """E-53 E-54: the Python SDK never sends these elements; what was set by others stays."""
    names = ("FilteringMessagesBeforePublishing", "EnableSubscriptionPartitioning")
    assert put(exchange, "t", "".join(f"<{name}>true</{name}>" for name in names)).status == 201
    changed = put(exchange, "t", "<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>", is_update=True)
    assert [changed.property(name) for name in names] == ["true", "true"]


@pytest.mark.parametrize("has_match", [True, False])
def test_a_description_of_another_kind_is_refused(exchange: Exchange, has_match: bool) -> None:
    """E-1 ERR-42: a queue is not updated with a topic's description, a subscription's address takes only its own."""
    create(exchange, "t", "t/subscriptions/s")
    headers = {"If-Match": "*"} if has_match else None
    for path, kind in (
        ("t", "QueueDescription"),
        ("t", "SubscriptionDescription"),
        ("t", "RuleDescription"),
        ("t/subscriptions/s", "TopicDescription"),
        ("t/subscriptions/s", "QueueDescription"),
        ("t/subscriptions/s", "RuleDescription"),
        ("t/subscriptions/s/rules/$Default", "SubscriptionDescription"),
    ):
        answer = exchange.request("PUT", f"/{path}?{VERSION}", queue_body(kind=kind), headers)
        assert answer.status in (400, 409), (path, kind)
    assert len(exchange.namespace.topics()) == 1


# -- subscriptions --


def test_a_created_subscription_is_answered_in_the_recorded_shape(exchange: Exchange) -> None:
    """E-60 E-8: no author, AccessedAt without a zone, IsClientAffine last; the id has `/Subscriptions/`."""
    create(exchange, "a/t")
    body = queue_body(kind="SubscriptionDescription")
    answer = exchange.request("PUT", "/A/t/subscriptions/s?api-version=2021-05", body)
    assert answer.status == 201
    assert answer.headers["etag"] == "638355968000000000"
    assert answer.text == (
        '<entry xmlns="http://www.w3.org/2005/Atom">'
        "<id>https://localhost:5672/a/t/Subscriptions/s?api-version=2021-05</id>"
        '<title type="text">s</title><published>2023-11-14T22:13:20Z</published>'
        "<updated>2023-11-14T22:13:20Z</updated>"
        '<link rel="self" href="https://localhost:5672/a/t/Subscriptions/s?api-version=2021-05"/>'
        '<content type="application/xml"><SubscriptionDescription'
        ' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
        ' xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>'
        f"<RequiresSession>false</RequiresSession><DefaultMessageTimeToLive>{FOREVER}</DefaultMessageTimeToLive>"
        "<DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>"
        "<DeadLetteringOnFilterEvaluationExceptions>true</DeadLetteringOnFilterEvaluationExceptions>"
        "<MessageCount>0</MessageCount><MaxDeliveryCount>10</MaxDeliveryCount>"
        "<EnableBatchedOperations>true</EnableBatchedOperations><Status>Active</Status>"
        "<CreatedAt>2023-11-14T22:13:20Z</CreatedAt><UpdatedAt>2023-11-14T22:13:20Z</UpdatedAt>"
        f"<AccessedAt>0001-01-01T00:00:00</AccessedAt><AutoDeleteOnIdle>{FOREVER}</AutoDeleteOnIdle>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus><IsClientAffine>false</IsClientAffine>"
        "</SubscriptionDescription></content></entry>"
    )


def test_a_subscription_that_is_read_has_its_numbers(exchange: Exchange) -> None:
    """E-40 E-100 ERR-43: CountDetails after AccessedAt; the id's scheme is sb; forward targets are addresses."""
    create(exchange, "t", "a/t")
    forwards = (
        "<ForwardTo>sb://elsewhere/a/t</ForwardTo>"
        "<ForwardDeadLetteredMessagesTo>A/t</ForwardDeadLetteredMessagesTo>"
    )
    assert put(exchange, "t/subscriptions/s", forwards).status == 201
    answer = get(exchange, "T/SUBSCRIPTIONS/S")
    assert answer.xml.findtext(f"{ATOM}id") == f"sb://{HOST}/t/Subscriptions/s?{VERSION}"
    assert answer.xml.findtext(f"{ATOM}title") == "s"
    assert answer.property("ForwardTo") == f"sb://{HOST}/a/t"
    assert f"<AccessedAt>2023-11-14T22:13:20Z</AccessedAt>{DETAILS}<ForwardDead" in answer.text


def test_a_target_that_was_written_as_a_web_address_comes_back_as_one(exchange: Exchange) -> None:
    """E-33 E-34: Java's client writes and reads these; the host is the one that was asked. Also over a restart."""
    create(exchange, "t", "q")
    forwards = (
        "<ForwardTo>https://elsewhere.example/q</ForwardTo>"
        "<ForwardDeadLetteredMessagesTo>sb://elsewhere.example/q</ForwardDeadLetteredMessagesTo>"
    )
    assert put(exchange, "t/subscriptions/s", forwards).property("ForwardTo") == f"https://{HOST}/q"
    answer = get(exchange, "t/subscriptions/s")
    assert answer.property("ForwardTo") == f"https://{HOST}/q"
    assert answer.property("ForwardDeadLetteredMessagesTo") == f"sb://{HOST}/q"
    description = exchange.namespace.description("t/subscriptions/s")
    assert description_of_json(SubscriptionDescription, description_json(description)) == description
    nested = f"<ForwardTo>https://{HOST}/sb://{HOST}/q</ForwardTo>"
    assert (
        put(exchange, "t/subscriptions/s", nested, is_update=True).property("ForwardTo")
        == f"https://{HOST}/q"
    )
    assert put(exchange, "t/subscriptions/s", "<ForwardTo>q</ForwardTo>", is_update=True).property(
        "ForwardTo"
    ) == (f"sb://{HOST}/q")


def test_a_subscription_begins_in_use_and_its_topic_with_it(exchange: Exchange) -> None:
    """E-41 E-111: from its creation on; a topic without one was never used, as a queue."""
    create(exchange, "t")
    assert get(exchange, "t").property("AccessedAt") == "0001-01-01T00:00:00Z"
    exchange.clock.advance(5)
    create(exchange, "t/subscriptions/s")
    exchange.clock.advance(5)
    for path in ("t/subscriptions/s", "t"):
        assert get(exchange, path).property("AccessedAt") == "2023-11-14T22:13:25Z"
    assert "<AccessedAt>2023-11-14T22:13:25Z<" in get(exchange, "t/subscriptions").text


def test_subscriptions_are_listed_in_pages(exchange: Exchange) -> None:
    """ERR-43: JS ends the address with a slash; entries have absolute ids and relative links."""
    create(exchange, "t", *(f"t/subscriptions/s{number}" for number in range(5)))
    target, seen = f"t/Subscriptions/?$skip=0&$top=2&{VERSION}", []
    while True:
        answer = exchange.request("GET", f"/{target}")
        seen += titles(answer)
        links = answer.xml.findall(f"{ATOM}link")
        if len(links) == 1:
            break
        target = links[1].attrib["href"].removeprefix(f"https://{HOST}/")
    assert seen == [f"s{number}" for number in range(5)]
    answer = get(exchange, "T/subscriptions")
    assert answer.xml.findtext(f"{ATOM}title") == "Subscriptions"
    assert f"<id>https://{HOST}/t/Subscriptions/s0?{VERSION}</id>" in answer.text
    assert f'<link rel="self" href="Subscriptions/s0?{VERSION}"/>' in answer.text


def test_a_subscription_is_updated(exchange: Exchange) -> None:
    """ERR-43 E-60: what may change changes; a text left out is cleared; the rules stay."""
    create(exchange, "t")
    first = "<UserMetadata>note</UserMetadata><RequiresSession>true</RequiresSession>"
    assert put(exchange, "t/subscriptions/s", first).status == 201
    assert put(exchange, "t/subscriptions/s/rules/r").status == 201
    sent = "<RequiresSession>true</RequiresSession><MaxDeliveryCount>3</MaxDeliveryCount>"
    answer = put(exchange, "t/subscriptions/s", sent, is_update=True)
    assert (answer.status, answer.property("MaxDeliveryCount")) == (200, "3")
    assert answer.property("UserMetadata") is None
    assert len(exchange.namespace.rules.of("t/subscriptions/s")) == 2
    fixed = put(exchange, "t/subscriptions/s", "<RequiresSession>false</RequiresSession>", is_update=True)
    assert (fixed.status, "RequiresSession" in fixed.detail) == (400, True)


def test_a_subscription_comes_with_the_rule_it_is_given(exchange: Exchange) -> None:
    """E-64: the given rule is the only one, under its own name; without a name it is `$Default`."""
    create(exchange, "t")
    own = f"<DefaultRuleDescription>{SQL.format('a = 1')}<Name>mine</Name></DefaultRuleDescription>"
    nameless = '<DefaultRuleDescription><Filter i:type="FalseFilter"/></DefaultRuleDescription>'
    for name, sent in (("a", own), ("b", nameless), ("c", "")):
        answer = put(exchange, f"t/subscriptions/{name}", sent)
        assert (answer.status, "DefaultRule" in answer.text) == (201, False)
    rules = {
        name: [rule.name for rule in exchange.namespace.rules.of(f"t/subscriptions/{name}")] for name in "abc"
    }
    assert rules == {"a": ["mine"], "b": ["$Default"], "c": ["$Default"]}
    assert 'i:type="FalseFilter"' in get(exchange, "t/subscriptions/b/rules/$Default").text


def test_a_first_rule_that_is_wrong_makes_no_subscription(exchange: Exchange) -> None:
    """T-36 E-64: 400 with sub-code 40000, all or nothing."""
    create(exchange, "t")
    wrong = f"<DefaultRuleDescription>{SQL.format('a = = 1')}</DefaultRuleDescription>"
    answer = put(exchange, "t/subscriptions/s", wrong)
    assert (answer.status, answer.detail[:14]) == (400, "SubCode=40000.")
    assert exchange.namespace.subscriptions("t") == []


def test_a_subscription_has_no_keys_of_its_own(exchange: Exchange) -> None:
    """E-61 A-2: a subscription has no keys of its own."""
    create(exchange, "t")
    answer = put(exchange, "t/subscriptions/s", RULE.format(rights=ALL))
    assert (answer.status, "its topic's" in answer.detail) == (400, True)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("t/Subscriptions/s", "t|s"),
        ("none/subscriptions/s", "none|s"),
        ("none/subscriptions", "none"),
        ("t/SUBSCRIPTIONS/s/Rules/r", "t|s"),
        ("t/subscriptions/s/rules", "t|s"),
        ("t/subscriptions/there/rules/none", "t|there|none"),
    ],
)
def test_what_is_missing_below_a_topic_is_named(exchange: Exchange, path: str, named: str) -> None:
    """ERR-43: 404 "Entity 'NS:Topic:T|S' was not found." for GET, DELETE and updates alike."""
    create(exchange, "t", "t/subscriptions/there")
    words = f"Entity 'busway-test:Topic:{named}' was not found. TrackingId:"
    answer = get(exchange, path)
    assert (answer.status, answer.detail[: len(words)]) == (404, words)
    if not path.lower().endswith(("subscriptions", "rules")):
        assert exchange.request("DELETE", f"/{path}?{VERSION}").status == 404
        kind = "RuleDescription" if "ules" in path else "SubscriptionDescription"
        body = queue_body(kind=kind)
        assert exchange.request("PUT", f"/{path}?{VERSION}", body, {"If-Match": "*"}).status == 404


def test_a_subscription_of_a_queue_or_of_nothing_cannot_be_made(exchange: Exchange) -> None:
    """ERR-1: 404 with sub-code 40400."""
    assert exchange.request("PUT", f"/q?{VERSION}", queue_body()).status == 201
    for path in ("q/subscriptions/s", "none/subscriptions/s"):
        body = queue_body(kind="SubscriptionDescription")
        answer = exchange.request("PUT", f"/{path}?{VERSION}", body)
        assert (answer.status, answer.detail[:14]) == (404, "SubCode=40400.")
    assert get(exchange, "q/subscriptions").status == 404


@pytest.mark.parametrize("path", ["t/subscriptions/", "t/subscriptions", "t/subscriptions/s/rules/"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_a_list_is_only_read(exchange: Exchange, path: str, method: str) -> None:
    """ERR-43: in the service's own words."""
    create(exchange, "t", "t/subscriptions/s")
    answer = exchange.request(
        method, f"/{path}?{VERSION}", queue_body(kind="RuleDescription"), {"If-Match": "*"}
    )
    assert answer.status == 400
    assert answer.detail.startswith(f"The specified HTTP verb ({method}) is not valid.")


def test_a_subscription_is_said_to_be_captured_only_where_it_is(exchange: Exchange) -> None:
    """E-36 E-70: a property of our own; clients that do not know it neither see it elsewhere nor lose it."""
    mark = "<CapturesHistory>true</CapturesHistory>"
    words = "<UserMetadata>taken by busway pipeline capture</UserMetadata>"
    create(exchange, "t", "t/subscriptions/plain")
    assert put(exchange, "t/subscriptions/new", mark).status == 201
    assert put(exchange, "t/subscriptions/old", words).status == 201
    assert "CapturesHistory" not in get(exchange, "t/subscriptions/plain").text
    assert mark in get(exchange, "t/subscriptions/new").text
    assert "UserMetadata" not in get(exchange, "t/subscriptions/new").text
    old = get(exchange, "t/subscriptions/old").text
    assert words in old
    assert mark in old
    changed = put(exchange, "t/subscriptions/new", "<MaxDeliveryCount>3</MaxDeliveryCount>", is_update=True)
    assert mark in changed.text
    off = mark.replace("true", "false")
    assert "CapturesHistory" not in put(exchange, "t/subscriptions/new", off, is_update=True).text


def test_no_client_can_say_that_an_entity_was_made_for_a_link(exchange: Exchange) -> None:
    """E-44: an element of that name is one that nobody knows, and the words are a text like any other."""
    words = f"<UserMetadata>{LINK_WORDS[SubscriptionDescription]}</UserMetadata>"
    create(exchange, "t", "t/subscriptions/plain")
    assert put(exchange, "t/subscriptions/s", f"{words}<MadeForALink>true</MadeForALink>").status == 201
    for path in ("t/subscriptions/s", "t/subscriptions/plain"):
        assert words in put(exchange, path, words, is_update=True).text
        assert not exchange.namespace.description(path).made_for_a_link


# -- rules --


@pytest.fixture
def subscribed(exchange: Exchange) -> Exchange:
    create(exchange, "t", "t/subscriptions/s")
    return exchange


R = "t/subscriptions/s/rules"


def test_a_rule_is_created_read_changed_and_deleted(subscribed: Exchange) -> None:
    """E-70 T-11 ERR-43: 201, 409 the second time, 200 with If-Match; it keeps its creation time."""
    made = put(subscribed, f"{R}/r", SQL.format("a = 1") + '<Action i:type="EmptyRuleAction"/><Name>r</Name>')
    assert made.status == 201
    assert made.xml.findtext(f"{ATOM}id") == f"https://{HOST}/t/Subscriptions/s/Rules/r?{VERSION}"
    assert made.xml.find(f"{ATOM}author") is None
    twice = put(subscribed, f"{R}/R")
    assert (twice.status, twice.detail[:14]) == (409, "SubCode=40900.")
    subscribed.clock.advance(5)
    changed = put(subscribed, f"{R}/R", CORRELATION.format("c") + "<Name>r</Name>", is_update=True)
    assert (changed.status, changed.property("CorrelationId")) == (200, "c")
    read = get(subscribed, f"{R}/r")
    assert read.xml.findtext(f"{ATOM}id") == f"sb://{HOST}/t/Subscriptions/s/Rules/r?{VERSION}"
    assert (read.property("Name"), read.property("CreatedAt")) == ("r", "2023-11-14T22:13:20Z")
    gone = subscribed.request("DELETE", f"/{R}/r?{VERSION}")
    assert (gone.status, gone.text, gone.headers["etag"]) == (200, "", read.headers["etag"])
    assert get(subscribed, f"{R}/r").status == 404


def test_an_outdated_etag_stops_a_change_of_a_rule(subscribed: Exchange) -> None:
    """ERR-26: the digest of what the rule said."""
    put(subscribed, f"{R}/r", SQL.format("a = 1"))
    first = get(subscribed, f"{R}/r").headers["etag"]
    body = queue_body(SQL.format("a = 2"), "RuleDescription")
    assert subscribed.request("PUT", f"/{R}/r?{VERSION}", body, {"If-Match": f'"{first}"'}).status == 200
    assert subscribed.request("PUT", f"/{R}/r?{VERSION}", body, {"If-Match": f'"{first}"'}).status == 412
    assert subscribed.request("DELETE", f"/{R}/r?{VERSION}", b"", {"If-Match": first}).status == 412
    assert get(subscribed, f"{R}/r").property("SqlExpression") == "a = 2"


def test_an_outdated_etag_stops_a_change_of_a_subscription(subscribed: Exchange) -> None:
    """ERR-26: an outdated etag stops a change of a subscription."""
    first = get(subscribed, "t/subscriptions/s").headers["etag"]
    subscribed.clock.advance(1)
    body = queue_body(kind="SubscriptionDescription")
    target = f"/t/subscriptions/s?{VERSION}"
    assert subscribed.request("PUT", target, body, {"If-Match": f'"{first}"'}).status == 200
    assert subscribed.request("PUT", target, body, {"If-Match": f'"{first}"'}).status == 412
    assert subscribed.request("DELETE", target, b"", {"If-Match": first}).status == 412


def test_rules_are_listed_default_first_then_by_name(subscribed: Exchange) -> None:
    """E-64 ERR-43: as over AMQP, in no case; pages have absolute ids and relative links."""
    for name in ("zebra", "ant", "Bee"):
        put(subscribed, f"{R}/{name}")
    answer = get(subscribed, f"{R}/")
    assert titles(answer) == ["$Default", "ant", "Bee", "zebra"]
    assert answer.xml.findtext(f"{ATOM}title") == "Rules"
    assert f"<id>https://{HOST}/t/Subscriptions/s/Rules/$Default?{VERSION}</id>" in answer.text
    assert f'<link rel="self" href="Rules/$Default?{VERSION}"/>' in answer.text
    page = get(subscribed, R, f"$skip=1&$top=2&{VERSION}")
    assert titles(page) == ["ant", "Bee"]
    assert "$skip=3&$top=2" in page.xml.findall(f"{ATOM}link")[1].attrib["href"]
    last = get(subscribed, R, f"$skip=3&$top=1&{VERSION}")
    assert titles(last) == ["zebra"]
    assert len(last.xml.findall(f"{ATOM}link")) == 1


@pytest.mark.parametrize(
    "properties",
    [
        SQL.format("a ="),
        SQL.format(""),
        SQL.format("x" * 1025),
        SQL.format("(" * 500 + "a" + ")" * 500),
        SQL.format("sys.Nothing = 1"),
        '<Filter i:type="CorrelationFilter"/>',
        SQL.format("a=1") + '<Action i:type="SqlRuleAction"><SqlExpression>DROP a</SqlExpression></Action>',
    ],
    ids=["half", "empty", "long", "deep", "system", "no condition", "action"],
)
def test_a_rule_that_is_not_valid_is_refused(subscribed: Exchange, properties: str) -> None:
    """T-36 T-42 E-71 ERR-28: 400 with sub-code 40000 at creation and at update, and the old one stays."""
    for path, is_update in ((f"{R}/r", False), (f"{R}/$Default", True)):
        answer = put(subscribed, path, properties, is_update=is_update)
        assert (answer.status, answer.detail[:14]) == (400, "SubCode=40000."), answer.detail
        assert len(answer.detail) < 1_500
    assert titles(get(subscribed, R)) == ["$Default"]
    assert 'i:type="TrueFilter"' in get(subscribed, f"{R}/$Default").text


# -- rights --


def test_a_topics_rule_manages_everything_below_it(exchange: Exchange) -> None:
    """A-2 A-5 A-9 E-61: also what does not exist yet, and by a token for as little as is asked for."""
    assert put(exchange, "t", RULE.format(rights=ALL)).status == 201
    create(exchange, "t2")
    paths = ("t/subscriptions/s", "t/subscriptions/s/rules/r")
    for path in paths:
        body = queue_body(kind=KINDS[path.count("/")])
        for scope in ("t2", "t/subscriptions/s2", "t/subscriptions/s/rules/r2"):
            token = sas_token(f"https://{HOST}/{scope}", "worker", "cHJpbWFyeQ==")
            assert exchange.request("PUT", f"/{path}?{VERSION}", body, token=token).status == 401, scope
        token = sas_token(f"https://{HOST}/{path}".lower(), "worker", "cHJpbWFyeQ==")
        assert exchange.request("PUT", f"/{path}?{VERSION}", body, token=token).status == 201
    token = sas_token(f"https://{HOST}/t", "worker", "cHJpbWFyeQ==")
    for path in ("t", "t/subscriptions/", "t/subscriptions/s/rules/", *paths):
        assert exchange.request("GET", f"/{path}?{VERSION}", token=token).status == 200, path
        assert exchange.request("GET", f"/{path}?{VERSION}", token=None).status == 401, path
    for path in ("t2", "t2/subscriptions", "$Resources/topics", "$namespaceinfo"):
        assert exchange.request("GET", f"/{path}?{VERSION}", token=token).status == 401, path
    for path in reversed(paths):
        assert exchange.request("DELETE", f"/{path}?{VERSION}", token=token).status == 200


def test_listen_is_enough_to_list_rules_and_for_nothing_else(exchange: Exchange) -> None:
    """A-9 T-12: listen is enough to list rules and for nothing else."""
    assert put(exchange, "t", RULE.format(rights="<AccessRights>Listen</AccessRights>")).status == 201
    create(exchange, "t/subscriptions/s")
    token = sas_token(f"https://{HOST}/t", "worker", "cHJpbWFyeQ==")
    for path, status in ((R, 200), (f"{R}/$Default", 401), ("t/subscriptions/s", 401), ("t", 401)):
        assert exchange.request("GET", f"/{path}?{VERSION}", token=token).status == status, path
    assert exchange.request("DELETE", f"/{R}/$Default?{VERSION}", token=token).status == 401
    strange = sas_token(f"https://{HOST}/t", "worker", "b3RoZXI=")
    assert exchange.request("GET", f"/{R}?{VERSION}", token=strange).status == 401


def test_a_key_of_a_topic_is_changed_by_an_update(exchange: Exchange) -> None:
    """A-1 A-10 E-37: the new key opens, the old one does not any more."""
    rule = RULE.format(rights=ALL)
    assert rule in put(exchange, "t", rule).text
    old, new = ("cHJpbWFyeQ==", "bmV3IGtleQ==")
    tokens = [sas_token(f"https://{HOST}/t", "worker", key) for key in (old, new)]
    seen = [exchange.request("GET", f"/t?{VERSION}", token=token).status for token in tokens]
    assert seen == [200, 401]
    assert put(exchange, "t", rule.replace(old, new), is_update=True).status == 200
    seen = [exchange.request("GET", f"/t?{VERSION}", token=token).status for token in tokens]
    assert seen == [401, 200]
    assert (
        put(exchange, "t", rule.replace(f"<PrimaryKey>{old}</PrimaryKey>", ""), is_update=True).status == 200
    )


# -- forwarding --


def managed_queue(exchange: Exchange, name: str) -> str:
    """A queue with a Manage rule of its own; the token that shows it."""
    answer = exchange.request("PUT", f"/{name}?{VERSION}", queue_body(RULE.format(rights=ALL)))
    assert answer.status == 201
    return sas_token(f"https://{HOST}/{name}", "worker", "cHJpbWFyeQ==")


@pytest.mark.parametrize(
    ("element", "header", "wrong_header"),
    [
        ("ForwardTo", "ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"),
        (
            "ForwardDeadLetteredMessagesTo",
            "ServiceBusDlqSupplementaryAuthorization",
            "ServiceBusSupplementaryAuthorization",
        ),
    ],
)
def test_a_forward_needs_manage_on_both_ends(
    exchange: Exchange, element: str, header: str, wrong_header: str
) -> None:
    """F-5 F-2: the target's right comes in the header of its kind; the next update needs it no more."""
    mine, target = managed_queue(exchange, "mine"), managed_queue(exchange, "target")
    rules = RULE.format(rights=ALL)
    body = queue_body(f"{rules}<{element}>sb://{HOST}/target</{element}>")

    def change(**headers: str) -> int:
        sent = {"If-Match": "*", **headers}
        return exchange.request("PUT", f"/mine?{VERSION}", body, sent, mine).status

    assert change() == 401
    assert change(**{wrong_header: target}) == 401
    assert change(**{header: mine}) == 401
    assert change(**{header: "nonsense"}) == 401
    assert change(**{header: target}) == 200
    assert change() == 200
    answer = exchange.request("GET", f"/mine?{VERSION}", token=mine)
    assert answer.property(element) == f"sb://{HOST}/target"
    answer = exchange.request("PUT", f"/mine?{VERSION}", queue_body(rules), {"If-Match": "*"}, mine)
    assert (answer.status, answer.property(element)) == (200, None)


def test_a_forward_to_nothing_is_refused(exchange: Exchange) -> None:
    """F-2 E-62 ERR-42: 400 with sub-code 40400, or 40000 for what is no address; its own topic is one."""
    create(exchange, "t")
    for target, words in (
        ("none", "SubCode=40400."),
        ("t/subscriptions/s", "SubCode=40000."),
        ("sb://host/", "SubCode=40000."),
        ("sb://host/..%2f..", "SubCode=40000."),
    ):
        answer = put(exchange, "t/subscriptions/s", f"<ForwardTo>{target}</ForwardTo>")
        assert (answer.status, answer.detail[:14]) == (400, words), target
    assert exchange.namespace.subscriptions("t") == []
    assert put(exchange, "t/subscriptions/s", "<ForwardTo>t</ForwardTo>").status == 201


# -- strangers --


BAD_PATHS = [
    "t/subscriptions/a b",
    "t/subscriptions/a%00",
    "t/subscriptions/..",
    "t/subscriptions/%2e%2e",
    "t/subscriptions//s",
    "t/subscriptions/$s",
    "t/subscriptions/" + "s" * 51,
    "t/subscriptions/s/",
    "t/subscriptions/s/other",
    "t/subscriptions/s/rules/r/",
    "t/subscriptions/s/rules/r/more",
    "t/subscriptions/s/rules//r",
    "t/subscriptions/s/rules/$Other",
    "t/subscriptions/s/rules/..",
    "t/subscriptions/s/rules/" + "r" * 51,
    "t/subscriptions/s/rules/%D0%BErule",
    "t/subscriptions/s/subscriptions/x",
    "t/subscriptions/s/$DeadLetterQueue",
    "$t/subscriptions/s",
    "t%5Cu/subscriptions/s",
    "q" * 261 + "/subscriptions/s",
]


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_impossible_address_is_refused(exchange: Exchange, method: str, path: str) -> None:
    """E-3 E-6: 400 with sub-code 40000; nothing is made."""
    create(exchange, "t")
    body = queue_body(kind="RuleDescription" if "rules" in path else "SubscriptionDescription")
    answer = exchange.request(method, f"/{path}?{VERSION}", body)
    assert (answer.status, answer.detail[:14]) == (400, "SubCode=40000.")
    assert exchange.namespace.subscriptions("t") == []


@pytest.mark.parametrize("topic", ["subscriptions", "a/b/topic", "T.-_~", "rules", "t/rules/x", "q" * 260])
def test_unusual_names_work(exchange: Exchange, topic: str) -> None:
    """E-2 E-3 E-5 E-6 E-7: deep paths, keywords as names, percent-encoding, any case."""
    body = queue_body(kind="TopicDescription")
    assert exchange.request("PUT", f"/{topic}?{VERSION}", body).status == 201
    for path in (f"{topic}/Subscriptions/rules", f"{topic}/subscriptions/{'s' * 50}"):
        body = queue_body(kind="SubscriptionDescription")
        assert exchange.request("PUT", f"/{path}?{VERSION}", body).status == 201
    encoded = f"{topic.replace('/', '%2F')}%2FSUBSCRIPTIONS%2Frules/Rules%2F%24Default"
    answer = exchange.request("GET", f"/{encoded}?{VERSION}")
    assert (answer.status, answer.property("Name")) == (200, "$Default")
    assert answer.xml.findtext(f"{ATOM}id") == (
        f"sb://{HOST}/{topic}/Subscriptions/rules/Rules/$Default?{VERSION}"
    )
    assert exchange.request("DELETE", f"/{topic}?{VERSION}").status == 200
    assert exchange.namespace.topics() == []


def test_no_key_is_in_what_strangers_are_told(exchange: Exchange) -> None:
    """A-1 ERR-41: refusals never repeat a key that was sent."""
    for path in ("t", "t/subscriptions/s"):
        answer = put(exchange, path, RULE.format(rights="<AccessRights>All</AccessRights>"))
        assert answer.status in (400, 404)
        assert "cHJpbWFyeQ==" not in answer.text
