"""Event hubs in configuration files: the emulator's, and ours."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from busway.broker.namespace.namespace import Namespace
from busway.config.config import parse_config
from busway.config.definition import Definition, apply_config, changes_of, definition_of, exported
from busway.config.node import ConfigError
from busway.config.wishes import hub_definitions
from busway.model.limits import Limits
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import ConsumerGroupDescription, EventHubDescription
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.scene import NamespaceWorld, play

OFFICIAL = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [
                    {"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]},
                    {"Name": "eh2", "PartitionCount": 3, "ConsumerGroups": []},
                ],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}


def ours(*hubs: dict[str, Any], **namespace: Any) -> str:
    entry = {"Name": "bus", "EventHubs": list(hubs), **namespace}
    return json.dumps({"Format": "busway/1", "UserConfig": {"Namespaces": [entry]}})


class Bus(NamespaceWorld):
    def __init__(self) -> None:
        clock = ManualClock()
        stores = [MemoryStore("store-0"), MemoryStore("store-1")]
        self.namespace = Namespace("bus", stores, clock, SeededEntropy(), Limits())
        self.hubs = EventHubs(self.namespace, clock, SeededEntropy(2))

    async def apply(self, text: str) -> None:
        await apply_config(parse_config(text), self.namespace, self.hubs)

    def definition(self) -> Definition:
        return replace(definition_of(self.namespace), hubs=hub_definitions(self.hubs))


def run(work: Callable[[Bus], Awaitable[None]]) -> None:
    play(Bus, work)


def test_the_emulator_s_file_is_taken_as_it_is() -> None:
    """H-2, H-5: the number of partitions in quotes too; $Default is there anyway."""

    async def work(bus: Bus) -> None:
        await bus.apply(json.dumps(OFFICIAL))
        assert [(hub.path, hub.partition_count) for hub in bus.hubs.hubs()] == [("eh1", 2), ("eh2", 3)]
        assert [group.name for group in bus.hubs.groups("eh1")] == ["$Default", "cg1"]
        assert [group.name for group in bus.hubs.groups("eh2")] == ["$Default"]

    run(work)
    config = parse_config(json.dumps(OFFICIAL))
    assert (config.namespace_name, config.log_types) == ("emulatorNs1", frozenset({"File"}))


def test_applying_a_file_again_changes_nothing_and_what_others_made_stays() -> None:
    """H-2: applying a file again changes nothing and what others made stays."""

    async def work(bus: Bus) -> None:
        await bus.hubs.create(EventHubDescription("mine", 1))
        await bus.apply(json.dumps(OFFICIAL))
        await bus.hubs.create_group(ConsumerGroupDescription("eh1", "by-hand"))
        await bus.hubs.update(replace(bus.hubs.description("eh1"), user_metadata="by hand"))
        before = bus.definition()
        assert list(changes_of(parse_config(json.dumps(OFFICIAL)), before).sentences()) == []
        await bus.apply(json.dumps(OFFICIAL))
        assert bus.definition() == before

    run(work)


def test_an_exported_namespace_is_the_same_after_its_import() -> None:
    """H-2, H-40: every property, every group, every rule."""
    hub = {
        "Name": "clicks",
        "Properties": {
            "PartitionCount": 4,
            "RetentionDescription": {"CleanupPolicy": "Compact", "MinCompactionLagTimeInMinutes": 5},
            "Status": "SendDisabled",
            "UserMetadata": "mine",
            "RevokedPublishers": ["p1"],
            "CaptureDescription": {
                "Encoding": "Parquet",
                "IntervalInSeconds": 60,
                "Destination": {"Name": "d"},
            },
            "AuthorizationRules": [{"Name": "r", "Rights": ["Listen"], "PrimaryKey": "k" * 44}],
        },
        "ConsumerGroups": [{"Name": "a", "UserMetadata": "x"}, {"Name": "b"}],
    }
    texts: list[str] = []

    async def first(bus: Bus) -> None:
        await bus.apply(ours(hub))
        texts.append(json.dumps(exported("bus", bus.definition())))

    async def second(bus: Bus) -> None:
        await bus.apply(texts[0])
        assert json.dumps(exported("bus", bus.definition())) == texts[0]
        found = bus.hubs.description("clicks")
        assert (found.partition_count, found.status, found.revoked_publishers) == (4, "SendDisabled", ("p1",))
        assert found.capture is not None
        assert (found.capture.encoding, found.capture.destination) == ("Parquet", "d")

    run(first)
    run(second)


def test_a_hub_in_the_file_is_changed_where_the_file_speaks() -> None:
    """H-2: a hub in the file is changed where the file speaks."""

    async def work(bus: Bus) -> None:
        await bus.apply(ours({"Name": "h", "PartitionCount": 2, "Properties": {"UserMetadata": "kept"}}))
        text = ours({"Name": "h", "Properties": {"PartitionCount": 2, "MessageRetentionInDays": 1}})
        changes = changes_of(parse_config(text), bus.definition())
        assert list(changes.sentences()) == ["change event hub h: RetentionDescription"]
        await bus.apply(text)
        assert bus.hubs.description("h").retention.retention_hours == 24
        text = ours({"Name": "h", "PartitionCount": 2, "Properties": {"Status": "Disabled"}})
        assert list(changes_of(parse_config(text), bus.definition()).sentences()) == [
            "change event hub h: Status"
        ]
        await bus.apply(text)
        found = bus.hubs.description("h")
        assert (found.status, found.user_metadata) == ("Disabled", "kept")

    run(work)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ours({"Name": "h", "Partitions": 3}), "unknown key; did you mean 'PartitionCount'?"),
        (ours({"Name": "h", "PartitionCount": 99}), "('h'): PartitionCount: 99"),
        (ours({"Name": "h"}, {"Name": "H"}), "already used by"),
        (ours({"Name": "h"}, Queues=[{"Name": "H"}]), "already used by another entity"),
        (ours({"Name": "h", "ConsumerGroups": [{}]}), 'ConsumerGroups[0]: the key "Name" is missing'),
        (ours({"Name": "h", "ConsumerGroups": [{"Name": "no good"}]}), "consumer group"),
        (ours({"Name": "h", "Properties": {"Status": 5}}), "Status"),
        ('{"UserConfig": {"NamespaceConfig": [{}, {}]}}', "2 namespaces in one file"),
        ('{"UserConfig": {"NamespaceConfig": [{"Type": "Queue"}]}}', 'only "EventHub" is known'),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, complaint: str) -> None:
    """H-2: before anything is changed."""
    with pytest.raises(ConfigError) as failure:
        parse_config(text)
    assert complaint in str(failure.value)


def test_another_number_of_partitions_is_an_error_before_anything_changes() -> None:
    """H-3: another number of partitions is an error before anything changes."""

    async def work(bus: Bus) -> None:
        await bus.apply(ours({"Name": "h", "PartitionCount": 2}))
        with pytest.raises(ConfigError, match="cannot be changed after creation"):
            await bus.apply(ours({"Name": "h", "PartitionCount": 3}, {"Name": "new"}))
        assert not bus.hubs.exists("new")

    run(work)
