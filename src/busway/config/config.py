"""The configuration file: the official emulator's Config.json as it is, and our superset of it.

`"Format": "busway/1"` at the root makes a file ours: then every property may be set and a missing one has the
default that holds everywhere else; without it only the emulator's keys exist, with the emulator's defaults.

A file is read and checked whole before anything is changed. Applying it again changes nothing; entities that
were made otherwise stay. A file of the emulator's format says nothing about properties it does not know
(Status, keys …), so those are left alone.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from busway.config.node import ConfigError, Node
from busway.config.rules import read_rules
from busway.config.wishes import HubWish, Wish, described, read_emulator_hubs, read_hubs
from busway.model.description_checks import check_creation, check_rules, default_queue, default_topic
from busway.model.descriptions import (
    PROPERTIES,
    PROPERTY_OF,
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    property_value,
)
from busway.model.entity_path import check_name, path_key, subscription_path
from busway.model.errors import BrokerError
from busway.model.limits import Limits

_log = logging.getLogger("busway.config.config")

OUR_FORMAT: Final = "busway/1"
#: `$schema` is for editors.
_OFFICIAL_ROOT: Final = ("UserConfig", "$schema")
_OUR_ROOT: Final = ("Format", "UserConfig", "Server", "$schema")
_USER_CONFIG: Final = ("Namespaces", "Logging")
#: The Event Hubs emulator's spelling.
_EVENT_HUBS_CONFIG: Final = ("NamespaceConfig", "LoggingConfig")
_OFFICIAL_NAMESPACE: Final = ("Name", "Queues", "Topics")
_OUR_NAMESPACE: Final = ("Name", "Queues", "Topics", "EventHubs", "AuthorizationRules")
_RULE_KEYS: Final = (
    "Name",
    "Rights",
    "PrimaryKey",
    "SecondaryKey",
    "ClaimType",
    "ClaimValue",
    "CreatedAtMs",
    "ModifiedAtMs",
)
_LOG_TYPES: Final = ("File", "Console")
_NAMESPACE_NAME_CHARACTERS_MAX: Final = 50
#: The emulator's properties and their defaults.
_OFFICIAL_TOPIC: Final[Mapping[str, object]] = {
    "DefaultMessageTimeToLive": "PT1H",
    "DuplicateDetectionHistoryTimeWindow": "PT20S",
    "RequiresDuplicateDetection": False,
}
_OFFICIAL_SUBSCRIPTION: Final[Mapping[str, object]] = {
    "DeadLetteringOnMessageExpiration": False,
    "DefaultMessageTimeToLive": "PT1H",
    "ForwardDeadLetteredMessagesTo": "",
    "ForwardTo": "",
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 3,
    "RequiresSession": False,
}
_OFFICIAL_DEFAULTS: Final[Mapping[type[Description], Mapping[str, object]]] = {
    QueueDescription: {**_OFFICIAL_SUBSCRIPTION, **_OFFICIAL_TOPIC},
    TopicDescription: _OFFICIAL_TOPIC,
    SubscriptionDescription: _OFFICIAL_SUBSCRIPTION,
}
#: The emulator takes windows from 5 s on, the service from 20 s on (E-24).
_WINDOW: Final = "duplicate_detection_history_time_window_ms"
_EMULATOR_WINDOW_MS_MIN: Final = 5_000
_WINDOW_MS_MIN: Final = 20_000
_ENTITY_KEYS: Final[Mapping[type[Description], tuple[str, ...]]] = {
    QueueDescription: ("Name", "Properties"),
    TopicDescription: ("Name", "Properties", "Subscriptions"),
    SubscriptionDescription: ("Name", "Properties", "Rules"),
}
#: What the command line offers, and the type of its value.
_SERVER_KEYS: Final[Mapping[str, type]] = {
    "Data": str,
    "Host": str,
    "Port": int,
    "Stores": int,
    "Store": list,
    "PartitionCount": int,
    "NamespacePartitions": int,
    "FetchBytesMax": int,
    "ConnectionsBytesMax": int,
    "BulkBytesMax": int,
    "PublishCopiesMax": int,
    "StagingBytesMax": int,
    "StagingHours": int,
    "Node": str,
    "Lease": int,
    "DevKey": bool,
    "AllowReset": bool,
    "ReadyFile": str,
    "TlsCert": str,
    "TlsKey": str,
    "KeyFile": str,
    "TlsPort": int,
    "HttpsPort": int,
    "Capture": str,
    "Journal": str,
    "JournalSeconds": int,
    "JournalKeepDays": int,
    "LogFormat": str,
    "LogLevel": str,
}


@dataclass(frozen=True)
class Config:
    namespace_name: str | None = None
    #: Queues, topics, and each topic's subscriptions behind it.
    entities: tuple[Wish, ...] = ()
    hubs: tuple[HubWish, ...] = ()
    #: Rules of the namespace; those the file does not name stay.
    rules: tuple[AuthorizationRule, ...] = ()
    #: Where the file wants logs: of "File" and "Console".
    log_types: frozenset[str] = frozenset()
    #: The `Server` section: option names in PascalCase, for `ServeOptions.completed`. The address of a store may
    #: hold a password.
    server: Mapping[str, object] = field(default_factory=dict, repr=False)


def read_config(path: Path, limits: Limits | None = None) -> Config:
    """Raises ConfigError whose sentence names the file."""
    try:
        return parse_config(path.read_text(encoding="utf-8-sig"), limits)
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text.") from error
    except ConfigError as error:
        raise ConfigError(f"In the configuration file {path}: {error}") from error


def parse_config(text: str, limits: Limits | None = None) -> Config:
    root = Node.parse(text)
    is_ours = isinstance(root.value, dict) and "Format" in root.value
    members = root.members(_OUR_ROOT if is_ours else _OFFICIAL_ROOT)
    if is_ours and members["Format"].value != OUR_FORMAT:
        raise members["Format"].error(f'this version reads "{OUR_FORMAT}" only')
    server = _server(members["Server"]) if "Server" in members else {}
    if "UserConfig" not in members:
        if is_ours:
            return Config(server=server)
        raise root.error('the key "UserConfig" is missing')
    return replace(_user_config(members["UserConfig"], is_ours, limits or Limits()), server=server)


def _user_config(node: Node, is_ours: bool, limits: Limits) -> Config:
    members = node.members((*_USER_CONFIG, *_EVENT_HUBS_CONFIG))
    log_types = frozenset[str]()
    for key in ("Logging", "LoggingConfig"):
        if key in members:
            log_types |= _log_types(members[key])
    hubs_name, hubs = None, list[HubWish]()
    if "NamespaceConfig" in members:
        hubs_name, hubs = read_emulator_hubs(members["NamespaceConfig"], limits, _rules)
    namespaces = members["Namespaces"].entries() if "Namespaces" in members else []
    if len(namespaces) > 1:
        raise members["Namespaces"].error(
            f"{len(namespaces)} namespaces in one file; one server holds one namespace, so split the file and"
            " run one server for each (busway serve --data DIR --port N --config FILE)"
        )
    config = Config(namespace_name=hubs_name)
    if namespaces:
        config = _namespace(namespaces[0], is_ours, limits)
    return _checked(replace(config, log_types=log_types, hubs=(*config.hubs, *hubs)))


def _checked(config: Config) -> Config:
    """E-7: queues, topics and event hubs share one space of names."""
    keys = {path_key(wish.description.path) for wish in config.entities}
    for hub in config.hubs:
        if path_key(hub.path) in keys:
            raise ConfigError(f"{hub.place}: the name '{hub.path[:60]}' is already used by another entity.")
        keys.add(path_key(hub.path))
    return config


def _namespace(node: Node, is_ours: bool, limits: Limits) -> Config:
    members = node.members(_OUR_NAMESPACE if is_ours else _OFFICIAL_NAMESPACE)
    hubs = read_hubs(members["EventHubs"], is_ours, limits, _rules) if "EventHubs" in members else []
    rules = _rules(members["AuthorizationRules"], limits) if "AuthorizationRules" in members else ()
    reader = _EntityReader(is_ours, limits)
    for entry in members["Queues"].entries() if "Queues" in members else []:
        reader.read_queue(entry)
    for entry in members["Topics"].entries() if "Topics" in members else []:
        reader.read_topic(entry)
    name = _namespace_name(members["Name"]) if "Name" in members else None
    return Config(namespace_name=name, entities=tuple(reader.wishes), hubs=tuple(hubs), rules=rules)


def _namespace_name(node: Node) -> str:
    """E-3: of 1 to 50 characters."""
    name = node.text()
    if not 1 <= len(name) <= _NAMESPACE_NAME_CHARACTERS_MAX:
        raise node.error(
            f"the name of a namespace has 1 to {_NAMESPACE_NAME_CHARACTERS_MAX} characters, not {len(name)}"
        )
    return name


class _EntityReader:
    """Gathers the wishes of one namespace; no two of them may bear the same name."""

    def __init__(self, is_ours: bool, limits: Limits) -> None:
        self._is_ours = is_ours
        self._limits = limits
        self._places: dict[str, str] = {}
        self.wishes: list[Wish] = []

    def read_queue(self, node: Node) -> None:
        members = self._members(node, QueueDescription)
        usual = default_queue(members["Name"].text(), self._limits)
        self._add(node, self._wish(node, members, usual))

    def read_topic(self, node: Node) -> None:
        members = self._members(node, TopicDescription)
        topic = self._wish(node, members, default_topic(members["Name"].text(), self._limits))
        self._add(node, topic)
        for entry in members["Subscriptions"].entries() if "Subscriptions" in members else []:
            self._read_subscription(entry, topic.description.path)

    def _read_subscription(self, node: Node, topic_path: str) -> None:
        members = self._members(node, SubscriptionDescription)
        name = members["Name"].text()
        try:
            check_name("subscription", name, self._limits.name_characters_max)
        except BrokerError as error:
            raise ConfigError(f"{node.path}: {error.sentence}") from error
        wish = self._wish(node, members, SubscriptionDescription(subscription_path(topic_path, name)))
        if "Rules" in members:
            rules = read_rules(members["Rules"], self._is_ours, self._limits)
            # The emulator's empty list means "match all"; ours means what it says (T-5).
            wish = replace(wish, rules=rules if rules or self._is_ours else None)
        self._add(node, wish)

    def _members(self, node: Node, kind: type[Description]) -> dict[str, Node]:
        members = node.members(_ENTITY_KEYS[kind])
        if "Name" not in members:
            raise node.error('the key "Name" is missing')
        return members

    def _wish(self, node: Node, members: dict[str, Node], usual: Description) -> Wish:
        kind = type(usual)
        values = {} if self._is_ours else _official_values(kind)
        fields = frozenset(entry.field for entry in PROPERTIES[kind]) if self._is_ours else frozenset(values)
        if "Properties" in members:
            given = _property_values(members["Properties"], kind, self._is_ours, self._limits)
            values.update(given)
            fields |= given.keys()
        if not self._is_ours:
            _lengthen_window(node, values)
        description = described(usual, values)
        try:
            check_creation(_with_some_keys(description), self._limits)
        except BrokerError as error:
            raise ConfigError(f"{node.path} ('{usual.path[:60]}'): {error.sentence}") from error
        return Wish(description, fields)

    def _add(self, node: Node, wish: Wish) -> None:
        key = path_key(wish.description.path)
        if key in self._places:
            raise node.error(f"the name '{wish.description.path}' is already used by {self._places[key]}")
        self._places[key] = node.path
        self.wishes.append(wish)


def _lengthen_window(node: Node, values: dict[str, object]) -> None:
    """A file that the emulator takes is taken: its shortest windows become the shortest there is here."""
    window_ms = values.get(_WINDOW)
    if isinstance(window_ms, int) and _EMULATOR_WINDOW_MS_MIN <= window_ms < _WINDOW_MS_MIN:
        values[_WINDOW] = _WINDOW_MS_MIN
        _log.warning("%s: DuplicateDetectionHistoryTimeWindow is PT20S, the shortest there is", node.path)


def _official_values(kind: type[Description]) -> dict[str, object]:
    entries = PROPERTY_OF[kind]
    return {
        entries[name].field: property_value(entries[name], value, name)
        for name, value in _OFFICIAL_DEFAULTS[kind].items()
    }


def _property_values(node: Node, kind: type[Description], is_ours: bool, limits: Limits) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, member in node.members(_property_names(kind)).items():
        if not is_ours and name not in _OFFICIAL_DEFAULTS[kind]:
            raise member.unknown(
                list(_OFFICIAL_DEFAULTS[kind]),
                f'the emulator\'s format does not have it, but a file that begins with "Format": "{OUR_FORMAT}"'
                " does; ",
            )
        if name == "AuthorizationRules":
            values["authorization_rules"] = _rules(member, limits)
        else:
            values[PROPERTY_OF[kind][name].field] = _property_value(kind, name, member)
    return values


def _property_names(kind: type[Description]) -> Sequence[str]:
    """E-61: subscriptions have no keys of their own."""
    own = () if kind is SubscriptionDescription else ("AuthorizationRules",)
    return (*PROPERTY_OF[kind], *own)


def _property_value(kind: type[Description], name: str, node: Node) -> object:
    try:
        return property_value(PROPERTY_OF[kind][name], node.value, node.path)
    except BrokerError as error:
        raise ConfigError(error.sentence) from error


def _rules(node: Node, limits: Limits) -> tuple[AuthorizationRule, ...]:
    rules = tuple(_rule(entry) for entry in node.entries())
    try:
        check_rules(tuple(_with_some_key(rule) for rule in rules), limits)
    except BrokerError as error:
        raise ConfigError(f"{node.path}: {error.sentence}") from error
    return rules


def _rule(node: Node) -> AuthorizationRule:
    members = node.members(_RULE_KEYS)
    texts = {
        name: members[name].text() if name in members else ""
        for name in ("Name", "PrimaryKey", "SecondaryKey", "ClaimType", "ClaimValue")
    }
    rights = members["Rights"].entries() if "Rights" in members else []
    return AuthorizationRule(
        name=texts["Name"],
        rights=frozenset(right.text() for right in rights),
        primary_key=texts["PrimaryKey"],
        secondary_key=texts["SecondaryKey"],
        claim_type=texts["ClaimType"] or "SharedAccessKey",
        claim_value=texts["ClaimValue"] or "None",
    )


def _with_some_keys(description: Description) -> Description:
    if isinstance(description, SubscriptionDescription):
        return description
    rules = tuple(_with_some_key(rule) for rule in description.authorization_rules)
    return replace(description, authorization_rules=rules)


def _with_some_key(rule: AuthorizationRule) -> AuthorizationRule:
    """Keys may be left out in a file: the namespace draws them. For the checks any will do."""
    return replace(rule, primary_key=rule.primary_key or "-", secondary_key=rule.secondary_key or "-")


def _log_types(node: Node) -> frozenset[str]:
    members = node.members(("Type",))
    if "Type" not in members:
        return frozenset()
    wanted = [piece.strip() for piece in members["Type"].text().split(",")]
    known = {name.lower(): name for name in _LOG_TYPES}
    for piece in wanted:
        if piece.lower() not in known:
            raise members["Type"].error(f"'{piece[:60]}' is not one of File, Console")
    return frozenset(known[piece.lower()] for piece in wanted)


def _server(node: Node) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, member in node.members(_SERVER_KEYS).items():
        wanted = _SERVER_KEYS[name]
        if type(member.value) is not wanted:
            raise member.error(f"a value of type {wanted.__name__} is expected")
        values[name] = [entry.text() for entry in member.entries()] if wanted is list else member.value
    return values
