"""What a configuration file wants of one entity, and its keys laid over those that are there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from busway.model.descriptions import (
    AuthorizationRule,
    Description,
    QueueDescription,
    TopicDescription,
    with_values,
)
from busway.model.entity_path import path_key
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
