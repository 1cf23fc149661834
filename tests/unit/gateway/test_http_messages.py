"""The message API over HTTP: routes, rights, statuses, what is stored and what comes back."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.unit.gateway.http_exchange import HOST, VERSION, Answer, Exchange, queue_body, sas_token

BATCH = {"content-type": "application/vnd.microsoft.servicebus.json"}
NOBODYS_LOCK = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"


@pytest.fixture
def bus() -> Iterator[Exchange]:
    with Exchange() as exchange:
        assert create(exchange, "orders").status == 201
        yield exchange


def create(bus: Exchange, name: str, properties: str = "") -> Answer:
    return bus.request("PUT", f"/{name}?{VERSION}", queue_body(properties))


def send(bus: Exchange, body: str | bytes = "hello", queue: str = "orders", **headers: str) -> Answer:
    return bus.request("POST", f"/{queue}/messages", body, headers)


def lock(bus: Exchange, queue: str = "orders") -> Answer:
    return bus.request("POST", f"/{queue}/messages/head?timeout=0")


def take(bus: Exchange, queue: str = "orders") -> Answer:
    return bus.request("DELETE", f"/{queue}/messages/head?timeout=0")


def broker_properties(answer: Answer) -> dict[str, object]:
    found: dict[str, object] = json.loads(answer.headers["BrokerProperties"])
    return found


def lock_uri(answer: Answer) -> str:
    root = f"https://{HOST}"
    assert answer.headers["Location"].startswith(root)
    return answer.headers["Location"].removeprefix(root)


def active(bus: Exchange, queue: str = "orders") -> int:
    return bus.namespace.queue(queue).counts().active


# -- sending and receiving --


def test_a_message_goes_in_and_comes_out(bus: Exchange) -> None:
    """S-5 R-23 M-10 M-33: 201; then body, Content-Type and properties as they were sent."""
    sent = send(
        bus,
        "hello",
        **{
            "content-type": "text/plain; charset=utf-8",
            "BrokerProperties": '{"MessageId": "m1", "Label": "L", "TimeToLive": 10, "State": "Active"}',
            "priority": '"High"',
            "weight": "12",
        },
    )
    assert (sent.status, sent.text) == (201, "")
    got = take(bus)
    assert (got.status, got.text) == (200, "hello")
    assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (got.headers["priority"], got.headers["weight"]) == ('"High"', "12")
    assert broker_properties(got) == {
        "ContentType": "text/plain; charset=utf-8",
        "DeliveryCount": 1,
        "EnqueuedSequenceNumber": 0,
        "EnqueuedTimeUtc": "Tue, 14 Nov 2023 22:13:20 GMT",
        "Label": "L",
        "MessageId": "m1",
        "SequenceNumber": 1,
        "State": "Active",
        "TimeToLive": 10,
    }
    assert active(bus) == 0


def test_every_broker_property_comes_back(bus: Exchange) -> None:
    """S-5 M-1 M-2 M-3 M-4 M-5 M-6 M-7 M-8 M-9 M-13: all that a sender may set."""
    sent = {
        "CorrelationId": "c",
        "ForcePersistence": True,
        "Label": "ü\r\n",
        "MessageId": "m",
        "PartitionKey": "s",
        "ReplyTo": "r",
        "ReplyToSessionId": "rs",
        "SessionId": "s",
        "TimeToLive": 0.5,
        "To": "t",
        "ViaPartitionKey": "v",
    }
    assert send(bus, **{"BrokerProperties": json.dumps(sent)}).status == 201
    got = take(bus)
    assert got.headers["BrokerProperties"].isascii()
    del sent["ForcePersistence"]
    assert broker_properties(got).items() >= sent.items()


def test_a_message_without_a_time_to_live_is_said_to_have_the_longest(bus: Exchange) -> None:
    """M-11 R-23: as the service says it; what is received so can be sent again so, and has none."""
    assert send(bus).status == 201
    told = broker_properties(take(bus))
    assert told["TimeToLive"] == 922337203685.47754
    assert send(bus, **{"BrokerProperties": json.dumps(told)}).status == 201
    assert broker_properties(take(bus))["TimeToLive"] == told["TimeToLive"]


def test_a_message_without_id_gets_one(bus: Exchange) -> None:
    """M-1: as over AMQP."""
    send(bus)
    assert len(str(broker_properties(take(bus))["MessageId"])) == 32


def test_nothing_there_is_204_without_a_body(bus: Exchange) -> None:
    """R-8 R-23: nothing there is 204 without a body."""
    for answer in (lock(bus), take(bus)):
        assert (answer.status, answer.text) == (204, "")
        assert "BrokerProperties" not in answer.headers


def test_a_receive_waits_for_its_time_only(bus: Exchange) -> None:
    """R-8: a fraction of a second is a time like any other."""
    assert bus.request("DELETE", "/orders/messages/head?timeout=0.01").status == 204


@pytest.mark.parametrize("timeout", ["-1", "x", "", "1e3", "99999999999", "1&timeout=2", "٣"])
def test_a_timeout_that_is_none_is_refused(bus: Exchange, timeout: str) -> None:
    """ERR-7: 400 with a sentence."""
    answer = bus.request("POST", f"/orders/messages/head?timeout={quote(timeout, safe='=&')}")
    assert (answer.status, "is not a number of seconds" in answer.detail) == (400, True)


def test_a_locked_message_is_invisible_until_it_is_unlocked(bus: Exchange) -> None:
    """R-2 R-11 R-23: the lock URI unlocks by PUT, and the next delivery is counted."""
    send(bus)
    first = lock(bus)
    assert (first.status, first.text) == (201, "hello")
    found = broker_properties(first)
    assert lock_uri(first) == f"/orders/messages/1/{found['LockToken']}"
    assert found["LockedUntilUtc"] == "Tue, 14 Nov 2023 22:14:20 GMT"
    assert lock(bus).status == 204
    assert bus.request("PUT", lock_uri(first)).status == 200
    again = lock(bus)
    assert broker_properties(again)["DeliveryCount"] == 2
    assert broker_properties(again)["LockToken"] != found["LockToken"]


def test_completing_removes_the_message_once(bus: Exchange) -> None:
    """R-10 R-17 R-23: DELETE of the lock URI; a second time there is no such lock."""
    send(bus)
    locked = lock_uri(lock(bus))
    assert bus.request("DELETE", locked).status == 200
    assert active(bus) == 0
    for method in ("DELETE", "PUT", "POST"):
        answer = bus.request(method, locked)
        assert (answer.status, answer.detail[:15]) == (404, "SubCode=40401. ")


def test_a_renewed_lock_lasts_anew(bus: Exchange) -> None:
    """R-30 R-23: POST of the lock URI tells the new end."""
    send(bus)
    locked = lock_uri(lock(bus))
    bus.clock.advance(50)
    renewed = bus.request("POST", locked)
    assert renewed.status == 200
    assert (
        json.loads(renewed.headers["brokerproperties"])["LockedUntilUtc"] == "Tue, 14 Nov 2023 22:15:10 GMT"
    )
    bus.clock.advance(50)
    assert bus.request("DELETE", locked).status == 200


def test_a_lock_that_has_ended_is_not_found(bus: Exchange) -> None:
    """R-5 R-17 R-23: 404 for whatever one wants to do with it."""
    send(bus)
    locked = lock_uri(lock(bus))
    bus.clock.advance(61)
    assert [bus.request(method, locked).status for method in ("POST", "PUT", "DELETE")] == [404] * 3


def test_the_message_id_is_as_good_as_the_number(bus: Exchange) -> None:
    """R-23: `messages/{messageId}/{lockToken}`, whatever letters the id has."""
    for message_id in ("m1", "a/b", "ü %", "7", "..", "head"):
        send(bus, **{"BrokerProperties": json.dumps({"MessageId": message_id})})
        token = broker_properties(lock(bus))["LockToken"]
        target = f"/orders/messages/{quote(message_id, safe='')}/{token}"
        assert bus.request("POST", target).status == 200
        assert bus.request("DELETE", target).status == 200
    assert active(bus) == 0


@pytest.mark.parametrize("message_id", ["2", "01", "1 ", "other", "m", "M1"])
def test_an_id_that_does_not_fit_the_lock_is_not_found(bus: Exchange, message_id: str) -> None:
    """R-23: nothing happens to the message that is locked with the token."""
    send(bus, **{"BrokerProperties": '{"MessageId": "m1"}'})
    token = broker_properties(lock(bus))["LockToken"]
    assert bus.request("DELETE", f"/orders/messages/{quote(message_id)}/{token}").status == 404
    assert bus.request("DELETE", f"/orders/messages/1/{token}").status == 200


@pytest.mark.parametrize(
    "token", ["x", NOBODYS_LOCK, NOBODYS_LOCK.replace("-", ""), f"{{{NOBODYS_LOCK}}}", "0" * 36]
)
def test_a_token_of_nobody_is_not_found(bus: Exchange, token: str) -> None:
    """R-17 R-23 ERR-14: a token of nobody is not found."""
    assert bus.request("DELETE", f"/orders/messages/1/{quote(token)}").status == 404


def test_dead_letters_are_received_under_their_address(bus: Exchange) -> None:
    """E-8 D-2 M-22: the sub-queue is a path, in any case; the reason is a custom property."""
    create(bus, "once", "<MaxDeliveryCount>1</MaxDeliveryCount>")
    send(bus, queue="once")
    bus.request("PUT", lock_uri(lock(bus, "once")))
    dead = lock(bus, "once/$deadletterqueue")
    assert (dead.status, dead.headers["DeadLetterReason"]) == (201, '"MaxDeliveryCountExceeded"')
    assert bus.request("DELETE", lock_uri(dead)).status == 200
    assert take(bus, "once/$DeadLetterQueue").status == 204
    assert take(bus, "once/$Transfer/$DeadLetterQueue").status == 204


def test_nobody_sends_into_a_sub_queue(bus: Exchange) -> None:
    """E-10 ERR-6: 400, invalid operation."""
    answer = send(bus, queue="orders/$DeadLetterQueue")
    assert (answer.status, answer.detail[:15]) == (400, "SubCode=40301. ")


def test_sessions_are_not_received_over_http(bus: Exchange) -> None:
    """R-23 X-1 ERR-6: 400 at once on every receiving route; sending with a SessionId works."""
    create(bus, "talks", "<RequiresSession>true</RequiresSession>")
    assert send(bus, queue="talks", **{"BrokerProperties": '{"SessionId": ""}'}).status == 201
    targets = [
        ("POST", "/talks/messages/head"),
        ("DELETE", "/talks/messages/head"),
        ("DELETE", f"/talks/messages/1/{NOBODYS_LOCK}"),
    ]
    for method, target in targets:
        answer = bus.request(method, target)
        assert (answer.status, answer.detail[:15]) == (400, "SubCode=40301. ")
    assert send(bus, queue="talks").status == 400
    assert active(bus, "talks") == 1


def test_a_scheduled_message_waits(bus: Exchange) -> None:
    """S-30 M-12: both forms of the time."""
    for text in (
        "Tue, 14 Nov 2023 22:14:20 GMT",
        "2023-11-14T22:14:20.0000000Z",
        "2023-11-14T23:14:20+01:00",
    ):
        sent = send(bus, **{"BrokerProperties": json.dumps({"ScheduledEnqueueTimeUtc": text})})
        assert sent.status == 201
    counts = bus.namespace.queue("orders").counts()
    assert (counts.scheduled, counts.active) == (3, 0)
    past = send(bus, **{"BrokerProperties": '{"ScheduledEnqueueTimeUtc": "Sun, 06 Nov 1994 08:49:37 GMT"}'})
    assert (past.status, active(bus)) == (201, 1)


@pytest.mark.parametrize("value", ['{"TimeToLive": 1}', '{"TimeToLiveTimeSpan": "00:00:01"}'])
def test_a_message_expires(bus: Exchange, value: str) -> None:
    """M-11 M-42: seconds, or a time span."""
    send(bus, **{"BrokerProperties": value})
    bus.clock.advance(1.5)
    assert take(bus).status == 204


@pytest.mark.parametrize("seconds", ["922337203685.47754", "922337203685", "5184000"])
def test_a_very_long_time_to_live_is_taken(bus: Exchange, seconds: str) -> None:
    """M-11 M-40: .NET's longest is none; what AMQP's field cannot hold is no error."""
    assert send(bus, **{"BrokerProperties": f'{{"TimeToLive": {seconds}}}'}).status == 201
    assert take(bus).status == 200


# -- what is refused: nothing is stored --

REFUSED = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("[]", "must be a JSON object"),
    ('"x"', "must be a JSON object"),
    ('{"MessageId": 5}', "MessageId must be a string"),
    ('{"MessageId": "a", "MessageId": "b"}', "has a member twice"),
    ('{"Label": "\\ud800"}', "Label must be a string"),
    ('{"Label": ["x"]}', "Label must be a string"),
    ('{"TimeToLive": "10"}', "TimeToLive must be a number"),
    ('{"TimeToLive": true}', "TimeToLive must be a number"),
    ('{"TimeToLive": 0}', "at least a millisecond"),
    ('{"TimeToLive": -1}', "at least a millisecond"),
    ('{"TimeToLive": NaN}', "not JSON"),
    ('{"TimeToLive": 1e999}', "TimeToLive must be a number"),
    ('{"TimeToLive": 1, "TimeToLiveTimeSpan": "00:00:01"}', "set one of them"),
    ('{"TimeToLiveTimeSpan": "25:61:61"}', "TimeToLiveTimeSpan"),
    ('{"ScheduledEnqueueTimeUtc": "tomorrow"}', "is not a time"),
    ('{"ScheduledEnqueueTimeUtc": 5}', "must be a string"),
    ('{"ScheduledEnqueueTimeUtc": "Tue, 99 Nov 2023 22:14:20 GMT"}', "is not a time"),
    ('{"ForcePersistence": 1}', "true or false"),
    ('{"ContentType": "\\u00fc"}', "ContentType must be ASCII"),
    ('{"Label": "\xfc"}', "is not UTF-8"),
    ('{"SessionId": "a", "PartitionKey": "b"}', "must be the same"),
    (json.dumps({"MessageId": "x" * 129}), "128"),
    (json.dumps({"PartitionKey": "x" * 129}), "128"),
    (json.dumps({"ReplyToSessionId": "x" * 129}), "128"),
    ("[" * 5_000, "nested too deeply"),
]


@pytest.mark.parametrize(("value", "says"), REFUSED, ids=[value[:40] for value, _ in REFUSED])
def test_broker_properties_that_make_no_sense_are_refused(bus: Exchange, value: str, says: str) -> None:
    """S-5 S-6 L-8 ERR-7: 400 with a sentence, and nothing is stored."""
    answer = send(bus, **{"BrokerProperties": value})
    assert (answer.status, says in answer.detail) == (400, True), answer.detail
    assert active(bus) == 0


@pytest.mark.parametrize(
    "value", ["{}", '{"Unknown": [{}], "DeliveryCount": "x", "LockToken": 5}', '{"Label": null}']
)
def test_unknown_members_are_ignored(bus: Exchange, value: str) -> None:
    """S-5: also those that only the broker sets, whatever they hold."""
    assert send(bus, **{"BrokerProperties": value}).status == 201


@pytest.mark.parametrize("value", ['"open', '"a" b', '"\\ud800"', "1" * 30, "1e999", '"\\x"'])
def test_custom_properties_that_make_no_sense_are_refused(bus: Exchange, value: str) -> None:
    """M-33: 400, and nothing is stored."""
    assert send(bus, shade=value).status == 400
    assert active(bus) == 0


def test_a_property_that_is_too_large_is_refused(bus: Exchange) -> None:
    """L-6: a property that is too large is refused."""
    assert send(bus, shade=json.dumps("x" * 33_000)).status == 400


def test_a_message_that_is_too_large_is_refused(bus: Exchange) -> None:
    """S-8 L-5 ERR-10: 403; what just fits is taken."""
    answer = send(bus, b"x" * (256 * 1024 + 1))
    assert (answer.status, answer.detail[:15]) == (403, "SubCode=40300. ")
    declared = send(bus, b"", **{"content-length": "99999999999"})
    assert declared.status == 403
    assert send(bus, b"x" * (256 * 1024)).status == 403  # the id counts too (L-21)
    assert send(bus, b"x" * (250 * 1024)).status == 201
    assert len(take(bus).text) == 250 * 1024


def test_a_full_queue_refuses(bus: Exchange) -> None:
    """S-9 L-3 ERR-9: a full queue refuses, 403."""
    queue = bus.namespace.queue("orders")
    queue.main.counters.bytes = 1024 * 1024 * 1024
    answer = send(bus)
    assert (answer.status, answer.detail[:15]) == (403, "SubCode=40300. ")


@pytest.mark.parametrize(
    ("status", "closed"),
    [("Disabled", {"send", "receive"}), ("SendDisabled", {"send"}), ("ReceiveDisabled", {"receive"})],
)
def test_a_disabled_queue_refuses(bus: Exchange, status: str, closed: set[str]) -> None:
    """S-10 E-82 ERR-3: a disabled queue refuses, 403."""
    create(bus, "closed", f"<Status>{status}</Status>")
    assert (send(bus, queue="closed").status == 403) == ("send" in closed)
    assert (take(bus, "closed").status == 403) == ("receive" in closed)


def test_a_missing_queue_is_404_on_every_route(bus: Exchange) -> None:
    """S-5 R-23 S-10 ERR-1: a missing queue is 404 on every route."""
    for method, path in (
        ("POST", "messages"),
        ("POST", "messages/head"),
        ("DELETE", "messages/head"),
        ("PUT", f"messages/1/{NOBODYS_LOCK}"),
        ("POST", f"messages/1/{NOBODYS_LOCK}"),
        ("DELETE", f"messages/1/{NOBODYS_LOCK}"),
        ("POST", "$management/messages"),
        ("POST", "subscriptions/s/messages/head"),
    ):
        answer = bus.request(method, f"/nowhere/{path}")
        assert (answer.status, answer.detail[:15]) == (404, "SubCode=40400. "), path


def test_duplicates_are_dropped_silently(bus: Exchange) -> None:
    """S-40: 201 both times, one message."""
    create(bus, "unique", "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>")
    for _ in range(2):
        assert send(bus, queue="unique", **{"BrokerProperties": '{"MessageId": "m"}'}).status == 201
    assert active(bus, "unique") == 1


def test_a_queue_may_be_called_messages(bus: Exchange) -> None:
    """E-6: management keeps such names, and messages reach it."""
    assert create(bus, "orders/messages").status == 201
    assert send(bus, queue="orders/messages").status == 201
    assert (active(bus), active(bus, "orders/messages")) == (0, 1)
    assert send(bus).status == 201
    assert active(bus) == 1
    assert bus.request("DELETE", f"/orders/messages?{VERSION}").status == 200


def test_a_slash_at_the_end_and_capitals_are_forgiven(bus: Exchange) -> None:
    """E-7 E-8: a slash at the end and capitals are forgiven."""
    assert bus.request("POST", "/ORDERS/Messages/", "x").status == 201
    assert bus.request("DELETE", "/orders/MESSAGES/Head/?timeout=0").status == 200


@pytest.mark.parametrize("path", ["a b", "..", "a//b", "%C3%BC"])
def test_a_path_that_no_queue_can_have_is_refused(bus: Exchange, path: str) -> None:
    """E-6: a path that no queue can have is refused, 400."""
    assert bus.request("POST", f"/{path}/messages").status == 400


def test_other_methods_are_not_messages(bus: Exchange) -> None:
    """R-23: what is not in the API is management's, and refused or answered by it."""
    assert bus.request("PATCH", "/orders/messages/head").status == 405
    assert bus.request("POST", "/orders/messages/a/b/c").status == 405
    assert bus.request("POST", "/messages").status == 405


