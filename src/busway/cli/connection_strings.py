"""`busway connection-string`."""

import typer

from busway.cli.output import example, print_json
from busway.cli.target import DataOption, JsonOption, connection_string_of


def register(app: typer.Typer) -> None:
    app.command(
        "connection-string", epilog=example("export BUSWAY_CONNECTION_STRING=$(busway connection-string)")
    )(connection_string)


def connection_string(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Print the connection string of the server that last used the data directory."""
    from busway.data_directory import DataDirectory
    from busway.serve_options import default_data_directory

    text = connection_string_of(DataDirectory(data or default_data_directory()))
    if as_json:
        print_json({"connection_string": text})
    else:
        typer.echo(text)
