"""Queues over HTTP: creation, reading, lists, updates, deletion and every refusal."""

import re
from itertools import permutations

import pytest

from busway.gateway.http.app import HttpSettings
from busway.gateway.http.atom.entity_xml import RuntimeNumbers, entity_element
from busway.message.message import Message
from busway.model.descriptions import QueueDescription, RuntimeCounts, description_json, description_of_json
from tests.unit.gateway.http_exchange import (
    ATOM,
    HOST,
    ROOT_KEY,
    VERSION,
    Exchange,
    queue_body,
    sas_token,
)

FOREVER = "P10675199DT2H48M5.4775807S"


def create(exchange: Exchange, name: str, properties: str = "") -> None:
    answer = exchange.request("PUT", f"/{name}?{VERSION}", queue_body(properties))
    assert answer.status == 201, answer.text


def update(exchange: Exchange, name: str, properties: str, version: str = VERSION):
    return exchange.request("PUT", f"/{name}?{version}", queue_body(properties), {"If-Match": "*"})


# -- creation --


def test_a_created_queue_is_answered_in_the_recorded_shape(exchange: Exchange) -> None:
    """E-20 E-21 E-22 E-24 E-26 E-28 E-29 E-30 E-35 E-38: the answer to a creation, byte for byte: element
    order and defaults, no AccessedAt, no CountDetails, an open and a close tag for the empty rules."""
    answer = exchange.request("PUT", "/txt%2F.-_123?api-version=2021-05", queue_body())
    assert answer.status == 201
    assert answer.headers["content-type"] == "application/atom+xml; type=entry; charset=utf-8"
    assert answer.text == (
        '<entry xmlns="http://www.w3.org/2005/Atom"><id>https://localhost:5672/txt/.-_123?api-version=2021-05</id>'
        '<title type="text">txt/.-_123</title><published>2023-11-14T22:13:20Z</published>'
        "<updated>2023-11-14T22:13:20Z</updated><author><name>busway-test</name></author>"
        '<link rel="self" href="https://localhost:5672/txt/.-_123?api-version=2021-05"/>'
        '<content type="application/xml"><QueueDescription'
        ' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
        ' xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>'
        "<MaxSizeInMegabytes>1024</MaxSizeInMegabytes>"
        "<RequiresDuplicateDetection>false</RequiresDuplicateDetection><RequiresSession>false</RequiresSession>"
        f"<DefaultMessageTimeToLive>{FOREVER}</DefaultMessageTimeToLive>"
        "<DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>"
        "<DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>"
        "<MaxDeliveryCount>10</MaxDeliveryCount><EnableBatchedOperations>true</EnableBatchedOperations>"
        "<SizeInBytes>0</SizeInBytes><MessageCount>0</MessageCount>"
        "<IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules></AuthorizationRules>"
        "<Status>Active</Status><CreatedAt>2023-11-14T22:13:20Z</CreatedAt>"
        "<UpdatedAt>2023-11-14T22:13:20Z</UpdatedAt><SupportOrdering>true</SupportOrdering>"
        f"<AutoDeleteOnIdle>{FOREVER}</AutoDeleteOnIdle><EnablePartitioning>false</EnablePartitioning>"
        "<EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>"
        "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes></QueueDescription></content></entry>"
    )


def test_properties_set_at_creation_are_read_back(exchange: Exchange) -> None:
    """E-20 E-23 E-25 E-27 E-36: what is sent comes back, text escaped."""
    create(
        exchange,
        "orders",
        "<LockDuration>PT13S</LockDuration><RequiresDuplicateDetection>true</RequiresDuplicateDetection>"
        "<RequiresSession>true</RequiresSession><MaxDeliveryCount>3</MaxDeliveryCount>"
        "<UserMetadata>a &lt;b&gt; &amp; ü</UserMetadata>",
    )
    answer = exchange.request("GET", f"/orders?{VERSION}")
    assert answer.property("LockDuration") == "PT13S"
    assert answer.property("RequiresDuplicateDetection") == "true"
    assert answer.property("RequiresSession") == "true"
    assert answer.property("MaxDeliveryCount") == "3"
    assert answer.property("UserMetadata") == "a <b> & ü"


def test_a_second_creation_is_a_conflict(exchange: Exchange) -> None:
    """ERR-43 E-1 E-7 ERR-2: PUT without If-Match on an existing name, in any case, is 409 SubCode=40900."""
    create(exchange, "orders")
    answer = exchange.request("PUT", f"/ORDERS?{VERSION}", queue_body())
    assert answer.status == 409
    assert answer.detail.startswith("SubCode=40900. ")