# -- topics --


@pytest.fixture
def news(bus: Exchange) -> Exchange:
    for path, kind in (("news", "TopicDescription"), ("news/subscriptions/all", "SubscriptionDescription")):
        assert bus.request("PUT", f"/{path}?{VERSION}", queue_body(kind=kind)).status == 201
    return bus


def test_a_message_to_a_topic_is_received_from_its_subscription(news: Exchange) -> None:
    """S-5 R-23 E-8: lock, complete, and the dead-letter queue, all below `topic/subscriptions/name`."""
    assert send(news, "extra", queue="news").status == 201
    for path in ("news/Subscriptions/all", "NEWS/subscriptions/ALL"):
        locked = lock(news, path)
        assert (locked.status, locked.text) == (201, "extra")
        assert lock_uri(locked).startswith(f"/{path}/messages/1/")
        assert news.request("PUT", lock_uri(locked)).status == 200
    locked = lock(news, "news/subscriptions/all")
    assert news.request("DELETE", lock_uri(locked)).status == 200
    assert take(news, "news/subscriptions/all").status == 204
    assert take(news, "news/subscriptions/all/$DeadLetterQueue").status == 204


def test_a_batch_to_a_topic(news: Exchange) -> None:
    """S-21: a batch to a topic."""
    assert news.request("POST", "/news/messages", '[{"Body": "1"}, {"Body": "2"}]', BATCH).status == 201
    assert [take(news, "news/subscriptions/all").text for _ in range(2)] == ["1", "2"]


