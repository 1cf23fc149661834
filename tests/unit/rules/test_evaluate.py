"""Laws of evaluation, on random trees and messages."""

from uuid import UUID

import pytest
from hypothesis import given

from busway.rules.compiled_rule import compiled_filter
from busway.rules.evaluate import Compilation
from busway.rules.expression import And, Expression, Not, Operand, Or, PropertyOf, nodes_of
from busway.rules.parse import parse_filter
from busway.rules.printed import printed
from busway.rules.rule import FilterError, RuleSyntaxError, SqlFilter, TypedValue
from busway.rules.subject import INTEGER_MAX, INTEGER_MIN, Value
from tests.unit.rules.property_bag import PropertyBag, an_id
from tests.unit.rules.trees import PARAMETERS, conditions, messages, operands


def truth(tree: Expression, message: PropertyBag) -> bool | str | None:
    try:
        return Compilation("", PARAMETERS, an_id).truth(tree).evaluate(message)
    except FilterError as error:
        return str(error)


@given(conditions, messages)
def test_evaluation_answers_or_raises_a_filter_error(tree: Expression, message: PropertyBag) -> None:
    """T-29, T-30: nothing else escapes, whatever types meet."""
    assert truth(tree, message) in (True, False, None) or isinstance(truth(tree, message), str)


@given(operands, messages)
def test_values_stay_in_their_domain(operand: Operand, message: PropertyBag) -> None:
    """T-25, T-29: no calculation makes an integer beyond 64 bits."""
    try:
        value: Value = Compilation("", PARAMETERS, an_id).reading(operand).value(message)
    except FilterError:
        return
    given_as_is = (*message.user_properties.values(), *message.system_properties.values())
    if isinstance(value, int) and not any(value is known for known in given_as_is):
        assert INTEGER_MIN <= value <= INTEGER_MAX


@given(conditions, conditions, messages)
def test_de_morgan_holds_with_three_values(left: Expression, right: Expression, message: PropertyBag) -> None:
    """T-33: de morgan holds with three values."""
    assert truth(Not(And((left, right))), message) == truth(Or((Not(left), Not(right))), message)
    assert truth(Not(Or((left, right))), message) == truth(And((Not(left), Not(right))), message)


@given(conditions, messages)
def test_a_double_negation_is_none(tree: Expression, message: PropertyBag) -> None:
    """T-33: a double negation is none."""
    assert truth(Not(Not(tree)), message) == truth(tree, message)


@given(conditions, conditions, messages)
def test_and_and_or_do_not_depend_on_order(left: Expression, right: Expression, message: PropertyBag) -> None:
    """T-33: but for errors, of which the first one is seen."""
    if isinstance(truth(left, message), str) or isinstance(truth(right, message), str):
        return
    assert truth(And((left, right)), message) == truth(And((right, left)), message)
    assert truth(Or((left, right)), message) == truth(Or((right, left)), message)


@given(conditions, conditions, conditions, messages)
def test_flat_and_nested_chains_agree(
    one: Expression, two: Expression, three: Expression, message: PropertyBag
) -> None:
    """T-33: flat and nested chains agree."""
    assert truth(And((one, two, three)), message) == truth(And((And((one, two)), three)), message)
    assert truth(Or((one, two, three)), message) == truth(Or((Or((one, two)), three)), message)


@given(conditions, messages)
def test_a_filter_selects_exactly_what_is_true(tree: Expression, message: PropertyBag) -> None:
    """T-33: the filter stops earlier at an unknown part, so it may miss an error, never an answer."""
    text = printed(tree)
    if len(text) > 1024:
        return
    expected = truth(tree, message)
    try:
        selected: bool | str = compiled_filter(SqlFilter(text, PARAMETERS), an_id).matches(message)
    except FilterError as error:
        selected = str(error)
    assert selected == expected or (selected is False and expected is not True)


def test_newid_is_drawn_from_the_chance_that_is_given() -> None:
    """T-26: once for each call in the text, at each evaluation."""
    drawn: list[UUID] = []

    def next_id() -> UUID:
        drawn.append(UUID(int=len(drawn)))
        return drawn[-1]

    compiled = compiled_filter(SqlFilter("newid() <> newid()"), next_id)
    assert drawn == []
    assert compiled.matches(PropertyBag())
    assert compiled.matches(PropertyBag())
    assert len(drawn) == 4


