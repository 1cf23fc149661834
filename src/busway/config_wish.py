"""What a configuration file wants of one entity."""

from collections.abc import Mapping
from dataclasses import dataclass

from busway.broker.descriptions import Description, QueueDescription, TopicDescription, with_values
from busway.rules.rule import Rule


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
