"""What a rule is, as users write and read it (E-70…E-74), and what can be wrong with it.

A rule is a name, a filter, perhaps an action. Rules are frozen values without behaviour: the catalogue, the ATOM
entries, the AMQP descriptions and the config file all read and write these. Text is parsed elsewhere (`parse`); a
rule here may still hold text that is wrong.

Wrong can be its text (before anything is stored), or its effect on one message. All three errors carry a whole
sentence. Text of strangers is shown cut and without control characters, because these sentences reach terminals,
logs and dead-letter descriptions.
"""

from dataclasses import dataclass
from typing import Final

_SHOWN_CHARACTERS_MAX: Final = 40
_POINTER_CHARACTERS: Final = 36


class RuleSyntaxError(ValueError):
    """The text of a filter or an action, or a parameter, is wrong (T-36, ERR-28).

    `position` counts characters from 0, `line` and `column` from 1. `pointer` is two lines: the place in the
    text, and a caret below it; it is empty where the fault is not in the text but in a parameter or condition.
    """

    def __init__(self, fault: str, text: str = "", position: int = -1) -> None:
        self.position = position
        self.line, self.column, self.pointer = 0, 0, ""
        if position < 0:
            self.sentence = fault[:1].upper() + fault[1:]
        else:
            self.sentence = f"At character {position + 1}: {fault}"
            self._point(text)
        super().__init__(self.sentence)

    def _point(self, text: str) -> None:
        line_start = text.rfind("\n", 0, self.position) + 1
        self.line = text.count("\n", 0, self.position) + 1
        self.column = self.position - line_start + 1
        first = max(line_start, self.position - _POINTER_CHARACTERS)
        line_end = text.find("\n", self.position)
        last = min(len(text) if line_end < 0 else line_end, self.position + _POINTER_CHARACTERS)
        shown = printable(text[first : max(first, last)])
        self.pointer = f"{shown}\n{' ' * (self.position - first)}^"


class FilterError(Exception):
    """A filter could not be evaluated for a message. Its dead-letter reason is FilterException (D-15)."""


class ActionError(Exception):
    """An action could not be applied to a message. Its dead-letter reason is RuleActionException (D-15)."""


def printable(text: str) -> str:
    """One line of as many characters, none of which moves a cursor."""
    return "".join(character if character.isprintable() else "�" for character in text)


def shown(text: str) -> str:
    """A piece of a stranger's text inside a sentence of ours."""
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "…"
    return f"'{printable(text)}'"


#: E-64: the rule that a subscription gets when none is given.
DEFAULT_RULE_NAME: Final = "$Default"
COMPATIBILITY_LEVEL: Final = 20

#: The types a value may be written with (E-74). `int` and `long` differ only in how they read back.
VALUE_TYPES: Final = ("string", "int", "long", "boolean", "double", "dateTime", "duration")


@dataclass(frozen=True)
class TypedValue:
    """A parameter's or correlation property's value, with the type it was written with (E-64: it keeps it).

    `value` is str, int, bool or float; a dateTime is an int: 100 ns ticks since 0001-01-01 UTC; a duration is
    an int: 100 ns ticks. `type_name` is one of VALUE_TYPES. `has_zone` False: a dateTime that was written without
    one; it means UTC all the same, and reads back as it was written.
    """

    type_name: str
    value: str | int | bool | float
    has_zone: bool = True


@dataclass(frozen=True)
class SqlFilter:
    """A condition in the language of T-20…T-36."""

    expression: str
    parameters: tuple[tuple[str, TypedValue], ...] = ()
    compatibility_level: int = COMPATIBILITY_LEVEL
    requires_preprocessing: bool = False


@dataclass(frozen=True)
class TrueFilter(SqlFilter):
    """E-73: counts as a SQL filter."""

    expression: str = "1=1"


@dataclass(frozen=True)
class FalseFilter(SqlFilter):
    """E-73: no message."""

    expression: str = "1=0"


@dataclass(frozen=True)
class CorrelationFilter:
    """T-40…T-44: everything that is not None must be equal."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: tuple[tuple[str, TypedValue], ...] = ()


Filter = SqlFilter | CorrelationFilter


@dataclass(frozen=True)
class SqlAction:
    """Statements that change a copy, in the language of T-50…T-54."""

    expression: str
    parameters: tuple[tuple[str, TypedValue], ...] = ()
    compatibility_level: int = COMPATIBILITY_LEVEL
    requires_preprocessing: bool = False


@dataclass(frozen=True)
class Rule:
    """What a rule is, as users write and read it (E-70…E-74): a name, a filter, perhaps an action."""

    name: str
    filter: Filter
    action: SqlAction | None = None
    created_at_ms: int = 0
