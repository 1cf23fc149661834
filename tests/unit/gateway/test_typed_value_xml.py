"""Values with types between XML text and what the broker keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from busway.gateway.http.atom.rule_xml import parse_typed_value, value_element, value_text
from busway.model.errors import BadArgument
from busway.rules.rule import VALUE_TYPES, TypedValue

DAY = 864_000_000_000


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("string", " a <b> & \r\n", " a <b> & \r\n"),
        ("string", "", ""),
        ("int", "2147483647", 2_147_483_647),
        ("int", "-2147483648", -2_147_483_648),
        ("long", "9223372036854775807", 9_223_372_036_854_775_807),
        ("long", "-9223372036854775808", -9_223_372_036_854_775_808),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("double", "5", 5.0),
        ("double", "0.1", 0.1),
        ("double", "1E+16", 1e16),
        ("double", "-1.5E-07", -1.5e-7),
        ("dateTime", "0001-01-01T00:00:00Z", 0),
        ("dateTime", "0001-01-02T00:00:00.0000001Z", DAY + 1),
        ("dateTime", "1970-01-01T00:00:00Z", 621_355_968_000_000_000),
        ("dateTime", "9999-12-31T23:59:59.9999999Z", 3_155_378_975_999_999_999),
        ("duration", "PT0S", 0),
        ("duration", "P1DT2H3M", DAY + 7_380 * 10_000_000),
        ("duration", "-PT0.0000001S", -1),
        ("duration", "P10675199DT2H48M5.4775807S", 9_223_372_036_854_775_807),
    ],
)
def test_a_value_comes_back_as_it_was_written(
    type_name: str, text: str, value: str | int | bool | float
) -> None:
    """E-64 E-74: exact to 100 ns at both ends of every range."""
    typed = parse_typed_value("key", type_name, text)
    assert typed == TypedValue(type_name, value)
    assert type(typed.value) is type(value)
    assert value_text(typed) == text


@pytest.mark.parametrize(
    ("type_name", "text", "back"),
    [
        ("int", " 7\n", "7"),
        ("boolean", "1", "true"),
        ("double", "5.0", "5"),
        ("double", "1e16", "1E+16"),
        ("dateTime", "2020-07-05T11:12:13+02:00", "2020-07-05T09:12:13Z"),
        ("dateTime", "2020-07-05T23:12:13.5-02:30", "2020-07-06T01:42:13.5Z"),
        ("dateTime", "2020-07-05T11:12:13.123456789Z", "2020-07-05T11:12:13.1234567Z"),
        ("dateTime", "2020-07-05T11:12:13.000Z", "2020-07-05T11:12:13Z"),
        ("duration", "P1W", "P7D"),
        ("duration", "P1Y2M", "P425D"),
        ("duration", "PT90M", "PT1H30M"),
        ("duration", "PT1.50S", "PT1.5S"),
    ],
)
def test_other_spellings_mean_the_same(type_name: str, text: str, back: str) -> None:
    """E-74: clients differ in how they write; the value is one."""
    assert value_text(parse_typed_value("key", type_name, text)) == back


def test_a_time_without_a_zone_stays_without() -> None:
    """E-64: Python's naive times come back naive, JavaScript's come back in UTC; both are the same instant."""
    bare = parse_typed_value("key", "dateTime", "2020-07-05T11:12:13")
    zoned = parse_typed_value("key", "dateTime", "2020-07-05T11:12:13Z")
    assert (value_text(bare), value_text(zoned)) == ("2020-07-05T11:12:13", "2020-07-05T11:12:13Z")
    assert bare.value == zoned.value


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("int", "2147483648"),
        ("int", "-2147483649"),
        ("int", "1.0"),
        ("int", ""),
        ("int", "٣"),
        ("int", "1_000"),
        ("long", "9223372036854775808"),
        ("long", "9" * 5_000),
        ("boolean", "yes"),
        ("double", "NaN"),
        ("double", "INF"),
        ("double", "-inf"),
        ("double", "1e400"),
        ("double", "1_0"),
        ("double", "0x10"),
        ("double", "9" * 5_000),
        ("dateTime", "2020-02-30T00:00:00Z"),
        ("dateTime", "2020-01-01T24:00:00Z"),
        ("dateTime", "2020-01-01T00:00:60Z"),
        ("dateTime", "2020-01-01"),
        ("dateTime", "0000-01-01T00:00:00Z"),
        ("dateTime", "0001-01-01T00:00:00+01:00"),
        ("dateTime", "9999-12-31T23:59:59-01:00"),
        ("dateTime", "2020-01-01T00:00:00+15:00"),
        ("dateTime", "٢٠٢٠-01-01T00:00:00Z"),
        ("duration", "P"),
        ("duration", "PT"),
        ("duration", "P1DT"),
        ("duration", "P10675199DT2H48M5.4775808S"),
        ("duration", "P99999999Y"),
        ("duration", "P" + "0" * 100 + "1D"),
        ("duration", "1:00:00"),
        ("guid", "00000000-0000-0000-0000-000000000000"),
        ("", "x"),
        ("x" * 5_000, "x"),
    ],
)
def test_a_value_that_cannot_be_is_refused(type_name: str, text: str) -> None:
    """E-74 ERR-28: with a short sentence that names the key."""
    with pytest.raises(BadArgument, match="The value of 'key'") as refused:
        parse_typed_value("key", type_name, text)
    assert len(refused.value.sentence) < 300


def test_the_type_is_written_with_the_prefix_that_clients_cut_off() -> None:
    """E-74: `i:type`, four letters of prefix; a duration is of another namespace."""
    assert (
        value_element(TypedValue("int", 2))
        == '<Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">2</Value>'
    )
    assert (
        value_element(TypedValue("duration", DAY))
        == '<Value i:type="d6p1:duration" xmlns:d6p1="http://schemas.microsoft.com/2003/10/Serialization/">P1D'
        "</Value>"
    )
    assert ">a &lt;b&gt; &amp; &#xD;\n<" in value_element(TypedValue("string", "a <b> & \r\n"))


EVERY_VALUE = some.one_of(
    some.builds(TypedValue, some.just("int"), some.integers(-(1 << 31), (1 << 31) - 1)),
    some.builds(TypedValue, some.just("long"), some.integers(-(1 << 63), (1 << 63) - 1)),
    some.builds(TypedValue, some.just("boolean"), some.booleans()),
    some.builds(TypedValue, some.just("double"), some.floats(allow_nan=False, allow_infinity=False)),
    some.builds(
        TypedValue, some.just("dateTime"), some.integers(0, 3_155_378_975_999_999_999), some.booleans()
    ),
    some.builds(TypedValue, some.just("duration"), some.integers(-(1 << 63) + 1, (1 << 63) - 1)),
)


@given(EVERY_VALUE)
def test_every_value_survives_its_text(typed: TypedValue) -> None:
    """E-74: whatever the broker may keep is written so that it reads back the same."""
    assert parse_typed_value("key", typed.type_name, value_text(typed)) == typed


@given(some.sampled_from(VALUE_TYPES), some.text())
def test_no_text_does_more_than_be_refused(type_name: str, text: str) -> None:
    """E-74 ERR-28: a value, or a sentence."""
    try:
        typed = parse_typed_value("key", type_name, text)
    except BadArgument:
        return
    assert value_text(parse_typed_value("key", type_name, value_text(typed))) == value_text(typed)
