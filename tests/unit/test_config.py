"""The configuration file: the emulator's own, ours, and everything that may be wrong in one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.broker.descriptions import FOREVER_MS, AuthorizationRule, QueueDescription, description_json
from busway.config import Config, ConfigError, apply_config, exported, parse_config, read_config
from tests.unit.broker.namespace_bench import NamespaceBench, on_a_bench

_OFFICIAL = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    },
                    {"Name": "queue.2"},
                ],
                "Topics": [],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def _official(*queues: object, **namespace: object) -> str:
    return json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": list(queues), **namespace}]}})


def _ours(*queues: object, **namespace: object) -> str:
    data = json.loads(_official(*queues, **namespace))
    return json.dumps({"Format": "busway/1", **data})


def _error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    return str(caught.value)


def test_the_official_file_is_taken_as_it_is() -> None:
    """E-28, E-26, E-24: with the emulator's defaults for what is left out."""
    config = parse_config(json.dumps(_OFFICIAL))
    first, second = (wish.description for wish in config.queues)
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


def test_our_format_has_the_defaults_of_every_other_door() -> None:
    """E-20…E-39: the first key selects them, and every property may be set."""
    rules = [{"Name": "r", "Rights": ["Send"]}]
    properties = {"MaxSizeInMegabytes": 2048, "Status": "Disabled", "AuthorizationRules": rules}
    config = parse_config(_ours({"Name": "q", "Properties": properties}, {"Name": "r"}))
    first, second = (wish.description for wish in config.queues)
    assert second == QueueDescription("r")
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
    ('{"UserConfig": {"NamespaceConfig": []}}', "event hubs come with a later version"),
    (_official(Topics=[{"Name": "t"}]), "Namespaces[0].Topics[0]: topics come with a later version"),
    (_ours(EventHubs=[{"Name": "h"}]), "Namespaces[0].EventHubs[0]: event hubs come with a later version"),
    (_official(EventHubs=[]), "Namespaces[0].EventHubs: unknown key"),
    (_official({}), 'Queues[0]: the key "Name" is missing'),
    (_official({"Name": 5}), "Queues[0].Name: a text"),
    (_official({"Name": "a b"}), "Queues[0] ('a b'): The name 'a b'"),
    (_official({"Name": "a"}, {"Name": "A"}), "Queues[1]: the name 'A' is already used by UserConfig"),
    (
        _official({"Name": "a", "Propertys": {}}),
        "Queues[0].Propertys: unknown key; did you mean 'Properties'?",
    ),
    (
        _official({"Name": "a", "Properties": {"LockDurration": "PT1M"}}),
        "UserConfig.Namespaces[0].Queues[0].Properties.LockDurration: unknown key; did you mean 'LockDuration'?",
    ),
    (
        _official({"Name": "a", "Properties": {"lockDuration": "PT1M"}}),
        "did you mean 'LockDuration'?",
    ),
    (_official({"Name": "a", "Properties": {"Colour": 1}}), "known here: LockDuration"),
    (_official({"Name": "a", "Properties": {"Status": "Active"}}), 'begins with "Format": "busway/1"'),
    (
        _official({"Name": "a", "Properties": {"LockDuration": "1 min"}}),
        "Properties.LockDuration: '1 min' is not",
    ),
    (
        _official({"Name": "a", "Properties": {"LockDuration": "PT1S"}}),
        "('a'): LockDuration: PT1S is out of range",
    ),
    (
        _official({"Name": "a", "Properties": {"MaxDeliveryCount": "3"}}),
        "Properties.MaxDeliveryCount: '3' is not",
    ),
    (
        _official({"Name": "a", "Properties": {"RequiresSession": 1}}),
        "Properties.RequiresSession: '1' is not true",
    ),
    (
        _official({"Name": "a", "Properties": {"ForwardTo": "b"}}),
        "ForwardTo: automatic forwarding comes with",
    ),
    (
        _ours({"Name": "a", "Properties": {"EnablePartitioning": True}}),
        "partitioned entities come with a later",
    ),
    (
        _ours({"Name": "a", "Properties": {"AuthorizationRules": [{"Name": "r", "Right": []}]}}),
        "AuthorizationRules[0].Right: unknown key; did you mean 'Rights'?",
    ),
    (
        _ours({"Name": "a", "Properties": {"AuthorizationRules": [{"Name": "r", "Rights": ["Own"]}]}}),
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
                st.text() | st.sampled_from(["UserConfig", "Namespaces", "Queues", "Name", "Properties"]),
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


def test_the_clock_form_of_durations_is_understood() -> None:
    """E-20: people write it into files."""
    config = parse_config(_official({"Name": "a", "Properties": {"LockDuration": "00:00:30"}}))
    assert config.queues[0].description.lock_duration_ms == 30_000


def test_the_server_section_is_handed_on() -> None:
    """E-1: what the command line offers."""
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
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(_OFFICIAL).encode())
    assert len(read_config(file).queues) == 2


