"""Answers of the request/response nodes (`$cbs`, `X/$management`) as every client reads them.

Both spellings of the status keys, the code as a 32-bit int, conditions as symbols and only on failure (Python's
CBS takes the key's presence for failure), and the request's message id back with its own AMQP type.
"""

from __future__ import annotations

from busway.amqp.performatives import Properties
from busway.amqp.sections import VALUE, AmqpMessage
from busway.amqp.types import Int, Symbol
from busway.broker.errors import BrokerError
from busway.gateway.amqp.wire.error_conditions import condition_of, status_of
from busway.gateway.tracking import Tracking


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
