"""`busway topic create|show|list|update|delete`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from busway.cli.entity_output import TOPIC_COLUMNS, show, show_all, show_fragments, tell
from busway.cli.failures import WrongCall
from busway.cli.output import example
from busway.cli.property_options import with_property_options
from busway.cli.target import (
    CaFileOption,
    ConnectionStringOption,
    DataOption,
    FragmentsOption,
    JsonOption,
    administration,
)
from busway.client.entity_properties import TOPIC_PROPERTIES, Value

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic's path.")]

family = typer.Typer(
    help="Create, show, list, change and delete topics.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    app.add_typer(
        family, name="topic", epilog=example("busway topic create news --default-message-time-to-live P1D")
    )


@family.command("create", epilog=example("busway topic create news --default-message-time-to-live P1D"))
@with_property_options(TOPIC_PROPERTIES)
def create(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic. Properties that are not given have the service's defaults."""
    with administration(connection_string, ca_file, data) as client:
        tell(client.create_topic(name, properties), f"Topic {name} is created.", as_json)


@family.command("update", epilog=example("busway topic update news --status SendDisabled"))
@with_property_options(TOPIC_PROPERTIES, changeable_only=True)
def update(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change properties of a topic; the others stay as they are."""
    if not properties:
        raise WrongCall("Nothing to change: give at least one property, for example --user-metadata TEXT.")
    with administration(connection_string, ca_file, data) as client:
        changed = client.update_topic(client.get_topic(name).changed(properties))
        tell(changed, f"Topic {name} is changed.", as_json)


@family.command("show", epilog=example("busway topic show news --json"))
def show_topic(
    name: NameArgument,
    fragments: FragmentsOption = False,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a topic's properties and counts, or its fragments."""
    with administration(connection_string, ca_file, data) as client:
        found = client.get_topic(name)
        if fragments:
            show_fragments(client.fragments(name), as_json)
        else:
            show(found, as_json)


@family.command("list", epilog=example("busway topic list"))
def list_topics(
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all topics with their counts."""
    with administration(connection_string, ca_file, data) as client:
        show_all(list(client.list_topics()), TOPIC_COLUMNS, as_json)


@family.command("delete", epilog=example("busway topic delete news"))
def delete(
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a topic with its subscriptions and all their messages."""
    with administration(connection_string, ca_file, data) as client:
        client.delete_topic(name)
    typer.echo(f"Topic {name} is deleted.")
