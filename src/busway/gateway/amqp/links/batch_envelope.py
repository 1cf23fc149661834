"""The envelope of a batch, as far as it counts: clients copy the keys of the first message into it (S-26).

It is never stored, and its message id is nobody's. But on a partitioned entity a key in it is the key of the batch,
and every message must have that one (S-23).
"""

from __future__ import annotations

from busway.broker.entity.partition_keys import key_of
from busway.broker.errors import InvalidOperation
from busway.broker.limits import Limits
from busway.gateway.amqp.wire.message_mapping import message_of
from busway.message.message import Message


def check_envelope(payload: bytes, messages: list[Message], limits: Limits) -> None:
    """Raises InvalidOperation when the envelope names another key than the first message has. That the others have
    the same as the first is seen to where the fragment is chosen."""
    key = key_of(message_of(payload, False, limits), False)
    if key is not None and key != key_of(messages[0], False):
        raise InvalidOperation(
            "The SessionId or PartitionKey of the batch is not the one of its messages: batching brokered messages"
            " with distinct keys is not supported for an entity with partitioning enabled."
        )