def test_nobody_receives_from_a_topic_or_sends_to_a_subscription(news: Exchange) -> None:
    """E-9 E-10 ERR-6: 400; a subscription that is not there is 404."""
    assert lock(news, "news").status == 400
    assert take(news, "news").status == 400
    assert send(news, queue="news/subscriptions/all").status == 400
    assert take(news, "news/subscriptions/none").status == 404
    assert take(news, "none/subscriptions/all").status == 404


def test_a_topics_rule_opens_its_subscriptions(news: Exchange) -> None:
    """A-2 A-5: there are none on subscriptions."""
    body = queue_body(RULE.format(KEY), kind="TopicDescription")
    assert news.request("PUT", f"/private?{VERSION}", body).status == 201
    subscription = queue_body(kind="SubscriptionDescription")
    assert news.request("PUT", f"/private/subscriptions/s?{VERSION}", subscription).status == 201
    for scope in ("/private", "/private/subscriptions/s", "/private/subscriptions/s/messages"):
        token = sas_token(f"https://{HOST}{scope}", "own", KEY)
        answer = news.request("DELETE", "/private/subscriptions/s/messages/head?timeout=0", token=token)
        assert answer.status == 204
        target = "/news/subscriptions/all/messages/head?timeout=0"
        assert news.request("DELETE", target, token=token).status == 401


