"""SB-92x: what rules select and change, with the unmodified Python SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.management import (
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

from tests.conformance.topic_traffic import DEFAULT_RULE, QUIET_S, NamedRule, Topic
from tests.conformance.traffic import bodies

pytestmark = pytest.mark.sdk

NewTopic = Callable[..., Topic]

#: This SDK writes a plain number as 32 bits; so it takes a larger one.
LARGE = {"TYPE": "LONG", "VALUE": 2**40}
MESSAGES: dict[str, dict[str | bytes, Any]] = {
    "red": {"color": "red", "n": 10, "half": 0.5, "yes": True},
    "blue": {"color": "blue", "n": -3, "yes": False},
    "Red": {"COLOR": "Red", "n": LARGE},
    "null": {"color": None},
    "quote": {"color": "it's 100% [red]_", "a b": "spaced", "select": 1},
    "typed": {"n": "10", "raw": b"\x01", "when": datetime(2024, 5, 1, tzinfo=UTC)},
    "plain": {},
}
EVERYTHING = set(MESSAGES)
#: Filter → the messages above that it selects.
FILTERS: dict[str, set[str]] = {
    "color = 'red'": {"red"},
    "COLOR='red' or Color = 'Red'": {"red", "Red"},
    "color <> 'red'": {"blue", "Red", "quote"},
    "NOT (color = 'red')": {"blue", "Red", "quote"},
    "color IS NULL": {"null", "typed", "plain"},
    "color IS NOT NULL": {"red", "blue", "Red", "quote"},
    "EXISTS(color)": {"red", "blue", "Red", "null", "quote"},
    "NOT EXISTS(color)": {"typed", "plain"},
    "color = NULL": set(),
    "color IN ('red', 'blue')": {"red", "blue"},
    "color NOT IN ('red', 'blue')": {"Red", "quote"},
    "color LIKE '%e%'": {"red", "blue", "Red", "quote"},
    "color LIKE '_ed'": {"red", "Red"},
    r"color LIKE '%100\% [red]\_' ESCAPE '\'": {"quote"},
    "color = 'it''s 100% [red]_'": {"quote"},
    "[a b] = 'spaced' AND \"select\" = 1": {"quote"},
    "n > 5": {"red", "Red"},
    "n = 10.0": {"red"},
    "n = '10'": {"typed"},
    "n / 3 = 3 AND n % 3 = 1 AND -n = 0 - 10": {"red"},
    "n + half > 10.4": {"red"},
    "n < 0 OR n > 1000000": {"blue", "Red"},
    "yes": {"red"},
    "yes = FALSE": {"blue"},
    "yes = TRUE AND missing = 1 OR color = 'blue'": {"blue"},
    "property('co' + 'lor') = 'red' AND p('n') = 10": {"red"},
    "user.color = 'red'": {"red"},
    "sys.Label = 'blue'": {"blue"},
    "sys.MessageId LIKE '%ed'": {"red", "Red", "typed"},
    "sys.label = 'red' AND SYS.TO = 'red-to'": {"red"},
    "sys.ReplyTo IS NULL": EVERYTHING,
    "1=1": EVERYTHING,
    "1=0": set(),
    "newid() = newid()": set(),
}
CORRELATION: dict[str, CorrelationRuleFilter] = {
    "correlation_id": CorrelationRuleFilter(correlation_id="c"),
    "message_id": CorrelationRuleFilter(message_id="m"),
    "to": CorrelationRuleFilter(to="t"),
    "reply_to": CorrelationRuleFilter(reply_to="r"),
    "subject": CorrelationRuleFilter(label="s"),
    "session_id": CorrelationRuleFilter(session_id="x"),
    "reply_to_session_id": CorrelationRuleFilter(reply_to_session_id="rx"),
    "content_type": CorrelationRuleFilter(content_type="text/plain"),
}


def message_of(name: str) -> ServiceBusMessage:
    return ServiceBusMessage(
        name, application_properties=MESSAGES[name], subject=name, message_id=name, to=f"{name}-to"
    )


def collect(topic: Topic, rules: Mapping[str, str | SqlRuleFilter | CorrelationRuleFilter]) -> None:
    """One subscription for all rules. Each has an action, so each hit is a copy with the rule's name on it (T-4)."""
    topic.subscribe("hits", *(NamedRule(name, wanted, "SET hit = TRUE") for name, wanted in rules.items()))


