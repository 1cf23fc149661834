"""Application properties that settlement changed (R-11, R-14, R-21, D-6).

Kept beside the message as one encoded AMQP map and laid over the sender's own properties at delivery. A later
change wins over an earlier one; a null is stored as null.
"""

from __future__ import annotations

from typing import Final

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError, encode_value
from busway.model.errors import BadArgument, InternalError

DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION: Final = "DeadLetterErrorDescription"


def merge_changes(existing: bytes | None, properties: dict[str, object] | None) -> bytes | None:
    """The earlier changes with the new ones over them. Raises BadArgument for values AMQP cannot carry."""
    if not properties:
        return existing
    merged = dict(read_changes(existing))
    for name, value in properties.items():
        merged[str(name)] = value
    try:
        return encode_value(merged)
    except EncodeError as problem:
        raise BadArgument(f"A property to modify is not valid. {problem}") from None


def read_changes(changes: bytes | None) -> dict[str, object]:
    """The map in its decoded form."""
    if changes is None:
        return {}
    try:
        value, _ = decode_value(changes)
    except DecodeError as problem:
        raise InternalError(f"The stored property changes of a message are damaged. {problem}") from None
    if not isinstance(value, dict):
        raise InternalError("The stored property changes of a message are damaged.")
    return {str(name): item for name, item in value.items()}


def dead_letter_properties(
    reason: str | None, description: str | None, properties: dict[str, object] | None = None
) -> dict[str, object]:
    """Other properties first: the reason given as such wins over one hidden among them."""
    merged: dict[str, object] = dict(properties) if properties else {}
    if reason is not None:
        merged[DEAD_LETTER_REASON] = reason
    if description is not None:
        merged[DEAD_LETTER_DESCRIPTION] = description
    return merged
