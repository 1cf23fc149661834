"""Constants as text of Spark's SQL, and what it cannot say. A text goes through hexadecimal digits: nothing in a rule
ends a literal.
"""

from __future__ import annotations

from typing import Final

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
