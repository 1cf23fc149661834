"""What every verb has: how it is declared, which server it talks to, and how it fails.

Options that many verbs have are declared once, and an example with each verb. A parameter whose type is an
`OptionGroup` stands for all options of that class, and the verb gets one object of it.

Which server a verb talks to, and which authority it trusts, is found in this order: --connection-string,
BUSWAY_CONNECTION_STRING, the server that last used the data directory (--data, BUSWAY_DATA, else the user's own).
The last one makes a second terminal work without any set-up.

A verb that fails raises `WrongCall` or `CommandFailed`; `sentence_of` makes of any error what people read.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from busway.client.connection_string import BadConnectionString, ConnectionString, compose
from busway.data_directory import DataDirectory, DataDirectoryError
from busway.model.descriptions import ROOT_RULE_NAME
from busway.serve_options import default_data_directory

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient


class WrongCall(Exception):
    """The options or arguments make no sense together: exit code 2."""


class CommandFailed(Exception):
    """The work could not be done: exit code 1."""


def sentence_of(error: Exception) -> str:
    """One sentence, whatever it was. Our own errors bring theirs along."""
    from busway.client.atom_entries import BadAnswer
    from busway.client.connection_string import BadConnectionString
    from busway.client.errors import ClientError
    from busway.data_directory import DataDirectoryError
    from busway.model.errors import BrokerError

    if isinstance(error, CommandFailed | ClientError | BadAnswer | BadConnectionString | DataDirectoryError):
        return str(error)
    if isinstance(error, BrokerError):  # the checks that both ends share, on what a server answered
        return error.sentence
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename is not None else ""
        return f"{error.strerror or error}{':' if where else ''}{where}."
    text = str(error)
    return (
        f"Something unexpected happened: {type(error).__name__}{': ' + text if text else ''}. "
        "Set BUSWAY_DEBUG=1 to see where."
    )


#: What typer calls: its parameters are the arguments and options.
Command = TypeVar("Command", bound=Callable[..., object])


class OptionGroup:
    """Made a dataclass whose fields are annotated as typer wants its options."""


def verb_family(about: str, **settings: Any) -> typer.Typer:
    """Verbs below a common word; that word alone shows the help, unless the settings say otherwise."""
    return typer.Typer(help=about, rich_markup_mode=None, **{"no_args_is_help": True, **settings})


def verb(
    app: typer.Typer, name: str, call: str, *, about: str | None = None, **settings: Any
) -> Callable[[Command], Command]:
    """Adds a verb with its example; what it does is told by `about`, else by its docstring."""

    def declare(command: Command) -> Command:
        app.command(name, help=about, epilog=example(call), **settings)(ungrouped(command))
        return command

    return declare


def example(call: str) -> str:
    """The last lines of a verb's help; the mark keeps the call from being wrapped."""
    return f"\b\nExample:\n  {call}"


def ungrouped(command: Callable[..., object]) -> Callable[..., object]:
    """The same command with the options of its groups as parameters of its own."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: _options(each.annotation) for each in own if _is_group(each.annotation)}
    if not groups:
        return command

    @functools.wraps(command)
    def regroup(**arguments: object) -> object:
        for each in own:
            if each.name in groups:
                given = {option.name: arguments.pop(option.name) for option in groups[each.name]}
                arguments[each.name] = each.annotation(**given)
        return command(**arguments)

    return with_parameters(regroup, [option for each in own for option in groups.get(each.name, [each])])


def with_parameters(
    command: Callable[..., object], parameters: Sequence[inspect.Parameter]
) -> Callable[..., object]:
    """Has typer see these as what the command takes, all of them by name."""
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(named)
    command.__annotations__ = {each.name: each.annotation for each in named}
    return command


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options(group: type) -> list[inspect.Parameter]:
    return list(inspect.signature(group, eval_str=True).parameters.values())


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

    def find(self) -> "BusTarget":
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
class BusTarget:
    """Which server a verb talks to, and which authority it trusts."""

    text: str = field(repr=False)  # the connection string; holds the key
    connection: ConnectionString
    ca_file: Path | None

    def administration(self) -> "ServiceBusAdministrationClient":
        from busway.client.administration import ServiceBusAdministrationClient

        return ServiceBusAdministrationClient(self.connection, self.ca_file)


def find_target(text: str | None, ca_file: Path | None, data: Path | None) -> BusTarget:
    directory = DataDirectory(data or default_data_directory())
    if text is None:
        return _target_of_directory(directory, ca_file)
    try:
        connection = ConnectionString.parse(text)
    except BadConnectionString as error:
        raise WrongCall(str(error)) from error
    return BusTarget(text, connection, ca_file or _authority_of(directory, connection))


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
    if facts.get("serving") is False:
        raise CommandFailed(
            f"The server of {directory.path} does not serve the bus now: it is a standby, or starting. Ask the node"
            " that has the stores."
        )
    emulator = facts.get("emulator", True) is not False
    return compose(host, port, ROOT_RULE_NAME, _root_key(directory, facts), emulator=emulator)


def _target_of_directory(directory: DataDirectory, ca_file: Path | None) -> BusTarget:
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
    return BusTarget(text, ConnectionString.parse(text), ca_file)


def _root_key(directory: DataDirectory, facts: dict[str, object]) -> str:
    key_file = facts.get("key_file")
    key = Path(key_file).read_text().strip() if isinstance(key_file, str) else directory.read_root_key()
    if not key:
        raise CommandFailed(f"{directory.path / 'root.key'} is missing or empty: start the server again.")
    return key
