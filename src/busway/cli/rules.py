"""`busway rule create|list|delete`; `busway rule test` is in `rule_testing`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import typer

from busway.cli import rule_testing
from busway.cli.entity_family import ChangeVerb, Client, Deletion, EntityFamily, Given, Listing, Names, option
from busway.cli.rule_testing import CONDITIONS, action_of, check_used, filter_of, parse_parameters

if TYPE_CHECKING:
    from busway.rules.rule import Filter, Rule

_OPTIONS: Final = (
    option(
        "filter_text", str | None, "--filter", metavar="SQL", help="For example: color = 'red' AND size > 10"
    ),
    option(
        "correlation",
        list[str] | None,
        "--correlation",
        metavar="KEY=VALUE",
        help="Must be equal; may be repeated. KEY is correlation-id, message-id, to, reply-to, subject, session-id,"
        " reply-to-session-id, content-type, or a property's name (user.NAME if it is called like one of these)."
        " KEY:=JSON for numbers and booleans.",
    ),
    option("action", str | None, "--action", metavar="SQL", help="For example: SET seen = TRUE; REMOVE size"),
    option(
        "parameters",
        list[str] | None,
        "--parameter",
        metavar="NAME=TEXT",
        help="The value of @NAME in the filter or action; may be repeated; NAME:=JSON for numbers and booleans.",
    ),
)


def register(app: typer.Typer) -> None:
    rule_testing.register(RULE.register(app))


def _wish(names: Names, given: Given) -> "Rule":
    from busway.rules.rule import Rule

    text, action = given.get("filter_text"), given.get("action")
    pairs = parse_parameters(given.get("parameters", []))
    check_used(pairs, text, action)
    return Rule(names[-1], filter_of(text, given.get("correlation", []), pairs), action_of(action, pairs))


def _create(client: Client, names: Names, rule: "Rule") -> "Rule":
    topic, subscription, _ = names
    client.create_rule(topic, subscription, rule)
    return rule


def _warn_of_default(client: Client, names: Names, rule: "Rule") -> None:
    """A new subscription's `$Default` selects everything, so that the new rule makes no difference."""
    from busway.rules.rule import DEFAULT_RULE_NAME, TrueFilter

    if rule.name == DEFAULT_RULE_NAME:
        return
    topic, subscription, _ = names
    known = client.list_rules(topic, subscription)
    if not any(each.name == DEFAULT_RULE_NAME and each.filter == TrueFilter() for each in known):
        return
    typer.echo(
        f"busway: the rule {DEFAULT_RULE_NAME} still selects every message; to end that:"
        f" busway rule delete {topic} {subscription} '{DEFAULT_RULE_NAME}'",
        err=True,
    )


def _as_object(rule: "Rule") -> Mapping[str, object]:
    from busway.config.rules import write_rule

    return write_rule(rule)


def _filter_text(filter_: "Filter") -> str:
    from busway.config.rules import write_value
    from busway.rules.rule import CorrelationFilter

    if not isinstance(filter_, CorrelationFilter):
        return filter_.expression
    fields = {field: key for key, field in CONDITIONS.items() if key != "label"}
    conditions = [
        f"{key}={getattr(filter_, field)}"
        for field, key in fields.items()
        if getattr(filter_, field) is not None
    ]
    return ", ".join([*conditions, *(f"{name}={write_value(value)}" for name, value in filter_.properties)])


def _row(rule: "Rule") -> Sequence[object]:
    return (rule.name, _filter_text(rule.filter), None if rule.action is None else rule.action.expression)


RULE: "Final[EntityFamily[Rule, Rule]]" = EntityFamily(
    word="rule",
    about="Create, list, delete and try out rules of subscriptions.",
    example="busway rule create news sport reds --filter \"color = 'red'\"",
    subject="Rule {name} of {topic}/Subscriptions/{subscription}",
    arguments={
        "topic": ("TOPIC", "The topic's path."),
        "subscription": ("SUBSCRIPTION", "The subscription's name."),
        "name": ("NAME", "The rule's name."),
    },
    as_object=_as_object,
    create=ChangeVerb(
        "Create a rule; without a filter it selects every message. Messages that came before are not affected.",
        'busway rule create news sport reds --filter "color = \'red\'" --action "SET seen = TRUE"\n'
        "  busway rule create news sport five --correlation subject=order --correlation size:=5",
        _OPTIONS,
        _wish,
        _create,
        _warn_of_default,
    ),
    listing=Listing(
        "List a subscription's rules. JSON has the form of the configuration file.",
        "busway rule list news sport",
        lambda client, names: client.list_rules(*names),
        ("NAME", "FILTER", "ACTION"),
        _row,
    ),
    deletion=Deletion(
        "Delete a rule. A subscription without rules gets nothing.",
        "busway rule delete news sport '$Default'",
        lambda client, names: client.delete_rule(*names),
    ),
)
