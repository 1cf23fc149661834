"""The filter language case by case: a text, what it says of one message, and why."""

from typing import Final

import pytest

from tests.unit.rules.filter_answers import (
    Answer,
    E,
    F,
    T,
    U,
    answer,
)

GRAMMAR: Final = [
    ("1=1", T),
    ("1=0", F),
    ("0 = 1", F),
    ("color='red'", T),
    ("color = 'red'", T),
    ("\t color\n=\r\n'red' ", T),
    ("color = 'blue'", F),
    ("color <> 'blue'", T),
    ("color != 'blue'", T),
    ("color <> 'red'", F),
    ("quantity > 9", T),
    ("quantity > 10", F),
    ("quantity >= 10", T),
    ("quantity >= 11", F),
    ("quantity < 11", T),
    ("quantity < 10", F),
    ("quantity <= 10", T),
    ("quantity <= 9", F),
    ("10 = quantity", T),
    ("9 < quantity", T),
    ("quantity = quantity", T),
    ("color='red' AND quantity=10", T),
    ("color='red' AND quantity=11", F),
    ("color='blue' OR quantity=10", T),
    ("color='blue' OR quantity=11", F),
    ("color='red' OR color='x' AND color='y'", T),
    ("(color='red' OR color='x') AND color='y'", F),
    ("NOT color='red' OR color='red'", T),
    ("NOT (color='red' OR color='red')", F),
    ("NOT color='blue' AND color='red'", T),
    ("NOT NOT color='red'", T),
    ("((color = 'red'))", T),
    ("(color) = ('red')", T),
    ("color = 'red' AND (quantity = 1 OR quantity = 10)", T),
    ("1 + 2 * 3 = 7", T),
    ("(1 + 2) * 3 = 9", T),
    ("10 - 4 - 3 = 3", T),
    ("10 - (4 - 3) = 9", T),
    ("100 / 10 / 5 = 2", T),
    ("2 * 3 + 4 * 5 = 26", T),
    ("7 % 4 * 2 = 6", T),
    ("-2 * -3 = 6", T),
    ("- quantity = -10", T),
    ("+quantity = 10", T),
    ("-(-quantity) = 10", T),
    ("--5 = 5", T),
    ("quantity -5 = 5", T),
    ("quantity-5=5", T),
    ("quantity IN (1, 10)", T),
    ("quantity IN (1)", F),
    ("quantity NOT IN (1)", T),
    ("quantity NOT IN (1, 10)", F),
    ("quantity + 1 IN (5 + 6)", T),
    ("color IN ('blue', 'red')", T),
    ("color NOT IN ('blue', 'green')", T),
    ("urgent", T),
    ("paid", F),
    ("NOT paid", T),
    ("urgent AND NOT paid", T),
    ("urgent = TRUE", T),
    ("paid = FALSE", T),
    ("TRUE", T),
    ("FALSE", F),
    ("NULL", U),
    ("(urgent) AND (color = 'red')", T),
    ("color", U),
    ("quantity", U),
    ("id", U),
    ("property('urgent')", T),
    ("@yes", T),
]


@pytest.mark.parametrize(("text", "expected"), GRAMMAR)
def test_operators_bind_as_the_grammar_says(text: str, expected: Answer) -> None:
    """T-20, E-73: every production of the grammar, and the usual precedence."""
    assert answer(text) is expected


KEYWORD_CASES: Final = [
    ("color = 'red' and quantity = 10", T),
    ("color = 'red' And quantity = 11", F),
    ("color = 'x' or quantity = 10", T),
    ("not color = 'x'", T),
    ("color in ('red')", T),
    ("color Not In ('red')", F),
    ("color like 'r%'", T),
    ("color like 'r!%' escape '!'", F),
    ("nothing is null", T),
    ("color is not null", T),
    ("exists(color)", T),
    ("urgent = true", T),
    ("urgent = False", F),
    ("color = null", U),
    ("NEWID() = newid()", T),
    ("Property('color') = 'red'", T),
    ("P('color') = 'red'", T),
    ("SYS.Label = 'bus stop'", T),
    ("User.color = 'red'", T),
]


@pytest.mark.parametrize(("text", "expected"), KEYWORD_CASES)
def test_keywords_are_the_same_in_any_case(text: str, expected: Answer) -> None:
    """T-21: keywords are the same in any case."""
    assert answer(text) is expected


