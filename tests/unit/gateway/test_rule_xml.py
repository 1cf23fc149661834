"""Rules between XML and what the broker keeps."""

from xml.etree.ElementTree import Element, fromstring

import pytest

from busway.broker.namespace.rule_table import rule_json, rule_of_json
from busway.gateway.http.atom.rule_xml import parse_rule, rule_element
from busway.model.errors import BadArgument
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)

CONNECT = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


def described(content: str) -> Element:
    return fromstring(f'<RuleDescription xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{content}</RuleDescription>')


RULES = [
    Rule("true", TrueFilter()),
    Rule("false", FalseFilter()),
    Rule("sql", SqlFilter("a = 'x <y> & z'")),
    Rule("sql-2", SqlFilter("a = @p", (("@p", TypedValue("dateTime", 5, has_zone=False)),), 20, True)),
    Rule("action", TrueFilter(), SqlAction("SET a = 1")),
    Rule("action-2", TrueFilter(), SqlAction("SET a = @p", (("@p", TypedValue("double", 0.5)),), 20, True)),
    Rule("correlation", CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct")),
    Rule("empty-text", CorrelationFilter(correlation_id="")),
    Rule(
        "properties",
        CorrelationFilter(
            properties=(
                ("text", TypedValue("string", " <b>\r\n ")),
                ("int", TypedValue("int", -1)),
                ("long", TypedValue("long", 1)),
                ("yes", TypedValue("boolean", True)),
                ("half", TypedValue("double", 0.5)),
                ("at", TypedValue("dateTime", 637_295_443_330_000_001)),
                ("for", TypedValue("duration", -1)),
            )
        ),
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_rule_survives_xml_and_the_catalogue(rule: Rule, is_fresh: bool) -> None:
    """E-64 E-70 E-74: filter, action and typed values are the same after any number of round trips."""
    element = fromstring(rule_element(rule, is_fresh=is_fresh))
    assert parse_rule(element, rule.name) == rule
    assert rule_of_json(rule_json(rule)) == rule


def test_a_rule_is_written_in_the_recorded_shape() -> None:
    """E-70 E-74: element order, prefixes, CreatedAt before Name."""
    rule = Rule(
        "test_rule_1",
        CorrelationFilter(
            correlation_id="testcid",
            properties=(("key_long", TypedValue("long", 2_147_483_650)),),
        ),
        SqlAction("SET Priority = @param", (("@param", TypedValue("int", 1)),), requires_preprocessing=True),
        created_at_ms=1_725_473_664_801,
    )
    assert rule_element(rule) == (
        f'<RuleDescription xmlns="{CONNECT}" xmlns:i="{INSTANCE}"><Filter i:type="CorrelationFilter">'
        "<CorrelationId>testcid</CorrelationId><Properties><KeyValueOfstringanyType><Key>key_long</Key>"
        '<Value i:type="d6p1:long" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">2147483650</Value>'
        "</KeyValueOfstringanyType></Properties></Filter>"
        '<Action i:type="SqlRuleAction"><SqlExpression>SET Priority = @param</SqlExpression>'
        "<CompatibilityLevel>20</CompatibilityLevel><Parameters><KeyValueOfstringanyType><Key>@param</Key>"
        '<Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">1</Value>'
        "</KeyValueOfstringanyType></Parameters><RequiresPreprocessing>true</RequiresPreprocessing></Action>"
        "<CreatedAt>2024-09-04T18:14:24.801Z</CreatedAt><Name>test_rule_1</Name></RuleDescription>"
    )


def test_empty_parameters_are_written_when_a_rule_is_read() -> None:
    """E-70 E-73: last in a filter that is read, not at all in one that was just made or is TrueFilter."""
    rule = Rule("r", SqlFilter("a = 1", requires_preprocessing=True))
    assert "<RequiresPreprocessing>true</RequiresPreprocessing><Parameters/></Filter>" in rule_element(rule)
    assert "Parameters" not in rule_element(rule, is_fresh=True)
    assert (
        '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression><CompatibilityLevel>20'
        '</CompatibilityLevel></Filter><Action i:type="EmptyRuleAction"/>'
    ) in rule_element(Rule("$Default", TrueFilter()))


@pytest.mark.parametrize(
    "content",
    ["", "<Name>r</Name>", f'<Filter xmlns:x="{INSTANCE}" x:nil="true"/><Action i:nil="true"/>'],
)
def test_no_filter_is_a_true_filter_and_no_action_none(content: str) -> None:
    """E-64 T-3: no filter is a true filter and no action none."""
    assert parse_rule(described(content), "r") == Rule("r", TrueFilter())


def test_a_true_filter_is_what_it_is_whatever_it_says() -> None:
    """E-73: the text of a TrueFilter or FalseFilter is fixed."""
    content = '<Filter i:type="{}"><SqlExpression>a=1</SqlExpression></Filter>'
    assert parse_rule(described(content.format("TrueFilter")), "r").filter == TrueFilter()
    assert parse_rule(described(content.format("FalseFilter")), "r").filter == FalseFilter()


def test_javascripts_prefixes_are_read() -> None:
    """E-74: `p4:type` and `l28:double`, and an element order of its own."""
    content = (
        f'<Filter xmlns:p4="{INSTANCE}" p4:type="CorrelationFilter"><Label>l</Label><CorrelationId>c'
        '</CorrelationId><Properties><KeyValueOfstringanyType><Key>k</Key><Value p4:type="l28:double"'
        ' xmlns:l28="http://www.w3.org/2001/XMLSchema">5</Value></KeyValueOfstringanyType></Properties></Filter>'
        f'<Action xmlns:p4="{INSTANCE}" p4:type="EmptyRuleAction"/><Name>r</Name>'
    )
    assert parse_rule(described(content), "r") == Rule(
        "r",
        CorrelationFilter(correlation_id="c", label="l", properties=(("k", TypedValue("double", 5.0)),)),
    )


def test_the_name_in_the_address_counts() -> None:
    """E-7 E-70: the description may repeat it in any case, or leave it out; another one is refused."""
    assert parse_rule(described("<Name>RULE</Name>"), "rule").name == "rule"
    assert parse_rule(described("<Name>own</Name>"), None, "$Default").name == "own"
    assert parse_rule(described("<Name/>"), None, "$Default").name == "$Default"
    with pytest.raises(BadArgument, match="'other' is not the name in the address"):
        parse_rule(described("<Name>other</Name>"), "rule")


PAIR = "<KeyValueOfstringanyType><Key>{}</Key>{}</KeyValueOfstringanyType>"
VALUE = '<Value i:type="d6p1:string" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">v</Value>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<Filter/>", "Filter: the type '' is not one of"),
        ('<Filter i:type="DateFilter"/>', "'DateFilter'"),
        (f'<Filter i:type="{"x" * 5000}"/>', "Filter: the type"),
        ('<Filter i:type="SqlFilter"/>', "Filter: SqlExpression is missing"),
        ('<Action i:type="SqlRuleAction"/>', "Action: SqlExpression is missing"),
        ('<Action i:type="SqlFilter"><SqlExpression>1=1</SqlExpression></Action>', "Action: the type"),
        ("<Action/>", "Action: the type ''"),
        ('<Filter i:type="TrueFilter"/>' * 2, "Filter comes twice"),
        (f'<Filter i:type="SqlFilter">{"<SqlExpression>a</SqlExpression>" * 2}</Filter>', "twice"),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a</SqlExpression><CompatibilityLevel>x</CompatibilityLevel>'
            "</Filter>",
            "CompatibilityLevel",
        ),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a</SqlExpression><CompatibilityLevel>-1</CompatibilityLevel>'
            "</Filter>",
            "CompatibilityLevel",
        ),
        (
            '<Filter i:type="SqlFilter"><SqlExpression>a</SqlExpression>'
            "<RequiresPreprocessing>x</RequiresPreprocessing></Filter>",
            "RequiresPreprocessing",
        ),
        (f'<Filter i:type="CorrelationFilter"><Properties>{PAIR.format("", VALUE)}</Properties></Filter>', "empty"),
        (f'<Filter i:type="CorrelationFilter"><Properties>{PAIR.format("k", "")}</Properties></Filter>', "a Value"),
        (
            f'<Filter i:type="CorrelationFilter"><Properties>{PAIR.format("k", VALUE) * 2}</Properties></Filter>',
            "comes twice",
        ),
        ('<Filter i:type="CorrelationFilter"><Properties><Other/></Properties></Filter>', "KeyValueOfstringanyType"),
    ],
)  # fmt: skip
def test_a_description_that_makes_no_sense_is_refused(content: str, says: str) -> None:
    """E-70 ERR-28: with a sentence that says where."""
    with pytest.raises(BadArgument, match=says) as refused:
        parse_rule(described(content), "r")
    assert len(refused.value.sentence) < 400
