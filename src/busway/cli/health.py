"""`busway health`: whether the server of a data directory answers, for containers and supervisors.

It asks on this machine, at the port that the server has written down, so it needs neither a key nor a name that leads
here. The certificate is not checked: the question is whether somebody answers, and nothing is told but that.
"""

import http.client
import json
import ssl
import time
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import SplitResult, urlsplit

import typer

from busway.cli.failures import CommandFailed
from busway.cli.target import DataOption
from busway.cli.verbs import verb

if TYPE_CHECKING:
    from busway.data_directory import DataDirectory

_TIMEOUT_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.05
_ANSWER_BYTES_MAX: Final = 4096


def register(app: typer.Typer) -> None:
    verb(app, "health", "busway health --data /var/lib/busway")(health)


def health(
    data: DataOption = None,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", help="Wait so long until the server is healthy.", min=0),
    ] = 0.0,
) -> None:
    """Ask the server of a data directory whether it is healthy. Exit status 0: it is; 1: it does not answer."""
    from busway.data_directory import DataDirectory
    from busway.serve_options import default_data_directory

    directory = DataDirectory(data or default_data_directory())
    until = time.monotonic() + wait
    while (fault := _fault(directory)) is not None:
        if time.monotonic() >= until:
            raise CommandFailed(f"Not healthy: {fault}")
        time.sleep(_LOOK_EVERY_S)
    typer.echo("healthy")


def _fault(directory: "DataDirectory") -> str | None:
    """None: it is healthy."""
    from busway.data_directory import DataDirectoryError

    try:
        address = urlsplit(str(directory.read_server().get("console_url", "")))
        status = _ask(address)
    except DataDirectoryError:
        return f"no server has used {directory.path} yet."
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"the server does not answer ({error})."
    return None if status == "healthy" else f"the server says {status!r}."


def _ask(address: SplitResult) -> str:
    """Beyond loopback the name is the certificate's, which may lead elsewhere or nowhere from here."""
    host = address.hostname or ""
    if address.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", address.port, timeout=_TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/health", headers={"Host": address.netloc})
        answer = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    finally:
        connection.close()
    return str(answer.get("status")) if isinstance(answer, dict) else ""