NAMES: Final = [
    ("COLOR = 'red'", T),
    ("CoLoR = 'red'", T),
    ("quantity = 10", T),
    ("[Quantity] = 10", T),
    ('"QUANTITY" = 10', T),
    ("größe = 3", T),
    ("GRÖßE = 3", T),
    ("GRÖSSE = 3", T),
    ("[number as text] = '10'", T),
    ("\"number as text\" = '10'", T),
    ("[a]]b] = 'bracket'", T),
    ('"say ""hi""" = \'quote\'', T),
    ("[and] = 'a keyword'", T),
    ("\"AND\" = 'a keyword'", T),
    ("order = 'keyword-free'", T),
    ("user = 'a scope'", T),
    ("user.user = 'a scope'", T),
    ("p = 'a function'", T),
    ("p IN ('a function')", T),
    ("user.color = 'red'", T),
    ("user.[color] = 'red'", T),
    ("user . color = 'red'", T),
    ("[user] = 'a scope'", T),
    ("[user.color] = 'red'", U),
    ("ｃｏｌｏｒ = 'red'", U),
    ("\u212aeyword = 1", U),
    ("l\u0131ke = 1", U),
]


@pytest.mark.parametrize(("text", "expected"), NAMES)
def test_names_are_found_without_regard_to_case(text: str, expected: Answer) -> None:
    """T-22, T-23, M-30: plain, in brackets and in quotes; user scope unless said otherwise."""
    assert answer(text) is expected


SYSTEM: Final = [
    ("sys.Label = 'bus stop'", T),
    ("sys.label = 'bus stop'", T),
    ("sys.LABEL LIKE '%bus%'", T),
    ("sys.Subject = 'bus stop'", T),
    ("sys.subject = sys.label", T),
    ("sys.[Label] = 'bus stop'", T),
    ("sys.MessageId = 'm-1'", T),
    ("sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'", T),
    ("sys.To NOT IN ('Store5')", F),
    ("sys.SequenceNumber = 42", T),
    ("sys.SequenceNumber > 41", T),
    ("sys.EnqueuedTimeUtc = @when", T),
    ("sys.TimeToLive <= @span", T),
    ("sys.ForcePersistence", F),
    ("sys.ForcePersistence = FALSE", T),
    ("sys.LockToken = newid()", T),
    ("sys.CorrelationId = 'x'", U),
    ("sys.SessionId IS NULL", T),
    ("sys.Label IS NULL", F),
    ("sys.Label IS NOT NULL", T),
    ("EXISTS(sys.Label)", T),
    ("EXISTS(sys.SessionId)", F),
    ("sys.ReplyTo = 'x' OR sys.ReplyToSessionId = 'x'", U),
    ("sys.ContentType IS NULL AND sys.PartitionKey IS NULL AND sys.ViaPartitionKey IS NULL", T),
    ("sys.ScheduledEnqueueTimeUtc IS NULL AND sys.ExpiresAtUtc IS NULL", T),
    ("sys.DeliveryCount IS NULL AND sys.Size IS NULL AND sys.State IS NULL", T),
    ("sys.DeadLetterSource IS NULL AND sys.LockedUntilUtc IS NULL", T),
    ("sys.EnqueuedSequenceNumber IS NULL", T),
    ("Label = 'bus stop'", U),
    ("user.Label = 'bus stop'", U),
    ("MessageId IS NULL", T),
]


@pytest.mark.parametrize(("text", "expected"), SYSTEM)
def test_system_properties_need_their_scope(text: str, expected: Answer) -> None:
    """T-2, T-23, T-24: system properties need their scope."""
    assert answer(text) is expected


NUMBERS: Final = [
    ("long = 9223372036854775807", T),
    ("low = -9223372036854775808", T),
    ("ulong > 9223372036854775807", T),
    ("ulong = 9223372036854775807", F),
    ("price = 2.5", T),
    ("price = 2.50", T),
    ("price = 25E-1", T),
    ("price = 25e-1", T),
    ("price = 0.25E1", T),
    ("price = 0.25E+1", T),
    ("price > 2.08", T),
    ("quantity = 10.0", T),
    ("quantity = 1E1", T),
    ("quantity = 10.5", F),
    ("quantity < 10.5", T),
    ("price < 3", T),
    ("price > 2", T),
    ("price >= 2", T),
    ("price <= 3", T),
    ("101.5E5 = 10150000", T),
    ("0.5E-2 = 0.005", T),
    ("long = 9223372036854775808.0", T),
    ("007 = 7", T),
    ("-0 = 0", T),
    ("-0.0 = 0", T),
    ("inf > 9223372036854775807", T),
    ("nan = nan", F),
    ("nan <> nan", T),
    ("nan < 1", F),
    ("nan >= 1", F),
    ("NOT nan < 1", T),
    ("urgent = TRUE AND paid = FALSE", T),
    ("urgent <> paid", T),
]


