"""What filters see of a message and actions may change (T-2): its properties, never its body; their values.

The broker implements `Subject` and `ChangeableSubject` over its message and decodes lazily; a property asked for
twice should be decoded once. Nothing of them raises. Classes and no protocols, because mypyc calls the methods of
classes directly.

The values that rules work with are str, bool, int, float, UUID, bytes, `Instant`, `Span` and None. None is both
null and unknown: no operator tells them apart (T-31, T-35); only EXISTS asks the message itself. An int of a
message may be any AMQP integer (up to 2^64 - 1); what arithmetic makes must fit in 64 bits, signed. Both times
count .NET's ticks of 100 ns.
"""

from typing import Final, NoReturn
from uuid import UUID

from mypy_extensions import mypyc_attr

from busway.rules.rule import RuleSyntaxError, TypedValue, shown

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1
#: 9999-12-31T23:59:59.9999999, the last moment that .NET can write.
INSTANT_TICKS_MAX: Final = 3_155_378_975_999_999_999


class Instant:
    """A moment: ticks since 0001-01-01 UTC."""

    __slots__ = ("ticks",)

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instant) and other.ticks == self.ticks

    def __hash__(self) -> int:
        return hash((Instant, self.ticks))

    def __repr__(self) -> str:
        return f"Instant({self.ticks})"


class Span:
    """A duration in ticks, perhaps negative."""

    __slots__ = ("ticks",)

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and other.ticks == self.ticks

    def __hash__(self) -> int:
        return hash((Span, self.ticks))

    def __repr__(self) -> str:
        return f"Span({self.ticks})"


class Missing:
    """The type of MISSING."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


#: What a subject answers for a user property that the message does not have.
MISSING: Final = Missing()

Value = str | int | float | bool | bytes | UUID | Instant | Span | None


def value_of(name: str, typed: TypedValue) -> Value:
    """The value of a parameter or of a correlation property (E-74). `name` is for the sentence if it is wrong."""
    type_name, value = typed.type_name, typed.value
    if type_name == "string" and isinstance(value, str):
        return value
    if type_name == "boolean" and isinstance(value, bool):
        return value
    if type_name == "double" and isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _counted(name, typed, value)
    return _no(name, typed)


def _counted(name: str, typed: TypedValue, value: int) -> Value:
    type_name = typed.type_name
    if type_name == "dateTime" and 0 <= value <= INSTANT_TICKS_MAX:
        return Instant(value)
    if value < INTEGER_MIN or value > INTEGER_MAX:
        return _no(name, typed)
    if type_name in ("int", "long"):
        return value
    if type_name == "duration":
        return Span(value)
    return float(value) if type_name == "double" else _no(name, typed)


def _no(name: str, typed: TypedValue) -> NoReturn:
    raise RuleSyntaxError(f"the value of {shown(name)} is not a {shown(typed.type_name)}.")


def folded(name: str) -> str:
    """The form in which names of properties are equal (T-22, M-30). Everybody folds with this one."""
    return name.casefold()


@mypyc_attr(allow_interpreted_subclasses=True)
class Subject:
    """What filters see of a message and what actions may change (T-2): its properties, never its body."""

    __slots__ = ()

    def user(self, folded_name: str) -> Value | Missing:
        """The user property under this name, MISSING without one. Present with null is None (T-32)."""
        raise NotImplementedError

    def system(self, name: str) -> Value:
        """The system property under its canonical name (`expression.CANONICAL`), None when the message has none."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ChangeableSubject(Subject):
    __slots__ = ()

    def set_user(self, name: str, value: Value) -> None:
        """Creates the property under the name as written, or replaces the one whose folded name is equal."""
        raise NotImplementedError

    def remove_user(self, folded_name: str) -> None:
        """A missing property is no error (T-52)."""
        raise NotImplementedError

    def set_system(self, name: str, value: Value) -> None:
        """`name` is one of `expression.SETTABLE`, `value` is of its type, or None to take it away."""
        raise NotImplementedError
