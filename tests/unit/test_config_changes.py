"""What a configuration file makes of a namespace."""

import json
from dataclasses import replace

import pytest

from busway.config.config import parse_config
from busway.config.definition import apply_config, changes_of, definition_of, exported
from busway.config.node import ConfigError
from busway.model.descriptions import (
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    description_json,
)
from busway.rules.rule import Rule, SqlFilter, TrueFilter
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench
from tests.unit.config_texts import OFFICIAL, official, ours


def test_applying_a_file_twice_changes_nothing() -> None:
    """E-1, E-64: not even the time of the last update; other entities stay."""

    async def test(bench: NamespaceBench) -> None:
        config = parse_config(json.dumps(OFFICIAL))
        await bench.create("other")
        await apply_config(config, bench.namespace)
        before = definition_of(bench.namespace)
        paths = [description.path for description in before.entities.values()]
        assert paths[:4] == ["other", "queue.1", "queue.2", "topic.1"]
        rules = bench.namespace.rules.of("topic.1/Subscriptions/subscription.1")
        assert [rule.name for rule in rules] == ["by-system", "by-user", "by-sql"]
        rules = bench.namespace.rules.of("topic.1/Subscriptions/subscription.2")
        assert [(rule.name, rule.filter) for rule in rules] == [("$Default", TrueFilter())]
        version = (await bench.stores[0].catalogue())[0]
        bench.clock.advance(5)
        await apply_config(config, bench.namespace)
        assert definition_of(bench.namespace) == before
        assert (await bench.stores[0].catalogue())[0] == version

    on_a_bench(test)


def test_a_changed_file_updates_what_it_speaks_about() -> None:
    """E-20, E-35: and leaves alone what its format does not know."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q", status="Disabled", user_metadata="mine", lock_duration_ms=5_000)
        await apply_config(parse_config(official({"Name": "Q"})), bench.namespace)
        queue = bench.namespace.description("q")
        assert isinstance(queue, QueueDescription)
        assert (queue.path, queue.status, queue.user_metadata) == ("q", "Disabled", "mine")
        assert (queue.lock_duration_ms, queue.max_delivery_count) == (60_000, 3)
        await apply_config(parse_config(ours({"Name": "q"})), bench.namespace)
        assert bench.namespace.description("q").status == "Active"

    on_a_bench(test)


def _with_rules(*rules: object, **properties: object) -> str:
    subscription = {"Name": "s", "Properties": properties, "Rules": list(rules)}
    return ours(Topics=[{"Name": "t", "Subscriptions": [subscription]}])


def _sql(name: str, expression: str) -> object:
    return {"Name": name, "Properties": {"SqlFilter": {"SqlExpression": expression}}}


def test_rules_are_brought_to_what_the_file_says_and_others_stay() -> None:
    """E-64, E-70: by name; `$Default` is not made when the file names the first rules."""

    async def test(bench: NamespaceBench) -> None:
        namespace = bench.namespace
        path = "t/Subscriptions/s"
        await apply_config(parse_config(_with_rules(_sql("a", "x = 1"))), namespace)
        assert [rule.name for rule in namespace.rules.of(path)] == ["a"]
        await namespace.rules.add(path, Rule("mine", TrueFilter()))
        await apply_config(parse_config(_with_rules(_sql("A", "x = 2"), _sql("b", "y = 1"))), namespace)
        rules = {rule.name: rule.filter for rule in namespace.rules.of(path)}
        assert rules == {"a": SqlFilter("x = 2"), "mine": TrueFilter(), "b": SqlFilter("y = 1")}

    on_a_bench(test)


def test_an_empty_list_of_rules_is_none_in_our_format_and_everything_in_the_emulators() -> None:
    """T-5, E-64: an empty list of rules is none in our format and everything in the emulators."""

    async def test(bench: NamespaceBench) -> None:
        await apply_config(parse_config(_with_rules()), bench.namespace)
        assert bench.namespace.rules.of("t/Subscriptions/s") == []
        await apply_config(parse_config(_with_rules()), bench.namespace)
        await apply_config(
            parse_config(official(Topics=[{"Name": "o", "Subscriptions": [{"Name": "s", "Rules": []}]}])),
            bench.namespace,
        )
        rules = bench.namespace.rules.of("o/Subscriptions/s")
        assert [rule.name for rule in rules] == ["$Default"]

    on_a_bench(test)


def test_a_forwarding_subscription_in_a_file_is_not_changed_again_and_again() -> None:
    """E-112: what the namespace makes of AutoDeleteOnIdle is what the file wants."""

    async def test(bench: NamespaceBench) -> None:
        text = ours(
            {"Name": "q"},
            Topics=[
                {
                    "Name": "t",
                    "Subscriptions": [
                        {"Name": "s", "Properties": {"ForwardTo": "q", "AutoDeleteOnIdle": "PT5M"}}
                    ],
                }
            ],
        )
        await apply_config(parse_config(text), bench.namespace)
        assert changes_of(parse_config(text), definition_of(bench.namespace)).count == 0

    on_a_bench(test)


def test_a_forward_to_nowhere_stops_the_file_before_it_changes_anything() -> None:
    """F-2: in the file or in the namespace, a queue or a topic; the order in the file is free."""

    async def test(bench: NamespaceBench) -> None:
        forwards = ours({"Name": "a", "Properties": {"ForwardTo": "later"}}, {"Name": "later"})
        await apply_config(parse_config(forwards), bench.namespace)
        text = ours({"Name": "b"}, {"Name": "c", "Properties": {"ForwardTo": "nowhere"}})
        with pytest.raises(ConfigError, match="'c' has ForwardTo = 'nowhere'"):
            await apply_config(parse_config(text), bench.namespace)
        assert not bench.namespace.exists("b")

    on_a_bench(test)


def test_a_name_of_another_kind_stops_the_file() -> None:
    """E-7: queues and topics share their names."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("x")
        with pytest.raises(ConfigError, match="'x' exists and is a queue; the file wants a topic"):
            await apply_config(parse_config(ours(Topics=[{"Name": "x"}])), bench.namespace)

    on_a_bench(test)


