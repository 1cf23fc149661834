"""Rules over AMQP: requests as clients write them, answers field by field, and what bad requests get."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.encode import encode_value
from busway.amqp.sections import AmqpMessage, decode_message, encode_message
from busway.amqp.types import (
    Array,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from busway.gateway.amqp.nodes.management_operations import described_rule
from busway.model.descriptions import NewEntity, QueueDescription, SubscriptionDescription, TopicDescription
from busway.model.limits import Limits
from busway.rules.rule import CorrelationFilter, Rule, SqlAction, SqlFilter, TypedValue
from tests.unit.gateway.node_bench import NodeBench, condition, on_a_bench, sentence, status

TOPIC, PATH = "t", "t/Subscriptions/s"
NOW_MS = 1_700_000_000_000
#: Descriptors as they lie on the wire, in their two magnitudes.
RULE, EMPTY_ACTION, SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
SQL_FILTER, TRUE_FILTER, FALSE_FILTER, CORRELATION_FILTER = (
    0x1370000006,
    0x1370000007,
    0x1370000008,
    0x1370000009,
)
ALL = {"top": Int(2**31 - 1), "skip": Int(0)}
FULL = {
    "correlation-id": "c",
    "message-id": "m",
    "to": "t",
    "reply-to": "r",
    "label": "l",
    "session-id": "s",
    "reply-to-session-id": "rs",
    "content-type": "ct",
}


def on_a_subscription(test: Callable[[NodeBench], Awaitable[None]], limits: Limits | None = None) -> None:
    async def with_topic(bench: NodeBench) -> None:
        subscription = SubscriptionDescription(PATH)
        await bench.namespace.create([NewEntity(TopicDescription(TOPIC)), NewEntity(subscription)])
        await test(bench)

    on_a_bench(with_topic, limits)


async def add(bench: NodeBench, name: str, **parts: object) -> AmqpMessage:
    """`sql_filter`, `correlation_filter`, `sql_rule_action`: maps, as clients send them."""
    description = {key.replace("_", "-"): value for key, value in parts.items()}
    return await bench.ask(PATH, "add-rule", {"rule-name": name, "rule-description": description})


async def rules(bench: NodeBench, **page: int) -> list[Any]:
    """As they arrive at a client."""
    body = {**ALL, **{name: Int(value) for name, value in page.items()}}
    answer = await bench.ask(PATH, "enumerate-rules", body)
    if status(answer) == 204:
        assert answer.body is None
        return []
    assert status(answer) == 200
    entries = decode_message(encode_message(answer)).body["rules"]
    assert isinstance(entries, list)
    assert all(set(entry) == {"rule-description"} for entry in entries)
    return [entry["rule-description"] for entry in entries]


async def names(bench: NodeBench, **page: int) -> list[str]:
    return [rule.value[2] for rule in await rules(bench, **page)]


# -- what clients get


def test_the_default_rule_field_by_field() -> None:
    """T-11, E-64, E-70: descriptors are ulongs, there is always an action, name and time follow."""

    async def test(bench: NodeBench) -> None:
        (rule,) = await rules(bench)
        assert (type(rule.descriptor), rule.descriptor) == (ULong, RULE)
        wanted, action, name, created_at = rule.value
        assert (wanted.descriptor, wanted.value) == (TRUE_FILTER, [])
        assert (action.descriptor, action.value) == (EMPTY_ACTION, [])
        assert (name, created_at, type(created_at)) == ("$Default", NOW_MS, Timestamp)

    on_a_subscription(test)


def test_the_bytes_of_a_rule() -> None:
    """T-11: the eight-byte descriptors that clients compare, exactly."""
    rule = Rule("r", SqlFilter("a=1"), SqlAction("SET a=2"), NOW_MS)
    encoded = encode_value(described_rule(rule))
    assert bytes.fromhex("00 80 00000137 00000004".replace(" ", "")) in encoded
    assert bytes.fromhex("00 80 00000013 70000006".replace(" ", "")) in encoded
    assert bytes.fromhex("00 80 00000137 00000006".replace(" ", "")) in encoded


def test_a_sql_rule_with_an_action_comes_back() -> None:
    """T-11, E-70, E-74: expressions with their compatibility level."""

    async def test(bench: NodeBench) -> None:
        action = {"expression": "SET a = 1"}
        answer = await add(bench, "r", sql_filter={"expression": "color = 'red'"}, sql_rule_action=action)
        assert (status(answer), answer.body) == (200, {})
        _, rule = await rules(bench)
        wanted, acting, name, _ = rule.value
        assert (wanted.descriptor, wanted.value) == (SQL_FILTER, ["color = 'red'", 20])
        assert (acting.descriptor, acting.value) == (SQL_ACTION, ["SET a = 1", 20])
        assert type(wanted.value[1]) is type(acting.value[1]) is Int
        assert name == "r"

    on_a_subscription(test)


def test_true_and_false_are_filters_of_their_own() -> None:
    """E-73: `1=1` and `1=0` read back as such; a rule without any filter selects everything (T-3)."""

    async def test(bench: NodeBench) -> None:
        await add(bench, "yes", sql_filter={"expression": "1=1"})
        await add(bench, "no", sql_filter={"expression": "1=0"})
        await add(bench, "none")
        await add(bench, "acting", sql_rule_action={"expression": "SET a = 1"})
        found = [rule.value[0].descriptor for rule in await rules(bench)]
        assert found == [TRUE_FILTER, TRUE_FILTER, FALSE_FILTER, TRUE_FILTER, TRUE_FILTER]

    on_a_subscription(test)


def test_a_correlation_filter_field_by_field() -> None:
    """T-40: nine fields in their order, null where there is no condition, properties always a map."""

    async def test(bench: NodeBench) -> None:
        await add(bench, "full", correlation_filter={**FULL, "properties": {"a": "b"}})
        await add(bench, "label", correlation_filter={**dict.fromkeys(FULL), "label": "only"})
        _, full, label = (rule.value[0] for rule in await rules(bench))
        assert (full.descriptor, full.value) == (CORRELATION_FILTER, [*FULL.values(), {"a": "b"}])
        assert label.value == [None, None, None, None, "only", None, None, None, {}]

    on_a_subscription(test)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("text", "text"),
        (Symbol("text"), "text"),
        (True, True),
        (False, False),
        (Int(7), Int(7)),
        (Int(-(2**31)), Long(-(2**31))),
        (Long(7), Long(7)),
        (Long(-(2**63)), Long(-(2**63))),
        (UByte(7), Long(7)),
        (Byte(-7), Long(-7)),
        (Short(-7), Long(-7)),
        (UShort(7), Long(7)),
        (UInt(2**32 - 1), Long(2**32 - 1)),
        (ULong(2**63 - 1), Long(2**63 - 1)),
        (0.5, 0.5),
        (Float(0.5), 0.5),
        (math.inf, math.inf),
        (Timestamp(NOW_MS), Timestamp(NOW_MS)),
        (Timestamp(-1), Timestamp(-1)),
        (
            Described(Symbol("com.microsoft:timespan"), Long(-5)),
            Described(Symbol("com.microsoft:timespan"), -5),
        ),
        (Described(Symbol("com.microsoft:datetime-offset"), Long(621_355_968_000_000_000)), Timestamp(0)),
        (Described(Symbol("com.microsoft:uri"), "http://a"), "http://a"),
    ],
    ids=repr,
)
def test_values_of_correlation_filters_keep_their_type(sent: object, kept: object) -> None:
    """T-43, E-64, M-32: what filters can compare comes back as its type, or as the wider one that holds it."""

    async def test(bench: NodeBench) -> None:
        assert status(await add(bench, "r", correlation_filter={"properties": {"p": sent}})) == 200
        found = (await rules(bench))[1].value[0].value[8]["p"]
        assert (type(found), found) == (type(kept), kept) or (
            isinstance(found, Described) and encode_value(found) == encode_value(kept)
        )

    on_a_subscription(test)


# -- lists and names


def test_rules_are_listed_in_pages() -> None:
    """T-11, T-12: `$Default` first, then by name; beyond the end there is nothing (204)."""

    async def test(bench: NodeBench) -> None:
        for name in ("c", "a", "B"):
            await add(bench, name)
        assert await names(bench) == ["$Default", "a", "B", "c"]
        assert await names(bench, top=2) == ["$Default", "a"]
        assert await names(bench, top=2, skip=2) == ["B", "c"]
        assert await names(bench, skip=3) == ["c"]
        assert await names(bench, skip=4) == []
        assert await names(bench, top=0) == []
        assert await names(bench, skip=2**31 - 1) == []

    on_a_subscription(test)


def test_rules_are_removed_by_name_in_any_case() -> None:
    """T-11, E-7: until none is left."""

    async def test(bench: NodeBench) -> None:
        await add(bench, "Mine")
        for name in ("MINE", "$default"):
            answer = await bench.ask(PATH, "remove-rule", {"rule-name": name})
            assert (status(answer), answer.body) == (200, {})
        assert await names(bench) == []

    on_a_subscription(test)


def test_what_is_there_and_what_is_not_are_told() -> None:
    """T-11, ERR-1, ERR-2: 409 for a name that is taken, 404 with the sentence that two clients parse."""

    async def test(bench: NodeBench) -> None:
        taken = await add(bench, "$DEFAULT")
        assert (status(taken), condition(taken)) == (409, "com.microsoft:entity-already-exists")
        missing = await bench.ask(PATH, "remove-rule", {"rule-name": "r"})
        assert (status(missing), condition(missing)) == (404, "amqp:not-found")
        assert f"The messaging entity 'sb://bus/{PATH}/Rules/r' could not be found." in sentence(missing)

    on_a_subscription(test)


@pytest.mark.parametrize("operation", ["add-rule", "remove-rule", "enumerate-rules"])
def test_only_subscriptions_have_rules(operation: str) -> None:
    """E-70, ERR-6: neither queues nor topics; a subscription that is gone is not found."""

    async def test(bench: NodeBench) -> None:
        await bench.queue(QueueDescription("q"))
        body = {"rule-name": "r", "rule-description": {}, **ALL}
        for path in ("q", TOPIC):
            answer = await bench.ask(path, operation, body)
            assert (status(answer), condition(answer)) == (400, "amqp:not-allowed")
            assert "no subscription" in sentence(answer)
        await bench.namespace.delete(PATH)
        assert status(await bench.ask(PATH, operation, body)) == 404

    on_a_subscription(test)


# -- bad requests


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"rule-description": {}},
        {"rule-name": "r"},
        {"rule-name": "r", "rule-description": None},
        {"rule-name": "r", "rule-description": "sql"},
        {"rule-name": "r", "rule-description": {Int(1): {}}},
        {"rule-name": 7, "rule-description": {}},
        {"rule-name": Char("r"), "rule-description": {}},
        {"rule-name": "", "rule-description": {}},
        {"rule-name": "a/b", "rule-description": {}},
        {"rule-name": "x" * 51, "rule-description": {}},
        {"rule-name": "$mine", "rule-description": {}},
        {"rule-name": "a\x00b", "rule-description": {}},
        {"rule-name": "r", "rule-description": {"sql-filter": "color = 'red'"}},
        {"rule-name": "r", "rule-description": {"sql-filter": {}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": None}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": 5}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": ""}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "color ="}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a = " + "1" * 1024}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "(" * 500 + "1=1" + ")" * 500}}},
        {"rule-name": "r", "rule-description": {"sql-filter": {Symbol("expression"): ["1=1"]}}},
        {"rule-name": "r", "rule-description": {"sql-rule-action": {"expression": "SET"}}},
        {"rule-name": "r", "rule-description": {"sql-rule-action": ["SET a = 1"]}},
        {"rule-name": "r", "rule-description": {"correlation-filter": {}}},
        {"rule-name": "r", "rule-description": {"correlation-filter": {"label": 5}}},
        {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": ["a"]}}},
        {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": {Int(1): "a"}}}},
        {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": {"": "a"}}}},
        *(
            {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": {"p": value}}}}
            for value in (
                None,
                b"raw",
                UUID(int=1),
                [1],
                {"a": 1},
                Array([Int(1)], 0x71),
                ULong(2**63),
                Timestamp(2**62),
                Timestamp(-(2**62)),
                Described(Symbol("com.microsoft:datetime-offset"), Long(-1)),
                Described(Symbol("com.microsoft:timespan"), "long"),
                Described(Symbol("unknown"), Long(1)),
            )
        ),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_a_bad_rule_is_refused_and_changes_nothing(body: object) -> None:
    """T-36, T-42, E-3, E-6, E-71, ERR-28: 400 with a condition and a sentence, never 500."""

    async def test(bench: NodeBench) -> None:
        answer = await bench.ask(PATH, "add-rule", body)
        assert status(answer) == 400, sentence(answer)
        assert condition(answer) == "com.microsoft:argument-error"
        assert len(sentence(answer)) < 1_000
        assert await names(bench) == ["$Default"]

    on_a_subscription(test)


@pytest.mark.parametrize(
    "body",
    [{}, {"top": Int(-1), "skip": Int(0)}, {"top": Int(1), "skip": Int(-1)}, {"top": "1", "skip": Int(0)}],
    ids=repr,
)
def test_a_bad_page_is_refused(body: dict[str, object]) -> None:
    """T-11, ERR-7, ERR-8: a bad page is refused, 400."""

    async def test(bench: NodeBench) -> None:
        assert status(await bench.ask(PATH, "enumerate-rules", body)) == 400

    on_a_subscription(test)


def test_a_rule_that_exists_is_named_in_the_words_of_the_service() -> None:
    """ERR-2: programs look for them, and for the rule's name at their end."""

    async def test(bench: NodeBench) -> None:
        assert status(await add(bench, "ruleName", sql_filter={"expression": "a=1"})) == 200
        again = await add(bench, "ruleName", sql_filter={"expression": "a=1"})
        assert status(again) == 409
        assert f"The messaging entity 'sb://bus/{PATH}/Rules/ruleName' already exists." in sentence(again)

    on_a_subscription(test)


