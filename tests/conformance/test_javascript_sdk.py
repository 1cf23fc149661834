"""SB-8xx: the unmodified JavaScript SDK, @azure/service-bus, in programs under node/."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.node_program import needs_node, run_node
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.sdk, needs_node]

SHORT_LOCK = timedelta(seconds=5)
LOCK_MS = 5000

Run = Callable[..., Any]


@pytest.fixture
def run(server: RunningServer) -> Run:
    def in_node(program: str, scenario: str, **parameters: object) -> Any:
        return run_node(server, program, scenario, **parameters)

    return in_node


def test_sb_801_a_message_comes_back_as_it_was_sent(run: Run, new_queue: Callable[..., str]) -> None:
    """S-1, R-2, R-10, M-28, M-30, M-31: every property and value type; completing removes it."""
    found = run("messages.mjs", "roundTrip", queue=new_queue())
    assert found == {
        "body": {"text": "body", "list": [1, 2]},
        "messageId": "id-1",
        "subject": "label",
        "correlationId": "correlation",
        "contentType": "application/json",
        "replyTo": "somewhere",
        "to": "someone",
        "replyToSessionId": "reply-session",
        "timeToLive": 60_000,
        "deliveryCount": 0,
        "state": "active",
        "applicationProperties": {
            "color": "red",
            "count": 7,
            "ratio": 0.5,
            "yes": True,
            "when": 1767323045000,
            "none": None,
        },
        "sequenceNumber": 1,
        "hasLock": True,
        "hasExpiry": 60_000,
        "after": 0,
    }


def test_sb_802_batches_are_stored_whole_in_order_and_bounded(
    run: Run, new_queue: Callable[..., str]
) -> None:
    """S-2, S-4, S-8, S-20, S-22, L-5, ERR-10: numbered without gaps; too large is told at once."""
    found = run("messages.mjs", "batch", queue=new_queue(), count=100)
    assert found["bodies"] == [*range(100), "list-1", "list-2"]
    assert found["numbers"] == list(range(1, 103))
    assert found["fits"]
    assert found["overflows"]
    assert found["tooLarge"]["code"] == "MessageSizeExceeded"
    assert "TrackingId:" in found["tooLarge"]["message"]


def test_sb_803_a_scheduled_message_waits_can_be_cancelled_and_comes_in_time(
    run: Run, new_queue: Callable[..., str]
) -> None:
    """S-30, S-31, S-33, S-34, S-35, ERR-14: peek shows it, its number cancels it, its time makes it a new one."""
    found = run("messages.mjs", "schedule", queue=new_queue())
    assert found["waiting"] == [["kept", "scheduled", 0]]
    assert found["sameNumber"]
    assert found["cancelledAgain"]["code"] == "MessageNotFound"
    assert found["body"] == "soon"
    assert found["isNewNumber"]
    assert not found["wasEarly"]
    assert 0 <= found["enqueuedLateMs"] < 1000


def test_sb_804_peek_walks_on_from_call_to_call(run: Run, new_queue: Callable[..., str]) -> None:
    """R-60, R-62, R-63, R-64: the receiver goes on where it was, or starts at a number; nothing is locked."""
    found = run("messages.mjs", "peek", queue=new_queue())
    assert found == {
        "first": [0, 1],
        "second": [2, 3, 4],
        "from": [1, 2, 3, 4],
        "beyond": [],
        "lockToken": None,
        "counts": [0, 0],
    }


def test_sb_805_a_deferred_message_is_fetched_by_its_number(run: Run, new_queue: Callable[..., str]) -> None:
    """R-13, R-21, R-50, R-51, R-52, M-50: with changed properties, once at a time."""
    found = run("messages.mjs", "defer", queue=new_queue())
    assert found["next"] == "now"
    assert found["peekedState"] == "deferred"
    assert found["deferred"] == ["later", "deferred", 1, {"a": 1, "b": 2, "c": 3}]
    assert found["locked"]["code"] == "MessageNotFound"
    assert found["gone"]["code"] == "MessageNotFound"


def test_sb_806_dead_lettering_carries_reason_description_and_properties(
    run: Run, new_queue: Callable[..., str]
) -> None:
    """R-14, D-1, D-6, D-16: what the application adds is on the dead message beside what it had."""
    found = run("messages.mjs", "deadLetter", queue=new_queue())
    assert (found["left"], found["body"], found["messageId"]) == (0, "bad", "m")
    assert (found["reason"], found["description"]) == ("Unreadable", "no such format")
    assert found["properties"] == {
        "kept": 1,
        "extra": "added",
        "DeadLetterReason": "Unreadable",
        "DeadLetterErrorDescription": "no such format",
    }


def test_sb_807_abandon_counts_and_changes_properties(run: Run, new_queue: Callable[..., str]) -> None:
    """R-6, R-11, R-21, R-40: changes are merged into the stored message and stay."""
    found = run("messages.mjs", "abandon", queue=new_queue())
    assert found["seen"] == [
        [0, {"a": 1, "b": "one"}],
        [1, {"a": 1, "b": "two", "c": True}],
        [2, {"a": 1, "b": "two", "c": True}],
    ]
    assert found["twice"] is not None


def test_sb_808_a_renewed_lock_lives_on(run: Run, new_queue: Callable[..., str]) -> None:
    """R-30: renewal by hand outlives the first end of the lock."""
    found = run("messages.mjs", "renewLock", queue=new_queue(lock_duration=SHORT_LOCK), lockMs=LOCK_MS)
    assert found["renewals"] >= 4
    assert found["gainedMs"] > LOCK_MS / 2
    assert found["others"] == 0


def test_sb_809_the_sdk_renews_by_itself(run: Run, new_queue: Callable[..., str]) -> None:
    """R-30: its automatic renewal keeps a message that is worked on longer than the lock lasts."""
    found = run("messages.mjs", "autoRenewal", queue=new_queue(lock_duration=SHORT_LOCK), lockMs=LOCK_MS)
    assert found == {"failure": None, "left": 0}


def test_sb_810_a_lost_lock_is_told(run: Run, new_queue: Callable[..., str]) -> None:
    """R-5, R-17, R-30, ERR-11: neither completes nor renews; the message comes again with a higher count."""
    found = run("messages.mjs", "lockLost", queue=new_queue(lock_duration=SHORT_LOCK), lockMs=LOCK_MS)
    assert found["complete"]["code"] == "MessageLockLost"
    assert found["renew"]["code"] == "MessageLockLost"
    assert found["count"] == 1


def test_sb_811_receive_and_delete_drains_in_time(run: Run, new_queue: Callable[..., str]) -> None:
    """R-1, R-9: each call ends its credit by a drain that this SDK awaits for 200 ms only; nothing is lost."""
    found = run("messages.mjs", "receiveAndDelete", queue=new_queue())
    assert [(turn["sent"], turn["got"]) for turn in found["rounds"]] == [(n, n) for n in (0, 2, 5, 0, 3)]
    assert all(turn["ms"] < 600 and not turn["closed"] for turn in found["rounds"]), found["rounds"]
    assert found["left"] == 0


def test_sb_812_a_subscription_streams_and_abandons_what_its_handler_cannot_do(
    run: Run, new_queue: Callable[..., str]
) -> None:
    """R-3, R-11, R-70: streaming completes what the handler took; a failed one comes again."""
    found = run("messages.mjs", "subscribe", queue=new_queue(), count=20)
    assert found["seen"][0] == ["fails", 1]
    assert sorted(found["seen"][1:]) == [[number, 0] for number in range(20)]
    assert found["errors"] == ["the handler failed"]
    assert found["left"] == 0


def test_sb_813_duplicates_are_dropped(run: Run, new_queue: Callable[..., str]) -> None:
    """S-40, S-43: single, in a batch and scheduled alike."""
    queue = new_queue(requires_duplicate_detection=True)
    assert run("messages.mjs", "duplicates", queue=queue) == {"kept": ["first", "other"]}


def test_sb_814_value_sequence_and_data_bodies_come_back(run: Run, new_queue: Callable[..., str]) -> None:
    """M-28, M-29: AMQP body kinds and annotations are kept."""
    assert run("messages.mjs", "amqpBodies", queue=new_queue()) == [
        ["value", {"key": 5}, "kept"],
        ["sequence", [[1, 2], ["three"]], None],
        ["data", [0, 255], None],
    ]


def test_sb_815_refusals_have_the_codes_the_sdk_knows(run: Run, new_queue: Callable[..., str]) -> None:
    """ERR-1, ERR-6, S-7, S-10, X-1, X-2: a missing entity, a missing session id, the wrong kind of receiver."""
    queue, session_queue = new_queue(), new_queue(requires_session=True)
    found = run("messages.mjs", "refusals", queue=queue, sessionQueue=session_queue)
    assert found["outsider"]["code"] == "MessagingEntityNotFound"
    assert "The SessionId was not set on a message" in found["noSession"]["message"]
    assert "requires sessions to create a non-sessionful message receiver" in found["plain"]["message"]
    assert found["sessioned"] is not None


def test_sb_817_a_message_without_an_id_is_received(run: Run, new_queue: Callable[..., str]) -> None:
    """M-1: the SDK sends no id by itself, and its receiver as it comes needs one: each message has got its own."""
    found = run("messages.mjs", "withoutMessageId", queue=new_queue())
    assert len(set(found["ids"])) == 3
    assert all(len(message_id) == 32 for message_id in found["ids"])
    assert (found["again"], found["left"], found["close"]) == (found["ids"][0], 0, None)


# -- sessions


@pytest.fixture
def session_queue(new_queue: Callable[..., str]) -> str:
    return new_queue(requires_session=True)


@pytest.fixture
def short_session_queue(new_queue: Callable[..., str]) -> str:
    return new_queue(requires_session=True, lock_duration=SHORT_LOCK)


def test_sb_820_a_named_session_gives_its_messages_in_order(run: Run, session_queue: str) -> None:
    """X-3, X-4, X-12, R-66: an abandoned message is the next one again."""
    assert run("sessions.mjs", "ordering", queue=session_queue) == {
        "sessionId": "b",
        "bodies": ["b0", "b1", "b2", "b3", "b4"],
        "again": ["b0", 1],
        "left": 0,
        "peeked": [],
    }


def test_sb_821_the_next_session_is_the_oldest_free_one(run: Run, session_queue: str) -> None:
    """X-7, X-8, ERR-16: when none is free the accept waits and times out."""
    found = run("sessions.mjs", "next", queue=session_queue)
    assert found["sessions"] == ["older", "newer"]
    assert found["none"]["code"] == "ServiceTimeout"


def test_sb_822_session_state_is_kept_and_cleared(run: Run, session_queue: str) -> None:
    """X-15: opaque bytes that outlive the receiver; null clears them."""
    assert run("sessions.mjs", "state", queue=session_queue) == {
        "before": None,
        "kept": "half way",
        "cleared": None,
    }


def test_sb_823_a_renewed_session_lives_on(run: Run, short_session_queue: str) -> None:
    """X-9, X-13: its messages stay ours past the first end of the lock."""
    found = run("sessions.mjs", "renew", queue=short_session_queue, lockMs=LOCK_MS)
    assert found["gainedMs"] > LOCK_MS / 2
    assert found["count"] == 0


def test_sb_824_a_lost_session_is_told(run: Run, short_session_queue: str) -> None:
    """X-10, ERR-12: settlement fails, and the delivered message counts one delivery more."""
    found = run("sessions.mjs", "lost", queue=short_session_queue, lockMs=LOCK_MS)
    assert found["complete"]["code"] == "SessionLockLost"
    assert found["count"] == 1


def test_sb_825_a_session_is_held_by_one_receiver(run: Run, session_queue: str) -> None:
    """X-4, X-5, X-6, X-11, ERR-13: refused while it is held, free the moment it is closed."""
    found = run("sessions.mjs", "cannotBeLocked", queue=session_queue)
    assert found["refused"]["code"] == "SessionCannotBeLocked"
    assert found["free"] == "s"


def test_sb_826_closing_gives_messages_back_uncounted(run: Run, session_queue: str) -> None:
    """X-11, R-54: no delivery is counted; deferral works inside the session."""
    assert run("sessions.mjs", "closing", queue=session_queue) == {"count": 0, "deferred": "x"}


def test_sb_827_a_session_streams_in_order(run: Run, session_queue: str) -> None:
    """X-12: subscribe() sees the session's messages one after the other."""
    found = run("sessions.mjs", "subscribe", queue=session_queue, count=20)
    assert found == {"seen": list(range(20)), "left": 0}


