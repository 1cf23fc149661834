"""The configuration file: the emulator's own, ours, and everything that may be wrong in one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.config.config import Config, parse_config, read_config
from busway.config.definition import Definition, exported
from busway.config.node import ConfigError
from busway.config.wishes import described
from busway.model.descriptions import (
    PROPERTIES,
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.durations import FOREVER_MS
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)
from tests.unit.config_texts import OFFICIAL, official, ours, rule, topic


def _error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return str(caught.value)


def test_the_official_file_is_taken_as_it_is() -> None:
    """E-28, E-26, E-24: with the emulator's defaults for what is left out."""
    config = parse_config(json.dumps(OFFICIAL))
    first, second, topic, subscription, plain = (wish.description for wish in config.entities)
    assert isinstance(first, QueueDescription)
    assert isinstance(second, QueueDescription)
    assert config.namespace_name == "sbemulatorns"
    assert config.log_types == {"File"}
    assert first == QueueDescription(
        "queue.1",
        default_message_time_to_live_ms=3_600_000,
        duplicate_detection_history_time_window_ms=20_000,
        max_delivery_count=3,
    )
    assert second.max_delivery_count == 3
    assert second.default_message_time_to_live_ms == 3_600_000
    assert topic == TopicDescription(
        "topic.1",
        default_message_time_to_live_ms=3_600_000,
        duplicate_detection_history_time_window_ms=20_000,
    )
    assert subscription == SubscriptionDescription(
        "topic.1/Subscriptions/subscription.1",
        default_message_time_to_live_ms=3_600_000,
        max_delivery_count=3,
    )
    assert isinstance(plain, SubscriptionDescription)
    assert (plain.name, plain.max_delivery_count) == ("subscription.2", 3)


def test_the_official_files_rules_are_taken_as_they_are() -> None:
    """E-71, T-40, T-50: correlation filters of both kinds, SQL with an action; none named is none given."""
    config = parse_config(json.dumps(OFFICIAL))
    by_system, by_user, by_sql = config.entities[3].rules or ()
    assert by_system.filter == CorrelationFilter(
        content_type="application/text",
        correlation_id="id1",
        label="subject1",
        message_id="msgid1",
        reply_to="someQueue",
        reply_to_session_id="sessionId",
        session_id="session1",
        to="xyz",
    )
    assert by_user.filter == CorrelationFilter(
        properties=(("color", TypedValue("string", "red")), ("size", TypedValue("long", 5)))
    )
    assert by_sql == Rule(
        "by-sql", SqlFilter("sys.MessageId = '1' AND size > 2"), SqlAction("SET seen = TRUE")
    )
    assert config.entities[4].rules is None


def test_our_format_has_the_defaults_of_every_other_door() -> None:
    """E-20…E-39: the first key selects them, and every property may be set."""
    rules = [{"Name": "r", "Rights": ["Send"]}]
    properties = {"MaxSizeInMegabytes": 2048, "Status": "Disabled", "AuthorizationRules": rules}
    config = parse_config(ours({"Name": "q", "Properties": properties}, {"Name": "r"}))
    first, second = (wish.description for wish in config.entities)
    assert second == QueueDescription("r")
    assert isinstance(first, QueueDescription)
    assert (first.max_size_in_megabytes, first.status) == (2048, "Disabled")
    assert first.authorization_rules == (AuthorizationRule("r", frozenset({"Send"}), "", ""),)
    assert first.default_message_time_to_live_ms == FOREVER_MS


