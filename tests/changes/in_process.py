"""The administrator of a namespace in the same process."""

from __future__ import annotations

from dataclasses import replace

from busway.broker.namespace.namespace import Namespace
from busway.clock import Entropy
from busway.model.descriptions import NewEntity, SubscriptionDescription, random_key
from busway.model.errors import EntityAlreadyExists, EntityNotFound
from busway.rules.rule import Rule
from busway.streams.event_hubs import EventHubs
from busway.streams.hub_descriptions import EventHubDescription
from tests.changes.change import Entity
from tests.changes.links import Links


class InProcess:
    """An `Administrator`. `hubs`: None where there are none."""

    def __init__(self, namespace: Namespace, hubs: EventHubs | None, entropy: Entropy) -> None:
        self.namespace = namespace
        self.hubs = hubs
        self._entropy = entropy
        #: Of clients that make something by attaching.
        self.links = Links(namespace)

    async def description(self, path: str) -> Entity:
        if self.hubs is not None and self.hubs.exists(path):
            return self.hubs.description(path)
        return self.namespace.description(path)

    async def rules(self, path: str) -> list[Rule]:
        return self.namespace.rules.of(path)

    async def update(self, path: str, **properties: object) -> None:
        await self._put(replace(await self.description(path), **properties))  # type: ignore[arg-type]

    async def _put(self, description: Entity) -> None:
        if isinstance(description, EventHubDescription):
            assert self.hubs is not None
            await self.hubs.update(description)
        else:
            await self.namespace.update(description)

    async def create(self, description: Entity, rules: tuple[Rule, ...] = ()) -> None:
        try:
            if isinstance(description, EventHubDescription):
                assert self.hubs is not None
                await self.hubs.create(description)
            else:
                await self.namespace.create([NewEntity(description, rules)])
        except EntityAlreadyExists:
            return

    async def delete(self, path: str) -> None:
        try:
            if self.hubs is not None and self.hubs.exists(path):
                await self.hubs.delete(path)
            else:
                await self.namespace.delete(path)
        except EntityNotFound:
            return

    async def add_rule(self, path: str, rule: Rule) -> None:
        try:
            await self.namespace.rules.add(path, rule)
        except EntityAlreadyExists:
            return

    async def replace_rule(self, path: str, rule: Rule) -> None:
        await self.namespace.rules.replace(path, rule)

    async def remove_rule(self, path: str, name: str) -> None:
        try:
            await self.namespace.rules.remove(path, name)
        except EntityNotFound:
            return

    async def rotate_keys(self, path: str) -> None:
        description = await self.description(path)
        assert not isinstance(description, SubscriptionDescription)
        rules = tuple(
            replace(rule, primary_key=random_key(self._entropy), secondary_key=random_key(self._entropy))
            for rule in description.authorization_rules
        )
        await self.update(path, authorization_rules=rules)

    async def disable_store(self, name: str) -> None:
        await self.namespace.stores.disable(name)

    async def enable_store(self, name: str) -> None:
        await self.namespace.stores.enable(name)
