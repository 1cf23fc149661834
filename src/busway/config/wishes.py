"""What a configuration file wants of one entity, and of one event hub; keys laid over those that are there.

Event hubs are those of the Event Hubs emulator's file (`NamespaceConfig`), and ours (`EventHubs` beside `Queues`),
with every property and the consumer groups. What a file wants of them is compared with what is there, as
`definition.changes_of` does it for queues and topics: nothing is changed that the file does not speak about, a
second run changes nothing, and a number of partitions that differs is an error before anything is changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from busway.config.node import ConfigError, Node
from busway.model.descriptions import (
    AuthorizationRule,
    Description,
    QueueDescription,
    TopicDescription,
    with_values,
)
from busway.model.entity_path import path_key
from busway.model.errors import BadArgument, BrokerError
from busway.model.json_rows import Json
from busway.model.limits import Limits
from busway.rules.rule import Rule
from busway.streams.hub_descriptions import (
    DEFAULT_GROUP,
    HUB_PROPERTIES,
    ConsumerGroupDescription,
    EventHubDescription,
    changed_hub,
    check_group,
    check_hub,
    hub_properties,
)


@dataclass(frozen=True)
class Wish:
    """An entity as the file wants it; `fields` are those that the file speaks about."""

    description: Description
    fields: frozenset[str]
    #: Of a subscription. None: the file says nothing about them.
    rules: tuple[Rule, ...] | None = None


def described(description: Description, values: Mapping[str, object]) -> Description:
    """The description with some fields set to values that were checked before."""
    if isinstance(description, QueueDescription):
        return with_values(description, values)
    if isinstance(description, TopicDescription):
        return with_values(description, values)
    return with_values(description, values)


def merged_keys(
    present: tuple[AuthorizationRule, ...], wanted: tuple[AuthorizationRule, ...]
) -> tuple[AuthorizationRule, ...]:
    """The file's rules in the place of those of the same name, new ones behind; others stay. A key that the
    file leaves out stays as it is."""
    named = {path_key(rule.name): rule for rule in wanted}
    kept = [_overlaid(rule, named.pop(path_key(rule.name), rule)) for rule in present]
    return (*kept, *named.values())


def _overlaid(known: AuthorizationRule, wanted: AuthorizationRule) -> AuthorizationRule:
    return replace(
        wanted,
        name=known.name,
        primary_key=wanted.primary_key or known.primary_key,
        secondary_key=wanted.secondary_key or known.secondary_key,
        created_at_ms=known.created_at_ms,
        modified_at_ms=known.modified_at_ms,
    )


_HUB_KEYS: Final = ("Name", "PartitionCount", "Properties", "ConsumerGroups")
_OFFICIAL_KEYS: Final = ("Name", "PartitionCount", "ConsumerGroups")
_NAMESPACE_KEYS: Final = ("Type", "Name", "Entities")

ReadRules = Callable[[Node, Limits], tuple[AuthorizationRule, ...]]


@dataclass(frozen=True)
class HubWish:
    """A hub as the file wants it: what it says, under the outside names."""

    path: str
    said: Mapping[str, object]
    rules: tuple[AuthorizationRule, ...] | None
    groups: tuple[ConsumerGroupDescription, ...]
    place: str

    def description(self, present: EventHubDescription | None = None) -> EventHubDescription:
        """What the file does not speak about is as it is there, or has its default."""
        wanted = changed_hub(present or EventHubDescription(self.path), self.said)
        return wanted if self.rules is None else replace(wanted, authorization_rules=self.rules)


@dataclass(frozen=True)
class HubDefinition:
    description: EventHubDescription
    groups: tuple[ConsumerGroupDescription, ...]


@dataclass(frozen=True)
class HubChange:
    """A hub that is to be created, or (with `present`) changed, and the groups it still lacks."""

    wanted: EventHubDescription
    groups: tuple[ConsumerGroupDescription, ...]
    present: EventHubDescription | None = None

    def sentences(self) -> Iterator[str]:
        if self.present is None:
            yield f"create event hub {self.wanted.path} with {self.wanted.partition_count} partitions"
            return
        have, want = hub_properties(self.present), hub_properties(self.wanted)
        names = [name for name in {**have, **want} if have.get(name) != want.get(name)]
        if self.present.authorization_rules != self.wanted.authorization_rules:
            names.append("AuthorizationRules")
        if names:
            yield f"change event hub {self.wanted.path}: {', '.join(names)}"
        for group in self.groups:
            yield f"create consumer group {group.name} of {self.wanted.path}"


class ConfiguredHubs(Protocol):
    """What the hubs of a file are applied to."""

    def hubs(self) -> list[EventHubDescription]: ...
    def groups(self, path: str) -> list[ConsumerGroupDescription]: ...
    async def create(
        self, wanted: EventHubDescription, groups: Sequence[ConsumerGroupDescription] = ()
    ) -> EventHubDescription: ...
    async def update(self, wanted: EventHubDescription) -> EventHubDescription: ...
    async def create_group(self, wanted: ConsumerGroupDescription) -> ConsumerGroupDescription: ...


def read_emulator_hubs(node: Node, limits: Limits, read_rules: ReadRules) -> tuple[str | None, list[HubWish]]:
    """(name of the namespace, hubs) of the Event Hubs emulator's `NamespaceConfig`."""
    namespaces = node.entries()
    if len(namespaces) > 1:
        raise node.error(
            f"{len(namespaces)} namespaces in one file; one server holds one namespace, so split the file and run one"
            " server for each"
        )
    name: str | None = None
    wishes: list[HubWish] = []
    for namespace in namespaces:
        members = namespace.members(_NAMESPACE_KEYS)
        if "Type" in members and members["Type"].text().lower() != "eventhub":
            raise members["Type"].error('only "EventHub" is known')
        name = members["Name"].text() if "Name" in members else None
        if "Entities" in members:
            wishes += read_hubs(members["Entities"], False, limits, read_rules)
    return name, wishes


