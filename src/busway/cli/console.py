"""`busway console`: opens the console in a browser, signed in.

A key in an address would stay in the browser's history and in lists of processes. So this verb signs a token that
lasts for a working day, leaves it with the server, and opens an address with a code in it that is good once.
"""

import time
from typing import Annotated, Final

import typer

from busway.cli.verbs import ServerOptions, verb

TOKEN_S: Final = 12 * 3600


def register(app: typer.Typer) -> None:
    verb(app, "console", "busway console --no-open")(console)


def console(
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, and leave the browser to you.")
    ] = False,
    *,
    server: ServerOptions,
) -> None:
    """Open the console in a browser, signed in. The address is good once, for a minute; whoever opens it may do what
    your key may."""
    from busway.client.connection_string import token_for

    target = server.find()
    connection = target.connection
    address = f"{'http' if connection.emulator else 'https'}://{connection.authority}"
    below = connection.entity_path or ""
    token = token_for(connection, f"{address}/{below}", time.time(), valid_s=TOKEN_S)
    with target.administration() as client:
        code = client.leave_token(token, below)
    url = f"{address}/$console#code={code}"
    if no_open or not _is_opened(url):
        typer.echo(url)


def _is_opened(url: str) -> bool:
    import webbrowser

    typer.echo("Opening the console in your browser. If nothing opens: busway console --no-open", err=True)
    return webbrowser.open(url)
