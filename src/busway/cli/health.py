"""`busway connection-string` and `busway health`: how a data directory's server is reached, and whether it answers.

Health is for containers and supervisors. It asks on this machine, at the port that the server has written down, so it
needs neither a key nor a name that leads here. The certificate is not checked: the question is whether somebody
answers, and nothing is told but that.
"""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli.output import print_json
from busway.cli.verbs import CommandFailed, DataOption, JsonOption, connection_string_of, verb

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from busway.data_directory import DataDirectory

_TIMEOUT_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.05
_ANSWER_BYTES_MAX: Final = 4096


def register(app: typer.Typer) -> None:
    verb(app, "connection-string", "export BUSWAY_CONNECTION_STRING=$(busway connection-string)")(
        connection_string
    )
    verb(app, "health", "busway health --data /var/lib/busway")(health)


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


def health(
    data: DataOption = None,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", help="Wait so long until the server is healthy.", min=0),
    ] = 0.0,
    ready: Annotated[
        bool,
        typer.Option("--ready", help="Ask whether it serves the bus: a standby is healthy, and not ready."),
    ] = False,
) -> None:
    """Ask the server of a data directory whether it is healthy. Exit status 0: it is; 1: it does not answer, or it is
    not ready where that was asked."""
    wanted = "ready" if ready else "healthy"
    from busway.data_directory import DataDirectory
    from busway.serve_options import default_data_directory

    directory = DataDirectory(data or default_data_directory())
    until = time.monotonic() + wait
    while (fault := _fault(directory, wanted)) is not None:
        if time.monotonic() >= until:
            raise CommandFailed(f"Not {wanted}: {fault}")
        time.sleep(_LOOK_EVERY_S)
    typer.echo(wanted)


def _fault(directory: "DataDirectory", wanted: str) -> str | None:
    """None: it is `healthy`, or `ready`."""
    from http.client import HTTPException
    from urllib.parse import urlsplit

    from busway.data_directory import DataDirectoryError

    try:
        address = urlsplit(str(directory.read_server().get("console_url", "")))
        answer = _ask(address, "/ready" if wanted == "ready" else "/health")
    except DataDirectoryError:
        return f"no server has used {directory.path} yet."
    except (OSError, ValueError, HTTPException) as error:
        return f"the server does not answer ({error})."
    status, detail = str(answer.get("status", "")), answer.get("detail")
    if status == wanted:
        return None
    return str(detail) if detail else f"the server says {status!r}."


def _ask(address: "SplitResult", path: str) -> dict[str, object]:
    """Beyond loopback the name is the certificate's, which may lead elsewhere or nowhere from here."""
    import json
    import ssl
    from http.client import HTTPConnection, HTTPSConnection

    host = address.hostname or ""
    if address.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: HTTPConnection = HTTPSConnection(
            "127.0.0.1", address.port, timeout=_TIMEOUT_S, context=context
        )
    else:
        connection = HTTPConnection(host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Host": address.netloc})
        answer = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}
