"""The administrator of a running server, over HTTP: what `tests.changes` needs of a bus."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.atom_entries import QUEUE, SUBSCRIPTION, TOPIC, EntityEntry
from busway.client.entity_properties import Value
from busway.client.errors import EntityExists, EntityMissing
from busway.model.descriptions import (
    PROPERTIES,
    Description,
    PropertyKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    properties_json,
)
from busway.model.durations import format_duration
from busway.rules.rule import Rule
from tests.changes.change import Entity

_KINDS = {QueueDescription: QUEUE, TopicDescription: TOPIC, SubscriptionDescription: SUBSCRIPTION}


class HttpAdministrator:
    """An `Administrator`; it blocks, so it wants a thread of its own. Raises ClientError: whether the step took
    place is not known then, and it may be done again."""

    def __init__(self, connection_string: str, ca_file: str) -> None:
        self._client = ServiceBusAdministrationClient.from_connection_string(connection_string, Path(ca_file))
        #: As they were made.
        self._made: dict[str, Description] = {}

    def close(self) -> None:
        self._client.close()

    def know(self, descriptions: Iterable[Entity]) -> None:
        """They were made by another administrator."""
        for description in descriptions:
            assert isinstance(description, QueueDescription | TopicDescription | SubscriptionDescription)
            self._made[description.path] = description

    async def description(self, path: str) -> Description:
        return self._made[path]

    async def rules(self, path: str) -> list[Rule]:
        return self._client.list_rules(*_parts(path))

    async def update(self, path: str, **properties: object) -> None:
        self._put(path, _texts(self._made[path], properties))

    async def create(self, description: Entity, rules: tuple[Rule, ...] = ()) -> None:
        assert isinstance(description, QueueDescription | TopicDescription | SubscriptionDescription)
        self._made[description.path] = description
        name, topic = _parts(description.path)[::-1] if "/" in description.path else (description.path, None)
        values: dict[str, Value] = {
            name: value if isinstance(value, str | int | bool) else None
            for name, value in properties_json(description).items()
        }
        try:
            entry = EntityEntry(_KINDS[type(description)], name, values, {})
            self._client.create(entry, topic, rules[0] if rules else None)
        except EntityExists:
            return

    async def delete(self, path: str) -> None:
        try:
            if "/" in path:
                self._client.delete_subscription(*_parts(path))
            elif isinstance(self._made[path], TopicDescription):
                self._client.delete_topic(path)
            else:
                self._client.delete_queue(path)
        except EntityMissing:
            return

    async def add_rule(self, path: str, rule: Rule) -> None:
        try:
            self._client.create_rule(*_parts(path), rule)
        except EntityExists:
            return

    async def replace_rule(self, path: str, rule: Rule) -> None:
        self._client.update_rule(*_parts(path), rule)

    async def remove_rule(self, path: str, name: str) -> None:
        try:
            self._client.delete_rule(*_parts(path), name)
        except EntityMissing:
            return

    async def rotate_keys(self, path: str) -> None:
        entry = self._client.get_queue_or_topic(path)
        fresh = (
            replace(rule, primary_key=secrets.token_urlsafe(32), secondary_key=secrets.token_urlsafe(32))
            for rule in entry.rules
        )
        self._client.update(entry.with_rules(fresh))

    async def disable_store(self, name: str) -> None:
        self._client.set_store_enabled(name, False)

    async def enable_store(self, name: str) -> None:
        self._client.set_store_enabled(name, True)

    def store_of(self, path: str) -> str:
        return str(self._client.fragments(path)[0]["store"])

    def _put(self, path: str, values: dict[str, Value]) -> None:
        if "/" in path:
            topic, name = _parts(path)
            entry = self._client.get_subscription(topic, name)
            self._client.update_subscription(topic, entry.changed(values))
        else:
            self._client.update(self._client.get_queue_or_topic(path).changed(values))


def _parts(path: str) -> tuple[str, str]:
    topic, _, name = path.split("/")
    return topic, name


def _texts(description: Description, properties: dict[str, object]) -> dict[str, Value]:
    """As clients write them."""
    written: dict[str, Value] = {}
    for entry in PROPERTIES[type(description)]:
        if entry.field not in properties:
            continue
        value = properties[entry.field]
        if entry.kind is PropertyKind.DURATION:
            assert isinstance(value, int)
            written[entry.name] = format_duration(value)
        else:
            assert value is None or isinstance(value, str | int | bool)
            written[entry.name] = "" if value is None else value
    return written
