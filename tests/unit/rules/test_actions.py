"""Actions case by case: a message before, a text, the message after."""

import contextlib
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.rules.compiled_rule import compiled_action
from busway.rules.expression import SETTABLE, Property, RemoveStatement, SetStatement
from busway.rules.rule import ActionError, RuleSyntaxError, SqlAction, TypedValue
from busway.rules.subject import Instant, Span, Value
from tests.unit.rules.property_bag import AN_ID, PropertyBag, an_id
from tests.unit.rules.trees import NAMES, PARAMETERS, messages, operands, printed_action

Properties = dict[str, Value]
HOUR: Final = 36_000_000_000
MOMENT: Final = Instant(637_295_443_330_000_000)  # 2020-07-05T11:12:13Z


def after(text: str, user: Properties, system: Properties | None = None) -> PropertyBag:
    message = PropertyBag(user, system)
    parameters = (
        ("@param", TypedValue("dateTime", MOMENT.ticks)),
        ("@span", TypedValue("duration", HOUR)),
        ("@five", TypedValue("int", 5)),
    )
    compiled_action(SqlAction(text, parameters), an_id).apply(message)
    return message


def typed(properties: Properties) -> dict[str, tuple[type, Value]]:
    """1, 1.0 and True are different here."""
    return {name: (type(value), value) for name, value in properties.items()}


