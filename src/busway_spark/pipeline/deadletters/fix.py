"""What a dead letter is changed into before it is sent again.

A fix names a part of the message and a SQL expression of Spark over the columns of format `servicebus`. Spark
computes the values while it browses, and they are put into the message when it is moved. What no fix names stays
byte for byte as it was, bodies of AMQP values and properties of any type included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway.client.messages import ServiceBusReceivedMessage
from busway.message.changed_payload import (
    BODY,
    MESSAGE_ID,
    PARTS,
    PROPERTY_MARK,
    SCHEDULED,
    TIME_TO_LIVE,
    changed_payload,
)
from busway_spark.servicebus.message_columns import CLAIM_PROPERTY

__all__ = ["BODY", "PARTS", "PROPERTY_MARK", "SCHEDULED", "TIME_TO_LIVE", "Fix", "WrongFix", "encode_fixed"]

_BY_LOWER: Final = {name.lower(): name for name in PARTS}
#: What only a dead letter, or one that a stream holds, bears.
LEFT_OUT: Final = ("DeadLetterReason", "DeadLetterErrorDescription", CLAIM_PROPERTY)


class WrongFix(ValueError):
    """The fix cannot be understood; a sentence."""


@dataclass(frozen=True)
class Fix:
    #: One of PARTS, or `properties.NAME`.
    part: str
    expression: str

    @classmethod
    def parse(cls, text: str) -> Fix:
        """`subject='new'`, `properties.tenant=concat('t-', sessionId)`. Raises WrongFix."""
        name, mark, expression = text.partition("=")
        if not mark or not expression.strip():
            raise WrongFix(f"--set {text[:80]}: write it as NAME=EXPRESSION, such as subject=\"'new'\".")
        return cls(_part(name.strip()), expression.strip())


def _part(name: str) -> str:
    if name.lower().startswith(PROPERTY_MARK) and len(name) > len(PROPERTY_MARK):
        return PROPERTY_MARK + name[len(PROPERTY_MARK) :]
    proper = _BY_LOWER.get(name.lower())
    if proper is None:
        raise WrongFix(
            f"--set {name[:80]}: there is no such part of a message. There are {', '.join(PARTS)},"
            " and properties.NAME."
        )
    return proper


def encode_fixed(
    message: ServiceBusReceivedMessage, changes: Mapping[str, Any], message_id: str | None
) -> bytes:
    """The dead letter as it is sent again. `changes`: part → value, None takes the part away; `message_id` replaces
    the message's own, unless a fix gives one."""
    payload = message.encode_again(LEFT_OUT)
    if message_id is not None and MESSAGE_ID not in changes:
        changes = {**changes, MESSAGE_ID: message_id}
    return changed_payload(payload, changes) if changes else payload
