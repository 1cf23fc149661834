"""What a rule is, as users write and read it (E-70…E-74): a name, a filter, perhaps an action.

Frozen values without behaviour: the catalogue, the ATOM entries, the AMQP descriptions and the config file all
read and write these. Text is parsed elsewhere (`parse`); a rule here may still hold text that is wrong.
"""

from dataclasses import dataclass
from typing import Final

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
    name: str
    filter: Filter
    action: SqlAction | None = None
    created_at_ms: int = 0