# -- TLS and WebSocket


def test_sb_830_the_same_program_over_tls_and_websocket(
    server: RunningServer, new_queue: Callable[..., str]
) -> None:
    """A-11: without the emulator switch the SDK speaks TLS; NODE_EXTRA_CA_CERTS names our authority."""
    environment = {
        "BUSWAY_CONNECTION_STRING": server.connection_string.replace(";UseDevelopmentEmulator=true", ""),
        "NODE_EXTRA_CA_CERTS": server.ca_file,
    }
    queue = new_queue()
    for transport in ("direct", "webSocket"):
        found = run_node(server, "transports.mjs", transport, environment=environment, queue=queue)
        assert found == {"lengths": [5, 200_000]}


# -- administration, through `busway exec`


@pytest.fixture
def manage(server: RunningServer) -> Run:
    def in_node(scenario: str, **parameters: object) -> Any:
        return run_node(server, "administration.mjs", scenario, through_exec=True, **parameters)

    return in_node


def test_sb_840_a_queue_is_created_read_changed_and_deleted(manage: Run) -> None:
    """E-20, E-23, E-25, E-28, E-36, E-37, ERR-2, ERR-43: every step, and every step too many."""
    found = manage("lifeOfAQueue", queue="sb_840")
    created = found["created"]
    (rule,) = created["authorizationRules"]
    assert (rule["keyName"], rule["accessRights"]) == ("worker", ["Listen"])
    assert rule["primaryKey"] != rule["secondaryKey"]
    assert (created["lockDuration"], created["maxDeliveryCount"]) == ("PT30S", 5)
    assert created["requiresSession"]
    assert created["requiresDuplicateDetection"]
    assert created["userMetadata"] == "<ours> & theirs"
    assert found["updated"] == {**created, "maxDeliveryCount": 7, "userMetadata": "changed"}
    assert found["twice"]["code"] == "MessageEntityAlreadyExistsError"
    assert "SubCode=40000" in found["fixed"]["message"]
    assert (found["exists"], found["after"]) == (True, False)
    assert found["get"]["code"] == found["remove"]["code"] == "MessageEntityNotFoundError"


