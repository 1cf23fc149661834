"""A queue, topic or subscription on the terminal or as JSON: flat, under the properties' own names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from busway.cli.output import print_json, print_table, shown

if TYPE_CHECKING:
    from busway.client.entity_entry import EntityEntry

#: Heads of the columns and the numbers below them.
RECEIVABLE_COLUMNS: Final = {
    "ACTIVE": "ActiveMessageCount",
    "DEAD-LETTERED": "DeadLetterMessageCount",
    "SCHEDULED": "ScheduledMessageCount",
    "BYTES": "SizeInBytes",
}
SUBSCRIPTION_COLUMNS: Final = {
    "ACTIVE": "ActiveMessageCount",
    "DEAD-LETTERED": "DeadLetterMessageCount",
}
TOPIC_COLUMNS: Final = {
    "SUBSCRIPTIONS": "SubscriptionCount",
    "SCHEDULED": "ScheduledMessageCount",
    "BYTES": "SizeInBytes",
}
FRAGMENT_COLUMNS: Final = {
    "FRAGMENT": "index",
    "STORE": "store",
    "HEALTH": "health",
    "ACTIVE": "active",
    "DEAD-LETTERED": "deadLettered",
    "SCHEDULED": "scheduled",
    "DEFERRED": "deferred",
    "BYTES": "sizeInBytes",
}


def tell(entity: "EntityEntry", sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(as_object(entity))
    else:
        typer.echo(sentence)


def show(entity: "EntityEntry", as_json: bool) -> None:
    if as_json:
        print_json(as_object(entity))
        return
    for key, value in as_object(entity).items():
        typer.echo(f"{key}: {_rule_names(entity) if key == 'AuthorizationRules' else shown(value)}")


def show_fragments(fragments: Sequence[dict[str, object]], as_json: bool) -> None:
    """Each fragment of an entity: where it lies, how its store is, what it holds."""
    if as_json:
        print_json(list(fragments))
        return
    rows = [[fragment.get(key) for key in FRAGMENT_COLUMNS.values()] for fragment in fragments]
    print_table(tuple(FRAGMENT_COLUMNS), rows)


def show_all(entities: "Sequence[EntityEntry]", columns: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json([as_object(entity) for entity in entities])
        return
    rows = [
        [entity.name, entity.properties.get("Status"), *(entity.numbers.get(key) for key in columns.values())]
        for entity in entities
    ]
    print_table(("NAME", "STATUS", *columns), rows)


def as_object(entity: "EntityEntry") -> dict[str, object]:
    """Keys stay behind: `busway key list --show-keys` has them."""
    written: dict[str, object] = {"name": entity.name, **entity.properties, **entity.numbers}
    if entity.kind.word != "subscription":
        written["AuthorizationRules"] = [
            {"name": rule.name, "rights": list(rule.rights)} for rule in entity.rules
        ]
    return written


def _rule_names(entity: "EntityEntry") -> str:
    return ", ".join(shown(rule.name) for rule in entity.rules) or "-"
