"""`busway reset`."""

import typer

from busway.cli.output import example
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, administration


def register(app: typer.Typer) -> None:
    app.command("reset", epilog=example("busway reset --data ./bus"))(reset)


def reset(
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Empty the bus: all entities, messages, rules and keys go, but for the root key. The server must have been
    started with --allow-reset."""
    with administration(connection_string, ca_file, data) as client:
        client.reset()
    typer.echo("The bus is empty.")