def test_sb_841_a_new_queue_has_the_documented_defaults(manage: Run) -> None:
    """E-20, E-21, E-22, E-24, E-26, E-27, E-28, E-29, E-30, E-32, E-35, E-90: as the SDK reads them."""
    forever = "P10675199DT2H48M5.4775807S"
    assert manage("defaults", queue="sb_841") == {
        "name": "sb_841",
        "lockDuration": "PT1M",
        "maxSizeInMegabytes": 1024,
        "maxDeliveryCount": 10,
        "enablePartitioning": False,
        "requiresSession": False,
        "enableBatchedOperations": True,
        "defaultMessageTimeToLive": forever,
        "autoDeleteOnIdle": forever,
        "requiresDuplicateDetection": False,
        "duplicateDetectionHistoryTimeWindow": "PT10M",
        "deadLetteringOnMessageExpiration": False,
        "status": "Active",
        "enableExpress": False,
        "availabilityStatus": "Available",
        "maxMessageSizeInKilobytes": 256,
    }


def test_sb_842_queues_are_listed_in_pages(manage: Run, admin: ServiceBusAdministrationClient) -> None:
    """ERR-43: pages of three, nothing twice, nothing left out."""
    found = manage("pages", prefix="sb_842", count=7)
    assert all(size == 3 for size in found["sizes"][:-1])
    assert len(found["sizes"]) >= 3
    assert len(set(found["names"])) == len(found["names"])
    assert set(found["names"]) >= {f"sb_842-{index}" for index in range(7)}
    assert set(found["counted"]) >= {f"sb_842-{index}" for index in range(7)}
    for index in range(7):
        admin.delete_queue(f"sb_842-{index}")


