"""`busway connection-string`."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.failures import CommandFailed
from busway.cli.output import print_json
from busway.cli.target import DataOption, JsonOption, connection_string_of
from busway.cli.verbs import verb

if TYPE_CHECKING:
    from busway.data_directory import DataDirectory

_LOOK_EVERY_S: Final = 0.05


def register(app: typer.Typer) -> None:
    verb(app, "connection-string", "export BUSWAY_CONNECTION_STRING=$(busway connection-string)")(
        connection_string
    )


def connection_string(
    data: DataOption = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="Wait until the server accepts connections.", min=0),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the server's connection string. The server is the one that last used the data directory."""
    from busway.data_directory import DataDirectory
    from busway.serve_options import default_data_directory

    directory = DataDirectory(data or default_data_directory())
    if wait is not None:
        _wait_for_server(directory, wait)
    text = connection_string_of(directory)
    if as_json:
        print_json({"connection_string": text})
    else:
        typer.echo(text)


def _wait_for_server(directory: "DataDirectory", seconds: float) -> None:
    until = time.monotonic() + seconds
    while not _is_served(directory):
        if time.monotonic() > until:
            raise CommandFailed(
                f"No server accepts connections for {directory.path} after {seconds:g} seconds."
            )
        time.sleep(_LOOK_EVERY_S)


def _is_served(directory: "DataDirectory") -> bool:
    """A server that is gone has left its address; one that is starting has not written it yet."""
    import socket

    from busway.client.connection_string import ConnectionString
    from busway.data_directory import DataDirectoryError

    try:
        target = ConnectionString.parse(connection_string_of(directory))
        socket.create_connection((target.host, target.amqp_port), timeout=1).close()
    except (DataDirectoryError, CommandFailed, OSError):
        return False
    return True
