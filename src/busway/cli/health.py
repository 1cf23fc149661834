"""`busway health`: whether the server of a data directory answers, for containers and supervisors.

It asks on this machine, at the port that the server has written down, so it needs neither a key nor a name that leads
here. The certificate is not checked: the question is whether somebody answers, and nothing is told but that.
"""

import http.client
import json
import ssl
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from busway.cli.failures import CommandFailed
from busway.cli.output import example
from busway.cli.target import DataOption

_TIMEOUT_S: Final = 5.0
_ANSWER_BYTES_MAX: Final = 4096


def register(app: typer.Typer) -> None:
    app.command("health", epilog=example("busway health --data /var/lib/busway"))(health)


def health(
    data: DataOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.", min=0.1)
    ] = _TIMEOUT_S,
) -> None:
    """Ask the server of a data directory whether it is healthy. Exit status 0: it is; 1: it does not answer."""
    from busway.data_directory import DataDirectory, DataDirectoryError
    from busway.serve_options import default_data_directory

    directory = DataDirectory(data or default_data_directory())
    try:
        address = urlsplit(str(directory.read_server().get("console_url", "")))
    except (DataDirectoryError, OSError, ValueError) as error:
        raise CommandFailed(f"Not healthy: no server has used {directory.path}.") from error
    try:
        status = _ask(address.scheme == "https", address.hostname or "", address.port, timeout)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CommandFailed(f"Not healthy: the server does not answer ({error}).") from error
    if status != "healthy":
        raise CommandFailed(f"Not healthy: the server says {status!r}.")
    typer.echo("healthy")


def _ask(is_https: bool, host: str, port: int | None, timeout: float) -> str:
    """Beyond loopback the name is the certificate's, which may lead elsewhere or nowhere from here."""
    if is_https:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/health", headers={"Host": host})
        answer = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    finally:
        connection.close()
    return str(answer.get("status")) if isinstance(answer, dict) else ""
