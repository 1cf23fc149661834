"""`busway queue create|show|list|update|delete`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from busway.cli.entity_output import RECEIVABLE_COLUMNS, show, show_all, show_fragments, tell
from busway.cli.failures import WrongCall
from busway.cli.forward_cycles import has_forward, warn_of_cycle
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
from busway.client.entity_properties import QUEUE_PROPERTIES, Value

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's path.")]

family = typer.Typer(
    help="Create, show, list, change and delete queues.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    app.add_typer(
        family,
        name="queue",
        epilog=example("busway queue create orders --lock-duration PT30S --max-delivery-count 5"),
    )


@family.command(
    "create", epilog=example("busway queue create orders --lock-duration PT30S --max-delivery-count 5")
)
@with_property_options(QUEUE_PROPERTIES)
def create(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a queue. Properties that are not given have the service's defaults."""
    with administration(connection_string, ca_file, data) as client:
        tell(client.create_queue(name, properties), f"Queue {name} is created.", as_json)
        if has_forward(properties):
            warn_of_cycle(client, name)


@family.command("update", epilog=example("busway queue update orders --status ReceiveDisabled"))
@with_property_options(QUEUE_PROPERTIES, changeable_only=True)
def update(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change properties of a queue; the others stay as they are."""
    if not properties:
        raise WrongCall("Nothing to change: give at least one property, for example --user-metadata TEXT.")
    with administration(connection_string, ca_file, data) as client:
        changed = client.update_queue(client.get_queue(name).changed(properties))
        tell(changed, f"Queue {name} is changed.", as_json)
        if has_forward(properties):
            warn_of_cycle(client, name)


@family.command("show", epilog=example("busway queue show orders --json"))
def show_queue(
    name: NameArgument,
    fragments: FragmentsOption = False,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a queue's properties and counts, or its fragments."""
    with administration(connection_string, ca_file, data) as client:
        found = client.get_queue(name)
        if fragments:
            show_fragments(client.fragments(name), as_json)
        else:
            show(found, as_json)


@family.command("list", epilog=example("busway queue list"))
def list_queues(
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all queues with their counts."""
    with administration(connection_string, ca_file, data) as client:
        show_all(list(client.list_queues()), RECEIVABLE_COLUMNS, as_json)


@family.command("delete", epilog=example("busway queue delete orders"))
def delete(
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a queue with all its messages."""
    with administration(connection_string, ca_file, data) as client:
        client.delete_queue(name)
    typer.echo(f"Queue {name} is deleted.")
