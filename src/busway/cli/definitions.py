"""`busway export` and `busway import`: the definition of a namespace as a configuration file."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json, progress
from busway.cli.verbs import CommandFailed, JsonOption, ServerOptions, verb

if TYPE_CHECKING:
    from busway.config.config import Config
    from busway.config.definition import ConfigChanges, Definition

_INPUT_BYTES_MAX: Final = 64 * 1024 * 1024
_PRIVATE: Final = 0o600

_EXPORT_HELP: Final = """Write all queues, topics, subscriptions, rules and keys to a file that busway import and
busway serve --config read. Messages are not in it.

The keys are secrets: the file is made readable for you alone (mode 0600). --without-keys leaves them out; whoever
imports such a file gets new ones. FILE - is standard output."""
_IMPORT_HELP: Final = """Bring a namespace to what a file says: one from busway export, or the emulator's Config.json.

Entities, rules and keys that the file does not name stay. A second run changes nothing. A property that cannot be
changed after creation and differs is an error, before anything is changed. If the file has another key for
RootManageSharedAccessKey, that key counts from then on. FILE - is standard input."""


def register(app: typer.Typer) -> None:
    verb(app, "export", "busway export bus.json", about=_EXPORT_HELP)(export)
    verb(app, "import", "busway import bus.json --dry-run", about=_IMPORT_HELP)(import_)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; - is standard output.")],
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Leave out the keys of authorization rules.")
    ] = False,
    *,
    server: ServerOptions,
) -> None:
    """See `_EXPORT_HELP`."""
    from busway.cli.remote_definition import read_definition
    from busway.config.definition import exported

    with server.administration() as client, progress("Reading", None) as bar:
        name = client.namespace_name()
        definition = read_definition(client, bar.advance)
    text = json.dumps(exported(name, definition, with_keys=not without_keys), indent=2, ensure_ascii=False)
    if str(file) == "-":
        typer.echo(text)
        return
    write_private(file, text + "\n")
    typer.echo(f"Wrote {_counted(len(definition.entities))} to {file}.", err=True)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read; - is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed.")] = False,
    *,
    server: ServerOptions,
    as_json: JsonOption = False,
) -> None:
    """See `_IMPORT_HELP`."""
    from busway.cli.remote_definition import RemoteChanges, read_definition
    from busway.config.definition import changes_of
    from busway.config.node import ConfigError

    config = _read(file)
    with server.administration() as client:
        with progress("Reading", None) as bar:
            present = read_definition(client, bar.advance)
        try:
            changes = changes_of(config, present)
        except ConfigError as error:
            raise CommandFailed(str(error)) from error
        if not dry_run:
            with progress("Importing", changes.count) as bar:
                RemoteChanges(client, present, bar.advance).apply(changes)
    _tell(changes, dry_run, as_json)
    _warn_of_cycles(config, present, changes)
    _warn_of_root_key(present, changes, dry_run)


def _read(file: Path) -> "Config":
    from busway.config.config import parse_config
    from busway.config.node import ConfigError

    data = sys.stdin.buffer.read(_INPUT_BYTES_MAX) if str(file) == "-" else file.read_bytes()
    try:
        return parse_config(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CommandFailed(f"The file {file} is not UTF-8 text.") from error
    except ConfigError as error:
        raise CommandFailed(f"In the file {file}: {error}") from error


def write_private(file: Path, text: str) -> None:
    """The file is there as a whole or not at all, and never readable for others, not even for a moment."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _tell(changes: "ConfigChanges", dry_run: bool, as_json: bool) -> None:
    sentences = list(changes.sentences())
    if as_json:
        print_json({"changes": sentences, "applied": not dry_run})
        return
    for sentence in sentences:
        typer.echo(f"{'would ' if dry_run else ''}{sentence}")
    if not sentences:
        typer.echo("Nothing to change.")


def _warn_of_cycles(config: "Config", present: "Definition", changes: "ConfigChanges") -> None:
    from busway.cli.entities import cycle_through, warn
    from busway.model.descriptions import SubscriptionDescription, TopicDescription

    entities = {wish.description.path: wish.description for wish in config.entities}
    others = [each for each in present.entities.values() if each.path not in entities]
    forwards: dict[str, list[str]] = {}
    for each in (*entities.values(), *others):
        if isinstance(each, SubscriptionDescription):
            forwards.setdefault(each.topic_path, []).append(each.path)
        if not isinstance(each, TopicDescription):
            forwards[each.path] = [each.forward_to or "", each.forward_dead_lettered_messages_to or ""]
    changed = [new.description for new in changes.created] + [update.wanted for update in changes.updated]
    told: set[frozenset[str]] = set()
    for each in changed:
        way = cycle_through(each.path, forwards)
        if way is not None and frozenset(way) not in told:
            told.add(frozenset(way))
            warn(way)


def _warn_of_root_key(present: "Definition", changes: "ConfigChanges", dry_run: bool) -> None:
    from busway.model.descriptions import ROOT_RULE_NAME

    known = {rule.name: rule for rule in present.authorization_rules}
    wanted = {rule.name: rule for rule in changes.authorization_rules or present.authorization_rules}
    if known.get(ROOT_RULE_NAME) == wanted.get(ROOT_RULE_NAME):
        return
    time = "would be" if dry_run else "is now"
    typer.echo(
        f"busway: the key of {ROOT_RULE_NAME} {time} the file's: connection strings with the old one end.",
        err=True,
    )


def _counted(count: int) -> str:
    return "1 entity" if count == 1 else f"{count} entities"
