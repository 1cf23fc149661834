"""Answers of the request/response nodes (`$cbs`, `X/$management`) as every client reads them.

Both spellings of the status keys, the code as a 32-bit int, conditions as symbols and only on failure (Python's
CBS takes the key's presence for failure), and the request's message id back with its own AMQP type.

What operations of `$management` answer is a status and a map with exactly the AMQP types that clients assert. Go
type-asserts arrays, Java checks for `long[]` and `Date[]`, so arrays carry their constructor even when they are
empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from busway.amqp.performatives import Properties
from busway.amqp.sections import VALUE, AmqpMessage
from busway.amqp.types import Array, Int, Long, Symbol, Timestamp
from busway.gateway.amqp.wire.error_conditions import condition_of, status_of
from busway.gateway.tracking import Tracking
from busway.model.errors import BrokerError

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
