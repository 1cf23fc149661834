"""Application properties that settlement changed (R-11, R-14, R-21, D-6), and the stamp of a claim among them.

They are kept beside the message as one encoded AMQP map and laid over the sender's own properties at delivery. A
later change wins over an earlier one; a null is stored as null.

The stamp of a claim is such a property, which deferring writes (R-11). A deferred message that bears one is
*held*. Whoever defers by stock operations may write it as well; what it means is the same. While a message is held
it does not expire (M-45); when it is released its time counts again.
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


CLAIM_PROPERTY: Final = "busway-claim"
_NAME: Final = CLAIM_PROPERTY.encode()


def stamped(stamp: str) -> bytes:
    """The changes of a message to which nothing else has been changed."""
    return encode_value({CLAIM_PROPERTY: stamp})


def stamp_of(changes: bytes | None) -> str | None:
    """The stamp among a message's changes; None when it bears none, or was freed of it."""
    if changes is None or _NAME not in changes:
        return None
    stamp = read_changes(changes).get(CLAIM_PROPERTY)
    return stamp if isinstance(stamp, str) else None


def unstamped(changes: bytes | None) -> bytes:
    """What else was changed; perhaps an empty map."""
    return encode_value(
        {name: value for name, value in read_changes(changes).items() if name != CLAIM_PROPERTY}
    )