USER: Final[list[tuple[str, Properties, Properties]]] = [
    ("SET a = 1", {}, {"a": 1}),
    ("SET a='b'", {"a": "x"}, {"a": "b"}),
    ("set FilterTag = 'true'", {}, {"FilterTag": "true"}),
    ("SET user.From = 'orders'", {}, {"From": "orders"}),
    ("SET [a b] = 1", {}, {"a b": 1}),
    ('SET "a" = 1', {}, {"a": 1}),
    ("SET A = 2", {"a": 1}, {"a": 2}),
    ("SET a = b", {"b": "x"}, {"a": "x", "b": "x"}),
    ("SET a = a + 1", {"a": 1}, {"a": 2}),
    ("SET a = a + '!'", {"a": "x"}, {"a": "x!"}),
    ("SET a = -a", {"a": 1}, {"a": -1}),
    ("SET a = sys.Label + '.post'", {}, {"a": "bus.post"}),
    ("SET a = p('b')", {"b": 7}, {"a": 7, "b": 7}),
    ("SET a = newid()", {}, {"a": AN_ID}),
    ("SET a = @param", {}, {"a": MOMENT}),
    ("SET a = @five", {}, {"a": 5}),
    ("SET a = TRUE", {}, {"a": True}),
    ("SET a = 2.5", {}, {"a": 2.5}),
    ("SET a = NULL", {"a": 1}, {"a": None}),
    ("SET a = NULL", {}, {"a": None}),
    ("SET a = missing", {"a": 1}, {"a": None}),
    ("SET a = missing + 1", {"a": 1}, {"a": None}),
    ("SET a = 'x' + 1", {}, {"a": None}),
    ("REMOVE a", {"a": 1, "b": 2}, {"b": 2}),
    ("REMOVE A", {"a": 1}, {}),
    ("REMOVE missing", {"a": 1}, {"a": 1}),
    ("REMOVE user.[a b]", {"a b": 1}, {}),
    ("REMOVE a; SET a = 'x'", {"a": 1}, {"a": "x"}),
    ("SET a = 1; SET b = a + 1; SET a = b + 1", {}, {"a": 3, "b": 2}),
    ("SET a = 1; REMOVE a", {}, {}),
    ("SET a = 1 SET b = 2 REMOVE c;", {"c": 3}, {"a": 1, "b": 2}),
    ("SET EventType = OriginalEventType; REMOVE OriginalEventType;", {"OriginalEventType": "e"}, {"EventType": "e"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "before", "expected"), USER)
def test_statements_change_user_properties(text: str, before: Properties, expected: Properties) -> None:
    """T-50, T-51, T-52, T-53: in order, later ones see earlier results; missing ones are unknown, stored as null."""
    assert typed(after(text, before, {"Label": "bus"}).user_properties) == typed(expected)


def test_the_documented_example() -> None:
    """T-54: the documented example."""
    changed = after(
        "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId='low';",
        {"quantity": 10, "priority": "high", "color": "red"},
        {"CorrelationId": "high"},
    )
    assert typed(changed.user_properties) == typed({"quantity": 5, "color": "red"})
    assert changed.system_properties == {"CorrelationId": "low"}


CONVERSIONS: Final[list[tuple[str, Value, Value]]] = [
    ("'12'", 1, 12),
    ("' -12 '", 1, -12),
    ("'12x'", 1, "12x"),
    ("''", 1, ""),
    ("'9223372036854775808'", 1, "9223372036854775808"),
    ("'１'", 1, "１"),
    ("5.0", 1, 5),
    ("5.5", 1, 5.5),
    ("1E300", 1, 1e300),
    ("9223372036854775807 * 1.0", 1, 9223372036854775807 * 1.0),
    ("TRUE", 1, True),
    ("5", 1.5, 5.0),
    ("'2.5'", 1.5, 2.5),
    ("'2_5'", 1.5, "2_5"),
    ("'nan'", 1.5, "nan"),
    ("'1E999'", 1.5, "1E999"),
    ("'x'", 1.5, "x"),
    ("TRUE", 1.5, True),
    ("'true'", False, True),
    ("'FALSE'", True, False),
    ("'yes'", True, "yes"),
    ("1", True, 1),
    ("5", "x", "5"),
    ("2.5", "x", "2.5"),
    ("5.0", "x", "5"),
    ("1E20", "x", "1E+20"),
    ("TRUE", "x", "True"),
    ("newid()", "x", str(AN_ID)),
    ("@param", "x", "2020-07-05T11:12:13Z"),
    ("@span", "x", "01:00:00"),
    ("raw", "x", b"\x01"),
    ("1.0 / 0", "x", "Infinity"),
    ("-1.0 / 0", "x", "-Infinity"),
    ("0.0 / 0", "x", "NaN"),
    ("'2020-07-05T11:12:13Z'", Instant(0), MOMENT),
    ("'2020-07-05T13:12:13.0000000+02:00'", Instant(0), MOMENT),
    ("'2020-02-30'", Instant(0), "2020-02-30"),
    ("'later'", Instant(0), "later"),
    ("5", Instant(0), 5),
    ("'01:00:00'", Span(0), Span(HOUR)),
    ("'PT1H'", Span(0), Span(HOUR)),
    ("'soon'", Span(0), "soon"),
    ("'12345678-1234-5678-1234-567812345678'", AN_ID, AN_ID),
    ("'no id'", AN_ID, "no id"),
    ("'x'", b"\x01", "x"),
    ("5", None, 5),
    ("NULL", 5, None),
]


@pytest.mark.parametrize(("value", "existing", "expected"), CONVERSIONS)
def test_set_keeps_the_type_of_a_property_where_it_can(value: str, existing: Value, expected: Value) -> None:
    """T-51: without loss; otherwise the property takes the new value as it is."""
    changed = after(f"SET a = {value}", {"a": existing, "raw": b"\x01"})
    assert typed({"a": changed.user_properties["a"]}) == typed({"a": expected})


SYSTEM: Final[list[tuple[str, str, Value]]] = [
    ("SET sys.CorrelationId = 'low'", "CorrelationId", "low"),
    ("SET sys.label = 'RED'", "Label", "RED"),
    ("SET sys.Subject = 'RED'", "Label", "RED"),
    ("SET sys.MessageId = newid()", "MessageId", str(AN_ID)),
    ("SET sys.SessionId = 5", "SessionId", "5"),
    ("SET sys.PartitionKey = TRUE", "PartitionKey", "True"),
    ("SET sys.ViaPartitionKey = 'k'", "ViaPartitionKey", "k"),
    ("SET sys.To = 'a' + 'b'", "To", "ab"),
    ("SET sys.ReplyTo = sys.To", "ReplyTo", "there"),
    ("SET sys.ReplyToSessionId = ''", "ReplyToSessionId", ""),
    ("SET sys.ContentType = @param", "ContentType", "2020-07-05T11:12:13Z"),
    ("SET sys.TimeToLive = @span", "TimeToLive", Span(HOUR)),
    ("SET sys.TimeToLive = '00:00:30'", "TimeToLive", Span(300_000_000)),
    ("SET sys.TimeToLive = 'PT30S'", "TimeToLive", Span(300_000_000)),
    ("SET sys.ScheduledEnqueueTimeUtc = @param", "ScheduledEnqueueTimeUtc", MOMENT),
    ("SET sys.ScheduledEnqueueTimeUtc = '2020-07-05T11:12:13Z'", "ScheduledEnqueueTimeUtc", MOMENT),
    ("SET sys.ForcePersistence = TRUE", "ForcePersistence", True),
    ("SET sys.ForcePersistence = 'true'", "ForcePersistence", True),
    ("SET sys.To = NULL", "To", None),
    ("SET sys.To = missing", "To", None),
    ("REMOVE sys.To", "To", None),
    ("REMOVE sys.SessionId", "SessionId", None),
]


@pytest.mark.parametrize(("text", "name", "expected"), SYSTEM)
def test_statements_change_system_properties(text: str, name: str, expected: Value) -> None:
    """T-51, T-52: those that a sender may set; taking one away sets it to null."""
    system = after(text, {}, {"To": "there", "SessionId": "s"}).system_properties
    assert typed({"it": system.get(name)}) == typed({"it": expected})


FAILURES: Final = [
    ("SET a = 1 / 0", "divided by zero"),
    ("SET a = 9223372036854775807 + 1", "does not fit in 64 bits"),
    ("SET a = wide + wide", "more than 65536 characters"),
    ("SET sys.TimeToLive = 5", "sys.TimeToLive must be a duration"),
    ("SET sys.TimeToLive = 'soon'", "sys.TimeToLive must be a duration"),
    ("SET sys.TimeToLive = -@span", "sys.TimeToLive must be a duration"),
    ("SET sys.ScheduledEnqueueTimeUtc = 5", "must be a date and time"),
    ("SET sys.ScheduledEnqueueTimeUtc = 'now'", "must be a date and time"),
    ("SET sys.ForcePersistence = 1", "must be a boolean"),
    ("SET sys.ForcePersistence = 'yes'", "must be a boolean"),
    ("SET sys.Label = raw", "sys.Label must be a string"),
]


@pytest.mark.parametrize(("text", "piece"), FAILURES)
def test_a_failed_statement_is_an_action_error(text: str, piece: str) -> None:
    """T-51, T-60: the sentence becomes the dead-letter description."""
    with pytest.raises(ActionError, match=piece):
        after(text, {"wide": "x" * 40_000, "raw": b"\x01"})


def test_doubling_a_text_ends() -> None:
    """T-53, E-71: thirty-two statements cannot make a message of any size."""
    with pytest.raises(ActionError, match="more than 65536 characters"):
        after("SET a = a + a;" * 32, {"a": "xx"})


def test_an_undeclared_parameter_of_an_action_is_refused() -> None:
    """T-28, T-36: an undeclared parameter of an action is refused."""
    with pytest.raises(RuleSyntaxError, match="At character 9: the parameter '@no' has no value"):
        after("SET a = @no", {})


_targets = st.builds(Property, st.sampled_from(NAMES)) | st.builds(
    Property, st.sampled_from(sorted(SETTABLE)), st.just(True)
)
_statements = st.builds(SetStatement, _targets, operands) | st.builds(RemoveStatement, _targets)


@given(st.lists(_statements, min_size=1, max_size=4).map(tuple), messages)
def test_an_action_applies_or_raises_an_action_error(
    statements: tuple[SetStatement | RemoveStatement, ...], message: PropertyBag
) -> None:
    """T-51, T-52: nothing else escapes, and system properties only ever get their own type."""
    text = printed_action(statements)
    if len(text) > 1024:
        return
    before = dict(message.system_properties)
    with contextlib.suppress(ActionError):
        compiled_action(SqlAction(text, PARAMETERS), an_id).apply(message)
    kinds = {"TimeToLive": Span, "ScheduledEnqueueTimeUtc": Instant, "ForcePersistence": bool}
    for name, value in message.system_properties.items():
        assert value is before.get(name) or isinstance(value, kinds.get(name, str))
