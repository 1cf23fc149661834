"""The tree of a filter or an action (T-20, T-50), and the names of system properties in it.

It knows neither messages nor evaluation: the broker's evaluator and other back ends walk the same nodes.

Two families. An **operand** has a value: `Literal`, `Property`, `Parameter`, `NewId`, `PropertyOf`, `Sign`,
`Arithmetic`. A **condition** is true, false or unknown: `Comparison`, `Membership`, `Likeness`, `NullTest`,
`Existence`, `Not`, `And`, `Or`; an operand that may be boolean can stand where a condition is expected.

Chains are flat: `a AND b AND c` is one `And` of three, `a + b - c` one `Arithmetic`. So the depth of a tree is the
depth of its parentheses, NOTs and signs, which the parser bounds. Values are compared by Python's `==`, for which
1, 1.0 and TRUE are equal; who needs to tell `Literal`s apart looks at their types.

The message properties that `sys.` names (T-24): how they are spelt, and which of them an action may set (T-51).
Settable is what a sender may set; what the broker gives (numbers, times, states) is not.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Literal:
    """T-25. An int fits in 64 bits, a float is finite; None is NULL."""

    value: str | int | float | bool | None


@dataclass(frozen=True)
class Property:
    """A user property under the name as written, or a system property under its canonical name (T-22…T-24)."""

    name: str
    is_system: bool = False


@dataclass(frozen=True)
class Parameter:
    """T-28. `name` is without `@`."""

    name: str
    position: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True)
class NewId:
    """`newid()`: another GUID each time (T-26)."""


@dataclass(frozen=True)
class PropertyOf:
    """`property(name)`: the user property whose name is the value of an operand (T-26)."""

    name: Operand


@dataclass(frozen=True)
class Sign:
    """`operator` is `+` or `-`. The minus of a number is part of its `Literal`."""

    operator: str
    operand: Operand


@dataclass(frozen=True)
class Arithmetic:
    """`first`, then operators of one precedence (`+` `-`, or `*` `/` `%`) with their right sides, left to right."""

    first: Operand
    steps: tuple[tuple[str, Operand], ...]


Operand = Literal | Property | Parameter | NewId | PropertyOf | Sign | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """`operator` is one of `=` `<>` `<` `<=` `>` `>=`."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True)
class Membership:
    """`operand [NOT] IN (choices)`."""

    operand: Operand
    choices: tuple[Operand, ...]
    is_negated: bool = False


@dataclass(frozen=True)
class Likeness:
    """`operand [NOT] LIKE pattern [ESCAPE escape]` (T-27)."""

    operand: Operand
    pattern: Operand
    escape: Operand | None = None
    is_negated: bool = False
    #: Where the pattern begins, and where the escape character.
    pattern_position: int = field(default=-1, compare=False, repr=False)
    escape_position: int = field(default=-1, compare=False, repr=False)


@dataclass(frozen=True)
class NullTest:
    """`property IS [NOT] NULL` (T-32)."""

    property: Property | PropertyOf
    is_negated: bool = False


@dataclass(frozen=True)
class Existence:
    """`EXISTS(property)` (T-32)."""

    property: Property | PropertyOf


@dataclass(frozen=True)
class Not:
    condition: Expression


@dataclass(frozen=True)
class And:
    """Two parts or more."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Or:
    """Two parts or more."""

    parts: tuple[Expression, ...]


Condition = Comparison | Membership | Likeness | NullTest | Existence | Not | And | Or
Expression = Condition | Operand


@dataclass(frozen=True)
class SetStatement:
    """`SET target = value` (T-51)."""

    target: Property
    value: Operand


@dataclass(frozen=True)
class RemoveStatement:
    """`REMOVE target` (T-52)."""

    target: Property


Statement = SetStatement | RemoveStatement


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside this one, in the order of the text."""
    if isinstance(expression, And | Or):
        return expression.parts
    if isinstance(expression, Not):
        return (expression.condition,)
    if isinstance(expression, Comparison):
        return (expression.left, expression.right)
    if isinstance(expression, Membership):
        return (expression.operand, *expression.choices)
    if isinstance(expression, Likeness):
        escape = () if expression.escape is None else (expression.escape,)
        return (expression.operand, expression.pattern, *escape)
    if isinstance(expression, NullTest | Existence):
        return (expression.property,)
    return _operands_of(expression)


def _operands_of(operand: Operand) -> tuple[Expression, ...]:
    if isinstance(operand, Arithmetic):
        return (operand.first, *(right for _, right in operand.steps))
    if isinstance(operand, Sign):
        return (operand.operand,)
    if isinstance(operand, PropertyOf):
        return (operand.name,)
    return ()


def nodes_of(expression: Expression) -> list[Expression]:
    """The expression and everything inside it."""
    found = [expression]
    for node in found:
        found.extend(parts_of(node))
    return found


def conjuncts_of(expression: Expression) -> list[Expression]:
    """What must be true for the expression to be true, in the order of the text: the parts of its outer ANDs."""
    if not isinstance(expression, And):
        return [expression]
    return [conjunct for part in expression.parts for conjunct in conjuncts_of(part)]


TEXT: Final = "a string"
MOMENT: Final = "a date and time"
DURATION: Final = "a duration"
TRUTH: Final = "a boolean"

#: By canonical name what an action must give it.
SETTABLE: Final[dict[str, str]] = {
    "MessageId": TEXT,
    "SessionId": TEXT,
    "PartitionKey": TEXT,
    "ViaPartitionKey": TEXT,
    "CorrelationId": TEXT,
    "Label": TEXT,
    "To": TEXT,
    "ReplyTo": TEXT,
    "ReplyToSessionId": TEXT,
    "ContentType": TEXT,
    "TimeToLive": DURATION,
    "ScheduledEnqueueTimeUtc": MOMENT,
    "ForcePersistence": TRUTH,
}
_READABLE_ONLY: Final = (
    "EnqueuedTimeUtc",
    "EnqueuedSequenceNumber",
    "SequenceNumber",
    "ExpiresAtUtc",
    "DeliveryCount",
    "Size",
    "State",
    "DeadLetterSource",
    "LockToken",
    "LockedUntilUtc",
)
#: Canonical name by folded name. Newer clients say Subject for Label.
CANONICAL: Final[dict[str, str]] = {
    **{name.casefold(): name for name in (*SETTABLE, *_READABLE_ONLY)},
    "subject": "Label",
}


def similar_names(folded_name: str) -> str:
    """A hint for a name that is not known: ' Did you mean sys.X?', or nothing."""
    close = difflib.get_close_matches(folded_name, CANONICAL, n=1)
    return f" Did you mean sys.{CANONICAL[close[0]]}?" if close else ""