def hits(topic: Topic, rules: Iterable[str]) -> dict[str, list[str]]:
    """Which messages each rule has selected."""
    with topic.receiver("hits", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        copies: list[ServiceBusReceivedMessage] = []
        while batch := receiver.receive_messages(max_message_count=300, max_wait_time=QUIET_S):
            copies += batch
    found: dict[str, list[str]] = {name: [] for name in rules}
    for copy in copies:
        properties: dict[Any, Any] = copy.application_properties or {}
        found[properties[b"RuleName"].decode()].append(str(copy))
    return found


def test_sb_920_sql_filters_select_what_the_language_says(
    client: ServiceBusClient, new_topic: NewTopic
) -> None:
    """T-2, T-20, T-21, T-22, T-23, T-24, T-25, T-26, T-27, T-29, T-30, T-31, T-32, T-33, T-34, T-35: a table."""
    topic = new_topic()
    texts = {f"f{number}": text for number, text in enumerate(FILTERS)}
    collect(topic, texts)
    with client.get_topic_sender(topic.name) as sender:
        sender.send_messages([message_of(name) for name in MESSAGES])
    found = {texts[name]: set(messages) for name, messages in hits(topic, texts).items()}
    assert found == FILTERS


def test_sb_921_correlation_filters_compare_exactly_and_with_types(new_topic: NewTopic) -> None:
    """T-40, T-41, T-43: each property of a message, all of them together, and values of every type."""
    topic = new_topic()
    typed: dict[str, Any] = {"text": "a", "n": 1, "half": 0.5, "yes": True}
    together = CorrelationRuleFilter(label="s", properties={"n": 1, "text": "a"})
    rules = {
        **CORRELATION,
        **{f"typed-{name}": CorrelationRuleFilter(properties={name: value}) for name, value in typed.items()},
        "together": together,
    }
    collect(topic, rules)
    everything: dict[str, Any] = {
        "correlation_id": "c", "message_id": "m", "to": "t", "reply_to": "r", "subject": "s", "session_id": "x",
        "reply_to_session_id": "rx", "content_type": "text/plain",
    }  # fmt: skip
    topic.send("all", application_properties=typed, **everything)
    for name, value in everything.items():
        topic.send(f"upper {name}", **{name: value.upper()})
    topic.send(
        "texts", subject="s", application_properties={name: str(value) for name, value in typed.items()}
    )
    topic.send("long", application_properties={"n": LARGE, "text": "A"})
    expected = {name: ["all"] for name in rules}
    expected["subject"] = expected["typed-text"] = ["all", "texts"]
    assert hits(topic, rules) == expected


def test_sb_922_several_rules_give_several_copies(new_topic: NewTopic) -> None:
    """T-4, T-6, M-39: all plain rules together one, each rule with an action its own, with the rule's name."""
    topic = new_topic()
    plain = [NamedRule(f"plain{number}", "n > 0") for number in range(3)]
    acting = [NamedRule(f"acting{number}", "n > 0", f"SET n = n + {number}") for number in (1, 2)]
    topic.subscribe("s", *plain, *acting, NamedRule("other", "n < 0", "SET n = 0"))
    topic.subscribe("untouched")
    topic.send("m", application_properties={"n": 10})
    copies = topic.take("s", 3)
    assert [copy.application_properties for copy in copies] == [
        {b"n": 10},
        {b"n": 11, b"RuleName": b"acting1"},
        {b"n": 12, b"RuleName": b"acting2"},
    ]
    assert [copy.sequence_number for copy in copies] == [1, 2, 3]
    assert topic.take("untouched", 1)[0].application_properties == {b"n": 10}


def test_sb_923_actions_change_properties_of_the_user_and_of_the_message(new_topic: NewTopic) -> None:
    """T-7, T-50, T-51, T-52, T-53, T-54, T-28: set, replace, remove, compute, with parameters; the body stays."""
    topic = new_topic()
    action = SqlRuleAction(
        "SET quantity = quantity / 2; REMOVE priority; REMOVE nothing; SET sys.CorrelationId = 'low';"
        "SET sys.Label = sys.Label + '!'; SET sys.To = @to; SET twice = quantity * 2; SET [a b] = 'spaced';"
        "SET sys.ReplyTo = 'r'; SET sys.ContentType = 'text/plain'; SET sys.ReplyToSessionId = 'rs';"
        "SET gone = missing; SET sys.TimeToLive = @life",
        parameters={"to": "there", "life": timedelta(minutes=5)},
    )
    topic.subscribe("s", NamedRule("changes", "1=1", action))
    properties = {"quantity": 10, "priority": "high", "kept": 0.5}
    topic.send("body", subject="label", message_id="m", application_properties=properties)
    (copy,) = topic.take("s", 1)
    assert copy.application_properties == {
        b"quantity": 5, b"kept": 0.5, b"twice": 10, b"a b": b"spaced", b"gone": None, b"RuleName": b"changes"
    }  # fmt: skip
    assert (copy.correlation_id, copy.subject, copy.to) == ("low", "label!", "there")
    assert (copy.reply_to, copy.content_type, copy.reply_to_session_id) == ("r", "text/plain", "rs")
    assert (str(copy), copy.message_id, copy.time_to_live) == ("body", "m", timedelta(minutes=5))


def test_sb_924_an_action_moves_a_copy_into_a_session(new_topic: NewTopic) -> None:
    """T-7, X-3, D-12: the session of the copy counts, not that of the message."""
    topic = new_topic()
    topic.subscribe("s", NamedRule("sets", "1=1", "SET sys.SessionId = region"), requires_session=True)
    topic.send("north", application_properties={"region": "n"})
    topic.send("nowhere")
    assert bodies(topic.take("s", 1, session_id="n")) == ["north"]
    assert bodies(topic.take_dead("s", 1)) == ["nowhere"]


@pytest.mark.parametrize("dead_letters", [True, False])
def test_sb_925_what_rules_cannot_work_out_is_dead_lettered_if_wished(
    new_topic: NewTopic, dead_letters: bool
) -> None:
    """T-60, D-15, E-60: a filter or action that fails; other rules, subscriptions and messages are not touched."""
    topic = new_topic()
    wished = {"dead_lettering_on_filter_evaluation_exceptions": dead_letters}
    topic.subscribe("filter", NamedRule("divides", "10 / n = 5"), **wished)
    topic.subscribe("action", NamedRule("divides", "1=1", "SET share = 10 / n"), **wished)
    topic.subscribe("both", NamedRule("divides", "10 / n = 5"), NamedRule("plain", "n IS NOT NULL"), **wished)
    topic.subscribe("plain")
    topic.send("two", application_properties={"n": 2})
    topic.send("zero", application_properties={"n": 0})
    assert bodies(topic.take("plain", 2)) == ["two", "zero"]
    assert bodies(topic.take("filter", 1)) == ["two"]
    assert bodies(topic.take("action", 1)) == ["two"]
    assert bodies(topic.take("both", 2)) == ["two", "zero"]
    reasons = {"filter": "FilterException", "action": "RuleActionException", "both": "FilterException"}
    for name, reason in reasons.items():
        dead = topic.take_dead(name, 1 if dead_letters else 0)
        assert bodies(dead) == ["zero"] * len(dead)
        assert [message.dead_letter_reason for message in dead] == [reason] * len(dead)
        assert all(message.dead_letter_error_description for message in dead)


def test_sb_926_rules_count_from_their_creation_to_their_removal(
    admin: ServiceBusAdministrationClient, new_topic: NewTopic
) -> None:
    """T-5, T-8, T-11, ERR-2, ERR-43: what was sent before stays as it was selected."""
    topic = new_topic()
    topic.subscribe("s", NamedRule("red", "color = 'red'"))
    red, blue = {"color": "red"}, {"color": "blue"}
    topic.send("red 1", application_properties=red)
    topic.send("blue 1", application_properties=blue)
    topic.add_rule("s", NamedRule("blue", "color = 'blue'"))
    with pytest.raises(ResourceExistsError):
        topic.add_rule("s", NamedRule("BLUE", "1=1"))
    topic.send("blue 2", application_properties=blue)
    admin.delete_rule(topic.name, "s", "red")
    topic.send("red 2", application_properties=red)
    rule = admin.get_rule(topic.name, "s", "blue")
    rule.filter = SqlRuleFilter("color = 'red'")
    admin.update_rule(topic.name, "s", rule)
    topic.send("red 3", application_properties=red)
    topic.send("blue 3", application_properties=blue)
    admin.delete_rule(topic.name, "s", "blue")
    for missing in ("blue", DEFAULT_RULE):
        with pytest.raises(ResourceNotFoundError):
            admin.delete_rule(topic.name, "s", missing)
    topic.send("nobody's", application_properties=red)
    assert bodies(topic.take("s", 3)) == ["red 1", "blue 2", "red 3"]


def test_sb_927_parameters_have_types(new_topic: NewTopic) -> None:
    """T-28, T-29, E-74: numbers, texts, instants and durations, compared as what they are."""
    topic = new_topic()
    start = datetime(2024, 1, 1, tzinfo=UTC)
    parameters: dict[str, Any] = {
        "text": "a",
        "n": 5,
        "big": 2**40,
        "half": 0.5,
        "yes": True,
        "start": start,
        "day": timedelta(1),
    }
    texts = {
        "text": "t = @text", "n": "i = @n", "big": "l = @big", "half": "d = @half", "yes": "b = @yes",
        "start": "at > @start", "day": "at - @start > @day",
    }  # fmt: skip
    rules = {name: SqlRuleFilter(text, parameters=parameters) for name, text in texts.items()}
    collect(topic, rules)
    values: dict[str, Any] = {"t": "a", "i": 5, "l": LARGE, "d": 0.5, "b": True}
    topic.send("hour", application_properties={**values, "at": start + timedelta(hours=1)})
    topic.send("week", application_properties={"at": start + timedelta(days=7)})
    expected = {**{name: ["hour"] for name in texts}, "start": ["hour", "week"], "day": ["week"]}
    assert hits(topic, rules) == expected


@pytest.mark.parametrize(
    "rule",
    [
        NamedRule("r", "color = "),
        NamedRule("r", "sys.NoSuchThing = 1"),
        NamedRule("r", "n = @missing"),
        NamedRule("r", "1=1", "SET = 1"),
        NamedRule("r", "1=1", "SET sys.SequenceNumber = 1"),
        NamedRule("r", "1=1", ";".join(f"SET p{number} = 1" for number in range(33))),
        NamedRule("r", "n = " + "1" * 1_024),
        NamedRule("r", CorrelationRuleFilter()),
        NamedRule("not/allowed", "1=1"),
    ],
    ids=[
        "syntax",
        "system name",
        "parameter",
        "action",
        "read-only",
        "33 statements",
        "long",
        "empty",
        "name",
    ],
)
def test_sb_928_rules_that_mean_nothing_are_refused(
    admin: ServiceBusAdministrationClient, new_topic: NewTopic, rule: NamedRule
) -> None:
    """T-36, T-24, T-42, T-52, E-71, E-3, ERR-28: 400 with a sentence, and the subscription keeps its rules."""
    topic = new_topic()
    topic.subscribe("s")
    with pytest.raises((HttpResponseError, ValueError)) as refused:
        topic.add_rule("s", rule)
    if isinstance(refused.value, HttpResponseError):
        assert refused.value.status_code == 400
        assert "TrackingId" in str(refused.value)
    assert [found.name for found in admin.list_rules(topic.name, "s")] == [DEFAULT_RULE]
