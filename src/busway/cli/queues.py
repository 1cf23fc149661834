"""`busway queue create|show|list|update|delete`."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.failures import WrongCall
from busway.cli.output import example, print_json, print_table, shown
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, JsonOption, find_target
from busway.client.queue_properties import QUEUE_PROPERTIES, Kind, Property, Value

if TYPE_CHECKING:
    from busway.client.administration import ServiceBusAdministrationClient
    from busway.client.queue_entry import QueueEntry

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's path.")]

family = typer.Typer(
    help="Create, show, list, change and delete queues.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="queue", epilog=example("busway queue create orders --requires-session"))


def _with_property_options(changeable_only: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option for each property of the table; the command gets those that were used as
    `properties`. The table is the one that ATOM bodies are written from, so neither can lack what the other has."""
    offered = [known for known in QUEUE_PROPERTIES if known.changeable or not changeable_only]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "properties"
        ]

        @functools.wraps(command)
        def with_properties(**arguments: object) -> None:
            used = {known.element: arguments.pop(known.parameter) for known in offered}
            given = {element: value for element, value in used.items() if value is not None}
            command(**arguments, properties=given)

        parameters = own + [_parameter(known) for known in offered]
        vars(with_properties)["__signature__"] = inspect.Signature(parameters)
        with_properties.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_properties

    return decorate


def _parameter(known: Property) -> inspect.Parameter:
    types: dict[Kind, object] = {Kind.BOOLEAN: bool | None, Kind.INTEGER: int | None}
    names = f"--{known.option}"
    if known.kind is Kind.BOOLEAN:
        option = typer.Option(None, f"{names}/--no-{known.option}", help=known.meaning, show_default=False)
    else:
        option = typer.Option(None, names, help=known.meaning, metavar=known.kind.value)
    annotation = types.get(known.kind, str | None)
    return inspect.Parameter(
        known.parameter, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
    )


@family.command(
    "create", epilog=example("busway queue create orders --lock-duration PT30S --max-delivery-count 5")
)
@_with_property_options(changeable_only=False)
def create(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a queue. Properties that are not given have the service's defaults."""
    with _client(connection_string, ca_file, data) as client:
        _tell(client.create_queue(name, properties), f"Queue {name} is created.", as_json)


@family.command("update", epilog=example("busway queue update orders --status ReceiveDisabled"))
@_with_property_options(changeable_only=True)
def update(
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change properties of a queue; the others stay as they are."""
    if not properties:
        raise WrongCall("Nothing to change: give at least one property, for example --lock-duration PT30S.")
    with _client(connection_string, ca_file, data) as client:
        changed = client.update_queue(client.get_queue(name).changed(properties))
        _tell(changed, f"Queue {name} is changed.", as_json)


@family.command("show", epilog=example("busway queue show orders --json"))
def show(
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a queue's properties and counts."""
    with _client(connection_string, ca_file, data) as client:
        queue = client.get_queue(name)
    if as_json:
        print_json(_as_object(queue))
        return
    for key, value in _as_object(queue).items():
        typer.echo(f"{key}: {_rule_names(queue) if key == 'AuthorizationRules' else shown(value)}")


@family.command("list", epilog=example("busway queue list"))
def list_queues(
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all queues with their counts."""
    with _client(connection_string, ca_file, data) as client:
        queues = list(client.list_queues())
    if as_json:
        print_json([_as_object(queue) for queue in queues])
        return
    columns = ("ActiveMessageCount", "DeadLetterMessageCount", "ScheduledMessageCount", "SizeInBytes")
    rows = [
        [queue.name, queue.properties.get("Status"), *(queue.numbers.get(key) for key in columns)]
        for queue in queues
    ]
    print_table(("NAME", "STATUS", "ACTIVE", "DEAD-LETTERED", "SCHEDULED", "BYTES"), rows)


@family.command("delete", epilog=example("busway queue delete orders"))
def delete(
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a queue with all its messages."""
    with _client(connection_string, ca_file, data) as client:
        client.delete_queue(name)
    typer.echo(f"Queue {name} is deleted.")


def _client(
    connection_string: ConnectionStringOption, ca_file: CaFileOption, data: DataOption
) -> "ServiceBusAdministrationClient":
    from busway.client.administration import ServiceBusAdministrationClient

    target = find_target(connection_string, ca_file, data)
    return ServiceBusAdministrationClient(target.connection, target.ca_file)


def _tell(queue: "QueueEntry", sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(_as_object(queue))
    else:
        typer.echo(sentence)


def _as_object(queue: "QueueEntry") -> dict[str, object]:
    """Flat, under the properties' own names. Rules without their keys: `busway key list --show-keys` has them."""
    rules = [{"name": rule.name, "rights": list(rule.rights)} for rule in queue.rules]
    return {"name": queue.name, **queue.properties, **queue.numbers, "AuthorizationRules": rules}


def _rule_names(queue: "QueueEntry") -> str:
    return ", ".join(shown(rule.name) for rule in queue.rules) or "-"