@pytest.mark.parametrize(("text", "expected"), NUMBERS)
def test_numbers_are_64_bit_integers_or_doubles(text: str, expected: Answer) -> None:
    """T-25, T-29: literals and their limits; an integer beside a double is compared as a double."""
    assert answer(text) is expected


FUNCTIONS: Final = [
    ("newid() = newid()", T),
    ("newid() = id", T),
    ("newid() <> id", F),
    ("newid() = '12345678-1234-5678-1234-567812345678'", U),
    ("property('color') = 'red'", T),
    ("property('COLOR') = 'red'", T),
    ("p('color') = 'red'", T),
    ("p('number as text') = '10'", T),
    ("property([name of it]) = 'red'", T),
    ("property('col' + 'or') = 'red'", T),
    ("property(@text) = 'red'", U),
    ("property('sys.Label') = 'bus stop'", U),
    ("property('Label') IS NULL", T),
    ("property('color') IS NOT NULL", T),
    ("property(missing) IS NULL", T),
    ("property(missing) = 1", U),
    ("property(quantity) = 1", U),
    ("property(NULL + 'x') = 1", U),
    ("EXISTS(property('nothing'))", T),
    ("EXISTS(p('colour'))", F),
    ("EXISTS(p(quantity))", U),
    ("property(property('name of it')) = 'red'", T),
]


@pytest.mark.parametrize(("text", "expected"), FUNCTIONS)
def test_functions_give_ids_and_properties_by_name(text: str, expected: Answer) -> None:
    """T-26: property() reads user properties only."""
    assert answer(text) is expected


LIKES: Final = [
    ("color LIKE 'red'", T),
    ("color LIKE 're'", F),
    ("color LIKE 'ed'", F),
    ("color LIKE 'RED'", F),
    ("color LIKE 'r%'", T),
    ("color LIKE '%d'", T),
    ("color LIKE '%e%'", T),
    ("color LIKE '%x%'", F),
    ("color LIKE 'r%d'", T),
    ("color LIKE 'r%e%d'", T),
    ("color LIKE 'r%r%d'", F),
    ("color LIKE '%'", T),
    ("color LIKE '%%'", T),
    ("color LIKE '___'", T),
    ("color LIKE '__'", F),
    ("color LIKE '____'", F),
    ("color LIKE 'r_d'", T),
    ("color LIKE '_e_'", T),
    ("color LIKE '_%_'", T),
    ("color LIKE '%_d'", T),
    ("color LIKE '%r_d%'", T),
    ("color LIKE '%d_%'", F),
    ("color LIKE 'red%red'", F),
    ("color LIKE ''", F),
    ("empty LIKE ''", T),
    ("empty LIKE '%'", T),
    ("empty LIKE '_'", F),
    ("color NOT LIKE 'r%'", F),
    ("color NOT LIKE 'x%'", T),
    ("percent LIKE '100\\%' ESCAPE '\\'", T),
    ("percent LIKE '10\\%' ESCAPE '\\'", F),
    ("color LIKE 'r\\%' ESCAPE '\\'", F),
    ("path LIKE 'a/b!_c' ESCAPE '!'", T),
    ("path LIKE '_!/_!__' ESCAPE '!'", T),
    ("path LIKE 'a%b%%_c' ESCAPE '%'", F),
    ("percent LIKE '100%%' ESCAPE '%'", T),
    ("color LIKE '!r!e!d' ESCAPE '!'", T),
    ("color LIKE pattern", T),
    ("color LIKE 'r' + '%'", T),
    ("percent LIKE '100\\%' ESCAPE backslash", T),
    ("color LIKE @text", T),
    ("color LIKE NULL", U),
    ("color LIKE missing", U),
    ("color LIKE quantity", U),
    ("missing LIKE '%'", U),
    ("missing NOT LIKE '%'", U),
    ("nothing LIKE '%'", U),
    ("quantity LIKE '1%'", U),
    ("color LIKE 'r%' ESCAPE missing", U),
    ("color LIKE 'r%' ESCAPE NULL", U),
    ("color LIKE NULL ESCAPE '!'", U),
    ("color LIKE 'r%' ESCAPE color", E),
    ("color LIKE 'r%' ESCAPE empty", E),
    ("color LIKE 'r%' ESCAPE quantity", E),
    ("color LIKE 'r' + '!' ESCAPE '!'", E),
    ("color LIKE wide", E),
    ("wide LIKE '%x_x%x'", T),
]