@pytest.mark.parametrize("kind", ["EventHubDescription", "ConsumerGroupDescription"])
def test_what_is_managed_elsewhere_is_refused_with_a_sentence(exchange: Exchange, kind: str) -> None:
    """ERR-44 ERR-19: 501 says where."""
    answer = exchange.request("PUT", f"/hub?{VERSION}", queue_body(kind=kind))
    assert answer.status == 501
    assert "/$eventhubs" in answer.detail or "HUB/consumergroups/GROUP" in answer.detail
    assert not exchange.namespace.exists("hub")


def test_the_spelling_of_the_creation_is_returned(exchange: Exchange) -> None:
    """E-7: names compare without case, the first spelling stays."""
    create(exchange, "Site/Orders")
    answer = exchange.request("GET", f"/site/ORDERS?{VERSION}")
    assert answer.xml.findtext(f"{ATOM}title") == "Site/Orders"
    assert answer.xml.findtext(f"{ATOM}id") == f"https://{HOST}/Site/Orders?{VERSION}"


# -- reading --


def test_a_get_has_counts_and_times(exchange: Exchange) -> None:
    """E-40 E-41 E-100: CountDetails under d2p1, AccessedAt "never" until the first use."""
    create(exchange, "orders")
    answer = exchange.request("GET", f"/orders?{VERSION}")
    assert (
        '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
        "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>"
        "<d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>"
        "<d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount>"
        "<d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>"
        "<d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount></CountDetails>"
    ) in answer.text
    assert answer.property("AccessedAt") == "0001-01-01T00:00:00Z"


def test_a_queue_whose_store_is_out_of_service_still_tells_what_it_is(exchange: Exchange) -> None:
    """E-104 E-90: a Get, and a list, answer with every property and with numbers that are 0; the status says why."""
    for name in ("a", "b"):
        create(exchange, name, "<LockDuration>PT15S</LockDuration><MaxDeliveryCount>7</MaxDeliveryCount>")
        exchange.run(
            exchange.namespace.queue(name).schedule([Message(b"", b"later", scheduled_at_ms=1 << 45)])
        )
    assert exchange.request("POST", f"/$stores/store-1/disable?{VERSION}").status in (200, 204)
    answers = {name: exchange.request("GET", f"/{name}?enrich=False&{VERSION}") for name in ("a", "b")}
    for answer in answers.values():
        assert answer.status == 200
        assert (answer.property("LockDuration"), answer.property("MaxDeliveryCount")) == ("PT15S", "7")
    told = [
        (
            answer.property("EntityAvailabilityStatus"),
            answer.property("MessageCount"),
            answer.property("SizeInBytes"),
        )
        for answer in answers.values()
    ]
    assert sorted(told) == [("Available", "1", "5"), ("Unknown", "0", "0")]
    listed = exchange.request("GET", f"/$Resources/queues?$skip=0&$top=100&{VERSION}")
    assert listed.text.count("<LockDuration>PT15S<") == 2
    assert exchange.request("POST", f"/$stores/store-1/enable?{VERSION}").status in (200, 204)
    for name in ("a", "b"):
        answer = exchange.request("GET", f"/{name}?{VERSION}")
        assert answer.property("EntityAvailabilityStatus") == "Available"
        assert answer.property("MessageCount") == "1"


def test_counts_are_written_where_clients_look() -> None:
    """E-100 E-101 E-102: each number in its own element; deferred ones in MessageCount only."""
    numbers = RuntimeCounts(
        active=5,
        dead_letter=2,
        scheduled=1,
        deferred=4,
        transfer=3,
        transfer_dead_letter=6,
        size_bytes=777,
        accessed_at_ms=1_700_000_000_500,
        availability="Limited",
    )
    text = entity_element(QueueDescription("orders"), RuntimeNumbers(numbers), "https://host", "2024-05")
    for element in (
        "<d2p1:ActiveMessageCount>5<",
        "<d2p1:DeadLetterMessageCount>2<",
        "<d2p1:ScheduledMessageCount>1<",
        "<d2p1:TransferMessageCount>3<",
        "<d2p1:TransferDeadLetterMessageCount>6<",
        "<MessageCount>15<",
        "<SizeInBytes>777<",
        "<AccessedAt>2023-11-14T22:13:20.5Z<",
        "<EntityAvailabilityStatus>Limited<",
    ):
        assert element in text


