"""Whether a rule can be stored."""

import pytest

from busway.model.description_checks import check_rule
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)


@pytest.mark.parametrize(
    "filter_",
    [
        TrueFilter(),
        FalseFilter(),
        SqlFilter("color = 'red'"),
        SqlFilter("Priority = @param1 AND Level = @param2", (
            ("@param1", TypedValue("string", "str1")), ("@param2", TypedValue("int", 1)),
        )),
        SqlFilter("1 / 0 = 1"),
        CorrelationFilter(correlation_id="high"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("action", [None, SqlAction("SET a = 'b'")])
def test_a_good_rule_passes(filter_: Filter, action: SqlAction | None) -> None:
    """E-70, E-71, E-74: also one whose evaluation will fail."""
    check_rule(Rule("r", filter_, action))


@pytest.mark.parametrize(
    ("rule", "piece"),
    [
        (Rule("r", SqlFilter("color =")), "At character 8: expected a value"),
        (Rule("r", SqlFilter("sys.Nothing = 1")), "there is no system property"),
        (Rule("r", SqlFilter("a = @b")), "'@b' has no value"),
        (Rule("r", SqlFilter("x" * 1025)), "at most 1024"),
        (Rule("r", SqlFilter("a LIKE 5")), "must be a string"),
        (Rule("r", CorrelationFilter()), "at least one condition"),
        (Rule("r", TrueFilter(), SqlAction("SET")), "expected the name of a property"),
        (Rule("r", TrueFilter(), SqlAction("SET sys.Size = 1")), "given by the broker"),
        (Rule("r", TrueFilter(), SqlAction("SET a = @b")), "'@b' has no value"),
        (Rule("r", TrueFilter(), SqlAction("")), "expected SET or REMOVE"),
    ],
)
def test_a_wrong_rule_is_refused_before_it_is_stored(rule: Rule, piece: str) -> None:
    """T-24, T-28, T-36, T-42, E-71, ERR-28: a wrong rule is refused before it is stored."""
    with pytest.raises(RuleSyntaxError, match=piece):
        check_rule(rule)
