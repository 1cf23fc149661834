"""`busway rule create|list|delete`; `busway rule test` is in `rule_testing`."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from busway.cli import rule_testing
from busway.cli.failures import WrongCall
from busway.cli.output import example, print_json, print_table
from busway.cli.sending import named_value
from busway.cli.subscriptions import TopicArgument
from busway.cli.target import CaFileOption, ConnectionStringOption, DataOption, JsonOption, administration

if TYPE_CHECKING:
    from busway.rules.rule import Filter, Rule, SqlAction, TypedValue

SubscriptionArgument = Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription's name.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", metavar="SQL", help="For example: color = 'red' AND size > 10")
]
CorrelationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--correlation",
        metavar="KEY=VALUE",
        help="Must be equal; may be repeated. KEY is correlation-id, message-id, to, reply-to, subject, session-id,"
        " reply-to-session-id, content-type, or a property's name (user.NAME if it is called like one of these)."
        " KEY:=JSON for numbers and booleans.",
    ),
]
ActionOption = Annotated[
    str | None, typer.Option("--action", metavar="SQL", help="For example: SET seen = TRUE; REMOVE size")
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        metavar="NAME=TEXT",
        help="The value of @NAME in the filter or action; may be repeated; NAME:=JSON for numbers and booleans.",
    ),
]
#: KEY without dashes → field of the filter.
_CONDITIONS: Final = {
    "correlationid": "correlation_id",
    "messageid": "message_id",
    "to": "to",
    "replyto": "reply_to",
    "label": "label",
    "subject": "label",
    "sessionid": "session_id",
    "replytosessionid": "reply_to_session_id",
    "contenttype": "content_type",
}

family = typer.Typer(
    help="Create, list, delete and try out rules of subscriptions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(
        family, name="rule", epilog=example("busway rule create news sport reds --filter \"color = 'red'\"")
    )
    rule_testing.register(family)


@family.command(
    "create",
    epilog=example(
        'busway rule create news sport reds --filter "color = \'red\'" --action "SET seen = TRUE"\n'
        "  busway rule create news sport five --correlation subject=order --correlation size:=5"
    ),
)
def create(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    name: NameArgument,
    filter_text: FilterOption = None,
    correlation: CorrelationOption = None,
    action: ActionOption = None,
    parameters: ParameterOption = None,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a rule; without a filter it selects every message. Messages that came before are not affected."""
    from busway.rules.rule import Rule

    pairs = parse_parameters(parameters or [])
    check_used(pairs, filter_text, action)
    rule = Rule(name, filter_of(filter_text, correlation or [], pairs), action_of(action, pairs))
    with administration(connection_string, ca_file, data) as client:
        client.create_rule(topic, subscription, rule)
        known = client.list_rules(topic, subscription)
    if as_json:
        print_json(_as_object(rule))
    else:
        typer.echo(f"Rule {name} of {topic}/Subscriptions/{subscription} is created.")
    _warn_of_default(topic, subscription, name, known)


def _warn_of_default(topic: str, subscription: str, name: str, known: "list[Rule]") -> None:
    """A new subscription's `$Default` selects everything, so that the new rule makes no difference."""
    from busway.rules.rule import DEFAULT_RULE_NAME, TrueFilter

    if name == DEFAULT_RULE_NAME or not any(
        rule.name == DEFAULT_RULE_NAME and rule.filter == TrueFilter() for rule in known
    ):
        return
    typer.echo(
        f"busway: the rule {DEFAULT_RULE_NAME} still selects every message; to end that:"
        f" busway rule delete {topic} {subscription} '{DEFAULT_RULE_NAME}'",
        err=True,
    )


