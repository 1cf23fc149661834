"""A correlation filter (T-40…T-43): conditions that must all be equal.

Its **shape** is which properties it names, its **key** their values. All filters of one shape are found by one
look-up of the message's values under that shape (`rule_index`), which is what lets a topic have a hundred
thousand of them (T-44). So equality here is equality of look-up keys: texts exactly, integers by number whatever
their width, a boolean only with a boolean, a double only with a double.
"""

from busway.rules.errors import RuleSyntaxError
from busway.rules.rule import CorrelationFilter
from busway.rules.subject import Subject, folded
from busway.rules.values import Instant, Missing, Span, Value, value_of

#: (is a system property, its canonical or folded name), sorted.
Shape = tuple[tuple[bool, str], ...]


class CorrelationKey:
    """The conditions of one filter. One that contradicts itself, or asks for a NaN, matches nothing."""

    __slots__ = ("is_satisfiable", "keys", "shape")

    def __init__(self, shape: Shape, keys: tuple[object, ...], is_satisfiable: bool) -> None:
        self.shape = shape
        self.keys = keys
        self.is_satisfiable = is_satisfiable

    def matches(self, subject: Subject) -> bool:
        return self.is_satisfiable and keys_under(self.shape, subject) == self.keys


def correlation_key(filter_: CorrelationFilter) -> CorrelationKey:
    """Raises RuleSyntaxError for a filter without conditions (T-42) or with values that are not of their type."""
    conditions: dict[tuple[bool, str], object] = {
        (True, name): value for name, value in _system_conditions(filter_) if value is not None
    }
    is_satisfiable = True
    for name, typed in filter_.properties:
        if not name:
            raise RuleSyntaxError("a property of a correlation filter has an empty name.")
        key = lookup_key(value_of(name, typed))
        place = (False, folded(name))
        is_satisfiable = is_satisfiable and key is not None and conditions.get(place, key) == key
        conditions[place] = key
    if not conditions:
        raise RuleSyntaxError("a correlation filter needs at least one condition.")
    shape = tuple(sorted(conditions))
    return CorrelationKey(shape, tuple(conditions[place] for place in shape), is_satisfiable)


def _system_conditions(filter_: CorrelationFilter) -> tuple[tuple[str, str | None], ...]:
    return (
        ("CorrelationId", filter_.correlation_id),
        ("MessageId", filter_.message_id),
        ("To", filter_.to),
        ("ReplyTo", filter_.reply_to),
        ("Label", filter_.label),
        ("SessionId", filter_.session_id),
        ("ReplyToSessionId", filter_.reply_to_session_id),
        ("ContentType", filter_.content_type),
    )


def keys_under(shape: Shape, subject: Subject) -> tuple[object, ...] | None:
    """The look-up keys of a message under a shape, None if it cannot match any filter of that shape."""
    keys: list[object] = []
    for is_system, name in shape:
        key = lookup_key(subject.system(name) if is_system else subject.user(name))
        if key is None:
            return None
        keys.append(key)
    return tuple(keys)


def lookup_key(value: Value | Missing) -> object:
    """Equal for values that are equal (T-41, T-43); None for what equals nothing: null, NaN, GUIDs, bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return ("double", value) if value == value else None
    if isinstance(value, Instant):
        return ("dateTime", value.ticks)
    if isinstance(value, Span):
        return ("duration", value.ticks)
    return None