_MISTAKES = [
    ("{", "Line 1, column 2"),
    ("", "Line 1"),
    ("[]", "The file: an object"),
    ("{}", '"UserConfig" is missing'),
    ('{"UserConfig": NaN}', "NaN"),
    ('{"UserConfig": {}, "UserConfig": {}}', "'UserConfig' comes twice"),
    ('{"Userconfig": {}}', "Userconfig: unknown key; did you mean 'UserConfig'?"),
    ('{"UserConfig": []}', "UserConfig: an object"),
    ('{"Format": "busway/2"}', 'Format: this version reads "busway/1" only'),
    ('{"Format": "busway/1", "Server": {"Prot": 1}}', "Server.Prot: unknown key; did you mean 'Port'?"),
    ('{"Format": "busway/1", "Server": {"Port": "1"}}', "Server.Port: a value of type int"),
    ('{"Format": "busway/1", "Server": {"Port": true}}', "Server.Port: a value of type int"),
    ('{"UserConfig": {"Logging": {"Type": "Paper"}}}', "UserConfig.Logging.Type: 'Paper'"),
    ('{"UserConfig": {"Namespaces": {}}}', "UserConfig.Namespaces: a list"),
    ('{"UserConfig": {"Namespaces": [{}, {}]}}', "run one server for each"),
    ('{"UserConfig": {"NamespaceConfig": {}}}', "UserConfig.NamespaceConfig: a list"),
    (topic({"Name": "s", "Rule": []}), "Subscriptions[0].Rule: unknown key; did you mean 'Rules'?"),
    (topic({"Name": "a b"}), "Subscriptions[0]: The name 'a b' of a subscription"),
    (topic({"Name": "a/Subscriptions/b"}), "of a subscription has a character"),
    (topic({"Name": "s"}, {"Name": "S"}), "Subscriptions[1]: the name 't/Subscriptions/S' is already used"),
    (
        topic({"Name": "s", "Properties": {"RequiresDuplicateDetection": True}}),
        "Properties.RequiresDuplicateDetection: unknown key",
    ),
    (topic({"Name": "s", "Properties": {"AuthorizationRules": []}}), "AuthorizationRules: unknown key"),
    (
        official(Topics=[{"Name": "t", "Properties": {"LockDuration": "PT1M"}}]),
        "Topics[0].Properties.LockDuration: unknown key",
    ),
    (
        official({"Name": "t"}, Topics=[{"Name": "T"}]),
        "Topics[0]: the name 'T' is already used by UserConfig.Namespaces[0].Queues[0]",
    ),
    (rule(FilterType="Color"), "Rules[0].Properties.FilterType: 'Color' is not one of Correlation, Sql"),
    (rule(FilterType="True"), "'True' is not one of Correlation, Sql."),
    (rule(FilterType="Sql"), 'Rules[0].Properties: the key "SqlFilter" is missing'),
    (rule(FilterType="Sql", CorrelationFilter={}), 'CorrelationFilter: it does not belong to "FilterType"'),
    (rule(SqlFilter={"SqlExpresion": "1=1"}), "did you mean 'SqlExpression'?"),
    (rule(SqlFilter={"SqlExpression": "color = "}), "Rules[0]: The rule 'r' is not valid. At character"),
    (rule(SqlFilter={"SqlExpression": "1=1", "Parameters": {}}), "Parameters: unknown key"),
    (rule(Action={"SqlExpression": "color = 1"}), "The rule 'r' is not valid."),
    (rule(CorrelationFilter={}), "at least one condition"),
    (rule(CorrelationFilter={"Subject": "x"}), "CorrelationFilter.Subject: unknown key"),
    (rule(CorrelationFilter={"Label": 5}), "CorrelationFilter.Label: a text"),
    (rule(CorrelationFilter={"Properties": {"a": []}}), "Properties.a: a text, a number"),
    (
        rule(CorrelationFilter={"Properties": {"a": 1 << 70}}),
        "Properties.a: the number does not fit into long",
    ),
    (rule(CorrelationFilter={"Properties": {"a": {"Type": "int"}}}), 'both "Type" and "Value"'),
    (
        rule(CorrelationFilter={"Properties": {"a": {"Type": "int", "Value": 1 << 31}}}),
        "Properties.a.Value: the number does not fit into int",
    ),
    (rule(CorrelationFilter={"Properties": {"a": {"Type": "guid", "Value": 1}}}), "'guid' is not one of"),
    (
        rule(CorrelationFilter={"Properties": {"a": {"Type": "int", "Value": "1"}}}),
        "not a value of type int",
    ),
    (
        rule(CorrelationFilter={"Properties": {"a": {"Type": "dateTime", "Value": "soon"}}}),
        "'soon' is not a time such as",
    ),
    (
        rule(CorrelationFilter={"Properties": {"a": {"Type": "duration", "Value": "5"}}}),
        "'5' is not a duration such as",
    ),
    (
        topic({"Name": "s", "Rules": [{"Name": "r"}, {"Name": "R"}]}),
        "Rules[1]: the rule 'R' is there already",
    ),
    (topic({"Name": "s", "Rules": [{}]}), 'Rules[0]: the key "Name" is missing'),
    (ours(EventHubs=[{}]), 'Namespaces[0].EventHubs[0]: the key "Name" is missing'),
    (official(EventHubs=[]), "Namespaces[0].EventHubs: unknown key"),
    (official({}), 'Queues[0]: the key "Name" is missing'),
    (official({"Name": 5}), "Queues[0].Name: a text"),
    (official({"Name": "a b"}), "Queues[0] ('a b'): The name 'a b'"),
    (official({"Name": "a"}, {"Name": "A"}), "Queues[1]: the name 'A' is already used by UserConfig"),
    (
        official({"Name": "a", "Propertys": {}}),
        "Queues[0].Propertys: unknown key; did you mean 'Properties'?",
    ),
    (
        official({"Name": "a", "Properties": {"LockDurration": "PT1M"}}),
        "UserConfig.Namespaces[0].Queues[0].Properties.LockDurration: unknown key; did you mean 'LockDuration'?",
    ),
    (
        official({"Name": "a", "Properties": {"lockDuration": "PT1M"}}),
        "did you mean 'LockDuration'?",
    ),
    (official({"Name": "a", "Properties": {"Colour": 1}}), "known here: LockDuration"),
    (official({"Name": "a", "Properties": {"Status": "Active"}}), 'begins with "Format": "busway/1"'),
    (
        official({"Name": "a", "Properties": {"LockDuration": "1 min"}}),
        "Properties.LockDuration: '1 min' is not",
    ),
    (
        official({"Name": "a", "Properties": {"LockDuration": "PT1S"}}),
        "('a'): LockDuration: PT1S is out of range",
    ),
    (
        official({"Name": "a", "Properties": {"MaxDeliveryCount": "3"}}),
        "Properties.MaxDeliveryCount: '3' is not",
    ),
    (
        official({"Name": "a", "Properties": {"RequiresSession": 1}}),
        "Properties.RequiresSession: '1' is not true",
    ),
    (
        ours({"Name": "a", "Properties": {"EnablePartitioning": "yes"}}),
        "Properties.EnablePartitioning: 'yes' is not true or false",
    ),
    (
        ours({"Name": "a", "Properties": {"AuthorizationRules": [{"Name": "r", "Right": []}]}}),
        "AuthorizationRules[0].Right: unknown key; did you mean 'Rights'?",
    ),
    (
        ours({"Name": "a", "Properties": {"AuthorizationRules": [{"Name": "r", "Rights": ["Own"]}]}}),
        "needs one or more of the rights",
    ),
    ("[" * 100_000, "no plain JSON"),
]


