"""What evaluating one rule may cost: a budget of characters, the same for every message and every neighbour."""

from __future__ import annotations

import pytest

from busway.rules.compiled_rule import CompiledRule
from busway.rules.operators import CHARACTERS_MAX
from busway.rules.rule import ActionError, FilterError, Rule, SqlAction, SqlFilter, TrueFilter, TypedValue
from busway.rules.selection import Selection
from tests.unit.rules.property_bag import PropertyBag, an_id

#: As long as a property of a message can be, or nearly.
LONG = "a" * 32_000
GAP = ("@x", "%a_b%")


def compiled(expression: str, *parameters: tuple[str, str]) -> CompiledRule:
    return CompiledRule("s", 1, Rule("r", sql(expression, *parameters)), an_id)


def sql(expression: str, *parameters: tuple[str, str]) -> SqlFilter:
    return SqlFilter(expression, tuple((name, TypedValue("string", text)) for name, text in parameters))


def many(part: str, count: int) -> str:
    return " OR ".join([part] * count)


def test_a_filter_that_walks_too_far_fails() -> None:
    """Attack: T-60: sixty LIKEs over a text of 32 KB hold everybody up; the budget ends them."""
    rule = compiled(many("p LIKE @x", 60), GAP)
    with pytest.raises(FilterError, match="1000000 characters"):
        rule.filter.matches(PropertyBag({"p": LONG}))
    assert not rule.filter.matches(PropertyBag({"p": "a"}))


def test_honest_patterns_over_long_texts_pass() -> None:
    """T-27: thirty with a gap inside, or a hundred plain ones, over 32 KB."""
    assert CHARACTERS_MAX >= 1_000_000
    gaps = compiled(many("p LIKE @x", 30), GAP)
    assert not gaps.filter.matches(PropertyBag({"p": LONG}))
    plain = compiled(many("p LIKE @x", 60), ("@x", "%b%"))
    assert not plain.filter.matches(PropertyBag({"p": LONG}))
    assert compiled(many("p LIKE @x", 60) + " OR p LIKE '%a'", ("@x", "b%")).filter.matches(
        PropertyBag({"p": LONG})
    )


def test_a_long_segment_weighs_more() -> None:
    """Attack: T-60: a step of a segment of a thousand characters costs as much as many short ones."""
    rule = compiled(many("p LIKE @x", 4), ("@x", "%a" + "_" * 1000 + "b%"))
    with pytest.raises(FilterError, match="1000000 characters"):
        rule.filter.matches(PropertyBag({"p": LONG}))


def test_patterns_out_of_the_message_count_too() -> None:
    """Attack: T-60: preparing a pattern costs more than its length says."""
    rule = compiled(many("p LIKE q", 80))
    with pytest.raises(FilterError, match="1000000 characters"):
        rule.filter.matches(PropertyBag({"p": "x", "q": "a_b" * 330}))
    assert not compiled(many("p LIKE q", 20)).filter.matches(PropertyBag({"p": "x", "q": "a_b" * 330}))


def test_names_out_of_the_message_count_too() -> None:
    """Attack: T-60: a name is folded for each look."""
    name = "\N{LATIN CAPITAL LETTER A WITH DIAERESIS}" * 32_700
    with pytest.raises(FilterError, match="1000000 characters"):
        compiled(many("property(p) = 1", 40)).filter.matches(PropertyBag({"p": name}))
    with pytest.raises(FilterError, match="1000000 characters"):
        compiled(many("EXISTS(property(p))", 40)).filter.matches(PropertyBag({"p": name}))
    statements = "; ".join(["SET a = property(p)"] * 32)
    action = CompiledRule("s", 1, Rule("r", TrueFilter(), SqlAction(statements)), an_id).acting
    assert action is not None
    with pytest.raises(ActionError, match="1000000 characters"):
        action.action.apply(PropertyBag({"p": name}))


def test_each_evaluation_has_the_whole_budget() -> None:
    """T-60: the same message and rule give the same result, whatever was evaluated before or beside them."""
    selection = Selection(an_id)
    for owner in ("a", "b", "c"):
        selection.add(owner, Rule("r", sql(many("p LIKE @x", 25) + " OR p LIKE '%a'", GAP)))
    selection.add("d", Rule("r", sql(many("p LIKE @x", 60), GAP)))
    subject = PropertyBag({"p": LONG})
    for _ in range(3):
        matches = selection.matching(subject)
        assert [(match.owner, match.is_plain, len(match.errors)) for match in matches] == [
            ("a", True, 0),
            ("b", True, 0),
            ("c", True, 0),
            ("d", False, 1),
        ]


def test_the_look_up_of_filters_changes_no_answer() -> None:
    """T-60: a filter that is found by one of its parts answers as when it is evaluated alone."""
    condition = many("p LIKE @x", 60)
    rule = Rule("r", sql(f"({condition}) AND color = 'red'", GAP))
    alone = CompiledRule("s", 1, rule, an_id)
    selection = Selection(an_id)
    selection.add("s", rule)
    for color in ("red", "blue"):
        subject = PropertyBag({"p": LONG, "color": color})
        fails = False
        try:
            assert not alone.filter.matches(subject)
        except FilterError:
            fails = True
        assert fails == bool(selection.matching(subject)), color
        assert fails == (color == "red")


def test_a_filter_of_constants_that_walks_too_far_can_be_stored() -> None:
    """T-36, T-60: it fails for every message; making it is no fault of the text."""
    rule = compiled(many("@t LIKE @x", 40), ("@t", LONG), ("@x", "%a_b%"))
    with pytest.raises(FilterError, match="1000000 characters"):
        rule.filter.matches(PropertyBag({}))
