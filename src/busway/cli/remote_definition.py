"""The definition of a namespace behind a connection string: read through the management API, and changed by it."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from busway.client.atom_entries import QUEUE, SUBSCRIPTION, TOPIC, EntityEntry, KeyRule
from busway.client.entity_properties import Value
from busway.config.definition import Definition
from busway.config.wishes import HubDefinition, described
from busway.model.descriptions import (
    PROPERTIES,
    RIGHTS_ORDER,
    ROOT_RULE_NAME,
    AuthorizationRule,
    Description,
    PropertyKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    properties_json,
    property_value,
    rule_json,
)
from busway.model.entity_path import path_key, subscription_path
from busway.streams.hub_descriptions import DEFAULT_GROUP, group_of_json, hub_of_json, hub_properties

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.config.definition import ConfigChanges, RuleChange
    from busway.config.wishes import HubChange
    from busway.model.descriptions import NewEntity
    from busway.rules.rule import Rule

Done = Callable[[int], None]


def read_definition(client: "ServiceBusAdministrationClient", done: Done) -> Definition:
    """`done` hears how many entities have been read since it heard last."""
    entities: dict[str, Description] = {}
    rules: dict[str, tuple[Rule, ...]] = {}

    def add(description: Description) -> None:
        entities[path_key(description.path)] = description
        done(1)

    for queue in client.list_queues():
        add(_with_base_size(client, description_of(QueueDescription(queue.name), queue)))
    for topic in list(client.list_topics()):
        add(_with_base_size(client, description_of(TopicDescription(topic.name), topic)))
        for subscription in list(client.list_subscriptions(topic.name)):
            path = subscription_path(topic.name, subscription.name)
            rules[path_key(path)] = tuple(client.list_rules(topic.name, subscription.name))
            add(description_of(SubscriptionDescription(path), subscription))
    keys = tuple(_authorization_rule(rule) for rule in client.key_rules())
    return Definition(entities, rules, keys, _hubs(client))


def _hubs(client: "ServiceBusAdministrationClient") -> dict[str, HubDefinition]:
    found: dict[str, HubDefinition] = {}
    for told in client.hubs.list():
        hub = hub_of_json(told)
        groups = tuple(group_of_json(hub.path, group) for group in client.hubs.groups(hub.path))
        found[path_key(hub.path)] = HubDefinition(hub, groups)
    return found


def _with_base_size(client: "ServiceBusAdministrationClient", description: Description) -> Description:
    """P-8: the management API tells the size of all fragments together; a creation wants that of one."""
    if isinstance(description, SubscriptionDescription) or not description.enable_partitioning:
        return description
    count = len(client.fragments(description.path))
    return replace(
        description,
        max_size_in_megabytes=description.max_size_in_megabytes // count,
        fragment_count=count,
    )


def description_of(usual: Description, entity: EntityEntry) -> Description:
    values: dict[str, object] = {
        entry.field: property_value(entry, entity.properties[entry.name], entry.name)
        for entry in PROPERTIES[type(usual)]
        if entry.name in entity.properties
    }
    if not isinstance(usual, SubscriptionDescription):
        values["authorization_rules"] = tuple(_authorization_rule(rule) for rule in entity.rules)
    return described(usual, values)


def entry_of(description: Description) -> EntityEntry:
    properties = _properties_of(description)
    if isinstance(description, SubscriptionDescription):
        return EntityEntry(SUBSCRIPTION, description.name, properties, {})
    kind = QUEUE if isinstance(description, QueueDescription) else TOPIC
    rules = tuple(_key_rule(rule) for rule in description.authorization_rules)
    return EntityEntry(kind, description.path, properties, {}, rules)


def _properties_of(description: Description) -> dict[str, Value]:
    """Texts that are not set are empty, which takes away what was there."""
    texts = [entry.name for entry in PROPERTIES[type(description)] if entry.kind is PropertyKind.TEXT]
    written: dict[str, Value] = dict.fromkeys(texts, "")
    for name, value in properties_json(description).items():
        assert value is None or isinstance(value, str | int)
        written[name] = value
    return written


class RemoteChanges:
    """Carries out what `changes_of` has found. Each step is safe to repeat: after a failure a second run finds what
    is left to do."""

    def __init__(self, client: "ServiceBusAdministrationClient", present: Definition, done: Done) -> None:
        self._client = client
        self._known = set(present.entities)
        self._keys = {rule.name: rule for rule in present.authorization_rules}
        self._done = done

    def apply(self, changes: "ConfigChanges") -> None:
        later: list[Description] = []
        for new in changes.created:
            if self._create(new):
                later.append(new.description)
            self._done(1)
        for description in later:
            self._update(description)
        for update in changes.updated:
            self._update(update.wanted)
            self._done(1)
        for change in changes.rules:
            self._change_rule(change)
            self._done(1)
        for hub in changes.hubs:
            self._change_hub(hub)
            self._done(1)
        if changes.authorization_rules is not None:
            self._put_keys(changes.authorization_rules)
            self._done(1)

    def _create(self, new: "NewEntity") -> bool:
        """Whether it forwards to an entity that is yet to come (F-2), and so is to be updated when it has."""
        description, was_stripped = self._creatable(new.description)
        entry = entry_of(description)
        if isinstance(description, SubscriptionDescription):
            self._client.create(entry, description.topic_path, new.rules[0] if new.rules else None)
            for rule in new.rules[1:]:
                self._client.create_rule(description.topic_path, description.name, rule)
        else:
            self._client.create(entry)
        self._known.add(path_key(description.path))
        return was_stripped

    def _creatable(self, wanted: Description) -> tuple[Description, bool]:
        if isinstance(wanted, TopicDescription):
            return wanted, False
        forward, dead_letters = wanted.forward_to, wanted.forward_dead_lettered_messages_to
        if all(path_key(target) in self._known for target in (forward, dead_letters) if target is not None):
            return wanted, False
        return replace(wanted, forward_to=None, forward_dead_lettered_messages_to=None), True

    def _update(self, wanted: Description) -> None:
        """Elements that this version does not know stay (E-44)."""
        entry = entry_of(wanted)
        if isinstance(wanted, SubscriptionDescription):
            present = self._client.get_subscription(wanted.topic_path, wanted.name)
            self._client.update(replace(entry, others=present.others), wanted.topic_path)
            return
        present = self._client.get_queue_or_topic(wanted.path)
        self._client.update(replace(entry, others=present.others))

    def _change_rule(self, change: "RuleChange") -> None:
        subscription = SubscriptionDescription(change.subscription_path)
        topic_path, name = subscription.topic_path, subscription.name
        if change.rule is None:
            self._client.delete_rule(topic_path, name, change.name)
        elif change.is_new:
            self._client.create_rule(topic_path, name, change.rule)
        else:
            self._client.update_rule(topic_path, name, change.rule)

    def _change_hub(self, change: "HubChange") -> None:
        hubs, name = self._client.hubs, change.wanted.path
        properties = {
            **hub_properties(change.wanted),
            "AuthorizationRules": [rule_json(rule) for rule in change.wanted.authorization_rules],
        }
        if change.present is None:
            hubs.create(name, properties)
        else:
            hubs.update(name, properties)
        for group in change.groups:
            if path_key(group.name) != path_key(DEFAULT_GROUP):
                hubs.create_group(name, group.name, {"UserMetadata": group.user_metadata})

    def _put_keys(self, wanted: Iterable[AuthorizationRule]) -> None:
        """The root rule's last: with its old key nothing more can be asked."""
        changed = [rule for rule in wanted if rule != self._keys.get(rule.name)]
        for rule in sorted(changed, key=lambda rule: rule.name == ROOT_RULE_NAME):
            self._client.put_key_rule(_key_rule(rule))


def _authorization_rule(rule: KeyRule) -> AuthorizationRule:
    return AuthorizationRule(rule.name, frozenset(rule.rights), rule.primary_key, rule.secondary_key)


def _key_rule(rule: AuthorizationRule) -> KeyRule:
    rights = tuple(right for right in RIGHTS_ORDER if right in rule.rights)
    return KeyRule(rule.name, rights, rule.primary_key, rule.secondary_key)