def read_hubs(node: Node, is_ours: bool, limits: Limits, read_rules: ReadRules) -> list[HubWish]:
    wishes = [_wish(entry, is_ours, limits, read_rules) for entry in node.entries()]
    places: dict[str, str] = {}
    for wish in wishes:
        first = places.setdefault(path_key(wish.path), wish.place)
        if first != wish.place:
            raise ConfigError(f"{wish.place}: the name '{wish.path[:60]}' is already used by {first}.")
    return wishes


def _wish(node: Node, is_ours: bool, limits: Limits, read_rules: ReadRules) -> HubWish:
    members = node.members(_HUB_KEYS if is_ours else _OFFICIAL_KEYS)
    if "Name" not in members:
        raise node.error('the key "Name" is missing')
    path = members["Name"].text()
    said: Json = {"PartitionCount": members["PartitionCount"].value} if "PartitionCount" in members else {}
    rules: tuple[AuthorizationRule, ...] | None = None
    if "Properties" in members:
        for name, member in members["Properties"].members(HUB_PROPERTIES).items():
            if name == "AuthorizationRules":
                rules = read_rules(member, limits)
            else:
                said[name] = member.value
    groups = members["ConsumerGroups"].entries() if "ConsumerGroups" in members else []
    wish = HubWish(path, said, rules, tuple(_group(entry, path, limits) for entry in groups), node.path)
    try:
        check_hub(replace(wish.description(), authorization_rules=()), limits)
    except BrokerError as error:
        raise ConfigError(f"{node.path} ('{path[:60]}'): {error.sentence}") from error
    return wish


def _group(node: Node, hub_path: str, limits: Limits) -> ConsumerGroupDescription:
    members = node.members(("Name", "UserMetadata"))
    if "Name" not in members:
        raise node.error('the key "Name" is missing')
    metadata = members["UserMetadata"].value if "UserMetadata" in members else None
    group = ConsumerGroupDescription(hub_path, members["Name"].text(), str(metadata) if metadata else None)
    try:
        check_group(group, limits)
    except BrokerError as error:
        raise ConfigError(f"{node.path}: {error.sentence}") from error
    return group


# -- what is to be changed


def hub_definitions(hubs: ConfiguredHubs) -> dict[str, HubDefinition]:
    return {path_key(hub.path): HubDefinition(hub, tuple(hubs.groups(hub.path))) for hub in hubs.hubs()}


def hub_changes(wishes: Sequence[HubWish], present: Mapping[str, HubDefinition]) -> list[HubChange]:
    """Raises ConfigError for what the file wants and cannot have."""
    changes: list[HubChange] = []
    for wish in wishes:
        known = present.get(path_key(wish.path))
        if known is None:
            changes.append(HubChange(wish.description(), wish.groups))
            continue
        change = _update(wish, known)
        if list(change.sentences()):
            changes.append(change)
    return changes


def _update(wish: HubWish, known: HubDefinition) -> HubChange:
    try:
        wanted = wish.description(known.description)
    except BadArgument as error:
        raise ConfigError(f"{wish.place}: {error.sentence}") from error
    have, want = known.description.partition_count, wanted.partition_count
    if have != want:
        raise ConfigError(
            f"The event hub '{known.description.path}' exists with {have} partitions, and the file wants {want}. The"
            " number of partitions cannot be changed after creation: delete the event hub first, or change the file."
        )
    names = {path_key(group.name) for group in known.groups}
    lacking = tuple(group for group in wish.groups if path_key(group.name) not in names)
    keys = merged_keys(known.description.authorization_rules, wanted.authorization_rules)
    return HubChange(replace(wanted, authorization_rules=keys), lacking, known.description)


async def apply_hub_changes(changes: Sequence[HubChange], hubs: ConfiguredHubs) -> None:
    for change in changes:
        if change.present is None:
            await hubs.create(change.wanted, change.groups)
            continue
        if change.wanted != change.present:
            await hubs.update(change.wanted)
        for group in change.groups:
            await hubs.create_group(group)


# -- export


def written_hub(
    hub: HubDefinition, write_rules: Callable[[tuple[AuthorizationRule, ...]], list[Json]]
) -> Json:
    """As our format has it, with every property."""
    description = hub.description
    rules = write_rules(description.authorization_rules)
    groups = [
        {"Name": group.name, **({"UserMetadata": group.user_metadata} if group.user_metadata else {})}
        for group in hub.groups
        if path_key(group.name) != path_key(DEFAULT_GROUP) or group.user_metadata
    ]
    return {
        "Name": description.path,
        "Properties": {**hub_properties(description), "AuthorizationRules": rules},
        "ConsumerGroups": groups,
    }
