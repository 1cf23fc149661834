"""`busway reset`."""

import typer

from busway.cli.target import ServerOptions
from busway.cli.verbs import verb


def register(app: typer.Typer) -> None:
    verb(app, "reset", "busway reset --data ./bus")(reset)


def reset(
    *,
    server: ServerOptions,
) -> None:
    """Empty the bus: all entities, messages, rules and keys go, but for the root key. The server must have been
    started with --allow-reset."""
    with server.administration() as client:
        client.reset()
    typer.echo("The bus is empty.")