def test_an_etag_is_the_last_update_in_ticks(exchange: Exchange) -> None:
    """ERR-43: ticks of the last update on GET and DELETE."""
    exchange.clock.step_wall(0.313)
    create(exchange, "orders")
    answer = exchange.request("GET", f"/orders?{VERSION}")
    assert answer.headers["etag"] == "638355968003130000"
    assert answer.property("CreatedAt") == "2023-11-14T22:13:20.313Z"
    gone = exchange.request("DELETE", f"/orders?{VERSION}")
    assert (gone.status, gone.text, gone.headers["etag"]) == (200, "", "638355968003130000")


def test_a_missing_queue_reads_as_an_empty_feed(exchange: Exchange) -> None:
    """ERR-43: 200 and a feed without entries titled "Publicly Listed Services"."""
    answer = exchange.request("GET", f"/nothing?{VERSION}")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/atom+xml; type=feed; charset=utf-8"
    assert answer.xml.findtext(f"{ATOM}title") == "Publicly Listed Services"
    assert answer.xml.findall(f"{ATOM}entry") == []


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("PUT", 405), ("DELETE", 405), ("POST", 405)])
def test_the_root_is_never_a_web_page(exchange: Exchange, method: str, status: int) -> None:
    """ERR-43: `/` is a feed or an error for whoever shows a token, even if HTML would do."""
    answer = exchange.request(
        method, f"/?{VERSION}", queue_body(), {"Accept": "text/html, application/atom+xml"}
    )
    assert answer.status == status
    assert "xml" in answer.headers["content-type"]


def test_the_namespace_describes_itself(exchange: Exchange) -> None:
    """E-1: $namespaceinfo with an absolute id, in any case of the keyword."""
    answer = exchange.request("GET", f"/$NamespaceInfo?{VERSION}")
    assert answer.xml.findtext(f"{ATOM}id") == f"https://{HOST}/$NamespaceInfo?{VERSION}"
    assert answer.property("Name") == "localhost"
    assert answer.property("MessagingSKU") == "Standard"
    assert answer.property("NamespaceType") == "Messaging"
    assert answer.property("CreatedTime") == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("MyBus.servicebus.example:443", "mybus"),
        ("bus", "bus"),
        ("127.0.0.1:5300", "busway-test"),
        ("[::1]:5300", "busway-test"),
    ],
)
def test_the_namespace_is_called_by_the_first_label_of_its_host(host: str, name: str) -> None:
    """E-1: as in the service; an address has no name in it."""
    with Exchange(HttpSettings(None)) as exchange:
        token = sas_token(f"https://{host}", "RootManageSharedAccessKey", ROOT_KEY)
        answer = exchange.request("GET", f"/$namespaceinfo?{VERSION}", token=token, host=host)
        assert (answer.status, answer.property("Name")) == (200, name)


def test_a_missing_entity_is_named_with_the_host_that_was_asked(exchange: Exchange) -> None:
    """ERR-1, ERR-2: and one that exists."""
    answer = exchange.request("PUT", f"/gone?{VERSION}", queue_body(), {"If-Match": "*"})
    assert f"The messaging entity 'sb://{HOST}/gone' could not be found." in answer.detail
    create(exchange, "orders")
    answer = exchange.request("PUT", f"/ORDERS?{VERSION}", queue_body())
    assert f"The messaging entity 'sb://{HOST}/ORDERS' already exists." in answer.detail


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "RequiresSession",
            "The value for the RequiresSession property of an existing Queue cannot be changed. T",
        ),
        ("EnablePartitioning", "Partitioning cannot be changed for Queue. TrackingId"),
    ],
)
def test_what_is_fixed_is_told_in_the_words_of_the_service(exchange: Exchange, name: str, words: str) -> None:
    """E-25 E-31 ERR-42: programs look for them."""
    create(exchange, "orders")
    answer = update(exchange, "orders", f"<{name}>true</{name}>")
    assert (answer.status, answer.detail.startswith(f"SubCode=40000. {words}")) == (400, True), answer.detail


# -- lists --