# -- batches --


def batch(bus: Exchange, body: object, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return bus.request("POST", "/orders/messages", text, {**BATCH, **headers})


def test_a_batch_is_stored_in_order(bus: Exchange) -> None:
    """S-21 M-33: a batch is stored in order."""
    sent = batch(
        bus,
        [
            {"Body": "one"},
            {
                "Body": "zwei ü",
                "BrokerProperties": {"Label": "M2", "TimeToLiveTimeSpan": "0.00:00:40"},
                "UserProperties": {"Priority": "Low", "n": 5, "x": 1.5, "b": True, "z": None, "a b": 1},
            },
            {"Body": None, "BrokerProperties": None, "UserProperties": None, "More": 1},
        ],
    )
    assert sent.status == 201
    first, second, third = take(bus), take(bus), take(bus)
    assert (first.text, third.text) == ("one", "")
    assert second.text == "zwei ü"
    assert broker_properties(second).items() >= {"Label": "M2", "TimeToLive": 40}.items()
    names = ("Priority", "n", "x", "b", "z")
    assert [second.headers[name] for name in names] == ['"Low"', "5", "1.5", "true", "null"]
    assert "a b" not in second.headers


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "not JSON"),
        ("[", "not JSON"),
        (b"\xff".decode("latin-1") + "[]", "not JSON"),
        ("{}", "must be a JSON list"),
        ([], "must be a JSON list"),
        ([1], "Message 0 of the batch"),
        ([{}, []], "Message 1 of the batch"),
        ([{"Body": 5}], "Body must be a string"),
        ([{"Body": {}}], "Body must be a string"),
        ('[{"Body": "\\ud800"}]', "Body must be a string"),
        ([{"UserProperties": []}], "UserProperties must be an object"),
        ([{"UserProperties": {"a": []}}], "not a list or an object"),
        ([{"UserProperties": {"a": {}}}], "not a list or an object"),
        ([{"UserProperties": {"a": 1 << 63}}], "more than 64 bits"),
        ('[{"UserProperties": {"\\udc00": 1}}]', "cannot be stored"),
        ([{"BrokerProperties": []}], "must be a JSON object"),
        ([{}, {"BrokerProperties": {"TimeToLive": "x"}}], "TimeToLive must be"),
        ([{"Body": "x"}, {"BrokerProperties": {"SessionId": "a", "PartitionKey": "b"}}], "must be the same"),
    ],
)
def test_a_batch_is_stored_whole_or_not_at_all(bus: Exchange, body: object, says: str) -> None:
    """S-21 S-20: 400 with a sentence, and none of its messages is there."""
    answer = batch(bus, body)
    assert (answer.status, says in answer.detail) == (400, True), answer.detail
    assert active(bus) == 0


