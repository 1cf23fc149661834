"""Rules between ATOM and the client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.client.atom_entries import BadAnswer, parse_document, read_rule, write_rule
from busway.gateway.http.atom.atom import local_name
from busway.gateway.http.atom.rule_xml import parse_rule
from busway.rules.rule import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
    TypedValue,
)

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=8)
_TYPED = st.one_of(
    st.builds(TypedValue, st.just("string"), _TEXT),
    st.builds(TypedValue, st.just("int"), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.builds(TypedValue, st.just("long"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(TypedValue, st.just("boolean"), st.booleans()),
    st.builds(TypedValue, st.just("double"), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(TypedValue, st.just("dateTime"), st.integers(0, 3_155_378_975_999_999_999), st.booleans()),
    st.builds(TypedValue, st.just("duration"), st.integers(-(1 << 62), (1 << 63) - 1)),
)
_PAIRS = st.dictionaries(_TEXT.filter(bool), _TYPED, max_size=4).map(lambda named: tuple(named.items()))
_FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    st.builds(SqlFilter, st.just("a = @p"), _PAIRS, st.just(20), st.booleans()),
    st.builds(
        CorrelationFilter,
        correlation_id=st.none() | _TEXT,
        label=st.none() | _TEXT,
        content_type=st.none() | _TEXT,
        properties=_PAIRS,
    ),
)
_ACTIONS = st.none() | st.builds(SqlAction, st.just("SET a = @p"), _PAIRS)


@given(st.builds(Rule, st.just("r"), _FILTERS, _ACTIONS))
def test_a_rule_reads_back_as_it_was_written(rule: Rule) -> None:
    """E-70…E-74: every kind of filter, with and without action, every value with its type."""
    read = read_rule(parse_document(write_rule(rule)))
    assert _with_texts(read) == _with_texts(rule)


@given(st.builds(Rule, st.just("r"), _FILTERS, _ACTIONS))
def test_the_server_reads_what_the_client_writes(rule: Rule) -> None:
    """E-70…E-74: two implementations of one form."""
    document = parse_document(write_rule(rule))
    [description] = [each for each in document.iter() if local_name(each) == "RuleDescription"]
    assert _with_texts(parse_rule(description, None)) == _with_texts(rule)


def _with_texts(rule: Rule) -> str:
    """An empty text and an empty element are the same thing in XML."""
    return repr(rule).replace("None", "''")


@pytest.mark.parametrize(
    "description",
    [
        "<RuleDescription/>",
        '<RuleDescription><Filter i:type="Unheard"/></RuleDescription>',
        '<RuleDescription><Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>a</Key>'
        '<Value i:type="x:int">five</Value></KeyValueOfstringanyType></Properties></Filter></RuleDescription>',
        '<RuleDescription><Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>a</Key>'
        "</KeyValueOfstringanyType></Properties></Filter></RuleDescription>",
        "<QueueDescription/>",
    ],
)
def test_an_answer_that_is_no_rule_is_refused(description: str) -> None:
    """ERR-41: with a sentence, whatever came."""
    connect = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    text = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content>'
        + description.replace(
            "Description",
            f'Description xmlns="{connect}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"',
            1,
        )
        + "</content></entry>"
    )
    with pytest.raises(BadAnswer, match="The server answered"):
        read_rule(parse_document(text.encode()))