@family.command("list", epilog=example("busway rule list news sport"))
def list_rules(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a subscription's rules. JSON has the form of the configuration file."""
    with administration(connection_string, ca_file, data) as client:
        rules = client.list_rules(topic, subscription)
    if as_json:
        print_json([_as_object(rule) for rule in rules])
        return
    rows = [
        (rule.name, _filter_text(rule.filter), None if rule.action is None else rule.action.expression)
        for rule in rules
    ]
    print_table(("NAME", "FILTER", "ACTION"), rows)


@family.command("delete", epilog=example("busway rule delete news sport '$Default'"))
def delete(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    name: NameArgument,
    connection_string: ConnectionStringOption = None,
    ca_file: CaFileOption = None,
    data: DataOption = None,
) -> None:
    """Delete a rule. A subscription without rules gets nothing."""
    with administration(connection_string, ca_file, data) as client:
        client.delete_rule(topic, subscription, name)
    typer.echo(f"Rule {name} of {topic}/Subscriptions/{subscription} is deleted.")


def filter_of(
    text: str | None, correlation: list[str], pairs: "tuple[tuple[str, TypedValue], ...]"
) -> "Filter":
    from busway.rules.rule import SqlFilter, TrueFilter

    if text is not None and correlation:
        raise WrongCall("--filter and --correlation exclude each other.")
    if correlation:
        return _correlation_of(correlation)
    return TrueFilter() if text is None else SqlFilter(text, _used_by(text, pairs))


def _correlation_of(texts: list[str]) -> "Filter":
    from busway.rules.rule import CorrelationFilter

    conditions: dict[str, str] = {}
    properties: list[tuple[str, TypedValue]] = []
    for text in texts:
        key, value = named_value(text, "--correlation")
        field = _CONDITIONS.get(key.removeprefix("sys.").replace("-", "").replace("_", "").lower())
        if field is None or key.startswith("user."):
            properties.append((key.removeprefix("user."), typed_value(value, "--correlation", key)))
        elif isinstance(value, str):
            conditions[field] = value
        else:
            raise WrongCall(f"--correlation: {key} is a text; write {key}=VALUE.")
    return CorrelationFilter(**conditions, properties=tuple(properties))


def action_of(text: str | None, pairs: "tuple[tuple[str, TypedValue], ...]") -> "SqlAction | None":
    from busway.rules.rule import SqlAction

    return None if text is None else SqlAction(text, _used_by(text, pairs))


def _used_by(
    text: str | None, pairs: "tuple[tuple[str, TypedValue], ...]"
) -> "tuple[tuple[str, TypedValue], ...]":
    """Filter and action have parameters of their own; each gets those that it names."""
    written = "" if text is None else text
    return tuple(
        (name, value)
        for name, value in pairs
        if re.search(re.escape(name) + r"(?!\w)", written, re.IGNORECASE) is not None
    )


def check_used(pairs: "tuple[tuple[str, TypedValue], ...]", *texts: str | None) -> None:
    for name, value in pairs:
        if not any(_used_by(text, ((name, value),)) for text in texts):
            raise WrongCall(f"--parameter: {name} is used neither by the filter nor by the action.")


def parse_parameters(texts: list[str]) -> "tuple[tuple[str, TypedValue], ...]":
    """`@` before the name may be written or left out; the wire has it."""
    named = [named_value(text, "--parameter") for text in texts]
    return tuple(
        (f"@{name.removeprefix('@')}", typed_value(value, "--parameter", name)) for name, value in named
    )


def typed_value(value: object, option: str, name: str) -> "TypedValue":
    """JSON's own types, or `{"Type": "duration", "Value": "PT5S"}` as in the configuration file."""
    from busway.config.node import ConfigError, Node
    from busway.config.values import read_value

    try:
        return read_value(Node(value, f"{option}: {name}"))
    except ConfigError as error:
        raise WrongCall(str(error)) from error


def _as_object(rule: "Rule") -> dict[str, object]:
    from busway.config.rules import write_rule

    return write_rule(rule)


def _filter_text(filter_: "Filter") -> str:
    from busway.config.values import write_value
    from busway.rules.rule import CorrelationFilter

    if not isinstance(filter_, CorrelationFilter):
        return filter_.expression
    fields = {field: key for key, field in _CONDITIONS.items() if key != "label"}
    conditions = [
        f"{key}={getattr(filter_, field)}"
        for field, key in fields.items()
        if getattr(filter_, field) is not None
    ]
    return ", ".join([*conditions, *(f"{name}={write_value(value)}" for name, value in filter_.properties)])