def test_sb_843_runtime_properties_and_the_namespace_are_told(manage: Run) -> None:
    """E-40, E-100, E-101, S-36, D-3: counts by state, the size, the times; name and sku of the namespace."""
    found = manage("runtime", queue="sb_843")
    counts = ("totalMessageCount", "activeMessageCount", "deadLetterMessageCount", "scheduledMessageCount")
    assert [found[name] for name in counts] == [4, 2, 1, 1]
    assert found["sizeInBytes"] > 0
    assert found["createdAt"] <= found["accessedAt"]
    assert (found["namespace"]["name"], found["namespace"]["messagingSku"]) == ("busway", "Standard")


def test_sb_844_wrong_keys_names_and_values_are_refused(manage: Run) -> None:
    """A-6, E-6, E-20, ERR-4, ERR-19, ERR-41: each with its code and a sentence."""
    found = manage("refusals", queue="sb_844")
    assert found["stranger"]["code"] == "UnauthorizedRequestError"
    assert "SubCode=40000" in found["name"]["message"]
    assert "LockDuration" in found["lock"]["message"]
    assert "MaxSizeInMegabytes" in found["partitions"]["message"]


def test_sb_845_a_topic_is_created_read_changed_and_deleted(manage: Run) -> None:
    """E-50, E-52, E-55, E-65, A-10, ERR-2, ERR-43: every method, and every step too many."""
    found = manage("lifeOfATopic", topic="a/b/sb_845")
    created = found["created"]
    assert (created["name"], created["maxSizeInMegabytes"]) == ("a/b/sb_845", 2048)
    assert (created["supportOrdering"], created["requiresDuplicateDetection"]) == (True, True)
    assert (created["defaultMessageTimeToLive"], created["userMetadata"]) == ("P1D", "<ours> & theirs")
    (rule,) = created["authorizationRules"]
    assert (rule["keyName"], set(rule["accessRights"])) == ("manager", {"Manage", "Send", "Listen"})
    assert found["keyChanged"]
    assert found["updated"] == {
        **created,
        "supportOrdering": False,
        "authorizationRules": [{**rule, "primaryKey": rule["secondaryKey"]}],
    }
    assert found["twice"]["code"] == "MessageEntityAlreadyExistsError"
    assert "SubCode=40000" in found["fixed"]["message"]
    assert (found["runtime"]["name"], found["runtime"]["subscriptionCount"]) == ("a/b/sb_845", 1)
    assert (found["listed"], found["subscriptionCount"]) == (True, 1)
    assert (found["exists"], found["after"]) == (True, [False, False])
    assert found["get"]["code"] == found["remove"]["code"] == "MessageEntityNotFoundError"


