"""`busway stores`: what the stores hold; taking one out of service; copying all of them elsewhere. `busway reset`:
emptying all of them."""

from typing import Annotated, Final

import typer

from busway.cli.output import print_json, print_table
from busway.cli.store_copy import COPY_HELP, copy
from busway.cli.verbs import JsonOption, ServerOptions, example, ungrouped, verb, verb_family

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The store's name.")]

_KEYS: Final = ("name", "state", "owner", "epoch", "fragments", "url")

family = verb_family(
    "List the stores; take one out of service, or back.", no_args_is_help=False, invoke_without_command=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="stores", epilog=example("busway stores --json"))
    verb(app, "reset", "busway reset --data ./bus")(reset)


def _list(context: typer.Context, *, server: ServerOptions, as_json: JsonOption = False) -> None:
    """List the stores: name, state, who has it and how often that has changed, number of fragments, address."""
    if context.invoked_subcommand is not None:
        context.obj = server  # `busway stores --data DIR disable NAME` means that directory, too
        return
    with server.administration() as client:
        stores = client.stores()
    if as_json:
        print_json(stores)
    else:
        rows = [["–" if store.get(key) is None else store[key] for key in _KEYS] for store in stores]
        print_table(("NAME", "STATE", "OWNER", "EPOCH", "FRAGMENTS", "ADDRESS"), rows)


family.callback()(ungrouped(_list))


verb(
    family,
    "copy",
    "busway stores copy --data ./bus --to 'postgresql://bus@db1/bus?name=east&stores=4'",
    about=COPY_HELP,
)(copy)


@verb(family, "disable", "busway stores disable store-1")
def disable(context: typer.Context, name: NameArgument, *, server: ServerOptions) -> None:
    """Take a store out of service; this survives a restart. What it holds is kept."""
    _switch(context, name, False, server)


@verb(family, "enable", "busway stores enable store-1")
def enable(context: typer.Context, name: NameArgument, *, server: ServerOptions) -> None:
    """Take a store back into service."""
    _switch(context, name, True, server)


def _switch(context: typer.Context, name: str, enabled: bool, server: ServerOptions) -> None:
    if isinstance(context.obj, ServerOptions):
        server = server.completed(context.obj)
    with server.administration() as client:
        client.set_store_enabled(name, enabled)
    typer.echo(f"Store {name} is {'in service' if enabled else 'out of service'}.")


def reset(*, server: ServerOptions) -> None:
    """Empty the bus: all entities, messages, rules and keys go, but for the root key. The server must have been
    started with --allow-reset."""
    with server.administration() as client:
        client.reset()
    typer.echo("The bus is empty.")