def test_an_unchangeable_property_that_differs_stops_the_file_before_it_changes_anything() -> None:
    """E-23, E-25: the sentence names the entity and the property."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("b")
        text = official({"Name": "a"}, {"Name": "b", "Properties": {"RequiresSession": True}})
        with pytest.raises(
            ConfigError, match=r"'b' exists with RequiresSession = false.*delete the queue first"
        ):
            await apply_config(parse_config(text), bench.namespace)
        assert not bench.namespace.exists("a")

    on_a_bench(test)


def test_rules_in_a_file_keep_the_keys_that_are_there() -> None:
    """A-1, E-37: a key left out is drawn once and stays at the next start; topics as queues."""

    async def test(bench: NamespaceBench) -> None:
        properties = {"AuthorizationRules": [{"Name": "own", "Rights": ["Listen"]}]}
        shared = [{"Name": "shared", "Rights": ["Send"], "PrimaryKey": "given"}]
        text = ours(
            {"Name": "q", "Properties": properties},
            AuthorizationRules=shared,
            Topics=[{"Name": "t", "Properties": properties}],
        )
        await apply_config(parse_config(text), bench.namespace)
        before = [_keys(bench.namespace.description(path)) for path in ("q", "t")]
        await apply_config(parse_config(text), bench.namespace)
        assert [_keys(bench.namespace.description(path)) for path in ("q", "t")] == before
        assert all(rule.primary_key for rules in before for rule in rules)
        assert [rule.name for rule in bench.namespace.access.rules()] == [
            "RootManageSharedAccessKey",
            "shared",
        ]
        assert bench.namespace.access.rules()[1].primary_key == "given"

    on_a_bench(test)


def _keys(description: Description) -> tuple[AuthorizationRule, ...]:
    assert not isinstance(description, SubscriptionDescription)
    return description.authorization_rules


def test_changes_are_told_in_sentences_without_keys() -> None:
    """A-1: what an import is about to do."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q", lock_duration_ms=5_000)
        secret = [{"Name": "r", "Rights": ["Send"], "PrimaryKey": "hush"}]
        text = ours(
            {"Name": "q", "Properties": {"AuthorizationRules": secret, "UserMetadata": "x"}},
            {"Name": "new"},
            AuthorizationRules=secret,
        )
        changes = changes_of(parse_config(text), definition_of(bench.namespace))
        assert list(changes.sentences()) == [
            "create queue new",
            "change queue q: LockDuration PT5S → PT1M, UserMetadata none → x, AuthorizationRules",
            "set the namespace's authorization rules: RootManageSharedAccessKey, r",
        ]

    on_a_bench(test)


def test_what_is_exported_can_be_imported() -> None:
    """E-20…E-64: every property, rule and key, into another namespace."""

    async def test(bench: NamespaceBench) -> None:
        rule = AuthorizationRule("own", frozenset({"Listen"}), "", "")
        await bench.create("a", authorization_rules=(rule,), requires_session=True, user_metadata="x")
        await bench.create("b/c", lock_duration_ms=5_500, status="SendDisabled", forward_to="a")
        await apply_config(parse_config(json.dumps(OFFICIAL)), bench.namespace)
        definition = definition_of(bench.namespace)
        text = json.dumps(exported("bus", definition))
        second = NamespaceBench()
        second.entropy.bytes(3)
        await second.namespace.open()
        await apply_config(parse_config(text), second.namespace)
        theirs = definition_of(second.namespace)
        assert theirs.entities.keys() == definition.entities.keys()
        for key, mine in definition.entities.items():
            assert _without_times(mine) == _without_times(theirs.entities[key])
        assert {
            key: [replace(each, created_at_ms=0) for each in found] for key, found in theirs.rules.items()
        } == {
            key: [replace(each, created_at_ms=0) for each in found] for key, found in definition.rules.items()
        }
        assert second.namespace.access.root_key == bench.namespace.access.root_key
        await second.namespace.close()

    on_a_bench(test)


def test_an_export_without_keys_has_none() -> None:
    """A-1: an export without keys has none."""

    async def test(bench: NamespaceBench) -> None:
        definition = definition_of(bench.namespace)
        text = json.dumps(exported("bus", definition, with_keys=False))
        assert bench.namespace.access.root_key not in text
        assert changes_of(parse_config(text), definition).count == 0

    on_a_bench(test)


def _without_times(description: Description) -> dict[str, object]:
    text = json.dumps(description_json(description))
    data: dict[str, object] = json.loads(text, object_hook=_drop_times)
    return data


def _drop_times(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if not key.endswith("AtMs")}
