"""All that defines a namespace: its entities, the rules of its subscriptions, its keys. Not its messages.

`exported` writes a definition as a file of our format with every property; reading it back and applying it to an
empty namespace gives the same one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from busway.config.config import OUR_FORMAT
from busway.config.hubs import HubDefinition, written_hub
from busway.config.rules import write_rule
from busway.config.values import Json
from busway.model.descriptions import (
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    properties_json,
    rule_json,
)
from busway.model.entity_path import path_key
from busway.rules.rule import Rule

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace


@dataclass(frozen=True)
class Definition:
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