def test_a_list_has_one_link_and_every_queue(exchange: Exchange) -> None:
    """ERR-43: entries carry xml:base, an absolute id and a relative link; one page has one link."""
    for name in ("b", "a/x"):
        create(exchange, name)
    answer = exchange.request("GET", f"/$Resources/queues?$skip=0&$top=100&{VERSION}")
    feed = answer.xml
    assert feed.findtext(f"{ATOM}title") == "Queues"
    assert [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")] == ["a/x", "b"]
    assert len(feed.findall(f"{ATOM}link")) == 1
    url = f"https://{HOST}/$Resources/queues?$skip=0&amp;$top=100&amp;{VERSION}"
    assert f'<entry xml:base="{url}"><id>https://{HOST}/a/x?{VERSION}</id>' in answer.text
    assert f'<link rel="self" href="../a/x?{VERSION}"/>' in answer.text


def test_a_page_has_exactly_two_links_when_more_follows(exchange: Exchange) -> None:
    """ERR-43: the second link leads on with $skip and $top; following it visits every queue once."""
    for number in range(7):
        create(exchange, f"q{number}")
    target, seen = f"/$Resources/queues?$skip=0&$top=3&{VERSION}", []
    while True:
        feed = exchange.request("GET", target).xml
        seen += [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")]
        links = feed.findall(f"{ATOM}link")
        if len(links) == 1:
            break
        assert [link.get("rel") for link in links] == ["self", "next"]
        target = links[1].attrib["href"].removeprefix(f"https://{HOST}")
    assert seen == [f"q{number}" for number in range(7)]


def test_a_page_has_at_most_a_hundred_entries(exchange: Exchange) -> None:
    """ERR-43: server maximum 100, whatever $top asks for."""
    for number in range(101):
        create(exchange, f"q{number:03d}")
    feed = exchange.request("GET", f"/$resources/QUEUES?$top=5000&{VERSION}").xml
    assert len(feed.findall(f"{ATOM}entry")) == 100
    assert "$skip=100&$top=100" in feed.findall(f"{ATOM}link")[1].attrib["href"]


@pytest.mark.parametrize(
    "query", ["$skip=-1", "$top=x", "$skip=99999999999", "$top=%D9%A3", "api-version=now"]
)
def test_a_senseless_query_is_refused(exchange: Exchange, query: str) -> None:
    """ERR-42: 400 with sub-code 40000."""
    answer = exchange.request("GET", f"/$Resources/queues?{query}")
    assert answer.status == 400
    assert answer.detail.startswith("SubCode=40000. ")


@pytest.mark.parametrize("title", ["Topics", "EventHubs"])
def test_a_list_may_be_empty(exchange: Exchange, title: str) -> None:
    """E-1: the list exists, and is empty."""
    create(exchange, "orders")
    answer = exchange.request("GET", f"/$Resources/{title.lower()}?{VERSION}")
    assert answer.xml.findtext(f"{ATOM}title") == title
    assert answer.xml.findall(f"{ATOM}entry") == []


def test_an_unknown_list_is_not_found(exchange: Exchange) -> None:
    """ERR-1: an unknown list is not found, 404."""
    assert exchange.request("GET", f"/$Resources/things?{VERSION}").status == 404


# -- updates --


def test_an_update_changes_what_it_sends_and_answers_200(exchange: Exchange) -> None:
    """ERR-43 E-28: PUT with If-Match: * changes, keeps the rest, and gives counts."""
    create(exchange, "orders", "<LockDuration>PT30S</LockDuration>")
    exchange.clock.advance(5)
    answer = update(exchange, "orders", "<MaxDeliveryCount>7</MaxDeliveryCount>")
    assert answer.status == 200
    assert answer.property("MaxDeliveryCount") == "7"
    assert answer.property("LockDuration") == "PT30S"
    assert answer.property("CreatedAt") == "2023-11-14T22:13:20Z"
    assert answer.property("UpdatedAt") == "2023-11-14T22:13:25Z"


def test_an_update_sends_back_read_only_parts_and_a_mangled_forever(exchange: Exchange) -> None:
    """E-40 E-26 E-30: counts and times sent back are ignored; the longest duration survives Python's floats."""
    create(exchange, "orders")
    answer = update(
        exchange,
        "orders",
        "<DefaultMessageTimeToLive>P10675199DT2H48M5.477539S</DefaultMessageTimeToLive>"
        "<SizeInBytes>9</SizeInBytes><MessageCount>9</MessageCount><CreatedAt>1999-01-01T00:00:00Z</CreatedAt>"
        "<EntityAvailabilityStatus>Unknown</EntityAvailabilityStatus>"
        "<CountDetails><ActiveMessageCount>9</ActiveMessageCount></CountDetails>"
        "<AutoDeleteOnIdle>P10675199DT2H48M5.477539S</AutoDeleteOnIdle>",
    )
    assert answer.status == 200
    assert answer.property("SizeInBytes") == "0"
    assert answer.property("CreatedAt") == "2023-11-14T22:13:20Z"


def test_a_text_left_out_of_an_update_is_cleared(exchange: Exchange) -> None:
    """E-36: clients clear UserMetadata by not sending it."""
    create(exchange, "orders", "<UserMetadata>note</UserMetadata>")
    assert update(exchange, "orders", "").property("UserMetadata") is None


def test_what_cannot_change_is_refused(exchange: Exchange) -> None:
    """E-25 ERR-42: RequiresSession is fixed at creation: 400 SubCode=40000 names it."""
    create(exchange, "orders")
    answer = update(exchange, "orders", "<RequiresSession>true</RequiresSession>")
    assert answer.status == 400
    assert answer.detail.startswith("SubCode=40000. ")
    assert "RequiresSession" in answer.detail


def test_an_update_of_a_missing_queue_is_not_found(exchange: Exchange) -> None:
    """ERR-43: 404 SubCode=40400."""
    answer = update(exchange, "nothing", "")
    assert answer.status == 404
    assert answer.detail.startswith("SubCode=40400. ")


def test_an_outdated_etag_stops_an_update(exchange: Exchange) -> None:
    """ERR-26: If-Match with another version than the present one is 412; the present one passes."""
    create(exchange, "orders")
    present = exchange.request("GET", f"/orders?{VERSION}").headers["etag"]
    stale = exchange.request("PUT", f"/orders?{VERSION}", queue_body(), {"If-Match": '"1"'})
    assert stale.status == 412
    fresh = exchange.request("PUT", f"/orders?{VERSION}", queue_body(), {"If-Match": f'"{present}"'})
    assert fresh.status == 200


def test_unknown_elements_are_kept_and_returned(exchange: Exchange) -> None:
    """E-44: an element of the future comes back, with its attributes and children, also through an update."""
    element = '<FutureFlag x="1"><Inner>deep &amp; odd</Inner></FutureFlag>'
    create(exchange, "orders", element)
    answer = exchange.request("GET", f"/orders?{VERSION}")
    assert answer.property("FutureFlag/{*}Inner") == "deep & odd"
    assert update(exchange, "orders", element).property("FutureFlag/{*}Inner") == "deep & odd"


def test_the_message_size_needs_a_version_that_knows_it(exchange: Exchange) -> None:
    """E-22: with api-version 2017-04 the element is an error, and is not returned; 256 passes from 2021-05 on."""
    element = "<MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>"
    old = exchange.request("PUT", "/orders?api-version=2017-04", queue_body(element))
    assert old.status == 400
    create(exchange, "orders", element)
    read = exchange.request("GET", "/orders?api-version=2017-04")
    assert read.property("MaxMessageSizeInKilobytes") is None
    assert update(exchange, "orders", element, "api-version=2021-05").status == 200


def test_a_size_beyond_standard_is_refused(exchange: Exchange) -> None:
    """E-22: on Standard another value than 256 is 400 SubCode=40000."""
    body = queue_body("<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>")
    answer = exchange.request("PUT", f"/orders?{VERSION}", body)
    assert (answer.status, answer.detail[:14]) == (400, "SubCode=40000.")


# -- authorization rules of a queue --

RULE = (
    '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
    "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
    "<Rights><AccessRights>Manage</AccessRights><AccessRights>Listen</AccessRights>"
    "<AccessRights>Send</AccessRights></Rights><KeyName>worker</KeyName><PrimaryKey>cHJpbWFyeQ==</PrimaryKey>"
    "<SecondaryKey>c2Vjb25k</SecondaryKey></AuthorizationRule></AuthorizationRules>"
)


@pytest.mark.parametrize("order", list(permutations(("Manage", "Listen", "Send"))), ids=str)
def test_a_rule_comes_back_as_it_was_sent(exchange: Exchange, order: tuple[str, ...]) -> None:
    """E-37 A-1 A-2: keys included, rights in the order in which they were sent; also out of the catalogue."""
    rights = "".join(f"<AccessRights>{right}</AccessRights>" for right in order)
    sent = re.sub("<Rights>.*</Rights>", f"<Rights>{rights}</Rights>", RULE)
    create(exchange, "orders", sent)
    assert sent in exchange.request("GET", f"/orders?{VERSION}").text
    description = exchange.namespace.description("orders")
    assert isinstance(description, QueueDescription)
    read = description_of_json(QueueDescription, description_json(description))
    assert read.authorization_rules[0].rights_in_order == order


def test_a_right_that_is_sent_many_times_is_kept_once(exchange: Exchange) -> None:
    """Attack: what comes back has no more of them than there are."""
    rights = "<AccessRights>Send</AccessRights>" * 500
    create(exchange, "orders", re.sub("<Rights>.*</Rights>", f"<Rights>{rights}</Rights>", RULE))
    text = exchange.request("GET", f"/orders?{VERSION}").text
    assert text.count("<AccessRights>") == 1


def test_a_queues_rule_manages_that_queue_only(exchange: Exchange) -> None:
    """A-9 A-2 A-5: its Manage opens the queue, not its neighbour and no list."""
    create(exchange, "orders", RULE)
    create(exchange, "orders2")
    token = sas_token(f"https://{HOST}/orders", "worker", "cHJpbWFyeQ==")
    assert exchange.request("GET", f"/orders?{VERSION}", token=token).status == 200
    wide = sas_token(f"https://{HOST}", "worker", "cHJpbWFyeQ==")
    for target in ("/orders2", "/$Resources/queues", "/$namespaceinfo", "/$stores", "/$rules", "/"):
        for attempt in (token, wide):
            assert exchange.request("GET", f"{target}?{VERSION}", token=attempt).status == 401, target


# -- deletion --


def test_a_deleted_queue_is_gone(exchange: Exchange) -> None:
    """E-86 ERR-43: DELETE is 200 and empty; the second one is 404 in the service's own words."""
    create(exchange, "orders")
    assert exchange.request("DELETE", f"/orders?{VERSION}").status == 200
    answer = exchange.request("DELETE", f"/orders?{VERSION}")
    assert answer.status == 404
    assert answer.detail.startswith("No service is hosted at the specified address. TrackingId:")


# -- names --

BAD_NAMES = [
    "a//b",
    "a/",
    "/a",
    "..",
    "a/../b",
    "a/./b",
    "%2e%2e",
    "a/%2e%2e/b",
    "..%2f..%2fetc%2fpasswd",
    "%252e%252e",
    "a%00b",
    "a%0d%0aSet-Cookie:x",
    "%EF%BC%8E%EF%BC%8E",  # full-width dots
    "%D0%BErders",  # Cyrillic o
    "%E2%84%AAey",  # the Kelvin sign
    "%FF%FE",
    "%C0%AE%C0%AE",  # overlong dots
    "$queue",
    "q/$DeadLetterQueue",
    "$Resources2",
    "a%20b",
    "a%5Cb",
    "a@b",
    "a*",
    "a%3Fb",
    "a%23b",
    "a:b",
    "<script>",
    "%3Cscript%3E",
    "q" * 261,
    "a/subscriptions/b/..",
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_impossible_name_is_refused(exchange: Exchange, method: str, name: str) -> None:
    """E-2 E-5 E-6: 400 SubCode=40000 for whoever asks; nothing is made."""
    answer = exchange.request(method, f"/{name}?{VERSION}", queue_body())
    assert answer.status == 400
    assert answer.detail.startswith("SubCode=40000. ")
    assert exchange.namespace.queues() == []


@pytest.mark.parametrize(
    "name", ["con", "nul", "a.b-c_d~e", "A/b/C", "q" * 260, "...x", "health", "subscriptions"]
)
def test_an_unusual_name_works(exchange: Exchange, name: str) -> None:
    """E-2 E-5 E-6: letters, digits, dot, dash, underscore, tilde, several segments, 260 characters; a queue may
    even have the name of the health check."""
    create(exchange, name)
    answer = exchange.request("GET", f"/{name}?{VERSION}")
    assert answer.xml.findtext(f"{ATOM}title") == name
    assert exchange.request("DELETE", f"/{name}?{VERSION}").status == 200


def test_a_path_is_decoded_once(exchange: Exchange) -> None:
    """E-5: `%2F` is a slash, `%252F` is not."""
    create(exchange, "a%2Fb")
    assert [known.path for known in exchange.namespace.queues()] == ["a/b"]
    assert exchange.request("GET", f"/a%252Fb?{VERSION}").status == 400
