"""A tree → nodes that answer for a message: true, false, or None for unknown (T-29…T-35).

Theory of operation. Each operand becomes a `Reading` (it has a value), each condition a `Truth`. Parameters and
literals become constants here, and what can be decided about them is decided here: LIKE patterns are prepared,
lists of constants become sets, a property against a constant text or number has a node of its own. Nodes are plain
objects with one method, because mypyc calls those directly.

AND and OR go from left to right and stop at the first FALSE or TRUE; an error behind it is never seen. Evaluation
raises `FilterError` and nothing else, and visits each node at most once. What walks over long texts spends of the
rule's budget first (`operators.Budget`).
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from busway.rules.expression import (
    And,
    Arithmetic,
    Comparison,
    Existence,
    Expression,
    Likeness,
    Literal,
    Membership,
    Not,
    NullTest,
    Operand,
    Or,
    Parameter,
    Property,
    PropertyOf,
    Sign,
)
from busway.rules.operators import (
    PATTERN_QUARTERS,
    QUARTERS,
    Budget,
    LikePattern,
    calculated,
    equal,
    less,
    less_or_equal,
    negated,
    unchanged,
)
from busway.rules.rule import FilterError, RuleSyntaxError, TypedValue, shown
from busway.rules.subject import MISSING, Missing, Subject, Value, folded, value_of


class Truth:
    def evaluate(self, subject: Subject) -> bool | None:
        raise NotImplementedError


class Reading:
    def value(self, subject: Subject) -> Value:
        raise NotImplementedError


# -- readings


class Constant(Reading):
    def __init__(self, value: Value) -> None:
        self.constant = value

    def value(self, subject: Subject) -> Value:
        del subject
        return self.constant


class UserReading(Reading):
    def __init__(self, folded_name: str) -> None:
        self.name = folded_name

    def value(self, subject: Subject) -> Value:
        value = subject.user(self.name)
        return None if isinstance(value, Missing) else value


class SystemReading(Reading):
    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, subject: Subject) -> Value:
        return subject.system(self.name)


class NamedReading(Reading):
    """`property(x)` with a name that the message gives. One that is no text is unknown (T-30)."""

    def __init__(self, name: Reading, budget: Budget) -> None:
        self.name = name
        self.budget = budget

    def value(self, subject: Subject) -> Value:
        name = self.name.value(subject)
        if not isinstance(name, str):
            return None
        self.budget.spend(QUARTERS * len(name))
        value = subject.user(folded(name))
        return None if isinstance(value, Missing) else value


class NewIdReading(Reading):
    def __init__(self, new_id: Callable[[], UUID]) -> None:
        self.new_id = new_id

    def value(self, subject: Subject) -> Value:
        del subject
        return self.new_id()


class SignReading(Reading):
    def __init__(self, operand: Reading, is_negative: bool) -> None:
        self.operand = operand
        self.is_negative = is_negative

    def value(self, subject: Subject) -> Value:
        value = self.operand.value(subject)
        return negated(value) if self.is_negative else unchanged(value)


class ArithmeticReading(Reading):
    def __init__(self, first: Reading, steps: list[tuple[str, Reading]]) -> None:
        self.first = first
        self.steps = steps

    def value(self, subject: Subject) -> Value:
        value = self.first.value(subject)
        for operator, operand in self.steps:
            value = calculated(operator, value, operand.value(subject))
        return value


# -- truths


class Bare(Truth):
    """A value as a condition: not boolean is unknown (T-20, T-30)."""

    def __init__(self, operand: Reading) -> None:
        self.operand = operand

    def evaluate(self, subject: Subject) -> bool | None:
        value = self.operand.value(subject)
        return value if isinstance(value, bool) else None


class AllOf(Truth):
    """AND (T-33)."""

    def __init__(self, parts: list[Truth]) -> None:
        self.parts = parts

    def evaluate(self, subject: Subject) -> bool | None:
        result: bool | None = True
        for part in self.parts:
            truth = part.evaluate(subject)
            if truth is None:
                result = None
            elif not truth:
                return False
        return result


class AnyOf(Truth):
    """OR (T-33)."""

    def __init__(self, parts: list[Truth]) -> None:
        self.parts = parts

    def evaluate(self, subject: Subject) -> bool | None:
        result: bool | None = False
        for part in self.parts:
            truth = part.evaluate(subject)
            if truth is None:
                result = None
            elif truth:
                return True
        return result


class Opposite(Truth):
    """NOT: of unknown is unknown."""

    def __init__(self, condition: Truth) -> None:
        self.condition = condition

    def evaluate(self, subject: Subject) -> bool | None:
        truth = self.condition.evaluate(subject)
        return None if truth is None else not truth


class UserEqualsText(Truth):
    """`name = 'text'`, the commonest of all."""

    def __init__(self, folded_name: str, text: str) -> None:
        self.name = folded_name
        self.text = text

    def evaluate(self, subject: Subject) -> bool | None:
        value = subject.user(self.name)
        return value == self.text if isinstance(value, str) else None


class Equality(Truth):
    def __init__(self, left: Reading, right: Reading) -> None:
        self.left = left
        self.right = right

    def evaluate(self, subject: Subject) -> bool | None:
        return equal(self.left.value(subject), self.right.value(subject))


class Order(Truth):
    """`left < right`, or `<=`. `>` and `>=` are these with their sides exchanged.

    Sides are read in the order of the text, so that an error is the same one whichever way it is written.
    """

    def __init__(self, left: Reading, right: Reading, allows_equal: bool, is_exchanged: bool) -> None:
        self.left = left
        self.right = right
        self.allows_equal = allows_equal
        self.is_exchanged = is_exchanged

    def evaluate(self, subject: Subject) -> bool | None:
        left, right = self.left.value(subject), self.right.value(subject)
        if self.is_exchanged:
            left, right = right, left
        return less_or_equal(left, right) if self.allows_equal else less(left, right)


class UserAgainstInteger(Order):
    """An order between a user property and a constant integer; other values of the property take the long way."""

    def __init__(
        self, name: UserReading, integer: int, right: Constant, allows_equal: bool, is_exchanged: bool
    ) -> None:
        super().__init__(name, right, allows_equal, is_exchanged)
        self.name = name.name
        #: The property must be above or below this one, which is no part of what is allowed.
        self.bound = integer
        if allows_equal:
            self.bound += -1 if is_exchanged else 1

    def evaluate(self, subject: Subject) -> bool | None:
        value = subject.user(self.name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value > self.bound if self.is_exchanged else value < self.bound
        return super().evaluate(subject)


class AmongAny(Truth):
    """IN: an OR of equalities; unknown where its left side is (T-31)."""

    def __init__(self, operand: Reading, choices: list[Reading]) -> None:
        self.operand = operand
        self.choices = choices

    def evaluate(self, subject: Subject) -> bool | None:
        value = self.operand.value(subject)
        if value is None:
            return None
        result: bool | None = False
        for choice in self.choices:
            truth = equal(value, choice.value(subject))
            if truth is None:
                result = None
            elif truth:
                return True
        return result


class AmongTexts(Truth):
    """IN with constant texts only."""

    def __init__(self, operand: Reading, texts: frozenset[str]) -> None:
        self.operand = operand
        self.texts = texts

    def evaluate(self, subject: Subject) -> bool | None:
        value = self.operand.value(subject)
        return value in self.texts if isinstance(value, str) else None


class LikesConstant(Truth):
    """LIKE with a constant pattern."""

    def __init__(self, operand: Reading, pattern: LikePattern, budget: Budget) -> None:
        self.operand = operand
        self.pattern = pattern
        self.budget = budget

    def evaluate(self, subject: Subject) -> bool | None:
        value = self.operand.value(subject)
        if not isinstance(value, str):
            return None
        self.budget.spend(self.pattern.quarters * len(value))
        return self.pattern.matches(value)


class LikesGiven(Truth):
    """LIKE with a pattern or an escape character that the message gives."""

    def __init__(self, operand: Reading, pattern: Reading, escape: Reading | None, budget: Budget) -> None:
        self.operand = operand
        self.pattern = pattern
        self.escape = escape
        self.budget = budget

    def evaluate(self, subject: Subject) -> bool | None:
        value = self.operand.value(subject)
        pattern = self.pattern.value(subject)
        escape: str | None = None
        if self.escape is not None:
            given = self.escape.value(subject)
            if given is None:
                return None
            if not isinstance(given, str) or len(given) != 1:
                raise FilterError("The escape character of LIKE is not a string of one character.")
            escape = given
        if not isinstance(value, str) or not isinstance(pattern, str):
            return None
        self.budget.spend(PATTERN_QUARTERS * len(pattern))
        prepared = LikePattern(pattern, escape)
        self.budget.spend(prepared.quarters * len(value))
        return prepared.matches(value)


class IsNull(Truth):
    def __init__(self, operand: Reading) -> None:
        self.operand = operand

    def evaluate(self, subject: Subject) -> bool | None:
        return self.operand.value(subject) is None


class UserExists(Truth):
    """Present with null exists (T-32)."""

    def __init__(self, folded_name: str) -> None:
        self.name = folded_name

    def evaluate(self, subject: Subject) -> bool | None:
        return subject.user(self.name) is not MISSING


class NamedExists(Truth):
    """`EXISTS(property(x))`. A name that is no text is unknown."""

    def __init__(self, name: Reading, budget: Budget) -> None:
        self.name = name
        self.budget = budget

    def evaluate(self, subject: Subject) -> bool | None:
        name = self.name.value(subject)
        if not isinstance(name, str):
            return None
        self.budget.spend(QUARTERS * len(name))
        return subject.user(folded(name)) is not MISSING


# -- from trees


class Compilation:
    """What a tree is compiled with: its text for the places of faults, its parameters, chance."""

    def __init__(
        self, text: str, parameters: tuple[tuple[str, TypedValue], ...], new_id: Callable[[], UUID]
    ) -> None:
        self.text = text
        self.new_id = new_id
        #: Shared by all nodes that are made here; None while none of them needs one.
        self.budget: Budget | None = None
        self._parameters = _parameters_of(parameters)

    def _shared_budget(self) -> Budget:
        budget = self.budget
        if budget is None:
            budget = self.budget = Budget()
        return budget

    def constant(self, operand: Operand) -> Constant | None:
        """The constant that a literal or a parameter stands for, None for anything else."""
        if isinstance(operand, Literal):
            return Constant(operand.value)
        if not isinstance(operand, Parameter):
            return None
        name = folded(operand.name)
        if name not in self._parameters:
            fault = f"the parameter {shown('@' + operand.name)} has no value."
            raise RuleSyntaxError(fault, self.text, operand.position)
        return Constant(self._parameters[name])

    def reading(self, operand: Operand) -> Reading:
        constant = self.constant(operand)
        if constant is not None:
            return constant
        if isinstance(operand, Property):
            return SystemReading(operand.name) if operand.is_system else UserReading(folded(operand.name))
        if isinstance(operand, PropertyOf):
            return self._named(operand)
        if isinstance(operand, Sign):
            return SignReading(self.reading(operand.operand), operand.operator == "-")
        if isinstance(operand, Arithmetic):
            steps = [(operator, self.reading(right)) for operator, right in operand.steps]
            return ArithmeticReading(self.reading(operand.first), steps)
        return NewIdReading(self.new_id)

    def _named(self, call: PropertyOf) -> Reading:
        constant = self.constant(call.name)
        if constant is None:
            return NamedReading(self.reading(call.name), self._shared_budget())
        name = constant.constant
        return UserReading(folded(name)) if isinstance(name, str) else Constant(None)

    def truth(self, expression: Expression) -> Truth:
        if isinstance(expression, And):
            return AllOf([self.truth(part) for part in expression.parts])
        if isinstance(expression, Or):
            return AnyOf([self.truth(part) for part in expression.parts])
        if isinstance(expression, Not):
            return Opposite(self.truth(expression.condition))
        if isinstance(expression, Comparison):
            return self._comparison(expression)
        if isinstance(expression, Membership):
            return _negated_if(expression.is_negated, self._membership(expression))
        if isinstance(expression, Likeness):
            return _negated_if(expression.is_negated, self._likeness(expression))
        if isinstance(expression, NullTest):
            return _negated_if(expression.is_negated, IsNull(self.reading(expression.property)))
        if isinstance(expression, Existence):
            return self._existence(expression.property)
        return Bare(self.reading(expression))

    def _comparison(self, comparison: Comparison) -> Truth:
        left, right = self.reading(comparison.left), self.reading(comparison.right)
        operator = comparison.operator
        if operator in ("=", "<>"):
            return _negated_if(operator == "<>", _equality(left, right))
        return _order(left, right, operator.endswith("="), operator.startswith(">"))

    def _membership(self, membership: Membership) -> Truth:
        operand = self.reading(membership.operand)
        choices = [self.reading(choice) for choice in membership.choices]
        texts = [
            choice.constant
            for choice in choices
            if isinstance(choice, Constant) and isinstance(choice.constant, str)
        ]
        if len(texts) == len(choices):
            return AmongTexts(operand, frozenset(texts))
        return AmongAny(operand, choices)

    def _likeness(self, likeness: Likeness) -> Truth:
        operand = self.reading(likeness.operand)
        pattern = self.constant(likeness.pattern)
        escape = None if likeness.escape is None else self.constant(likeness.escape)
        if pattern is not None and not isinstance(pattern.constant, str | None):
            fault = "the pattern of LIKE must be a string."
            raise RuleSyntaxError(fault, self.text, likeness.pattern_position)
        if escape is not None and escape.constant is not None and not _is_character(escape.constant):
            fault = "the escape character of LIKE must be a string of one character."
            raise RuleSyntaxError(fault, self.text, likeness.escape_position)
        if pattern is None or (likeness.escape is not None and escape is None):
            given = None if likeness.escape is None else self.reading(likeness.escape)
            return LikesGiven(operand, self.reading(likeness.pattern), given, self._shared_budget())
        return self._constant_likeness(operand, pattern, escape, likeness.pattern_position)

    def _constant_likeness(
        self, operand: Reading, pattern: Constant, escape: Constant | None, position: int
    ) -> Truth:
        if not isinstance(pattern.constant, str):
            return LikesGiven(operand, pattern, escape, self._shared_budget())
        if escape is None:
            character: str | None = None
        elif isinstance(escape.constant, str):
            character = escape.constant
        else:
            return LikesGiven(operand, pattern, escape, self._shared_budget())
        try:
            return LikesConstant(operand, LikePattern(pattern.constant, character), self._shared_budget())
        except FilterError as error:
            raise RuleSyntaxError(str(error), self.text, position) from error

    def _existence(self, property_: Property | PropertyOf) -> Truth:
        if isinstance(property_, Property):
            if property_.is_system:
                return Opposite(IsNull(SystemReading(property_.name)))
            return UserExists(folded(property_.name))
        constant = self.constant(property_.name)
        if constant is None:
            return NamedExists(self.reading(property_.name), self._shared_budget())
        name = constant.constant
        return UserExists(folded(name)) if isinstance(name, str) else Bare(Constant(None))


def _equality(left: Reading, right: Reading) -> Truth:
    if isinstance(left, Constant):
        left, right = right, left
    if isinstance(left, UserReading) and isinstance(right, Constant) and isinstance(right.constant, str):
        return UserEqualsText(left.name, right.constant)
    return Equality(left, right)


def _order(left: Reading, right: Reading, allows_equal: bool, is_exchanged: bool) -> Truth:
    if isinstance(left, UserReading) and isinstance(right, Constant):
        integer = right.constant
        if isinstance(integer, int) and not isinstance(integer, bool):
            return UserAgainstInteger(left, integer, right, allows_equal, is_exchanged)
    return Order(left, right, allows_equal, is_exchanged)


def _negated_if(is_negated: bool, truth: Truth) -> Truth:
    return Opposite(truth) if is_negated else truth


def _is_character(value: Value) -> bool:
    return isinstance(value, str) and len(value) == 1


def _parameters_of(parameters: tuple[tuple[str, TypedValue], ...]) -> Mapping[str, Value]:
    """By folded name without `@`; clients write it with one."""
    values: dict[str, Value] = {}
    for name, typed in parameters:
        key = folded(name.removeprefix("@"))
        if key in values:
            raise RuleSyntaxError(f"the parameter {shown(name)} is given twice.")
        values[key] = value_of(name, typed)
    return values
