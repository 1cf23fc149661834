"""A tree → text that parses to the same tree. Parentheses stand only where the tree would change without them."""

from typing import Final, assert_never

from busway.rules.expression import (
    And,
    Arithmetic,
    Comparison,
    Existence,
    Expression,
    Likeness,
    Literal,
    Membership,
    NewId,
    Not,
    NullTest,
    Or,
    Parameter,
    Property,
    PropertyOf,
    Sign,
)
from busway.rules.parse import is_plain_name

_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_TEST: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_ATOM: Final = 7


def printed(expression: Expression) -> str:
    """The text of a filter, or of a part of one."""
    return _printed(expression, _OR)


def _printed(expression: Expression, binding: int) -> str:
    """Text that binds at least as tightly as `binding`."""
    text, own = _bare(expression)
    return f"({text})" if own < binding else text


def _bare(expression: Expression) -> tuple[str, int]:
    """Text without parentheses around it, and how tightly it binds."""
    if isinstance(expression, Or):
        return " OR ".join(_printed(part, _AND) for part in expression.parts), _OR
    if isinstance(expression, And):
        return " AND ".join(_printed(part, _NOT) for part in expression.parts), _AND
    if isinstance(expression, Not):
        return f"NOT {_printed(expression.condition, _NOT)}", _NOT
    if isinstance(expression, Comparison | Membership | Likeness | NullTest | Existence):
        return _test(expression), _TEST
    if isinstance(expression, Arithmetic):
        return _arithmetic(expression)
    if isinstance(expression, Sign):
        return _signed(expression), _ATOM
    return _atom(expression), _ATOM


def _test(test: Comparison | Membership | Likeness | NullTest | Existence) -> str:
    if isinstance(test, Comparison):
        return f"{_printed(test.left, _SUM)} {test.operator} {_printed(test.right, _SUM)}"
    if isinstance(test, Existence):
        return f"EXISTS({_atom(test.property)})"
    word = "NOT " if test.is_negated else ""
    if isinstance(test, NullTest):
        return f"{_atom(test.property)} IS {word}NULL"
    left = _printed(test.operand, _SUM)
    if isinstance(test, Membership):
        return f"{left} {word}IN ({', '.join(_printed(choice, _SUM) for choice in test.choices)})"
    escape = "" if test.escape is None else f" ESCAPE {_printed(test.escape, _SUM)}"
    return f"{left} {word}LIKE {_printed(test.pattern, _SUM)}{escape}"


def _arithmetic(arithmetic: Arithmetic) -> tuple[str, int]:
    own = _SUM if arithmetic.steps[0][0] in "+-" else _PRODUCT
    text = _printed(arithmetic.first, own + 1)
    for operator, operand in arithmetic.steps:
        text += f" {operator} {_printed(operand, own + 1)}"
    return text, own


def _signed(sign: Sign) -> str:
    """A number keeps its parentheses: without them the sign would become its own."""
    operand = _printed(sign.operand, _ATOM)
    if isinstance(sign.operand, Literal):
        operand = f"({operand})"
    return f"{sign.operator}{operand}"


def _atom(atom: Literal | Property | Parameter | NewId | PropertyOf) -> str:
    if isinstance(atom, Literal):
        return _literal(atom.value)
    if isinstance(atom, Property):
        return _property(atom)
    if isinstance(atom, Parameter):
        return f"@{atom.name}"
    if isinstance(atom, NewId):
        return "newid()"
    if isinstance(atom, PropertyOf):
        return f"property({_printed(atom.name, _SUM)})"
    assert_never(atom)


def _literal(value: str | int | float | bool | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _property(property_: Property) -> str:
    if property_.is_system:
        return f"sys.{property_.name}"
    name = property_.name
    return name if is_plain_name(name) else "[" + name.replace("]", "]]") + "]"
