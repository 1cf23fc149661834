"""Values of rules in SQL: constants as text, and forms of what a message brings.

A constant that is a text goes through hexadecimal digits: nothing in a rule ends a literal. What Spark's SQL
cannot say is `Unsupported`.

A value of a rule has one of eight kinds or is null. Where the kind is known while compiling, a value is one SQL
expression (`OneKind`). What a message brings may be of any kind: it is a struct with a field for each, of which at
most one is not null (`AnyKind`), and more:

  a   the broker's evaluator must be asked: the value, or what became of it, has no exact form here
  e   the property exists (of a property alone)
  w   a text or double in another AMQP type than these, which a copy of the value keeps (of a property alone)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway.rules.subject import Instant, Span, Value

#: The one integer that cannot be written with a minus sign.
_INTEGER_MIN: Final = -(1 << 63)


class Unsupported(Exception):
    """This part of a rule has no exact form in columns; the text names it. The broker's evaluator takes the rule."""


def text(value: str) -> str:
    """Raises Unsupported for what is no Unicode text (half of a surrogate pair)."""
    try:
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    except UnicodeEncodeError:
        raise Unsupported("a text that is not Unicode") from None


def integer(value: int) -> str:
    """Raises Unsupported beyond 64 bits."""
    if not _INTEGER_MIN <= value < -_INTEGER_MIN:
        raise Unsupported("an integer of more than 64 bits")
    return f"CAST('{value}' AS BIGINT)" if value == _INTEGER_MIN else f"{value}L"


def double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def boolean(value: bool) -> str:
    return "true" if value else "false"


def any_of(parts: list[str]) -> str:
    return " OR ".join(f"({part})" for part in parts) if parts else "false"


TEXT: Final = "t"
INTEGER: Final = "i"
DOUBLE: Final = "d"
TRUTH: Final = "b"
MOMENT: Final = "m"
SPAN: Final = "s"
GUID: Final = "g"
BYTES: Final = "x"
#: In the order of the struct's fields; moments and spans count ticks, GUIDs are 32 digits.
TYPES: Final[dict[str, str]] = {
    TEXT: "STRING",
    INTEGER: "BIGINT",
    DOUBLE: "DOUBLE",
    TRUTH: "BOOLEAN",
    MOMENT: "BIGINT",
    SPAN: "BIGINT",
    GUID: "STRING",
    BYTES: "BINARY",
}
UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"
#: Text of one expression; a rule that needs more is the evaluator's.
SQL_CHARACTERS_MAX: Final = 40_000


@dataclass(frozen=True)
class OneKind:
    """`sql` may be null."""

    kind: str
    sql: str
    is_constant: bool = False


@dataclass(frozen=True)
class AnyKind:
    """`sql` is a struct; or, of a property, what the columns of its fields begin with: naming those costs nothing.

    (Spark 4.3 loses its way when it prunes fields of a struct that a generator made, so these are columns.)"""

    sql: str
    is_columns: bool = False
    #: The fields that the struct has, besides `a`.
    kinds: tuple[str, ...] = tuple(TYPES)

    def field(self, kind: str) -> str:
        return f"{self.sql}_{kind}" if self.is_columns else f"{self.sql}.{kind}"


@dataclass(frozen=True)
class Nothing:
    """NULL."""


Form = OneKind | AnyKind | Nothing
#: By kind the expression that has the value when it is of that kind.
View = Mapping[str, "Sight"]


@dataclass(frozen=True)
class Sight:
    sql: str
    is_constant: bool = False


def constant(value: Value) -> Form:
    if value is None:
        return Nothing()
    if isinstance(value, str):
        return OneKind(TEXT, text(value), True)
    if isinstance(value, bool):
        return OneKind(TRUTH, boolean(value), True)
    if isinstance(value, int):
        return OneKind(INTEGER, integer(value), True)
    if isinstance(value, float):
        return OneKind(DOUBLE, double(value), True)
    if isinstance(value, Instant):
        return OneKind(MOMENT, integer(value.ticks), True)
    if isinstance(value, Span):
        return OneKind(SPAN, integer(value.ticks), True)
    if isinstance(value, UUID):
        return OneKind(GUID, f"'{value.hex}'", True)
    return OneKind(BYTES, f"X'{value.hex()}'", True)


def kinds_of(form: Form) -> tuple[str, ...]:
    """Which kinds the value may have."""
    if isinstance(form, AnyKind):
        return form.kinds
    return () if isinstance(form, Nothing) else (form.kind,)


def struct_of(form: Form, kinds: Iterable[str]) -> str:
    """With the fields of these kinds, which are some of those that the form may have, and `a`."""
    if isinstance(form, AnyKind):
        if not form.is_columns:
            return form.sql
        return struct({kind: form.field(kind) for kind in kinds}, form.field("a"))
    return struct({} if isinstance(form, Nothing) else {form.kind: form.sql}, "false")


def struct(values: Mapping[str, str], asks: str) -> str:
    fields = "".join(f"'{kind}', {sql}, " for kind, sql in values.items())
    return checked(f"named_struct({fields}'a', {asks})")


def null(kind: str) -> str:
    return f"CAST(NULL AS {TYPES[kind]})"


def checked(sql: str) -> str:
    """Raises Unsupported for what has become too long to be compiled."""
    if len(sql) > SQL_CHARACTERS_MAX:
        raise Unsupported("an expression that would be very long")
    return sql


class Binder:
    """Gives names to expressions, so that each stands in the text once: a lambda over an array of one."""

    def __init__(self) -> None:
        self._count = 0

    def bound(self, forms: list[Form], body: Callable[[list[View]], str]) -> str:
        views: list[View] = []
        named: list[str] = []
        name = ""
        for form in forms:
            if isinstance(form, AnyKind) and not form.is_columns:
                if not name:
                    self._count += 1
                    name = f"v{self._count}"
                views.append(view_of(AnyKind(f"{name}.f{len(named)}", kinds=form.kinds)))
                named.append(form.sql)
            else:
                views.append(view_of(form))
        sql = body(views)
        if not named:
            return checked(sql)
        fields = ", ".join(f"'f{at}', {each}" for at, each in enumerate(named))
        return checked(f"element_at(transform(array(named_struct({fields})), {name} -> {sql}), 1)")


def view_of(form: Form) -> View:
    if isinstance(form, Nothing):
        return {}
    if isinstance(form, OneKind):
        return {form.kind: Sight(form.sql, form.is_constant)}
    return {kind: Sight(form.field(kind)) for kind in form.kinds}


def is_there(view: View) -> str:
    """Not null."""
    return any_of([f"{sight.sql} IS NOT NULL" for sight in view.values()])
