"""Correlation filters, one by one."""

from typing import Any, Final

import pytest

from busway.rules.compiled_rule import compiled_filter
from busway.rules.rule import CorrelationFilter, RuleSyntaxError, TypedValue
from busway.rules.subject import Instant, Span, Value
from tests.unit.rules.property_bag import AN_ID, PropertyBag, an_id

CONDITIONS: Final = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


def _with(condition: str, value: str) -> CorrelationFilter:
    given: dict[str, Any] = {condition: value}
    return CorrelationFilter(**given)


def matches(filter_: CorrelationFilter, message: PropertyBag) -> bool:
    return compiled_filter(filter_, an_id).matches(message)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_system_condition_matches_its_property(condition: str) -> None:
    """T-40, T-41: exactly, and no other property."""
    filter_ = _with(condition, "Red")
    name = CONDITIONS[condition]
    assert matches(filter_, PropertyBag({}, {name: "Red", "Other": "x"}))
    assert not matches(filter_, PropertyBag({}, {name: "red"}))
    assert not matches(filter_, PropertyBag({}, {name: "Red "}))
    assert not matches(filter_, PropertyBag({name: "Red"}))
    assert not matches(
        filter_, PropertyBag({}, {other: "Red" for other in CONDITIONS.values() if other != name})
    )


def test_all_conditions_must_be_equal() -> None:
    """T-40: the example of the documentation."""
    filter_ = CorrelationFilter(
        label="Important",
        reply_to="johndoe@contoso.com",
        properties=(("color", TypedValue("string", "Red")),),
    )
    system: dict[str, Value] = {"Label": "Important", "ReplyTo": "johndoe@contoso.com"}
    assert matches(filter_, PropertyBag({"Color": "Red"}, system))
    assert not matches(filter_, PropertyBag({"Color": "Blue"}, system))
    assert not matches(filter_, PropertyBag({}, system))
    assert not matches(filter_, PropertyBag({"Color": "Red"}, {"Label": "Important"}))


VALUES: Final[list[tuple[TypedValue, Value, bool]]] = [
    (TypedValue("int", 1), 1, True),
    (TypedValue("long", 1), 1, True),
    (TypedValue("int", 1), (1 << 64) - 1, False),
    (TypedValue("int", 1), "1", False),
    (TypedValue("int", 1), True, False),
    (TypedValue("int", 1), 1.0, False),
    (TypedValue("int", 0), False, False),
    (TypedValue("string", "1"), 1, False),
    (TypedValue("string", "1"), "1", True),
    (TypedValue("string", "a"), b"a", False),
    (TypedValue("string", ""), "", True),
    (TypedValue("string", ""), None, False),
    (TypedValue("boolean", True), True, True),
    (TypedValue("boolean", True), False, False),
    (TypedValue("boolean", True), 1, False),
    (TypedValue("boolean", True), "true", False),
    (TypedValue("double", 1.5), 1.5, True),
    (TypedValue("double", 1.0), 1, False),
    (TypedValue("double", 0.0), -0.0, True),
    (TypedValue("double", float("nan")), float("nan"), False),
    (TypedValue("dateTime", 5), Instant(5), True),
    (TypedValue("dateTime", 5), Span(5), False),
    (TypedValue("dateTime", 5), 5, False),
    (TypedValue("duration", 5), Span(5), True),
    (TypedValue("duration", 5), Instant(5), False),
    (TypedValue("string", str(AN_ID)), AN_ID, False),
]


@pytest.mark.parametrize(("typed", "value", "expected"), VALUES)
def test_values_compare_with_their_type(typed: TypedValue, value: Value, expected: bool) -> None:
    """T-43, E-74: integers by number, everything else only with its own kind."""
    filter_ = CorrelationFilter(properties=(("x", typed),))
    assert matches(filter_, PropertyBag({"X": value})) is expected
    assert not matches(filter_, PropertyBag())


def test_at_least_one_condition_is_needed() -> None:
    """T-42: at least one condition is needed."""
    with pytest.raises(RuleSyntaxError, match="A correlation filter needs at least one condition"):
        compiled_filter(CorrelationFilter(), an_id)


def test_a_condition_may_be_the_empty_string() -> None:
    """T-40: empty is a value."""
    assert matches(CorrelationFilter(session_id=""), PropertyBag({}, {"SessionId": ""}))
    assert not matches(CorrelationFilter(session_id=""), PropertyBag())


def test_a_contradiction_matches_nothing() -> None:
    """T-22, T-40: two spellings of one name are two conditions on it."""
    one, two = TypedValue("int", 1), TypedValue("int", 2)
    assert matches(CorrelationFilter(properties=(("x", one), ("X", one))), PropertyBag({"x": 1}))
    contradiction = CorrelationFilter(properties=(("x", one), ("X", two)))
    assert not any(matches(contradiction, PropertyBag({"x": value})) for value in (1, 2))


@pytest.mark.parametrize(
    "filter_",
    [
        CorrelationFilter(properties=(("", TypedValue("int", 1)),)),
        CorrelationFilter(properties=(("x", TypedValue("int", "1")),)),
        CorrelationFilter(properties=(("x", TypedValue("guid", "1")),)),
    ],
)
def test_a_wrong_property_is_refused(filter_: CorrelationFilter) -> None:
    """T-36, E-74: a wrong property is refused."""
    with pytest.raises(RuleSyntaxError):
        compiled_filter(filter_, an_id)
