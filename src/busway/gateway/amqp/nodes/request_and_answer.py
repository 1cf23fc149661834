"""How a request to a node (`$cbs`, `X/$management`) is read, and how its answer is written.

The body of a management request is a map that any client on the internet may have written. Every getter of
`RequestBody` checks presence, type and range and raises a broker error whose sentence names the key, so that the
operations themselves handle only values that fit.

Answers are such as every client reads them: both spellings of the status keys, the code as a 32-bit int,
conditions as symbols and only on failure (Python's CBS takes the key's presence for failure), and the request's
message id back with its own AMQP type.

What operations of `$management` answer is a status and a map with exactly the AMQP types that clients assert. Go
type-asserts arrays, Java checks for `long[]` and `Date[]`, so arrays carry their constructor even when they are
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeGuard
from uuid import UUID

from busway.amqp.performatives import Properties
from busway.amqp.sections import VALUE, AmqpMessage
from busway.amqp.types import Array, Char, Int, Long, Symbol, Timestamp
from busway.gateway.amqp.error_conditions import condition_of, status_of
from busway.gateway.tracking import Tracking
from busway.model.errors import ArgumentOutOfRange, BadArgument, BrokerError

INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
#: Tokens and numbers in one request: more than any client sends, far less than would hold the loop up.
ITEMS_MAX: Final = 5_000


class RequestBody:
    """The map of one request, read key by key."""

    __slots__ = ("_values",)

    def __init__(self, value: object) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise BadArgument("The body of a management request must be an AMQP value with a map.")
        self._values: dict[object, object] = value

    def get(self, key: str) -> object:
        return self._values.get(key)

    def text(self, key: str) -> str:
        found = self.optional_text(key)
        if found is None:
            raise _missing(key)
        return found

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or isinstance(value, Char):
            raise _wrong_type(key, "a string")
        return str(value)

    def integer(self, key: str, lowest: int, highest: int) -> int:
        value = self._required(key)
        if not _is_integer(value):
            raise _wrong_type(key, "an integer")
        if not lowest <= value <= highest:
            raise ArgumentOutOfRange(
                f"The value of '{key}' must be between {lowest} and {highest}; it is {value}."
            )
        return int(value)

    def instant_ms(self, key: str) -> int:
        value = self._required(key)
        if not isinstance(value, Timestamp):
            raise _wrong_type(key, "a timestamp")
        return int(value)

    def flag(self, key: str) -> bool:
        """False when it is absent."""
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return value is True
        raise _wrong_type(key, "a boolean")

    def optional_binary(self, key: str) -> bytes | None:
        value = self._values.get(key)
        if value is None or isinstance(value, bytes):
            return value
        raise _wrong_type(key, "binary or null")

    def optional_map(self, key: str) -> dict[str, object] | None:
        """A map whose keys are names."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise _wrong_type(key, "a map with strings as keys")
        return {str(name): item for name, item in value.items()}

    def lock_tokens(self, key: str) -> list[bytes]:
        """Lock tokens travel here as AMQP uuids; locks are known by the bytes of the delivery tag, which is the
        same uuid in .NET's byte order."""
        tokens: list[bytes] = []
        for item in self.items(key):
            if not isinstance(item, UUID):
                raise _wrong_type(key, "an array of uuids")
            tokens.append(item.bytes_le)
        return tokens

    def numbers(self, key: str) -> list[int]:
        numbers: list[int] = []
        for item in self.items(key):
            if not _is_integer(item):
                raise _wrong_type(key, "an array of longs")
            numbers.append(int(item))
        return numbers

    def items(self, key: str) -> list[object]:
        """At least one, at most ITEMS_MAX; an array or a list, as clients differ."""
        value = self._required(key)
        found = value.items if isinstance(value, Array) else value
        if not isinstance(found, list):
            raise _wrong_type(key, "an array or a list")
        if not 1 <= len(found) <= ITEMS_MAX:
            raise ArgumentOutOfRange(
                f"'{key}' must hold between 1 and {ITEMS_MAX} items; it holds {len(found)}."
            )
        return found

    def _required(self, key: str) -> object:
        value = self._values.get(key)
        if value is None:
            raise _missing(key)
        return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def symbol_or_text(value: object) -> str | None:
    """The text of a property that some clients send as a symbol, others as a string."""
    return str(value) if isinstance(value, str | Symbol) and not isinstance(value, Char) else None


def _missing(key: str) -> BadArgument:
    return BadArgument(f"The request lacks '{key}'.")


def _wrong_type(key: str, wanted: str) -> BadArgument:
    return BadArgument(f"The value of '{key}' must be {wanted}.")


OK: Final = 200
NO_CONTENT: Final = 204
_LONG: Final = 0x81
_TIMESTAMP: Final = 0x83
_STRING: Final = 0xB1
DESCRIPTIONS: Final = {OK: "OK", NO_CONTENT: "No Content"}


def respond(
    request: AmqpMessage, status: int, description: str, condition: str | None = None, body: object = None
) -> AmqpMessage:
    properties: dict[str, object] = {
        "statusCode": Int(status),
        "status-code": Int(status),
        "statusDescription": description,
        "status-description": description,
    }
    if condition is not None:
        properties["errorCondition"] = Symbol(condition)
        properties["error-condition"] = Symbol(condition)
    return AmqpMessage(
        body,
        VALUE,
        properties=Properties(correlation_id=message_id_of(request)),
        application_properties=properties,
    )


def refuse(request: AmqpMessage, error: BrokerError, tracking: Tracking, path: str) -> AmqpMessage:
    description = tracking.describe(error.sentence, path)
    return respond(request, status_of(error), description, condition_of(error))


def message_id_of(request: AmqpMessage) -> object:
    return None if request.properties is None else request.properties.message_id


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
