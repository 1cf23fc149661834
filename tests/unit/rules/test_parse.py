"""Texts that are wrong, and what is said about them."""

import contextlib
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from busway.rules.expression import And, Arithmetic, Comparison, Literal, Or, Property, SetStatement
from busway.rules.parse import DEPTH_MAX, KEYWORDS, STATEMENTS_MAX, parse_action, parse_filter
from busway.rules.rule import RuleSyntaxError

#: Text, place from 0, a piece of the sentence.
FILTER_FAULTS: Final = [
    ("", 0, "expected a value but found the end of the text"),
    ("   ", 3, "expected a value but found the end of the text"),
    ("color =", 7, "expected a value but found the end of the text"),
    ("= 'red'", 0, "expected a value but found '='"),
    ("color = 'red", 8, "no closing '"),
    ("color = 'it''s", 8, "no closing '"),
    ("[color = 'red'", 0, "no closing ]"),
    ('"color = 1', 0, 'no closing "'),
    ("color == 'red'", 7, "expected a value but found '='"),
    ("color = 'red' 'blue'", 14, "expected AND, OR or the end of the text but found ''blue''"),
    ("color = 'red' AND", 17, "expected a value but found the end"),
    ("AND color = 'red'", 0, "expected a value but found 'AND'"),
    ("color = 'red' color = 'blue'", 14, "expected AND, OR or the end"),
    ("(color = 'red'", 14, "expected ')' but found the end of the text"),
    ("(color = 'red' AND size = 1 OR", 30, "expected a value"),
    ("color = 'red')", 13, "expected AND, OR or the end of the text but found ')'"),
    ("(a = 1 b = 2)", 7, "expected ')' but found 'b'"),
    ("()", 1, "expected a value but found ')'"),
    ("color IN 'red'", 9, "expected '(' but found"),
    ("color IN ()", 10, "expected a value but found ')'"),
    ("color IN ('a' 'b')", 14, "expected ',' or ')'"),
    ("color IN ('a',)", 14, "expected a value"),
    ("color NOT 'red'", 10, "expected IN or LIKE"),
    ("color NOT = 'red'", 10, "expected IN or LIKE"),
    ("color LIKE", 10, "expected a value"),
    ("color LIKE 'a' ESCAPE", 21, "expected a value"),
    ("color IS 'red'", 9, "expected NULL"),
    ("color IS NOT 5", 13, "expected NULL"),
    ("1 IS NULL", 2, "IS NULL needs a property"),
    ("@p IS NULL", 3, "IS NULL needs a property"),
    ("newid() IS NULL", 8, "IS NULL needs a property"),
    ("(a = 1) IS NULL", 8, "needs a value on its left"),
    ("EXISTS color", 7, "expected '('"),
    ("EXISTS()", 7, "expected the name of a property"),
    ("EXISTS('color')", 7, "expected the name of a property"),
    ("EXISTS(newid())", 7, "expected a property"),
    ("EXISTS(a + b)", 9, "expected ')'"),
    ("1", 1, "expected a comparison but found the end"),
    ("'text'", 6, "expected a comparison"),
    ("a + b", 5, "expected a comparison"),
    ("-a", 2, "expected a comparison"),
    ("newid()", 7, "expected a comparison"),
    ("(1)", 3, "expected a comparison"),
    ("a = 1 AND 2", 11, "expected a comparison"),
    ("2 AND a = 1", 0, "AND needs a condition on its left"),
    ("1 OR a = 1", 0, "OR needs a condition on its left"),
    ("NOT 1", 5, "expected a comparison"),
    ("(NOT 1 AND a)", 5, "not boolean"),
    ("a = b = c", 6, "needs a value on its left, but found a condition"),
    ("(a = b) + 1 = 2", 8, "needs a value on its left"),
    ("a = (b = c)", 4, "expected a value, but this is a condition"),
    ("a = NOT b", 4, "expected a value but found 'NOT'"),
    ("a + EXISTS(b) = 1", 4, "expected a value but found 'EXISTS'"),
    ("a IN (b = 1)", 8, "expected ',' or ')'"),
    ("a IN ((b = 1))", 6, "this is a condition"),
    ("-(a = 1) = 1", 1, "this is a condition"),
    ("property(a = 1) = 1", 11, "expected ')'"),
    ("property() = 1", 9, "expected a value"),
    ("property(5) = 1", 9, "must be a string"),
    ("property(NULL) = 1", 9, "must be a string"),
    ("property(newid()) = 1", 9, "must be a string"),
    ("newid(1) = 1", 6, "expected ')'"),
    ("lower(a) = 'x'", 0, "there is no function 'lower'"),
    ("[p]('a') = 'x'", 3, "expected AND, OR or the end"),
    ("sys.Colour = 1", 4, "there is no system property 'Colour'"),
    ("sys.MesageId = 'a'", 4, "Did you mean sys.MessageId?"),
    ("sys.ScheduledEnqueueTime IS NULL", 4, "Did you mean sys.ScheduledEnqueueTimeUtc?"),
    ("sys.Body = 'a'", 4, "there is no system property 'Body'"),
    ("sys.[] = 1", 4, "a name cannot be empty"),
    ("sys. = 1", 5, "expected the name of a property but found '='"),
    ("sys.Label.Length = 1", 9, "expected AND, OR or the end"),
    ("[sys].Label = 1", 5, "expected AND, OR or the end"),
    ("other.name = 1", 5, "expected AND, OR or the end"),
    ("a = 1 AND set = 2", 10, "expected a value but found 'set'"),
    ("user.and = 1", 5, "and is a keyword; write [and]"),
    ("_name = 1", 0, "write others in brackets"),
    ("[] = 1", 0, "a name cannot be empty"),
    ('"" = 1', 0, "a name cannot be empty"),
    ("a = 5x", 5, "cannot follow a number"),
    ("5x = 1", 1, "cannot follow a number"),
    ("a = 1.", 6, "expected digits after the decimal point"),
    ("a = 1.x", 6, "expected digits after the decimal point"),
    ("a = .5", 4, "expected a value but found '.'"),
    ("a = 1E", 6, "expected digits in the exponent"),
    ("a = 1E+", 7, "expected digits in the exponent"),
    ("a = 1.5.2", 7, "expected AND, OR or the end"),
    ("a = 9223372036854775808", 4, "does not fit in 64 bits"),
    ("a = -9223372036854775809", 5, "does not fit in 64 bits"),
    ("a = -(9223372036854775808)", 6, "does not fit in 64 bits"),
    ("a = 1E999", 4, "too large for a double"),
    ("a = @", 4, "expected the name of a parameter"),
    ("a = @ b", 4, "expected the name of a parameter"),
    ("a = #1", 4, "the character '#' has no meaning here"),
    ("a = ١", 4, "has no meaning here"),
    ("a ! b", 2, "has no meaning here"),
    ("a = 1; b = 2", 5, "expected AND, OR or the end"),
    ("a\x00 = 1", 1, "the character '�' has no meaning"),
    ("SET a = 1", 0, "expected a value but found 'SET'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "piece"), FILTER_FAULTS)
def test_a_wrong_filter_is_refused_with_its_place(text: str, position: int, piece: str) -> None:
    """T-20, T-22, T-24, T-25, T-36: the sentence names the place and what was expected there."""
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter(text)
    assert (caught.value.position, piece in caught.value.sentence) == (position, True), caught.value.sentence
    assert caught.value.sentence.startswith(f"At character {position + 1}: ")
    assert caught.value.sentence == str(caught.value)


ACTION_FAULTS: Final = [
    ("", 0, "expected SET or REMOVE but found the end"),
    ("EventType = 1", 0, "expected SET or REMOVE but found 'EventType'"),
    ("SET", 3, "expected the name of a property"),
    ("SET a", 5, "expected '=' but found the end"),
    ("SET a = ", 8, "expected a value"),
    ("SET a = 1 b = 2", 10, "expected ';' or the end of the text but found 'b'"),
    ("SET a = 1;; SET b = 2", 10, "expected SET or REMOVE but found ';'"),
    ("SET a = b = c", 10, "expected ';' or the end"),
    ("SET a = (b = c)", 8, "this is a condition"),
    ("SET a = b > 1", 10, "expected ';'"),
    ("SET a = EXISTS(b)", 8, "expected a value but found 'EXISTS'"),
    ("SET 'a' = 1", 4, "expected the name of a property"),
    ("SET property('a') = 1", 12, "expected '='"),
    ("SET @a = 1", 4, "expected the name of a property"),
    ("SET set = 1", 4, "set is a keyword; write [set]"),
    ("REMOVE", 6, "expected the name of a property"),
    ("REMOVE a = 1", 9, "expected ';'"),
    ("REMOVE a, b", 8, "expected ';'"),
    ("SET sys.Body = 'x'", 8, "there is no system property 'Body'"),
    ("SET a = sys.Colour", 12, "there is no system property 'Colour'"),
    ("SET sys.SequenceNumber = 1", 4, "sys.SequenceNumber is given by the broker"),
    ("SET sys.enqueuedtimeutc = @x", 4, "sys.EnqueuedTimeUtc is given by the broker"),
    ("REMOVE sys.LockToken", 7, "sys.LockToken is given by the broker"),
    ("UPDATE a = 1", 0, "expected SET or REMOVE"),
]


@pytest.mark.parametrize(("text", "position", "piece"), ACTION_FAULTS)
def test_a_wrong_action_is_refused_with_its_place(text: str, position: int, piece: str) -> None:
    """T-36, T-50, T-51, T-52: also a system property that is not there or that only the broker gives."""
    with pytest.raises(RuleSyntaxError) as caught:
        parse_action(text)
    assert (caught.value.position, piece in caught.value.sentence) == (position, True), caught.value.sentence


def test_a_fault_points_into_its_line() -> None:
    """T-36: line, column and a caret below the place."""
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter("color = 'red'\nAND (size > 1\nAND x = = 2)")
    assert (caught.value.line, caught.value.column) == (3, 9)
    assert caught.value.pointer == "AND x = = 2)\n        ^"


def test_a_fault_far_into_a_long_line_is_still_seen() -> None:
    """T-36: only the neighbourhood is shown."""
    text = "a = 1 OR " * 100 + "= 1" + " OR a = 1" * 10
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter(text)
    shown_line, caret_line = caught.value.pointer.split("\n")
    assert len(shown_line) <= 72
    assert shown_line[caret_line.index("^")] == "="


def test_control_characters_never_reach_the_sentence() -> None:
    """T-36: an error shown on a terminal does not move its cursor."""
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter("a = 1 \x1b[2J' \r AND")
    assert all(character.isprintable() for character in caught.value.sentence)
    assert all(character.isprintable() for character in caught.value.pointer.replace("\n", ""))


def test_long_tokens_are_cut_in_the_sentence() -> None:
    """T-36: long tokens are cut in the sentence."""
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter("a = 1 " + "x" * 900)
    assert len(caught.value.sentence) < 200


@pytest.mark.parametrize("parse", [parse_filter, parse_action])
def test_a_text_has_at_most_1024_characters(parse: object) -> None:
    """E-71: filters and actions alike."""
    head = "a = '" if parse is parse_filter else "SET a = '"
    assert callable(parse)
    parse(head + "x" * (1023 - len(head)) + "'")
    with pytest.raises(RuleSyntaxError, match="has 1025 characters; at most 1024"):
        parse(head + "x" * (1024 - len(head)) + "'")


def test_an_action_has_at_most_32_statements() -> None:
    """E-71: an action has at most 32 statements."""
    assert len(parse_action("SET a = 1;" * STATEMENTS_MAX)) == STATEMENTS_MAX
    with pytest.raises(RuleSyntaxError, match="at most 32 statements"):
        parse_action("SET a = 1;" * (STATEMENTS_MAX + 1))


@pytest.mark.parametrize(
    ("before", "after", "tail"),
    [("(", ")", ""), ("NOT ", "", ""), ("- ", "", " = 1"), ("p(", ")", ""), ("(NOT (", "))", "")],
)
def test_nesting_is_bounded(before: str, after: str, tail: str) -> None:
    """T-20, T-36: a text of parentheses, NOTs, signs or calls exhausts no stack; twenty of them are fine."""
    parse_filter(before * 20 + "a" + after * 20 + tail)
    with pytest.raises(RuleSyntaxError, match=f"nested more than {DEPTH_MAX} deep"):
        parse_filter((before * 400)[:1000] + "a")


def test_long_chains_are_flat() -> None:
    """T-20: hundreds of ANDs, ORs and sums are one node each."""
    conjunction = parse_filter(" AND ".join(["a"] * 170))
    assert isinstance(conjunction, And)
    assert len(conjunction.parts) == 170
    disjunction = parse_filter(" OR ".join(["a"] * 200))
    assert isinstance(disjunction, Or)
    assert len(disjunction.parts) == 200
    comparison = parse_filter("+".join(["a"] * 500) + "=1")
    assert isinstance(comparison, Comparison)
    assert isinstance(comparison.left, Arithmetic)
    assert len(comparison.left.steps) == 499


def test_semicolons_stand_between_statements_or_behind_them() -> None:
    """T-50: the last one may be left out, and as in the service those between."""
    expected = (SetStatement(Property("a"), Literal(1)), SetStatement(Property("b"), Property("c")))
    assert parse_action("SET a = 1; SET b = c") == expected
    assert parse_action("SET a = 1; SET b = c;") == expected
    assert parse_action("set a = 1 Set b = c") == expected


@given(st.text(max_size=60))
@example("ß" * 20)
@example("\ud800")
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """T-36: nothing but a RuleSyntaxError comes out of the parser."""
    _parsed_or_refused(text)


_PIECES = st.sampled_from(
    [
        *sorted(KEYWORDS), "a", "b", "sys.Label", "sys.", "user.", "[x y]", '"q"', "'s'", "''", "1", "2.5", "1E5",
        "-", "+", "*", "/", "%", "(", ")", ",", ";", "=", "<>", "!=", "<", "<=", ">", ">=", "@p", "p(", "newid()",
        "property(", "9223372036854775808", ".", "\n", "\t",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=40).map(" ".join))
def test_any_row_of_tokens_is_parsed_or_refused(text: str) -> None:
    """T-36: nearly right texts reach deeper than arbitrary ones."""
    _parsed_or_refused(text)


def _parsed_or_refused(text: str) -> None:
    for parse in (parse_filter, parse_action):
        with contextlib.suppress(RuleSyntaxError):
            assert parse(text)