def test_a_batch_that_is_too_large_is_refused(bus: Exchange) -> None:
    """S-22 L-5: 403, by the body and by what would be stored of it."""
    assert batch(bus, [{"Body": "x" * 130_000}] * 3).status == 403
    assert batch(bus, "[" + "{}," * 60_000 + "{}]").status == 403
    assert active(bus) == 0


def test_headers_are_not_properties_of_a_batch(bus: Exchange) -> None:
    """S-21: each message has its own."""
    assert batch(bus, [{"Body": "x"}], BrokerProperties='{"Label": "L"}', shade="1").status == 201
    got = take(bus)
    assert "shade" not in got.headers
    assert "Label" not in broker_properties(got)


# -- rights --

SEND_ROUTE = ("POST", "/orders/messages")
LISTEN_ROUTES = [
    ("POST", "/orders/messages/head?timeout=0"),
    ("DELETE", "/orders/messages/head?timeout=0"),
    ("DELETE", f"/orders/messages/1/{NOBODYS_LOCK}"),
    ("PUT", f"/orders/messages/1/{NOBODYS_LOCK}"),
    ("POST", f"/orders/messages/1/{NOBODYS_LOCK}"),
]


@pytest.mark.parametrize("right", ["Send", "Listen"])
@pytest.mark.parametrize(("method", "target"), [SEND_ROUTE, *LISTEN_ROUTES])
def test_sending_needs_send_and_receiving_listen(bus: Exchange, right: str, method: str, target: str) -> None:
    """A-9 A-6: the other right is 401, with the sentence that names the missing claim."""
    bus.request("PUT", "/$rules/worker", json.dumps({"rights": [right], "primaryKey": "abc"}))
    answer = bus.request(method, target, token=sas_token(f"https://{HOST}", "worker", "abc"))
    needed = "Send" if (method, target) == SEND_ROUTE else "Listen"
    if needed == right:
        assert answer.status in (201, 204, 404)
    else:
        assert answer.status == 401
        assert answer.detail.startswith(f"Unauthorized access. '{needed}' claim(s) are required")


