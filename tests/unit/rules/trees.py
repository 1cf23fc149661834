"""Random trees, values and messages, as hypothesis strategies."""

from hypothesis import strategies as st

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
    Operand,
    Or,
    Parameter,
    Property,
    PropertyOf,
    SetStatement,
    Sign,
    Statement,
)
from busway.rules.printed import printed
from busway.rules.rule import TypedValue
from busway.rules.subject import INSTANT_TICKS_MAX, Instant, Span, Value
from tests.unit.rules.property_bag import AN_ID, PropertyBag

NAMES = ("a", "b", "c", "flag")
SYSTEM_NAMES = ("Label", "MessageId", "SequenceNumber", "TimeToLive")
#: Parameters of every tree here.
PARAMETERS = (
    ("@text", TypedValue("string", "a%")),
    ("@int", TypedValue("int", 1)),
    ("@yes", TypedValue("boolean", True)),
)

_texts = st.sampled_from(["", "a", "b", "ab", "a%", "_b", "%", "1", "!"])
_integers = st.sampled_from([0, 1, 2, -1, 10, (1 << 63) - 1, -(1 << 63)]) | st.integers(-3, 3)
_doubles = st.sampled_from([0.0, 1.0, -0.5, 2.5, 1e300])

literals = st.builds(Literal, st.none() | st.booleans() | _texts | _integers | _doubles)
properties = st.builds(Property, st.sampled_from(NAMES)) | st.builds(
    Property, st.sampled_from(SYSTEM_NAMES), st.just(True)
)
parameters = st.sampled_from([Parameter("text"), Parameter("int"), Parameter("yes")])
_calls = st.builds(PropertyOf, st.builds(Literal, st.sampled_from(NAMES)) | properties)
#: What may stand alone as a condition.
_bare = st.sampled_from([Literal(True), Literal(False), Literal(None)]) | properties | _calls


def _steps(operators: str, operand: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    step = st.tuples(st.sampled_from(operators), operand)
    return st.builds(Arithmetic, operand, st.lists(step, min_size=1, max_size=3).map(tuple))


def _signs(operand: st.SearchStrategy[Operand]) -> st.SearchStrategy[Operand]:
    return st.builds(Sign, st.sampled_from("+-"), operand)


operands: st.SearchStrategy[Operand] = st.recursive(
    literals | properties | parameters | _calls | st.just(NewId()),
    lambda inner: _steps("+-", inner) | _steps("*/%", inner) | _signs(inner),
    max_leaves=5,
)
_tests: st.SearchStrategy[Expression] = (
    st.builds(Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), operands, operands)
    | st.builds(Membership, operands, st.lists(operands, min_size=1, max_size=3).map(tuple), st.booleans())
    | st.builds(Likeness, operands, properties | st.builds(Literal, _texts), st.none(), st.booleans())
    | st.builds(Likeness, operands, properties, properties | st.just(Literal("!")), st.booleans())
    | st.builds(NullTest, properties | _calls, st.booleans())
    | st.builds(Existence, properties | _calls)
)
conditions: st.SearchStrategy[Expression] = st.recursive(
    _tests | _bare,
    lambda inner: (
        st.builds(And, st.lists(inner, min_size=2, max_size=4).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=4).map(tuple))
        | st.builds(Not, inner)
    ),
    max_leaves=6,
)

values: st.SearchStrategy[Value] = (
    st.none()
    | st.booleans()
    | _texts
    | _integers
    | st.floats()
    | st.just((1 << 64) - 1)
    | st.just(AN_ID)
    | st.just(b"a")
    | st.builds(Instant, st.sampled_from([0, 1, INSTANT_TICKS_MAX]))
    | st.builds(Span, st.sampled_from([0, 1, -1, (1 << 63) - 1]))
)
messages = st.builds(
    PropertyBag,
    st.dictionaries(st.sampled_from(NAMES), values),
    st.dictionaries(st.sampled_from(SYSTEM_NAMES), values),
)


def printed_action(statements: tuple[Statement, ...]) -> str:
    return "; ".join(
        f"SET {printed(each.target)} = {printed(each.value)}"
        if isinstance(each, SetStatement)
        else f"REMOVE {printed(each.target)}"
        for each in statements
    )
