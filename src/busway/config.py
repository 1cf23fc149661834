"""The configuration file: the official emulator's Config.json as it is, and our superset of it.

`"Format": "busway/1"` at the root makes a file ours: then every property may be set and a missing one has the
default that holds everywhere else; without it only the emulator's keys exist, with the emulator's defaults.

A file is read and checked whole before anything is changed. Applying it again changes nothing; entities that
were made otherwise stay. A file of the emulator's format says nothing about properties it does not know
(Status, keys …), so those are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from busway.broker.description_checks import check_creation, check_rules, default_queue
from busway.broker.descriptions import (
    PROPERTIES,
    PROPERTY_OF,
    AuthorizationRule,
    Json,
    QueueDescription,
    properties_json,
    property_value,
    rule_json,
    with_values,
)
from busway.broker.entity_path import path_key
from busway.broker.errors import BrokerError
from busway.broker.limits import Limits
from busway.config_node import ConfigError as ConfigError
from busway.config_node import Node

OUR_FORMAT: Final = "busway/1"
_OFFICIAL_ROOT: Final = ("UserConfig",)
_OUR_ROOT: Final = ("Format", "UserConfig", "Server")
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
#: The emulator's queue properties and its defaults.
_OFFICIAL_DEFAULTS: Final[Mapping[str, object]] = {
    "DeadLetteringOnMessageExpiration": False,
    "DefaultMessageTimeToLive": "PT1H",
    "DuplicateDetectionHistoryTimeWindow": "PT20S",
    "ForwardDeadLetteredMessagesTo": "",
    "ForwardTo": "",
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 3,
    "RequiresDuplicateDetection": False,
    "RequiresSession": False,
}
#: What the command line offers, and the type of its value.
_SERVER_KEYS: Final[Mapping[str, type]] = {
    "Data": str,
    "Host": str,
    "Port": int,
    "Stores": int,
    "Store": list,
    "DevKey": bool,
    "ReadyFile": str,
    "TlsCert": str,
    "TlsKey": str,
    "KeyFile": str,
    "TlsPort": int,
    "HttpsPort": int,
}


@dataclass(frozen=True)
class QueueWish:
    """A queue as the file wants it; `fields` are those that the file speaks about."""

    description: QueueDescription
    fields: frozenset[str]


@dataclass(frozen=True)
class Config:
    namespace_name: str | None = None
    queues: tuple[QueueWish, ...] = ()
    #: Rules of the namespace; those the file does not name stay.
    rules: tuple[AuthorizationRule, ...] = ()
    #: Where the file wants logs: of "File" and "Console".
    log_types: frozenset[str] = frozenset()
    #: The `Server` section: option names in PascalCase, for `ServeOptions.completed`.
    server: Mapping[str, object] = field(default_factory=dict)


class ConfiguredNamespace(Protocol):
    """What a file is applied to."""

    def descriptions(self) -> list[QueueDescription]: ...
    async def create_queues(self, wanted: list[QueueDescription]) -> list[QueueDescription]: ...
    async def update_queue(self, description: QueueDescription) -> QueueDescription: ...
    def rules(self) -> tuple[AuthorizationRule, ...]: ...
    async def set_rules(self, rules: tuple[AuthorizationRule, ...]) -> None: ...


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
    log_types = _log_types(members["Logging"]) if "Logging" in members else frozenset[str]()
    if "NamespaceConfig" in members:
        raise members["NamespaceConfig"].error(
            "event hubs come with a later version of Busway; remove this section"
        )
    namespaces = members["Namespaces"].entries() if "Namespaces" in members else []
    if len(namespaces) > 1:
        raise members["Namespaces"].error(
            f"{len(namespaces)} namespaces in one file; one server holds one namespace, so split the file and"
            " run one server for each (busway serve --data DIR --port N --config FILE)"
        )
    if not namespaces:
        return Config(log_types=log_types)
    return replace(_namespace(namespaces[0], is_ours, limits), log_types=log_types)


def _namespace(node: Node, is_ours: bool, limits: Limits) -> Config:
    members = node.members(_OUR_NAMESPACE if is_ours else _OFFICIAL_NAMESPACE)
    for kind, words in (("Topics", "topics come"), ("EventHubs", "event hubs come")):
        for entry in members[kind].entries() if kind in members else []:
            raise entry.error(f"{words} with a later version of Busway; remove {_title(entry)}")
    rules = _rules(members["AuthorizationRules"], limits) if "AuthorizationRules" in members else ()
    queues = members["Queues"].entries() if "Queues" in members else []
    wishes = tuple(_queue(entry, is_ours, limits) for entry in queues)
    _check_names(queues, wishes)
    name = members["Name"].text() if "Name" in members else None
    return Config(namespace_name=name, queues=wishes, rules=rules)


def _title(entry: Node) -> str:
    name = entry.value.get("Name") if isinstance(entry.value, dict) else None
    return f"'{name[:60]}'" if isinstance(name, str) else "this entry"


def _check_names(nodes: list[Node], wishes: tuple[QueueWish, ...]) -> None:
    seen: dict[str, str] = {}
    for node, wish in zip(nodes, wishes, strict=True):
        key = path_key(wish.description.path)
        if key in seen:
            raise node.error(f"the name '{wish.description.path}' is already used by {seen[key]}")
        seen[key] = node.path


def _queue(node: Node, is_ours: bool, limits: Limits) -> QueueWish:
    members = node.members(("Name", "Properties"))
    if "Name" not in members:
        raise node.error('the key "Name" is missing')
    path = members["Name"].text()
    values = {} if is_ours else _official_values()
    fields = frozenset(entry.field for entry in PROPERTIES) if is_ours else frozenset(values)
    if "Properties" in members:
        given = _property_values(members["Properties"], is_ours, limits)
        values.update(given)
        fields |= given.keys()
    description = with_values(default_queue(path, limits), values)
    try:
        check_creation(_with_some_keys(description), limits)
    except BrokerError as error:
        raise ConfigError(f"{node.path} ('{path[:60]}'): {error.sentence}") from error
    return QueueWish(description, fields)


def _official_values() -> dict[str, object]:
    return {
        PROPERTY_OF[name].field: property_value(PROPERTY_OF[name], value, name)
        for name, value in _OFFICIAL_DEFAULTS.items()
    }


def _property_values(node: Node, is_ours: bool, limits: Limits) -> dict[str, object]:
    everything = [*PROPERTY_OF, "AuthorizationRules"]
    members = node.members(everything)
    values: dict[str, object] = {}
    for name, member in members.items():
        if not is_ours and name not in _OFFICIAL_DEFAULTS:
            raise member.unknown(
                list(_OFFICIAL_DEFAULTS),
                f'the emulator\'s format does not have it, but a file that begins with "Format": "{OUR_FORMAT}"'
                " does; ",
            )
        if name == "AuthorizationRules":
            values["authorization_rules"] = _rules(member, limits)
        else:
            values[PROPERTY_OF[name].field] = _property_value(name, member)
    return values


def _property_value(name: str, node: Node) -> object:
    try:
        return property_value(PROPERTY_OF[name], node.value, node.path)
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


def _with_some_keys(description: QueueDescription) -> QueueDescription:
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


async def apply_config(config: Config, namespace: ConfiguredNamespace) -> None:
    """Makes the namespace as the file says. Raises ConfigError before anything is changed when an entity has
    an unchangeable property that differs."""
    present = {path_key(description.path): description for description in namespace.descriptions()}
    created: list[QueueDescription] = []
    updated: list[QueueDescription] = []
    for wish in config.queues:
        known = present.get(path_key(wish.description.path))
        if known is None:
            created.append(wish.description)
            continue
        _check_fixed(known, wish)
        wanted = _merged(known, wish)
        if wanted != known:
            updated.append(wanted)
    await _apply_rules(config, namespace)
    if created:
        await namespace.create_queues(created)
    for wanted in updated:
        await namespace.update_queue(wanted)


def _check_fixed(known: QueueDescription, wish: QueueWish) -> None:
    for entry in PROPERTIES:
        have, want = getattr(known, entry.field), getattr(wish.description, entry.field)
        if entry.fixed and entry.field in wish.fields and have != want:
            raise ConfigError(
                f"The queue '{known.path}' exists with {entry.name} = {str(have).lower()}, and the file wants"
                f" {str(want).lower()}. {entry.name} cannot be changed after creation: delete the queue first,"
                " or change the file."
            )


def _merged(known: QueueDescription, wish: QueueWish) -> QueueDescription:
    values = {name: getattr(wish.description, name) for name in wish.fields}
    if "authorization_rules" in wish.fields:
        values["authorization_rules"] = _merged_rules(
            known.authorization_rules, wish.description.authorization_rules
        )
    return with_values(known, values)


async def _apply_rules(config: Config, namespace: ConfiguredNamespace) -> None:
    present = namespace.rules()
    wanted = _merged_rules(present, config.rules)
    if wanted != present:
        await namespace.set_rules(wanted)


def _merged_rules(
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


def exported(name: str, descriptions: list[QueueDescription], rules: tuple[AuthorizationRule, ...]) -> Json:
    """A file of our format with every property; reading it back gives the same namespace. It holds keys:
    treat it like one."""
    queues = [
        {
            "Name": description.path,
            "Properties": {
                **properties_json(description),
                "AuthorizationRules": [rule_json(rule) for rule in description.authorization_rules],
            },
        }
        for description in descriptions
    ]
    namespace: Json = {
        "Name": name,
        "AuthorizationRules": [rule_json(rule) for rule in rules],
        "Queues": queues,
        "Topics": [],
    }
    return {"Format": OUR_FORMAT, "UserConfig": {"Namespaces": [namespace]}}
