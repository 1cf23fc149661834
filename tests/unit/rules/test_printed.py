"""Trees as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.rules.expression import Expression, Literal, Property, RemoveStatement, SetStatement
from busway.rules.parse import parse_action, parse_filter
from busway.rules.printed import printed
from tests.unit.rules.trees import conditions, operands, printed_action, properties


@given(conditions)
def test_a_printed_tree_parses_to_itself(tree: Expression) -> None:
    """T-20: `repr` tells 1, 1.0 and TRUE apart, which `==` does not."""
    text = printed(tree)
    if len(text) <= 1024:
        assert repr(parse_filter(text)) == repr(tree)


_statements = st.builds(
    SetStatement, st.builds(Property, st.text(min_size=1, max_size=9)), operands
) | st.builds(RemoveStatement, st.builds(Property, st.text(min_size=1, max_size=9)))


@given(st.lists(_statements, min_size=1, max_size=4).map(tuple))
def test_a_printed_action_parses_to_itself(
    statements: tuple[SetStatement | RemoveStatement, ...],
) -> None:
    """T-22, T-50: whatever the names are."""
    text = printed_action(statements)
    if len(text) <= 1024:
        assert repr(parse_action(text)) == repr(statements)


@given(
    st.text(max_size=30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_printed_literals_keep_their_values(text: str, double: float, integer: int) -> None:
    """T-25: printed literals keep their values."""
    for value in (text, double, integer):
        tree = parse_filter(f"a = {printed(Literal(value))}")
        assert repr(tree) == repr(parse_filter(printed(tree)))
        assert f"right=Literal(value={value!r})" in repr(tree)


@given(properties)
def test_system_properties_keep_their_scope(property_: Property) -> None:
    """T-23: system properties keep their scope."""
    assert printed(property_).startswith("sys.") == property_.is_system


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("((a = 1) and (b=2)) or not (c<>3)", "a = 1 AND b = 2 OR NOT c <> 3"),
        ("a != 1", "a <> 1"),
        ("(a or b) and c", "(a OR b) AND c"),
        ("(a and b) and c", "(a AND b) AND c"),
        ("a = (1 + 2) * 3 - (4 - 5)", "a = (1 + 2) * 3 - (4 - 5)"),
        ("-(5) = -5", "-(5) = -5"),
        ("[and] = 'it''s'", "[and] = 'it''s'"),
        ('"x]y" = 1', "[x]]y] = 1"),
        ("user.A like 'x' escape '!'", "A LIKE 'x' ESCAPE '!'"),
        ("SYS.subject not in ('a', @b)", "sys.Label NOT IN ('a', @b)"),
        ("p('x') is not null and exists(P('y'))", "property('x') IS NOT NULL AND EXISTS(property('y'))"),
        ("NEWID() = null or true", "newid() = NULL OR TRUE"),
    ],
)
def test_a_printed_filter_is_what_one_would_write(written: str, expected: str) -> None:
    """T-20, T-21: parentheses only where they are needed, keywords in capitals."""
    assert printed(parse_filter(written)) == expected
