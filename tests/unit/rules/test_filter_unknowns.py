"""What filters make of values that do not compare, of missing properties and of null, and in which order."""

from typing import Final

import pytest

from busway.rules.rule import FilterError
from tests.unit.rules.filter_answers import (
    Answer,
    E,
    F,
    T,
    U,
    answer,
    selects,
)

MISMATCHES: Final = [
    ("color = 10", U),
    ("color > 10", U),
    ("color < 10", U),
    ("10 > color", U),
    ("[number as text] = 10", U),
    ("[number as text] > 9", U),
    ("quantity = '10'", U),
    ("quantity > '9'", U),
    ("quantity <> '10'", U),
    ("urgent = 1", U),
    ("urgent = 'true'", U),
    ("1 = urgent", U),
    ("urgent > paid", U),
    ("urgent > 0", U),
    ("urgent <= 1", U),
    ("paid < 1", U),
    ("urgent <= TRUE", U),
    ("quantity = TRUE", U),
    ("id = 'x'", U),
    ("id < id", U),
    ("id = id", T),
    ("raw = raw", T),
    ("raw = 'x'", U),
    ("raw < raw", U),
    ("raw <> raw", F),
    ("begun = 'x'", U),
    ("begun = 1", U),
    ("begun = took", U),
    ("begun < took", U),
    ("took = 1", U),
    ("took < 1", U),
    ("NOT (color = 10)", U),
    ("color IN (1, 2)", U),
    ("color IN (1, 'red')", T),
    ("color NOT IN (1, 'blue')", U),
    ("quantity IN ('10')", U),
    ("urgent IN (1)", U),
    ("urgent IN (TRUE)", T),
    ("quantity IN (TRUE, 10)", T),
    ("price IN (2, 2.5)", T),
    ("quantity IN (10.0)", T),
]


@pytest.mark.parametrize(("text", "expected"), MISMATCHES)
def test_values_that_do_not_compare_are_unknown(text: str, expected: Answer) -> None:
    """T-30: no match and no dead-lettering."""
    assert answer(text) is expected
    assert not selects(text) or expected is T


UNKNOWNS: Final = [
    ("missing = 1", U),
    ("missing <> 1", U),
    ("missing < 1", U),
    ("missing >= 1", U),
    ("1 = missing", U),
    ("1 > missing", U),
    ("missing = missing", U),
    ("missing + 1 = 1", U),
    ("1 - missing = 1", U),
    ("missing / 0 = 1", U),
    ("-missing = 1", U),
    ("+missing = 1", U),
    ("missing + 'x' = 'x'", U),
    ("missing IN (1, 2)", U),
    ("missing NOT IN (1, 2)", U),
    ("missing IN ('a')", U),
    ("quantity IN (missing, 10)", T),
    ("quantity IN (missing, 11)", U),
    ("quantity NOT IN (missing, 11)", U),
    ("missing", U),
    ("NOT missing", U),
    ("nothing = 1", U),
    ("nothing + 1 = 1", U),
    ("nothing IN (1)", U),
    ("nothing", U),
]


@pytest.mark.parametrize(("text", "expected"), UNKNOWNS)
def test_a_missing_property_makes_operators_unknown(text: str, expected: Answer) -> None:
    """T-31, T-34: a missing property makes operators unknown."""
    assert answer(text) is expected
    assert not selects(text) or expected is T


NULLS: Final = [
    ("missing IS NULL", T),
    ("nothing IS NULL", T),
    ("color IS NULL", F),
    ("empty IS NULL", F),
    ("zero IS NULL", F),
    ("paid IS NULL", F),
    ("missing IS NOT NULL", F),
    ("nothing IS NOT NULL", F),
    ("color IS NOT NULL", T),
    ("EXISTS(color)", T),
    ("EXISTS(COLOR)", T),
    ("EXISTS([number as text])", T),
    ("EXISTS(user.color)", T),
    ("EXISTS(missing)", F),
    ("EXISTS(nothing)", T),
    ("EXISTS ( empty )", T),
    ("NOT EXISTS(missing)", T),
    ("NOT EXISTS(color)", F),
    ("EXISTS(color) AND color = 'red'", T),
    ("color = NULL", U),
    ("color <> NULL", U),
    ("nothing = NULL", U),
    ("missing = NULL", U),
    ("NULL = NULL", U),
    ("NOT (NULL = NULL)", U),
    ("NULL <> NULL", U),
    ("NULL < 1", U),
    ("NULL + 1 = 1", U),
    ("quantity IN (NULL)", U),
    ("quantity IN (NULL, 10)", T),
    ("quantity NOT IN (NULL)", U),
]


