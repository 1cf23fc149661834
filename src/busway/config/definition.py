"""All that defines a namespace, its export as a configuration file, and what such a file changes in it.

A definition is its entities, the rules of its subscriptions, its keys. Not its messages. `exported` writes one as
a file of our format with every property; reading it back and applying it to an empty namespace gives the same one.

Theory of operation of a change. `changes_of` compares the file with what is there and says what is to be done;
nothing is changed meanwhile, and what cannot be done (a property that may not change, a forward to nowhere) is
refused there. Applying a file again gives no changes. Entities, rules and keys that the file does not name stay.

New entities come all at once or not at all. A subscription whose file names its rules is created with exactly
these; an existing one has them added or replaced by name, and keeps those that were made otherwise. A file of our
format may say that a new subscription has no rules: then it is made with a rule that selects nothing and loses it,
so that whatever happens in between it selects nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from busway.config.config import OUR_FORMAT, Config
from busway.config.node import ConfigError
from busway.config.rules import Json, write_rule
from busway.config.wishes import (
    ConfiguredHubs,
    HubChange,
    HubDefinition,
    Wish,
    apply_hub_changes,
    described,
    hub_changes,
    hub_definitions,
    merged_keys,
    written_hub,
)
from busway.model.descriptions import (
    KIND_NAMES,
    PROPERTIES,
    AuthorizationRule,
    DescribedProperty,
    Description,
    NewEntity,
    PropertyKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    authorization_rules_of,
    properties_json,
    rule_json,
)
from busway.model.durations import FOREVER_MS, format_duration
from busway.model.entity_path import path_key
from busway.rules.rule import DEFAULT_RULE_NAME, FalseFilter, Rule

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace


@dataclass(frozen=True)
class Definition:
    """All that defines a namespace: its entities, the rules of its subscriptions, its keys. Not its messages."""

    #: By `path_key`.
    entities: Mapping[str, Description] = field(default_factory=dict)
    #: Of subscriptions, by `path_key`.
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    #: Of the namespace.
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    #: By `path_key`.
    hubs: Mapping[str, HubDefinition] = field(default_factory=dict)


def definition_of(namespace: "Namespace") -> Definition:
    entities: dict[str, Description] = {path_key(queue.path): queue for queue in namespace.queues()}
    rules: dict[str, tuple[Rule, ...]] = {}
    for topic in namespace.topics():
        entities[path_key(topic.path)] = topic
        for subscription in namespace.subscriptions(topic.path):
            entities[path_key(subscription.path)] = subscription
            rules[path_key(subscription.path)] = tuple(namespace.rules.of(subscription.path))
    return Definition(entities, rules, namespace.access.rules())


def exported(name: str, definition: Definition, *, with_keys: bool = True) -> Json:
    """With keys the file is worth as much as they are: keep it like one. Without them, whoever applies the file
    to a namespace that lacks these rules draws new keys."""
    entities = definition.entities.values()
    subscriptions = _written_subscriptions(definition)
    namespace: Json = {
        "Name": name,
        "AuthorizationRules": _written_keys(definition.authorization_rules, with_keys),
        "Queues": [_written(each, with_keys) for each in entities if isinstance(each, QueueDescription)],
        "Topics": [
            {**_written(each, with_keys), "Subscriptions": subscriptions.get(path_key(each.path), [])}
            for each in entities
            if isinstance(each, TopicDescription)
        ],
        "EventHubs": [
            written_hub(hub, lambda rules: _written_keys(rules, with_keys))
            for hub in definition.hubs.values()
        ],
    }
    return {"Format": OUR_FORMAT, "UserConfig": {"Namespaces": [namespace]}}


def _written_subscriptions(definition: Definition) -> dict[str, list[Json]]:
    """By the key of their topic."""
    written: dict[str, list[Json]] = {}
    for key, entity in definition.entities.items():
        if isinstance(entity, SubscriptionDescription):
            rules = [write_rule(rule) for rule in definition.rules.get(key, ())]
            subscription: Json = {
                "Name": entity.name,
                "Properties": properties_json(entity),
                "Rules": rules,
            }
            written.setdefault(path_key(entity.topic_path), []).append(subscription)
    return written


def _written(entity: QueueDescription | TopicDescription, with_keys: bool) -> Json:
    rules = _written_keys(entity.authorization_rules, with_keys)
    return {"Name": entity.path, "Properties": {**properties_json(entity), "AuthorizationRules": rules}}


def _written_keys(rules: tuple[AuthorizationRule, ...], with_keys: bool) -> list[Json]:
    secret = () if with_keys else ("PrimaryKey", "SecondaryKey")
    return [{name: value for name, value in rule_json(rule).items() if name not in secret} for rule in rules]


_SELECTS_NOTHING: Final = Rule(DEFAULT_RULE_NAME, FalseFilter())


@dataclass(frozen=True)
class RuleChange:
    """One rule of a subscription that is to be added, replaced or (without a rule) removed."""

    subscription_path: str
    name: str
    rule: Rule | None
    is_new: bool = False


@dataclass(frozen=True)
class Update:
    """An entity that is to be changed, from → to."""

    present: Description
    wanted: Description


@dataclass(frozen=True)
class ConfigChanges:
    created: tuple[NewEntity, ...] = ()
    updated: tuple[Update, ...] = ()
    rules: tuple[RuleChange, ...] = ()
    #: The namespace's rules as they are to be; None when they are already.
    authorization_rules: tuple[AuthorizationRule, ...] | None = None
    hubs: tuple[HubChange, ...] = ()

    @property
    def count(self) -> int:
        return len(list(self.sentences()))

    def sentences(self) -> Iterator[str]:
        """One line for each change, without keys."""
        for new in self.created:
            kind = KIND_NAMES[type(new.description)].lower()
            yield f"create {kind} {new.description.path}"
        for update in self.updated:
            kind = KIND_NAMES[type(update.present)].lower()
            yield f"change {kind} {update.present.path}: {', '.join(_differences(update))}"
        for change in self.rules:
            verb = "remove" if change.rule is None else "add" if change.is_new else "replace"
            yield f"{verb} rule {change.name} of {change.subscription_path}"
        for hub in self.hubs:
            yield from hub.sentences()
        if self.authorization_rules is not None:
            names = ", ".join(rule.name for rule in self.authorization_rules)
            yield f"set the namespace's authorization rules: {names}"


async def apply_config(config: Config, namespace: "Namespace", hubs: ConfiguredHubs | None = None) -> None:
    """Makes the namespace as the file says. Raises ConfigError before anything is changed when it cannot be."""
    present = definition_of(namespace)
    if hubs is not None:
        present = replace(present, hubs=hub_definitions(hubs))
    changes = changes_of(config, present)
    if changes.created:
        await namespace.create(changes.created)
    for update in changes.updated:
        await namespace.update(update.wanted)
    for change in changes.rules:
        if change.rule is None:
            await namespace.rules.remove(change.subscription_path, change.name)
        elif change.is_new:
            await namespace.rules.add(change.subscription_path, change.rule)
        else:
            await namespace.rules.replace(change.subscription_path, change.rule)
    if hubs is not None:
        await apply_hub_changes(changes.hubs, hubs)
    if changes.authorization_rules is not None:
        await namespace.access.set(changes.authorization_rules)


def changes_of(config: Config, present: Definition) -> ConfigChanges:
    """Raises ConfigError for what the file wants and cannot have."""
    created: list[NewEntity] = []
    updated: list[Update] = []
    rules: list[RuleChange] = []
    for wish in config.entities:
        key = path_key(wish.description.path)
        known = present.entities.get(key)
        if known is None:
            created.append(_new_entity(wish))
            if wish.rules == ():
                rules.append(RuleChange(wish.description.path, DEFAULT_RULE_NAME, None))
            continue
        _check_fixed(known, wish)
        wanted = _merged(known, wish)
        if wanted != known:
            updated.append(Update(known, wanted))
        rules += _rule_changes(known.path, present.rules.get(key, ()), wish.rules or ())
    _check_forwards(config, present)
    _check_names(config, present)
    keys = merged_keys(present.authorization_rules, config.rules)
    return ConfigChanges(
        tuple(created),
        tuple(updated),
        tuple(rules),
        None if keys == present.authorization_rules else keys,
        tuple(hub_changes(config.hubs, present.hubs)),
    )


def _check_names(config: Config, present: Definition) -> None:
    """E-7: queues, topics and event hubs share one space of names."""
    for hub in config.hubs:
        if path_key(hub.path) in present.entities:
            raise ConfigError(f"{hub.place}: '{hub.path[:60]}' exists and is no event hub.")
    for wish in config.entities:
        if path_key(wish.description.path) in present.hubs:
            raise ConfigError(f"'{wish.description.path}' exists and is an event hub.")


def _new_entity(wish: Wish) -> NewEntity:
    if wish.rules == ():
        return NewEntity(wish.description, (_SELECTS_NOTHING,))
    return NewEntity(_kept_alive(wish.description), wish.rules or ())


def _check_fixed(known: Description, wish: Wish) -> None:
    kind, wanted_kind = KIND_NAMES[type(known)].lower(), KIND_NAMES[type(wish.description)].lower()
    if kind != wanted_kind:
        raise ConfigError(
            f"'{known.path}' exists and is a {kind}; the file wants a {wanted_kind} of that name: delete the"
            f" {kind} first, or change the file."
        )
    for entry in PROPERTIES[type(known)]:
        have, want = getattr(known, entry.field), getattr(wish.description, entry.field)
        if entry.fixed and entry.field in wish.fields and have != want:
            raise ConfigError(
                f"The {kind} '{known.path}' exists with {entry.name} = {str(have).lower()}, and the file wants"
                f" {str(want).lower()}. {entry.name} cannot be changed after creation: delete the {kind} first,"
                " or change the file."
            )


def _check_forwards(config: Config, present: Definition) -> None:
    """F-2, before anything is changed."""
    known = {path_key(wish.description.path): wish.description for wish in config.entities}
    for wish in config.entities:
        if isinstance(wish.description, TopicDescription):
            continue
        for name, target in (
            ("ForwardTo", wish.description.forward_to),
            ("ForwardDeadLetteredMessagesTo", wish.description.forward_dead_lettered_messages_to),
        ):
            if target is None:
                continue
            found = known.get(path_key(target)) or present.entities.get(path_key(target))
            if found is None or isinstance(found, SubscriptionDescription):
                raise ConfigError(
                    f"'{wish.description.path}' has {name} = '{target[:300]}', but there is no queue or topic of"
                    " that name, neither in the file nor in the namespace."
                )


def _merged(known: Description, wish: Wish) -> Description:
    values = {name: getattr(wish.description, name) for name in wish.fields}
    if "authorization_rules" in wish.fields:
        values["authorization_rules"] = merged_keys(
            authorization_rules_of(known), authorization_rules_of(wish.description)
        )
    return _kept_alive(described(known, values))


def _kept_alive(wanted: Description) -> Description:
    """E-112, as the namespace does it: else the file would differ from what it made."""
    if isinstance(wanted, SubscriptionDescription) and wanted.forward_to is not None:
        return replace(wanted, auto_delete_on_idle_ms=FOREVER_MS)
    return wanted


def _rule_changes(path: str, present: Sequence[Rule], wanted: Sequence[Rule]) -> Iterator[RuleChange]:
    known = {path_key(rule.name): rule for rule in present}
    for rule in wanted:
        found = known.get(path_key(rule.name))
        if found is None:
            yield RuleChange(path, rule.name, rule, is_new=True)
        elif (found.filter, found.action) != (rule.filter, rule.action):
            yield RuleChange(path, found.name, replace(rule, name=found.name))


def _differences(update: Update) -> Iterator[str]:
    for entry in PROPERTIES[type(update.present)]:
        have, want = getattr(update.present, entry.field), getattr(update.wanted, entry.field)
        if have != want:
            yield f"{entry.name} {_shown(entry, have)} → {_shown(entry, want)}"
    if authorization_rules_of(update.present) != authorization_rules_of(update.wanted):
        yield "AuthorizationRules"


def _shown(entry: DescribedProperty, value: object) -> str:
    if entry.kind is PropertyKind.DURATION and isinstance(value, int):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)