def test_an_undeclared_parameter_is_refused_at_its_place() -> None:
    """T-28, T-36: an undeclared parameter is refused at its place."""
    with pytest.raises(RuleSyntaxError) as caught:
        compiled_filter(SqlFilter("a = @one AND b = @two", (("@one", TypedValue("int", 1)),)), an_id)
    assert caught.value.sentence == "At character 18: the parameter '@two' has no value."


def test_a_parameter_given_twice_is_refused() -> None:
    """T-28: also in another case, for names are found without regard to it."""
    twice = (("@a", TypedValue("int", 1)), ("@A", TypedValue("int", 2)))
    with pytest.raises(RuleSyntaxError, match="'@A' is given twice"):
        compiled_filter(SqlFilter("x = @a", twice), an_id)


@pytest.mark.parametrize(
    "typed",
    [
        TypedValue("int", "1"),
        TypedValue("int", True),
        TypedValue("int", 1.5),
        TypedValue("long", 1 << 63),
        TypedValue("string", 1),
        TypedValue("boolean", 1),
        TypedValue("double", "x"),
        TypedValue("double", 1 << 2000),
        TypedValue("dateTime", -1),
        TypedValue("dateTime", 1 << 62),
        TypedValue("dateTime", "2020-01-01"),
        TypedValue("duration", 1 << 64),
        TypedValue("decimal", 1),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused(typed: TypedValue) -> None:
    """E-74, T-28, T-36: a value that is not of its type is refused."""
    with pytest.raises(RuleSyntaxError, match=f"The value of '@a' is not a '{typed.type_name}'"):
        compiled_filter(SqlFilter("x = @a", (("@a", typed),)), an_id)


def test_a_whole_number_may_be_given_as_a_double() -> None:
    """E-74: some clients write 1 where they mean 1.0."""
    compiled = compiled_filter(SqlFilter("x = @a", (("@a", TypedValue("double", 1)),)), an_id)
    assert compiled.matches(PropertyBag({"x": 1.0}))


@pytest.mark.parametrize(
    ("text", "position", "piece"),
    [
        ("a LIKE 5", 7, "pattern of LIKE must be a string"),
        ("a LIKE TRUE", 7, "pattern of LIKE must be a string"),
        ("a LIKE @int", 7, "pattern of LIKE must be a string"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "must be a string of one character"),
        ("a LIKE 'x' ESCAPE ''", 18, "must be a string of one character"),
        ("a LIKE 'x' ESCAPE 1", 18, "must be a string of one character"),
        ("a LIKE b ESCAPE 'ab'", 16, "must be a string of one character"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "ends with its escape character"),
    ],
)
def test_a_wrong_constant_pattern_is_refused(text: str, position: int, piece: str) -> None:
    """T-27, T-36: when the rule is made, not when a message comes."""
    with pytest.raises(RuleSyntaxError, match=piece) as caught:
        compiled_filter(SqlFilter(text, PARAMETERS), an_id)
    assert caught.value.position == position


@pytest.mark.parametrize("text", [" AND ".join(["a"] * 170), "+".join(["a"] * 500) + "=1", "-" * 40 + "a=1"])
def test_long_texts_compile_and_run(text: str) -> None:
    """T-20, E-71: chains are loops, nesting is bounded."""
    compiled_filter(SqlFilter(text), an_id).matches(PropertyBag({"a": True}))


def test_all_nodes_of_a_tree_are_found() -> None:
    """T-20: the walk that decides what can fail misses nothing."""
    tree = parse_filter("NOT (a IN (1, -b) AND p(c + 'x') LIKE d ESCAPE e OR f IS NULL OR EXISTS(p(g)))")
    kinds = [type(node).__name__ for node in nodes_of(tree)]
    assert kinds.count("Property") == 7
    assert {
        "Not",
        "And",
        "Or",
        "Membership",
        "Sign",
        "Arithmetic",
        "Likeness",
        "NullTest",
        "Existence",
    } <= set(kinds)
    assert sum(isinstance(node, PropertyOf) for node in nodes_of(tree)) == 2
