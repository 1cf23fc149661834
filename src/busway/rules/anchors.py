"""The part of a SQL filter by which it can be looked up instead of being evaluated for every message.

An **anchor** is a conjunct `property = constant` or `property IN (constants)` of the outermost AND, with texts or
integers. A message whose property is none of them does not make that conjunct TRUE, so the filter does not select
it. Nor would evaluating it have failed first, because an anchor is taken only where no conjunct before it can fail,
and because evaluation stops at a conjunct that is not TRUE (`compiled_rule`): leaving the filter out changes nothing.
(Any LIKE may go beyond the budget of a rule; so a filter evaluates its anchor first.)

Integers beyond 2^53 are no anchors: there a double of a message may be equal without being the same number.
"""

from __future__ import annotations

from typing import Final

from busway.rules.evaluate import Compilation
from busway.rules.expression import (
    Arithmetic,
    Comparison,
    Expression,
    Likeness,
    Literal,
    Membership,
    Operand,
    Parameter,
    Property,
    Sign,
    nodes_of,
)
from busway.rules.subject import folded

_EXACT_DOUBLE_MAX: Final = 1 << 53

AnchorKey = str | int


class Anchor:
    """`name` is folded for a user property, canonical for a system property."""

    __slots__ = ("conjunct_index", "is_system", "keys", "name")

    def __init__(self, conjunct_index: int, property_: Property, keys: list[AnchorKey]) -> None:
        self.conjunct_index = conjunct_index
        self.is_system = property_.is_system
        self.name = property_.name if property_.is_system else folded(property_.name)
        self.keys = keys


def anchor_of(conjuncts: list[Expression], compilation: Compilation) -> Anchor | None:
    """The first conjunct that can be an anchor, if any."""
    for index, conjunct in enumerate(conjuncts):
        sides: list[tuple[Operand, tuple[Operand, ...]]] = []
        if isinstance(conjunct, Comparison) and conjunct.operator == "=":
            sides = [(conjunct.left, (conjunct.right,)), (conjunct.right, (conjunct.left,))]
        elif isinstance(conjunct, Membership) and not conjunct.is_negated:
            sides = [(conjunct.operand, conjunct.choices)]
        for property_, choices in sides:
            keys = _keys(choices, compilation)
            if isinstance(property_, Property) and keys is not None:
                return Anchor(index, property_, keys)
        if can_fail(conjunct):
            return None
    return None


def can_fail(expression: Expression) -> bool:
    """Whether evaluating it may raise a FilterError: calculations may, and patterns that a message gives."""
    return any(
        isinstance(node, Arithmetic | Sign) or (isinstance(node, Likeness) and _reads_pattern(node))
        for node in nodes_of(expression)
    )


def _reads_pattern(likeness: Likeness) -> bool:
    given = (likeness.pattern,) if likeness.escape is None else (likeness.pattern, likeness.escape)
    return not all(isinstance(operand, Literal | Parameter) for operand in given)


def _keys(choices: tuple[Operand, ...], compilation: Compilation) -> list[AnchorKey] | None:
    keys: dict[AnchorKey, None] = {}
    for choice in choices:
        constant = compilation.constant(choice)
        value = None if constant is None else constant.constant
        is_exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT_DOUBLE_MAX
        if not isinstance(value, str | int) or not (is_exact or isinstance(value, str)):
            return None
        keys[value] = None
    return list(keys)
