"""Filters, actions and parameters of rules, as the command line gives them."""

import re
from typing import TYPE_CHECKING, Final

from busway.cli.failures import WrongCall
from busway.cli.sending import named_value

if TYPE_CHECKING:
    from busway.rules.rule import Filter, SqlAction, TypedValue

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
    from busway.config.values import read_value

    try:
        return read_value(Node(value, f"{option}: {name}"))
    except ConfigError as error:
        raise WrongCall(str(error)) from error