def test_rules_are_enumerated_by_name() -> None:
    """T-12: whatever the order in which they were made, on every page, also after changes."""

    async def test(bench: NodeBench) -> None:
        for name in ("sqlRule", "correlationRule", "Zebra", "ant"):
            assert status(await add(bench, name, sql_filter={"expression": "a=1"})) == 200
        assert await names(bench) == ["$Default", "ant", "correlationRule", "sqlRule", "Zebra"]
        assert await names(bench, skip=1, top=2) == ["ant", "correlationRule"]
        assert status(await bench.ask(PATH, "remove-rule", {"rule-name": "ANT"})) == 200
        assert status(await add(bench, "bee", sql_filter={"expression": "a=1"})) == 200
        assert await names(bench) == ["$Default", "bee", "correlationRule", "sqlRule", "Zebra"]
        assert await names(bench, skip=4, top=9) == ["Zebra"]
        assert await names(bench, skip=5, top=9) == []
        description = bench.namespace.description(PATH)
        await bench.namespace.delete(PATH)
        await bench.namespace.create([NewEntity(description)])
        assert await names(bench) == ["$Default"]

    on_a_subscription(test)


def test_filters_have_an_end() -> None:
    """E-72: one more than the topic may have is a quota that is used up."""

    async def test(bench: NodeBench) -> None:
        assert status(await add(bench, "a", sql_filter={"expression": "a=1"})) == 200
        assert status(await add(bench, "b", sql_filter={"expression": "a=1"})) == 403
        assert status(await add(bench, "c", correlation_filter={"label": "l"})) == 200
        assert status(await add(bench, "d", correlation_filter={"label": "l"})) == 403

    limits = Limits(sql_filters_per_topic_max=2, correlation_filters_per_topic_max=1)
    on_a_subscription(test, limits)


def test_a_rule_made_elsewhere_is_told_with_what_this_door_can_say() -> None:
    """E-74, T-11: parameters have no place in the answer; values of every type have."""

    async def test(bench: NodeBench) -> None:
        parameters = (("p", TypedValue("int", 1)),)
        await bench.namespace.rules.add(PATH, Rule("sql", SqlFilter("a = @p", parameters)))
        typed = (
            ("i", TypedValue("int", 5)),
            ("l", TypedValue("long", 5)),
            ("d", TypedValue("duration", 10)),
            ("w", TypedValue("dateTime", 621_355_968_000_000_000)),
        )
        await bench.namespace.rules.add(PATH, Rule("typed", CorrelationFilter(properties=typed)))
        _, sql, other = (rule.value[0] for rule in await rules(bench))
        assert sql.value == ["a = @p", 20]
        values = other.value[8]
        assert (type(values["i"]), type(values["l"]), type(values["w"])) == (Int, Long, Timestamp)
        assert (values["d"].descriptor, values["d"].value) == ("com.microsoft:timespan", 10)

    on_a_subscription(test)
