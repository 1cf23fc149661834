"""`busway stores`: what the stores hold, and taking one out of service."""

from typing import Annotated

import typer

from busway.cli.output import example, print_json, print_table
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, JsonOption, find_target

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The store's name.")]

family = typer.Typer(
    help="List the stores; take one out of service, or back.",
    rich_markup_mode=None,
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="stores", epilog=example("busway stores --json"))


@family.callback()
def _list(
    context: typer.Context,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the stores: name, state, number of fragments, address."""
    target = find_target(connection_string, ca_file, data) if context.invoked_subcommand is None else None
    if target is None:
        context.obj = (connection_string, ca_file, data)
        return
    from busway.client.administration import ServiceBusAdministrationClient

    with ServiceBusAdministrationClient(target.connection, target.ca_file) as client:
        stores = client.stores()
    if as_json:
        print_json(stores)
    else:
        rows = [[store.get(key) for key in ("name", "state", "fragments", "url")] for store in stores]
        print_table(("NAME", "STATE", "FRAGMENTS", "ADDRESS"), rows)


@family.command("disable", epilog=example("busway stores disable store-1"))
def disable(
    context: typer.Context,
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Take a store out of service; this survives a restart. What it holds is kept."""
    _switch(context, name, False, connection_string, ca_file, data)


@family.command("enable", epilog=example("busway stores enable store-1"))
def enable(
    context: typer.Context,
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Take a store back into service."""
    _switch(context, name, True, connection_string, ca_file, data)


def _switch(
    context: typer.Context,
    name: str,
    enabled: bool,
    connection_string: ConnectionStringOption,
    ca_file: CaFileOption,
    data: DataOption,
) -> None:
    from busway.client.administration import ServiceBusAdministrationClient

    given = context.obj if isinstance(context.obj, tuple) else (None, None, None)
    target = find_target(connection_string or given[0], ca_file or given[1], data or given[2])
    with ServiceBusAdministrationClient(target.connection, target.ca_file) as client:
        client.set_store_enabled(name, enabled)
    typer.echo(f"Store {name} is {'in service' if enabled else 'out of service'}.")
