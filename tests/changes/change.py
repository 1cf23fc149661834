"""What a change is: steps over an `Administrator`, there and back again.

In process the administrator is the namespace itself (`in_process`), against a running server the HTTP administration.
Each step either happens or is refused by a `BrokerError` (or its answer over HTTP): a change that is refused in the
middle is tried again from that step, as an operator would. So each step may be done twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from busway.model.descriptions import Description
from busway.rules.rule import Rule
from busway.streams.hub_descriptions import EventHubDescription

Entity = Description | EventHubDescription


class Administrator(Protocol):
    """What a change needs of a bus."""

    async def description(self, path: str) -> Entity: ...

    async def rules(self, path: str) -> list[Rule]:
        """Of a subscription."""
        ...

    async def update(self, path: str, **properties: object) -> None:
        """Properties by the names of the description's fields; all others stay as they are."""
        ...

    async def create(self, description: Entity, rules: tuple[Rule, ...] = ()) -> None:
        """What is there already stays."""
        ...

    async def delete(self, path: str) -> None:
        """What is gone already stays away."""
        ...

    async def add_rule(self, path: str, rule: Rule) -> None:
        """A rule of that name that is there already stays."""
        ...

    async def replace_rule(self, path: str, rule: Rule) -> None: ...

    async def remove_rule(self, path: str, name: str) -> None:
        """One that is gone already stays away."""
        ...

    async def rotate_keys(self, path: str) -> None:
        """New keys for the entity's authorization rules."""
        ...

    async def disable_store(self, name: str) -> None: ...

    async def enable_store(self, name: str) -> None: ...


@dataclass(frozen=True)
class Made:
    """How an entity was made."""

    description: Entity
    #: Of a subscription.
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Subject:
    """The entity that is changed, and what a change may need beside it."""

    path: str
    #: One of `kinds.KINDS`.
    kind: str
    #: Queues that exist for it to forward to, in other stores where there are several: two or more, or none for a
    #: kind that cannot forward.
    targets: tuple[str, ...]
    #: The store that holds it, or one of its fragments.
    store: str
    #: The entity as it is while nobody changes it, then what goes with it when it is deleted: a topic's
    #: subscriptions.
    made: tuple[Made, ...] = ()
    #: A queue for a neighbour to forward to whose messages nobody counts.
    elsewhere: str = ""

    def usual(self, name: str) -> object:
        """A property as it is while nobody changes it."""
        return getattr(self.made[0].description, name)


Step = Callable[[Administrator, Subject], Awaitable[None]]


@dataclass(frozen=True)
class Change:
    """One thing an operator does, there and back again."""

    name: str
    #: The kinds of entities that it can be done to; for each other kind the reason why not.
    impossible: Mapping[str, str]
    there: tuple[Step, ...]
    back: tuple[Step, ...]
    #: Messages of the entity may go away with it (it is deleted): what traffic may then miss.
    drops_messages: bool = False
    #: Of the namespace that allows it.
    sku: str = "Standard"
    #: Properties of the subject that must be so for it to be possible, by the description's fields.
    needs: Mapping[str, object] = field(default_factory=dict)
    #: Made by links of clients: only in process.
    is_by_links: bool = False
    #: (the traffic that it is possible under, why under no other)
    only_with: tuple[str, str] | None = None

    def steps(self) -> tuple[Step, ...]:
        return self.there + self.back
