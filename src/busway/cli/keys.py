"""`busway key list|create|rotate|delete`: SAS rules of the namespace, of a queue or a topic (A-1, A-2, A-10).

Keys are printed only with --show-keys.
"""

import base64
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.output import print_json, print_table
from busway.cli.verbs import (
    BusTarget,
    CommandFailed,
    JsonOption,
    ServerOptions,
    WrongCall,
    example,
    verb,
    verb_family,
)

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.client.atom_entries import EntityEntry, KeyRule

#: The order in which the service lists them.
RIGHTS = {"manage": "Manage", "listen": "Listen", "send": "Send"}

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="[ENTITY] NAME", help="The rule; with a queue or topic before it, a rule of that one."
    ),
]
ShowKeysOption = Annotated[bool, typer.Option("--show-keys", help="Print the keys too: they are secrets.")]

family = verb_family("List, create, rotate and delete keys (SAS rules).")


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="key", epilog=example("busway key create orders worker --rights listen"))


class Rules:
    """The rules of one place: the namespace, one queue, or one topic."""

    def __init__(self, client: "ServiceBusAdministrationClient", entity: str | None) -> None:
        self._client = client
        self._entity = entity

    def all(self) -> "list[KeyRule]":
        return self._client.key_rules() if self._entity is None else list(self._owner(self._entity).rules)

    def named(self, name: str) -> "KeyRule":
        for rule in self.all():
            if rule.name == name:
                return rule
        raise CommandFailed(f"There is no rule '{name}' {self._place()}.")

    def put(self, rule: "KeyRule") -> None:
        if self._entity is None:
            self._client.put_key_rule(rule)
            return
        owner = self._owner(self._entity)
        others = [known for known in owner.rules if known.name != rule.name]
        self._client.update(owner.with_rules([*others, rule]))

    def delete(self, name: str) -> None:
        if self._entity is None:
            self._client.delete_key_rule(name)
            return
        owner = self._owner(self._entity)
        self._client.update(owner.with_rules(rule for rule in owner.rules if rule.name != name))

    def _owner(self, name: str) -> "EntityEntry":
        if "/subscriptions/" in name.lower():
            raise WrongCall("A subscription has no keys of its own: those of its topic count for it.")
        return self._client.get_queue_or_topic(name)

    def _place(self) -> str:
        return "in the namespace" if self._entity is None else f"on {self._entity}"


@verb(family, "list", "busway key list orders")
def list_rules(
    entity: Annotated[
        str | None, typer.Argument(metavar="[ENTITY]", help="A queue or topic; else the namespace.")
    ] = None,
    *,
    server: ServerOptions,
    show_keys: ShowKeysOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the rules and their rights."""
    with _rules(server.find(), entity) as rules:
        found = rules.all()
    if as_json:
        print_json([_as_object(rule, show_keys) for rule in found])
        return
    heads = ("NAME", "RIGHTS", "PRIMARY KEY", "SECONDARY KEY") if show_keys else ("NAME", "RIGHTS")
    rows = [
        (rule.name, ", ".join(rule.rights), *((rule.primary_key, rule.secondary_key) if show_keys else ()))
        for rule in found
    ]
    print_table(heads, rows)


@verb(family, "create", "busway key create orders worker --rights listen --show-keys")
def create(
    names: Names,
    rights: Annotated[
        str, typer.Option("--rights", metavar="LIST", help="send, listen and manage, with commas between.")
    ] = "send,listen",
    *,
    server: ServerOptions,
    show_keys: ShowKeysOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a rule with two new keys."""
    from busway.client.atom_entries import KeyRule

    entity, name = _entity_and_name(names)
    rule = KeyRule(name, parse_rights(rights), _new_key(), _new_key())
    target = server.find()
    with _rules(target, entity) as rules:
        if any(known.name == name for known in rules.all()):
            raise CommandFailed(f"There is a rule '{name}' already: rotate its keys or delete it first.")
        rules.put(rule)
    _tell(target, entity, rule, f"Rule {name} is created.", show_keys, as_json)


@verb(family, "rotate", "busway key rotate orders worker --key secondary --show-keys")
def rotate(
    names: Names,
    which: Annotated[
        str, typer.Option("--key", metavar="WHICH", help="primary or secondary: the key to replace.")
    ] = "primary",
    *,
    server: ServerOptions,
    show_keys: ShowKeysOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replace one key of a rule. Tokens made with the old one end at once."""
    if which not in ("primary", "secondary"):
        raise WrongCall(f"--key is primary or secondary, not '{which}'.")
    entity, name = _entity_and_name(names)
    target = server.find()
    with _rules(target, entity) as rules:
        present = rules.named(name)
        rule = (
            replace(present, primary_key=_new_key())
            if which == "primary"
            else replace(present, secondary_key=_new_key())
        )
        rules.put(rule)
    _tell(target, entity, rule, f"The {which} key of rule {name} is replaced.", show_keys, as_json)


@verb(family, "delete", "busway key delete orders worker")
def delete(
    names: Names,
    *,
    server: ServerOptions,
) -> None:
    """Delete a rule; its tokens end at once."""
    entity, name = _entity_and_name(names)
    with _rules(server.find(), entity) as rules:
        rules.named(name)
        rules.delete(name)
    typer.echo(f"Rule {name} is deleted.")


def parse_rights(text: str) -> tuple[str, ...]:
    """Manage includes the other two, and a rule that has it must list all three (A-1)."""
    wanted = {part.strip().lower() for part in text.split(",") if part.strip()}
    unknown = wanted - RIGHTS.keys()
    if unknown or not wanted:
        raise WrongCall(f"--rights is a list of send, listen and manage, not '{text}'.")
    return tuple(RIGHTS[right] for right in RIGHTS if right in wanted or "manage" in wanted)


def _entity_and_name(names: list[str]) -> tuple[str | None, str]:
    if len(names) == 1:
        return None, names[0]
    if len(names) == 2:
        return names[0], names[1]
    raise WrongCall("Give the rule's name, or a queue or topic and the rule's name.")


@contextmanager
def _rules(target: BusTarget, entity: str | None) -> Iterator[Rules]:
    with target.administration() as client:
        yield Rules(client, entity)


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _as_object(rule: "KeyRule", show_keys: bool) -> dict[str, object]:
    shown: dict[str, object] = {"name": rule.name, "rights": list(rule.rights)}
    if show_keys:
        shown |= {"primaryKey": rule.primary_key, "secondaryKey": rule.secondary_key}
    return shown


def _tell(
    target: BusTarget, entity: str | None, rule: "KeyRule", sentence: str, show_keys: bool, as_json: bool
) -> None:
    from busway.client.connection_string import compose

    if as_json:
        print_json(_as_object(rule, show_keys))
        return
    typer.echo(sentence)
    if show_keys:
        connection = target.connection
        text = compose(
            connection.host, connection.port, rule.name, rule.primary_key, emulator=connection.emulator
        )
        typer.echo(text if entity is None else f"{text};EntityPath={entity}")