RULE = (
    '<AuthorizationRules><AuthorizationRule xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    ' i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>'
    "<Rights><AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights>"
    "<KeyName>own</KeyName><PrimaryKey>{0}</PrimaryKey><SecondaryKey>{0}</SecondaryKey>"
    "</AuthorizationRule></AuthorizationRules>"
)
KEY = "a" * 43 + "="


@pytest.mark.parametrize(
    "scope", ["", "/private", "/private/messages", "/PRIVATE/messages/", "/private/messages/head"]
)
def test_a_token_may_be_for_the_address_alone(bus: Exchange, scope: str) -> None:
    """A-4 A-5: the queue's own rule, with a scope from the namespace down to the very address."""
    assert create(bus, "private", RULE.format(KEY)).status == 201
    token = sas_token(f"https://{HOST}{scope}", "own", KEY)
    answer = bus.request("DELETE", "/private/messages/head?timeout=0", token=token)
    assert answer.status == 204
    elsewhere = bus.request("DELETE", "/orders/messages/head?timeout=0", token=token)
    assert elsewhere.status == 401


@pytest.mark.parametrize(
    "scope", ["/orders", "/private/messages/head", "/private/message", "/private/messages/1", "/priv"]
)
def test_a_token_for_something_else_opens_nothing(bus: Exchange, scope: str) -> None:
    """A-5 A-6: 401, wrong audience."""
    assert create(bus, "private", RULE.format(KEY)).status == 201
    token = sas_token(f"https://{HOST}{scope}", "own", KEY)
    answer = bus.request("POST", "/private/messages", token=token)
    assert (answer.status, answer.detail[:15]) == (401, "SubCode=40104. ")
    assert active(bus, "private") == 0


def test_the_rule_of_a_queue_does_not_open_the_queue_below_its_name(bus: Exchange) -> None:
    """A-5: `private/messages` may be a queue of its own; the rule of `private` is not its rule."""
    assert create(bus, "private", RULE.format(KEY)).status == 201
    assert create(bus, "private/messages").status == 201
    token = sas_token(f"https://{HOST}/private", "own", KEY)
    answer = bus.request("POST", "/private/messages/messages", token=token)
    assert answer.status == 401
    assert bus.request("POST", "/private/$DeadLetterQueue/messages/head?timeout=0", token=token).status == 204