def test_applying_a_file_twice_changes_nothing() -> None:
    """E-1: not even the time of the last update; other entities stay."""

    async def test(bench: NamespaceBench) -> None:
        config = parse_config(json.dumps(_OFFICIAL))
        await bench.create("other")
        await apply_config(config, bench.namespace)
        before = bench.namespace.descriptions()
        assert [description.path for description in before] == ["other", "queue.1", "queue.2"]
        version = (await bench.stores[0].catalogue())[0]
        bench.clock.advance(5)
        await apply_config(config, bench.namespace)
        assert bench.namespace.descriptions() == before
        assert (await bench.stores[0].catalogue())[0] == version

    on_a_bench(test)


def test_a_changed_file_updates_what_it_speaks_about() -> None:
    """E-20, E-35: and leaves alone what its format does not know."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("q", status="Disabled", user_metadata="mine", lock_duration_ms=5_000)
        await apply_config(parse_config(_official({"Name": "Q"})), bench.namespace)
        queue = bench.namespace.description("q")
        assert (queue.path, queue.status, queue.user_metadata) == ("q", "Disabled", "mine")
        assert (queue.lock_duration_ms, queue.max_delivery_count) == (60_000, 3)
        await apply_config(parse_config(_ours({"Name": "q"})), bench.namespace)
        assert bench.namespace.description("q").status == "Active"

    on_a_bench(test)


def test_an_unchangeable_property_that_differs_stops_the_file_before_it_changes_anything() -> None:
    """E-23, E-25: the sentence names queue and property."""

    async def test(bench: NamespaceBench) -> None:
        await bench.create("b")
        text = _official({"Name": "a"}, {"Name": "b", "Properties": {"RequiresSession": True}})
        with pytest.raises(
            ConfigError, match=r"'b' exists with RequiresSession = false.*delete the queue first"
        ):
            await apply_config(parse_config(text), bench.namespace)
        assert not bench.namespace.exists("a")

    on_a_bench(test)


def test_rules_in_a_file_keep_the_keys_that_are_there() -> None:
    """A-1, E-37: a key left out is drawn once and stays at the next start."""

    async def test(bench: NamespaceBench) -> None:
        rules = [{"Name": "own", "Rights": ["Listen"]}]
        shared = [{"Name": "shared", "Rights": ["Send"], "PrimaryKey": "given"}]
        text = _ours({"Name": "q", "Properties": {"AuthorizationRules": rules}}, AuthorizationRules=shared)
        for _ in range(2):
            await apply_config(parse_config(text), bench.namespace)
            own = bench.namespace.description("q").authorization_rules
            names = [rule.name for rule in bench.namespace.rules()]
            assert names == ["RootManageSharedAccessKey", "shared"]
        assert bench.namespace.rules()[1].primary_key == "given"
        before = own
        await apply_config(parse_config(text), bench.namespace)
        assert bench.namespace.description("q").authorization_rules == before

    on_a_bench(test)


def test_what_is_exported_can_be_imported() -> None:
    """E-20…E-39: every property and key, into another namespace."""

    async def test(bench: NamespaceBench) -> None:
        rule = AuthorizationRule("own", frozenset({"Listen"}), "", "")
        await bench.create("a", authorization_rules=(rule,), requires_session=True, user_metadata="x")
        await bench.create("b/c", lock_duration_ms=5_500, status="SendDisabled")
        text = json.dumps(exported("bus", bench.namespace.descriptions(), bench.namespace.rules()))

        async def other(second: NamespaceBench) -> None:
            await apply_config(parse_config(text), second.namespace)
            for mine, theirs in zip(
                bench.namespace.descriptions(), second.namespace.descriptions(), strict=True
            ):
                assert _without_times(mine) == _without_times(theirs)
            assert second.namespace.root_key == bench.namespace.root_key

        second = NamespaceBench()
        second.entropy.bytes(3)
        await second.namespace.open()
        await other(second)
        await second.namespace.close()

    on_a_bench(test)


def _without_times(description: QueueDescription) -> dict[str, object]:
    text = json.dumps(description_json(description))
    data: dict[str, object] = json.loads(text, object_hook=_drop_times)
    return data


def _drop_times(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if not key.endswith("AtMs")}
