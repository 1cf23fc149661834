"""Which server a verb talks to, and which authority it trusts.

In this order: --connection-string, BUSWAY_CONNECTION_STRING, the server that last used the data directory
(--data, BUSWAY_DATA, else the user's own). The last one makes a second terminal work without any set-up.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.failures import CommandFailed, WrongCall
from busway.cli.verbs import OptionGroup
from busway.client.connection_string import BadConnectionString, ConnectionString, compose
from busway.data_directory import DataDirectory, DataDirectoryError
from busway.model.sas_keys import ROOT_RULE_NAME
from busway.serve_options import default_data_directory

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient

DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", envvar="BUSWAY_DATA", help="The server's data directory."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]


@dataclass(frozen=True)
class ServerOptions(OptionGroup):
    """What the command line and the environment say of the server."""

    connection_string: Annotated[
        str | None,
        typer.Option(
            "--connection-string",
            metavar="TEXT",
            envvar="BUSWAY_CONNECTION_STRING",
            help="The server to talk to; without it, the one that last used --data.",
        ),
    ] = field(default=None, repr=False)  # holds the key
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            envvar="BUSWAY_CA_FILE",
            help="The certificate authority to trust for TLS.",
        ),
    ] = None
    data: DataOption = None

    def find(self) -> "Target":
        return find_target(self.connection_string, self.ca_file, self.data)

    def completed(self, others: "ServerOptions") -> "ServerOptions":
        """Those that are not given are taken from others."""
        return ServerOptions(
            self.connection_string or others.connection_string,
            self.ca_file or others.ca_file,
            self.data or others.data,
        )

    def administration(self) -> "ServiceBusAdministrationClient":
        return self.find().administration()


@dataclass(frozen=True)
class Target:
    text: str = field(repr=False)  # the connection string; holds the key
    connection: ConnectionString
    ca_file: Path | None

    def administration(self) -> "ServiceBusAdministrationClient":
        from busway.client.administration import ServiceBusAdministrationClient

        return ServiceBusAdministrationClient(self.connection, self.ca_file)


def find_target(text: str | None, ca_file: Path | None, data: Path | None) -> Target:
    directory = DataDirectory(data or default_data_directory())
    if text is None:
        return _target_of_directory(directory, ca_file)
    try:
        connection = ConnectionString.parse(text)
    except BadConnectionString as error:
        raise WrongCall(str(error)) from error
    return Target(text, connection, ca_file or _authority_of(directory, connection))


def _authority_of(directory: DataDirectory, connection: ConnectionString) -> Path | None:
    """A connection string says nothing of authorities; the data directory does when it is the same server's."""
    try:
        facts = directory.read_server()
    except (DataDirectoryError, OSError, ValueError):
        return None
    known = facts.get("ca_file")
    is_same = (facts.get("host"), facts.get("port")) == (connection.host, connection.port)
    return Path(known) if is_same and isinstance(known, str) else None


def connection_string_of(directory: DataDirectory) -> str:
    """The connection string of the last server that used the directory."""
    facts = directory.read_server()
    host, port = facts.get("host"), facts.get("port")
    if not isinstance(host, str) or not isinstance(port, int | None):
        raise CommandFailed(f"{directory.path / 'server.json'} is damaged: start the server again.")
    emulator = facts.get("emulator", True) is not False
    return compose(host, port, ROOT_RULE_NAME, _root_key(directory, facts), emulator=emulator)


def _target_of_directory(directory: DataDirectory, ca_file: Path | None) -> Target:
    try:
        text = connection_string_of(directory)
        facts = directory.read_server()
    except DataDirectoryError as error:
        raise CommandFailed(
            f"No server to talk to: none has used {directory.path} yet. Start one with busway serve, give "
            "--connection-string, or set BUSWAY_CONNECTION_STRING."
        ) from error
    known = facts.get("ca_file")
    if ca_file is None and isinstance(known, str):
        ca_file = Path(known)
    return Target(text, ConnectionString.parse(text), ca_file)


def _root_key(directory: DataDirectory, facts: dict[str, object]) -> str:
    key_file = facts.get("key_file")
    key = Path(key_file).read_text().strip() if isinstance(key_file, str) else directory.read_root_key()
    if not key:
        raise CommandFailed(f"{directory.path / 'root.key'} is missing or empty: start the server again.")
    return key
