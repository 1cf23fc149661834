"""The stamp by which a claim marks what it holds: an application property that deferring writes (R-11).

A deferred message that bears one is *held*. Whoever defers by stock operations may write it as well; what it means
is the same. While a message is held it does not expire (M-45); when it is released its time counts again.
"""

from __future__ import annotations

from typing import Final

from busway.amqp.encode import encode_value
from busway.broker.fragment.property_changes import read_changes

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
