"""SB-96x: topics, subscriptions and rules with the unmodified JavaScript SDK. Its rule manager speaks AMQP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient

from tests.conformance.node_program import needs_node, run_node
from tests.conformance.topic_traffic import Topic
from tests.harness.running_server import RunningServer

pytestmark = [pytest.mark.sdk, needs_node]

NewTopic = Callable[..., Topic]
Run = Callable[..., Any]
TYPED: dict[str, Any] = {
    "text": "some",
    "whole": 7,
    "large": 2**40,
    "half": 0.5,
    "yes": True,
    "no": False,
    "when": {"ms": 1767323045000},
}


@pytest.fixture
def run(server: RunningServer) -> Run:
    def in_node(scenario: str, topic: Topic, **parameters: Any) -> Any:
        return run_node(server, "topics.mjs", scenario, topic=topic.name, **parameters)

    return in_node


def test_sb_960_publish_receive_and_settle(run: Run, new_topic: NewTopic) -> None:
    """T-1, M-39, R-1, R-10, R-11, R-13, R-14, R-30, R-51, R-60, S-20: every verb; the other copies stay."""
    topic = new_topic()
    for name in ("s", "other"):
        topic.subscribe(name)
    found = run("settle", topic)
    every = ["complete", "abandon", "defer", "dead", "batch 1", "batch 2"]
    assert found == {
        "bodies": every,
        "numbers": [1, 2, 3, 4, 5, 6],
        "hasRenewed": True,
        "again": ["abandon", 1, {"changed": True}],
        "peeked": [["defer", "deferred"]],
        "deferred": "defer",
        "dead": ["dead", "why", "because"],
        "other": every,
    }


def test_sb_961_scheduling_and_cancelling(run: Run, new_topic: NewTopic) -> None:
    """S-30, S-31, S-33, S-34, S-35, ERR-14: the subscription sees nothing of it before its time."""
    topic = new_topic()
    topic.subscribe("s")
    found = run("schedule", topic)
    assert (found["before"], found["body"]) == ([], "comes")
    assert 0 <= found["lateMs"] < 1000
    assert found["again"]["code"] == "MessageNotFound"


def test_sb_962_sessions(run: Run, new_topic: NewTopic) -> None:
    """X-3, X-4, X-5, X-7, X-15, ERR-13: named and next available, with state."""
    topic = new_topic()
    topic.subscribe("s", requires_session=True)
    found = run("sessions", topic)
    assert found["named"] == ["b", ["b1", "b2"]]
    assert found["next"] == ["a", ["a1", "a2"]]
    assert found["state"] == {"half": "way"}
    assert found["locked"]["code"] == "SessionCannotBeLocked"


def test_sb_963_a_subscription_streams(run: Run, new_topic: NewTopic) -> None:
    """R-3, R-70: everything that is published comes, in order, and is completed."""
    topic = new_topic()
    topic.subscribe("s")
    assert run("subscribe", topic, count=30) == {"seen": list(range(30)), "errors": []}
    assert topic.peek("s") == []


def test_sb_964_rules_are_added_listed_and_removed_over_amqp(run: Run, new_topic: NewTopic) -> None:
    """T-11, T-12, T-36, T-42, E-64, E-73, ERR-1, ERR-2, ERR-28: by name, filters of every kind with every type."""
    topic = new_topic()
    topic.subscribe("s")
    found = run("rules", topic)
    assert found["first"] == [{"name": "$Default", "filter": {"sqlExpression": "1=1"}, "action": {}}]
    assert [rule["name"] for rule in found["rest"]] == ["acting", "correlation", "label", "nothing", "sql"]
    acting, correlation, label, nothing, sql = found["rest"]
    assert (sql["filter"], sql["action"]) == ({"sqlExpression": "color = 'red'"}, {})
    assert (acting["filter"], acting["action"]) == (
        {"sqlExpression": "n > 1"},
        {"sqlExpression": "SET n = n + 1"},
    )
    assert correlation["filter"] == {
        "correlationId": "c",
        "messageId": "m",
        "to": "t",
        "replyTo": "r",
        "subject": "s",
        "sessionId": "x",
        "replyToSessionId": "rx",
        "contentType": "text/plain",
        "applicationProperties": TYPED,
    }
    assert {key: value for key, value in label["filter"].items() if value} == {"subject": "only"}
    assert nothing["filter"] == {"sqlExpression": "1=0"}
    assert found["pages"] == [["acting", "correlation"], ["label", "nothing"], ["sql"]]
    assert found["twice"]["code"] == "MessagingEntityAlreadyExists"
    assert found["missing"]["code"] == "MessagingEntityNotFound"
    for mistake in ("wrong", "empty", "badName"):
        assert found[mistake] is not None, mistake
        assert "TrackingId:" in found[mistake]["message"]
    assert found["last"] == []


def test_sb_965_rules_made_over_amqp_select_and_change(
    run: Run, admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """T-4, T-40, T-43, T-50: typed values are compared as what they are; HTTP shows the same rules."""
    topic = new_topic()
    topic.subscribe("s")
    found = run("selected", topic)
    assert found == {
        "found": [["exact", "s"], ["two", "x"]],
        "changed": {"n": 3, "RuleName": "acting"},
        "more": [],
    }
    rules = {rule.name: rule for rule in admin.list_rules(topic.name, "s")}
    assert set(rules) == {"acting", "exact"}
    properties = dict(rules["exact"].filter.properties)
    assert properties.pop("when").timestamp() * 1000 == TYPED["when"]["ms"]
    assert properties == {name: value for name, value in TYPED.items() if name != "when"}


def test_sb_966_a_listener_lists_rules_and_changes_none(server: RunningServer, new_topic: NewTopic) -> None:
    """T-12, A-2, A-6, A-9, E-61: with the key of a rule of the topic."""
    key = "b" * 43 + "="
    listener = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.LISTEN],
        key_name="listener",
        primary_key=key,
        secondary_key=key,
    )
    topic = new_topic(authorization_rules=[listener])
    topic.subscribe("s")
    topic.send("m")
    endpoint = server.connection_string.partition(";")[0]
    given = f"{endpoint};SharedAccessKeyName=listener;SharedAccessKey={key};UseDevelopmentEmulator=true"
    environment = {"BUSWAY_CONNECTION_STRING": given}
    found: Any = run_node(server, "topics.mjs", "listening", environment=environment, topic=topic.name)
    assert (found["names"], found["received"]) == (["$Default"], ["m"])
    for refused in ("create", "remove", "send"):
        assert found[refused]["code"] == "UnauthorizedAccess", refused
    assert "'Manage' claim(s) are required" in found["create"]["message"]


def test_sb_967_what_cannot_be_is_told(run: Run, new_topic: NewTopic) -> None:
    """E-9, E-10, ERR-1, ERR-6: receiving from a topic, sending to a subscription, a subscription that is missing."""
    topic = new_topic()
    topic.subscribe("s")
    found = run("refused", topic, subscription="s")
    assert "Subscriptions/s" in found["receive"]["message"]
    assert "send" in found["send"]["message"].lower()
    assert found["missing"]["code"] == "MessagingEntityNotFound"
    assert "could not be found" in found["missing"]["message"]
    assert found["rules"]["code"] == "MessagingEntityNotFound"


def test_sb_968_copies_and_dead_letters_are_forwarded(run: Run, new_topic: NewTopic) -> None:
    """F-1, F-10, M-15, M-21, D-20: through a subscription into another topic, dead letters likewise."""
    first, second = new_topic(), new_topic()
    second.subscribe("end")
    first.subscribe("onward", forward_to=second.name)
    first.subscribe("read", forward_dead_lettered_messages_to=second.name)
    found = run("forwarded", first, second=second.name)
    assert found["moved"] == ["moved", 1]
    assert (found["dead"][0], found["dead"][1]) == ("moved", "why")
    assert found["dead"][2].lower() == first.path_of("read").lower()