@pytest.mark.parametrize(("text", "part"), _MISTAKES, ids=[part[:40] for _, part in _MISTAKES])
def test_a_mistake_is_named_with_its_place(text: str, part: str) -> None:
    """E-6, E-20: the path of the wrong key, and the nearest known one."""
    sentence = _error(text)
    assert part in sentence
    assert len(sentence) < 1_000


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.text()
                | st.sampled_from(
                    [
                        "UserConfig",
                        "Namespaces",
                        "Queues",
                        "Topics",
                        "Subscriptions",
                        "Rules",
                        "Name",
                        "Properties",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_config_or_a_clear_refusal(value: object) -> None:
    """E-6: no file makes the reader fail in another way."""
    try:
        config = parse_config(json.dumps(value))
    except ConfigError:
        return
    assert isinstance(config, Config)


def test_the_emulators_shortest_windows_become_ours(caplog: pytest.LogCaptureFixture) -> None:
    """E-24: a file that the emulator takes is taken, and what it became is said; ours says what it means."""
    text = {"Name": "a", "Properties": {"DuplicateDetectionHistoryTimeWindow": "PT5S"}}
    queue = parse_config(official(text)).entities[0].description
    assert isinstance(queue, QueueDescription)
    assert queue.duplicate_detection_history_time_window_ms == 20_000
    assert "Queues[0]: DuplicateDetectionHistoryTimeWindow is PT20S" in caplog.text
    assert "between PT20S and P7D" in _error(ours(text))


def test_a_schema_for_editors_is_passed_over() -> None:
    """E-1: a schema for editors is passed over."""
    assert parse_config('{"$schema": "x", "UserConfig": {}}') == Config()


def test_the_clock_form_of_durations_is_understood() -> None:
    """E-20: people write it into files."""
    config = parse_config(official({"Name": "a", "Properties": {"LockDuration": "00:00:30"}}))
    queue = config.entities[0].description
    assert isinstance(queue, QueueDescription)
    assert queue.lock_duration_ms == 30_000


def test_the_server_section_is_handed_on() -> None:
    """Configuration: what the command line offers."""
    text = '{"Format": "busway/1", "Server": {"Port": 0, "Store": ["sqlite:a"], "DevKey": true}}'
    assert parse_config(text).server == {"Port": 0, "Store": ["sqlite:a"], "DevKey": True}


def test_a_file_is_read_with_its_name_in_every_complaint(tmp_path: Path) -> None:
    """E-6: missing, not text, not JSON; a byte order mark is no mistake."""
    file = tmp_path / "Config.json"
    for content, part in ((None, "cannot be read"), (b"\xff\xfe", "not UTF-8"), (b"{", "Line 1")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigError, match=part) as caught:
            read_config(file)
        assert str(file) in str(caught.value)
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(OFFICIAL).encode())
    assert len(read_config(file).entities) == 5


_TYPED = st.one_of(
    st.builds(TypedValue, st.just("string"), st.text(max_size=5)),
    st.builds(TypedValue, st.just("int"), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.builds(TypedValue, st.just("long"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(TypedValue, st.just("boolean"), st.booleans()),
    st.builds(TypedValue, st.just("double"), st.floats(allow_nan=False)),
    st.builds(TypedValue, st.just("dateTime"), st.integers(0, 3_155_378_975_999_999_999), st.booleans()),
    st.builds(TypedValue, st.just("duration"), st.integers(-(1 << 63), (1 << 63) - 1)),
)
_PAIRS = st.dictionaries(st.text(min_size=1, max_size=5), _TYPED, max_size=3).map(
    lambda named: tuple(named.items())
)
_ACTIONS = st.none() | st.just(SqlAction("SET a = 1"))
_FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(
        SqlFilter, st.sampled_from(["a = 1", "b LIKE 'x%'"]), st.just(()), st.integers(1, 30), st.booleans()
    ),
    st.builds(
        CorrelationFilter,
        label=st.text(max_size=5),
        to=st.none() | st.text(max_size=5),
        properties=_PAIRS,
    ),
)


@given(st.lists(st.builds(Rule, st.just(""), _FILTERS, _ACTIONS), max_size=4))
def test_rules_read_back_as_they_were_written(rules: list[Rule]) -> None:
    """E-64, E-74: every kind of filter, and every value with its type."""
    named = tuple(replace(rule, name=f"r{index}") for index, rule in enumerate(rules))
    description = SubscriptionDescription("t/Subscriptions/s")
    definition = Definition(
        {"t": TopicDescription("t"), "t/subscriptions/s": description}, {"t/subscriptions/s": named}
    )
    config = parse_config(json.dumps(exported("bus", definition)))
    assert config.entities[1].description == description
    assert config.entities[1].rules == named


_VALUES: dict[str, st.SearchStrategy[object]] = {
    "lock_duration_ms": st.integers(5_000, 300_000),
    "max_size_in_megabytes": st.sampled_from([1024, 2048, 5120]),
    "max_message_size_in_kilobytes": st.just(256),
    "duplicate_detection_history_time_window_ms": st.integers(20_000, 7 * 86_400_000),
    "default_message_time_to_live_ms": st.integers(1_000, FOREVER_MS),
    "auto_delete_on_idle_ms": st.integers(300_000, FOREVER_MS),
    "max_delivery_count": st.integers(1, 2_147_483_647),
    "enable_partitioning": st.just(False),
    "enable_express": st.just(False),
    "forward_to": st.just(None),
    "forward_dead_lettered_messages_to": st.just(None),
    "status": st.sampled_from(["Active", "Disabled"]),
    "user_metadata": st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), min_size=1),
}


@given(st.data())
def test_every_property_reads_back_as_it_was_written(data: st.DataObject) -> None:
    """E-20…E-64: of queues, topics and subscriptions."""
    entities: dict[str, Description] = {}
    usual = (QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t/Subscriptions/s"))
    for description in usual:
        fields = [entry.field for entry in PROPERTIES[type(description)]]
        values = {name: data.draw(_VALUES.get(name, st.booleans()), name) for name in fields}
        entities[description.path.lower()] = described(description, values)
    config = parse_config(json.dumps(exported("bus", Definition(entities))))
    assert [wish.description for wish in config.entities] == list(entities.values())
