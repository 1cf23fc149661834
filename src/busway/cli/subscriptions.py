"""`busway subscription create|show|list|update|delete`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from busway.cli.entity_output import SUBSCRIPTION_COLUMNS, show, show_all, tell
from busway.cli.failures import WrongCall
from busway.cli.forward_cycles import has_forward, warn_of_cycle
from busway.cli.output import example
from busway.cli.property_options import with_property_options
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, JsonOption, administration
from busway.client.entity_properties import SUBSCRIPTION_PROPERTIES, Value

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's path.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]

family = typer.Typer(
    help="Create, show, list, change and delete subscriptions of topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(family, name="subscription", epilog=example("busway subscription create news sport"))


@family.command(
    "create",
    epilog=example("busway subscription create news sport --max-delivery-count 5 --forward-to inbox"),
)
@with_property_options(SUBSCRIPTION_PROPERTIES)
def create(
    topic: TopicArgument,
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a subscription. It gets every message until rules say otherwise (busway rule create)."""
    with administration(connection_string, ca_file, data) as client:
        created = client.create_subscription(topic, name, properties)
        tell(created, f"Subscription {name} of {topic} is created.", as_json)
        if has_forward(properties):
            warn_of_cycle(client, _path(topic, name))


@family.command("update", epilog=example("busway subscription update news sport --status ReceiveDisabled"))
@with_property_options(SUBSCRIPTION_PROPERTIES, changeable_only=True)
def update(
    topic: TopicArgument,
    name: NameArgument,
    properties: Mapping[str, Value],
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change properties of a subscription; the others stay as they are."""
    if not properties:
        raise WrongCall("Nothing to change: give at least one property, for example --lock-duration PT30S.")
    with administration(connection_string, ca_file, data) as client:
        wanted = client.get_subscription(topic, name).changed(properties)
        changed = client.update_subscription(topic, wanted)
        tell(changed, f"Subscription {name} of {topic} is changed.", as_json)
        if has_forward(properties):
            warn_of_cycle(client, _path(topic, name))


@family.command("show", epilog=example("busway subscription show news sport --json"))
def show_subscription(
    topic: TopicArgument,
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a subscription's properties and counts."""
    with administration(connection_string, ca_file, data) as client:
        show(client.get_subscription(topic, name), as_json)


@family.command("list", epilog=example("busway subscription list news"))
def list_subscriptions(
    topic: TopicArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a topic's subscriptions with their counts."""
    with administration(connection_string, ca_file, data) as client:
        client.get_topic(topic)  # a topic that does not exist has no subscriptions either
        show_all(list(client.list_subscriptions(topic)), SUBSCRIPTION_COLUMNS, as_json)


@family.command("delete", epilog=example("busway subscription delete news sport"))
def delete(
    topic: TopicArgument,
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a subscription with all its messages."""
    with administration(connection_string, ca_file, data) as client:
        client.delete_subscription(topic, name)
    typer.echo(f"Subscription {name} of {topic} is deleted.")


def _path(topic: str, name: str) -> str:
    return f"{topic}/Subscriptions/{name}"