@pytest.mark.parametrize(("text", "expected"), LIKES)
def test_patterns_match_whole_texts(text: str, expected: Answer) -> None:
    """T-27, T-31: patterns match whole texts."""
    assert answer(text) is expected


PARAMETER_CASES: Final = [
    ("color = @text", T),
    ("@text = color", T),
    ("color = @TEXT", T),
    ("color = @without_at", T),
    ("quantity = @int", T),
    ("quantity < @long", T),
    ("urgent = @yes", T),
    ("price = @double", T),
    ("begun = @when", T),
    ("took = @span", T),
    ("quantity IN (@int, @long)", T),
    ("color IN (@text, 'x')", T),
    ("quantity = @int AND color = @text", T),
    ("color LIKE @text AND NOT (quantity = @long)", T),
    ("@int + 1 = 11", T),
    ("-@int = -10", T),
    ("color = @int", U),
]


@pytest.mark.parametrize(("text", "expected"), PARAMETER_CASES)
def test_parameters_stand_for_their_values(text: str, expected: Answer) -> None:
    """T-28, E-74: every type; their names are given with or without @."""
    assert answer(text) is expected


ARITHMETIC: Final = [
    ("7 / 2 = 3", T),
    ("-7 / 2 = -3", T),
    ("7 / -2 = -3", T),
    ("7 % 3 = 1", T),
    ("-7 % 3 = -1", T),
    ("7 % -3 = 1", T),
    ("minus / 2 = -3", T),
    ("minus % 4 = -3", T),
    ("7 / 2.0 = 3.5", T),
    ("7.0 / 2 = 3.5", T),
    ("7.5 % 2 = 1.5", T),
    ("-7.5 % 2 = -1.5", T),
    ("quantity * price = 25", T),
    ("quantity + price = 12.5", T),
    ("price - quantity = -7.5", T),
    ("price + price = 5", T),
    ("1.0 / 0 = inf", T),
    ("-1.0 / 0 = -inf", T),
    ("0.0 / 0 <> 0.0", T),
    ("1.0 % 0 = 1", F),
    ("inf % 2 = 0", F),
    ("inf - inf = 0", F),
    ("1E308 * 10 = inf", T),
    ("1 / 0 = 1", E),
    ("1 % 0 = 1", E),
    ("quantity / zero = 1", E),
    ("quantity % zero = 1", E),
    ("long + 1 = 0", E),
    ("low - 1 = 0", E),
    ("long * 2 = 0", E),
    ("low / -1 = 0", E),
    ("low % -1 = 0", T),
    ("-low = 0", E),
    ("-long = low + 1", T),
    ("ulong + 0 > 0", E),
    ("ulong - ulong = 0", T),
    ("color + 'dish' = 'reddish'", T),
    ("color + '' = color", T),
    ("'a' + 'b' + 'c' = 'abc'", T),
    ("wide + wide = color", E),
    ("color - 'd' = 're'", U),
    ("color * 2 = 'redred'", U),
    ("color + 1 = 'red1'", U),
    ("1 + color = '1red'", U),
    ("urgent + 1 = 2", U),
    ("-urgent = -1", U),
    ("+urgent = 1", U),
    ("-color = 'x'", U),
    ("+color = 'red'", U),
    ("id + id = id", U),
    ("raw + raw = raw", U),
    ("ended - begun = took", T),
    ("ended - begun <= @span", T),
    ("(ended - begun) <= @span", T),
    ("begun - ended = -took", T),
    ("begun - ended < @span", T),
    ("begun + took = ended", T),
    ("took + begun = ended", T),
    ("ended - took = begun", T),
    ("took + took > took", T),
    ("took - took < took", T),
    ("+took = took", T),
    ("took - begun = took", U),
    ("begun + ended = begun", U),
    ("took * 2 = took", U),
    ("took * took = took", U),
    ("begun + aeon = begun", E),
    ("begun - aeon = begun", E),
    ("aeon + aeon = aeon", E),
    ("color <= 'red'", T),
    ("color >= 'ree'", F),
    ("color < 'rf'", T),
    ("color > 'rE'", T),
    ("'a' <= 1", U),
    ("took + 1 = took", U),
    ("begun + 1 = begun", U),
    ("begun < ended", T),
    ("begun > ended", F),
    ("begun <= begun", T),
    ("begun >= ended", F),
    ("took >= took", T),
    ("took < took", F),
    ("quantity / 4 * 4 = 8", T),
]


@pytest.mark.parametrize(("text", "expected"), ARITHMETIC)
def test_arithmetic_follows_the_types(text: str, expected: Answer) -> None:
    """T-29: as in C#; beyond 64 bits and division of integers by zero are filter errors."""
    assert answer(text) is expected