def test_sb_846_a_subscription_is_created_read_changed_and_deleted(manage: Run) -> None:
    """E-60, E-64, E-34, F-2, F-5, ERR-2, ERR-43: every method, and every step too many."""
    found = manage("lifeOfASubscription", topic="a/b/sb_846", queue="sb_846-dead")
    created = found["created"]
    assert (created["topicName"], created["subscriptionName"]) == ("a/b/sb_846", "s")
    assert (created["lockDuration"], created["maxDeliveryCount"]) == ("PT30S", 5)
    assert (created["requiresSession"], created["deadLetteringOnFilterEvaluationExceptions"]) == (True, False)
    assert created["forwardDeadLetteredMessagesTo"].endswith("/sb_846-dead")
    assert created["userMetadata"] == "<ours> & theirs"
    assert found["firstRules"] == ["mine"]
    assert found["updated"] == {**created, "maxDeliveryCount": 7, "userMetadata": "changed"}
    assert found["twice"]["code"] == "MessageEntityAlreadyExistsError"
    assert "SubCode=40000" in found["fixed"]["message"]
    assert "SubCode=40400" in found["missingTarget"]["message"]
    assert (found["runtime"]["subscriptionName"], found["runtime"]["totalMessageCount"]) == ("s", 0)
    names = ["s", *(f"t{index}" for index in range(6))]
    assert (found["sizes"], found["listed"], found["counted"]) == ([3, 3, 1], names, names)
    assert (found["exists"], found["after"]) == (True, False)
    assert found["get"]["code"] == found["remove"]["code"] == "MessageEntityNotFoundError"


def test_sb_847_a_rule_is_created_read_changed_and_deleted(manage: Run) -> None:
    """E-64, E-70, E-74, T-11, T-36, T-40, ERR-2, ERR-43: every method, and every step too many."""
    found = manage("lifeOfARule", topic="a/b/sb_847")
    values = {"text": "<x> & y", "half": 0.5, "five": 5, "yes": True, "at": "2020-07-05T11:12:13.123Z"}
    filter_ = found["created"]["filter"]
    assert filter_["applicationProperties"] == values
    assert [filter_[name] for name in ("correlationId", "subject", "messageId")] == ["c", "l", "m"]
    assert found["created"]["action"] == {"sqlExpression": "SET a = @p", "sqlParameters": {"@p": 1}}
    assert found["sameTime"]
    assert found["updated"]["filter"] == {"sqlExpression": "a = @a", "sqlParameters": {"@a": "x"}}
    assert found["updated"]["action"] == {}
    assert (found["first"]["name"], found["first"]["filter"]) == ("$Default", {"sqlExpression": "1=1"})
    assert found["twice"]["code"] == "MessageEntityAlreadyExistsError"
    assert "SubCode=40000" in found["wrong"]["message"]
    assert found["listed"] == ["$Default", "r", *(f"z{5 + index}" for index in range(5))]
    assert found["sizes"] == [3, 3, 1]
    assert (found["exists"], found["after"]) == (True, False)
    assert found["get"]["code"] == found["remove"]["code"] == "MessageEntityNotFoundError"
    assert found["lost"]["code"] == "MessageEntityNotFoundError"
