"""What management operations answer: a status and a map with exactly the AMQP types that clients assert.

Go type-asserts arrays, Java checks for `long[]` and `Date[]`, so arrays carry their constructor even
when they are empty.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from busway.amqp.types import Array, Long, Timestamp

OK: Final = 200
NO_CONTENT: Final = 204

_LONG: Final = 0x81
_TIMESTAMP: Final = 0x83
_STRING: Final = 0xB1

DESCRIPTIONS: Final = {OK: "OK", NO_CONTENT: "No Content"}


class Answer:
    """A success. `body` is None where a client looks at the status only."""

    __slots__ = ("body", "condition", "status")

    def __init__(
        self, body: dict[str, object] | None, status: int = OK, condition: str | None = None
    ) -> None:
        self.body = body
        self.status = status
        #: Some empty answers name what was not found beside their 204 (ERR-15).
        self.condition = condition


def done() -> Answer:
    return Answer({})


def nothing(condition: str | None = None) -> Answer:
    """204: the question was fine, there is nothing to tell (R-64)."""
    return Answer({}, NO_CONTENT, condition)


def long_array(numbers: Sequence[int]) -> Array:
    return Array([Long(number) for number in numbers], _LONG)


def timestamp_array(instants_ms: Sequence[int]) -> Array:
    return Array([Timestamp(instant) for instant in instants_ms], _TIMESTAMP)


def string_array(texts: Sequence[str]) -> Array:
    return Array(list(texts), _STRING)


def uuid_of_token(token: bytes) -> UUID:
    """The reverse of `RequestBody.lock_tokens`."""
    return UUID(bytes_le=token)
