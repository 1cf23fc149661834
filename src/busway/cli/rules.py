"""`busway rule create|list|delete`, and `busway rule test`: a filter or an action on one message, without a server
(`rule_trial`)."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

import typer

from busway.cli.entity_family import ChangeVerb, Client, Deletion, EntityFamily, Given, Listing, Names, option
from busway.cli.output import print_json, shown
from busway.cli.sending import named_value
from busway.cli.verbs import CommandFailed, JsonOption, WrongCall, verb

if TYPE_CHECKING:
    from busway.rules.rule import Filter, Rule, SqlAction, TypedValue

#: KEY without dashes → field of the filter.
CONDITIONS: Final = {
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
        field = CONDITIONS.get(key.removeprefix("sys.").replace("-", "").replace("_", "").lower())
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
    from busway.config.rules import read_value

    try:
        return read_value(Node(value, f"{option}: {name}"))
    except ConfigError as error:
        raise WrongCall(str(error)) from error


if TYPE_CHECKING:
    from busway.cli.rule_trial import ExplainedPart, TrialMessage
    from busway.rules.rule import TypedValue

    Pairs = tuple[tuple[str, TypedValue], ...]

EXIT_NOT_SELECTED: Final = 3
_FILE_BYTES_MAX: Final = 16 * 1024 * 1024

_HELP: Final = """Try a filter or an action (SET …, REMOVE …) on a message, and show what each part comes to.

The message is JSON, as busway peek --json prints it or shorter:
{"subject": "order", "application_properties": {"color": "red", "size": 12}}.
Values of other types: {"Type": "int", "Value": 5}; types are string, int, long, boolean, double, dateTime, duration.

Exit code: 0 the filter selects the message (or the action was applied), 3 it does not, 2 the text or the message is
wrong, 1 the filter or action fails on this message."""


def try_out(
    text: Annotated[str, typer.Argument(metavar="SQL", help="A filter or an action.")],
    message: Annotated[
        Path, typer.Option("--message", metavar="FILE", help="The message as JSON; - is standard input.")
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=TEXT", help="The value of @NAME; NAME:=JSON for numbers."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """See `_HELP`."""
    from busway.rules.rule import RuleSyntaxError

    pairs = parse_parameters(parameters or [])
    subject = _read(message)
    try:
        if is_action(text):
            _try_action(text, pairs, subject, as_json)
        else:
            _try_filter(text, pairs, subject, as_json)
    except RuleSyntaxError as error:
        pointer = f"\n{error.pointer}" if error.pointer else ""
        raise WrongCall(f"{error.sentence}{pointer}") from error


def is_action(text: str) -> bool:
    """SET and REMOVE are keywords: no filter begins with one."""
    words = text.split(maxsplit=1)
    return bool(words) and words[0].upper() in ("SET", "REMOVE")


def _read(file: Path) -> "TrialMessage":
    from busway.cli.rule_trial import TrialMessage
    from busway.config.node import ConfigError
    from busway.rules.rule import RuleSyntaxError

    source = sys.stdin.buffer if str(file) == "-" else None
    data = file.read_bytes() if source is None else source.read(_FILE_BYTES_MAX)
    try:
        return TrialMessage.read(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise WrongCall("The message is not UTF-8 text.") from error
    except (ConfigError, RuleSyntaxError) as error:
        raise WrongCall(f"The message: {error}") from error


def _try_filter(text: str, pairs: "Pairs", subject: "TrialMessage", as_json: bool) -> None:
    from busway.cli.rule_trial import explained
    from busway.rules.compiled_rule import compiled_filter
    from busway.rules.rule import FilterError, SqlFilter

    filter_ = SqlFilter(text, pairs)
    parts = explained(filter_, subject)
    failure = ""
    try:
        selects = compiled_filter(filter_, uuid4).matches(subject)
    except FilterError as error:
        selects, failure = False, str(error)
    if as_json:
        written = [
            {"depth": part.depth, "expression": part.text, "result": part.result, "why": part.why or None}
            for part in parts
        ]
        print_json({"selects": selects, "error": failure or None, "parts": written})
    else:
        _print_parts(parts)
        if not failure:
            typer.echo(f"The filter {'selects' if selects else 'does not select'} the message.")
    if failure:
        raise CommandFailed(f"The filter fails on this message: {failure}")
    if not selects:
        raise typer.Exit(EXIT_NOT_SELECTED)


def _print_parts(parts: "list[ExplainedPart]") -> None:
    lines = [
        ("  " * part.depth + shown(part.text), _result_text(part), f"({shown(part.why)})" if part.why else "")
        for part in parts
    ]
    width = max(len(text) for text, _, _ in lines)
    for text, result, why in lines:
        typer.echo(f"{text.ljust(width)}  {result}  {why}".rstrip())


def _result_text(part: "ExplainedPart") -> str:
    return shown(json.dumps(part.result, ensure_ascii=False)) if part.is_value else str(part.result)


def _try_action(text: str, pairs: "Pairs", subject: "TrialMessage", as_json: bool) -> None:
    from busway.rules.compiled_rule import compiled_action
    from busway.rules.rule import ActionError, SqlAction

    compiled = compiled_action(SqlAction(text, pairs), uuid4)
    before = subject.as_object()
    try:
        compiled.apply(subject)
    except ActionError as error:
        raise CommandFailed(f"The action fails on this message: {error}") from error
    after = subject.as_object()
    if as_json:
        print_json({"before": before, "after": after})
        return
    _print_changes(_flat(before), _flat(after))


def _flat(message: dict[str, object]) -> dict[str, object]:
    user = message["properties"]
    system = {name: value for name, value in message.items() if name != "properties"}
    return {**(user if isinstance(user, dict) else {}), **system}


def _print_changes(before: dict[str, object], after: dict[str, object]) -> None:
    names = [*before, *(name for name in after if name not in before)]
    width = max((len(shown(name)) for name in names), default=0)
    for name in names:
        old = json.dumps(before[name], ensure_ascii=False) if name in before else "(none)"
        new = json.dumps(after[name], ensure_ascii=False) if name in after else "(removed)"
        same = name in before and name in after and old == new
        typer.echo(f"{shown(name).ljust(width)}  {shown(old)}{'' if same else f' → {shown(new)}'}")


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
    verb(
        RULE.register(app),
        "test",
        "busway rule test \"color = 'red' AND size > 10\" --message message.json",
        about=_HELP,
    )(try_out)


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