@pytest.mark.parametrize(("text", "expected"), NULLS)
def test_null_is_tested_never_equal(text: str, expected: Answer) -> None:
    """T-32, T-35: present with null exists; nothing equals NULL."""
    assert answer(text) is expected


#: What is true, false and unknown, as texts.
_WORDS: Final = {"urgent": T, "paid": F, "missing": U}


_AND: Final = {(T, T): T, (T, F): F, (T, U): U, (F, F): F, (F, U): F, (U, U): U}


_OR: Final = {(T, T): T, (T, F): T, (T, U): T, (F, F): F, (F, U): U, (U, U): U}


@pytest.mark.parametrize("left", _WORDS)
@pytest.mark.parametrize("right", _WORDS)
def test_and_and_or_have_three_values(left: str, right: str) -> None:
    """T-33: the tables, both ways round."""
    pair = _WORDS[left], _WORDS[right]
    swapped = pair[1], pair[0]
    assert answer(f"{left} AND {right}") is _AND.get(pair, _AND.get(swapped))
    assert answer(f"{left} OR {right}") is _OR.get(pair, _OR.get(swapped))


@pytest.mark.parametrize(("text", "expected"), [("NOT urgent", F), ("NOT paid", T), ("NOT missing", U)])
def test_not_unknown_is_unknown(text: str, expected: Answer) -> None:
    """T-33: not unknown is unknown."""
    assert answer(text) is expected


@pytest.mark.parametrize("text", ["missing", "NULL", "NOT missing", "missing OR paid", "color = 10", "paid"])
def test_only_true_selects(text: str) -> None:
    """T-33: only true selects."""
    assert not selects(text)


@pytest.mark.parametrize("text", ["NOT (colour = 'red')", "colour <> 'red'", "colour NOT IN ('red')"])
def test_a_negation_does_not_select_messages_without_the_property(text: str) -> None:
    """T-34: a negation does not select messages without the property."""
    assert answer(text) is U
    assert not selects(text)


ORDER_OF_ERRORS: Final = [
    ("paid AND 1/0 = 1", F),
    ("1/0 = 1 AND paid", E),
    ("urgent AND 1/0 = 1", E),
    ("missing AND 1/0 = 1", E),
    ("urgent OR 1/0 = 1", T),
    ("1/0 = 1 OR urgent", E),
    ("missing OR 1/0 = 1", E),
    ("quantity IN (10, 1/0)", T),
    ("quantity IN (1/0, 10)", E),
    ("missing IN (1/0)", U),
    ("missing = 1/0", E),
    ("1/0 > missing", E),
    ("EXISTS(p('a' + wide + wide))", E),
]


@pytest.mark.parametrize(("text", "expected"), ORDER_OF_ERRORS)
def test_an_error_behind_the_deciding_part_is_never_seen(text: str, expected: Answer) -> None:
    """T-29, T-33: from left to right, and no further than needed."""
    assert answer(text) is expected


def test_the_outermost_and_stops_at_unknown() -> None:
    """T-33: only TRUE selects, so what stands behind an unknown part of it decides nothing."""
    assert answer("missing = 1 AND 1/0 = 1") is E
    assert not selects("missing = 1 AND 1/0 = 1")
    assert not selects("(missing = 1 AND urgent) AND 1/0 = 1")
    with pytest.raises(FilterError, match="divided by zero"):
        selects("urgent AND 1/0 = 1")
