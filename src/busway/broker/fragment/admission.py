"""Which messages an entity takes (S-6…S-9, L-8). The order of the checks is the order of the answers."""

from __future__ import annotations

from busway.broker.fragment.settings import FragmentSettings
from busway.message.message import Message
from busway.model.errors import BadArgument, BrokerError, InvalidOperation, MessageTooLarge, QuotaExceeded
from busway.model.limits import Limits


def has_keys(message: Message) -> bool:
    """True for a message that needs a closer look than its size."""
    return (
        message.session_id is not None or message.partition_key is not None or message.message_id is not None
    )


def fault_of(message: Message, size: int, settings: FragmentSettings, limits: Limits) -> BrokerError | None:
    """Why the entity refuses this message; None when it does not."""
    if size > settings.message_bytes_max:
        return MessageTooLarge(
            f"The message of {size} bytes is larger than the {settings.message_bytes_max} bytes"
            f" that '{settings.path}' allows."
        )
    session_id, partition_key = message.session_id, message.partition_key
    if settings.requires_session and session_id is None:
        return InvalidOperation(
            "The SessionId was not set on a message, and it cannot be sent to the entity."
            " Entities that have session support enabled can only receive messages that have the SessionId"
            " set to a valid value."
        )
    for name, key in (
        ("MessageId", message.message_id),
        ("SessionId", session_id),
        ("PartitionKey", partition_key),
    ):
        if key is not None and len(key) > limits.key_characters_max:
            return BadArgument(
                f"{name} is {len(key)} characters long; at most {limits.key_characters_max} are allowed."
            )
    # An empty SessionId is a session, and no key that another one could differ from: its messages lie together.
    if session_id and partition_key is not None and session_id != partition_key:
        return InvalidOperation(
            "PartitionKey and SessionId of a message must be the same when both are set."
            f" PartitionKey: '{partition_key}', SessionId: '{session_id}'."
        )
    return None


def batch_fault(size: int, settings: FragmentSettings) -> MessageTooLarge:
    """S-22: the limit applies to the whole batch."""
    return MessageTooLarge(
        f"The batch of {size} bytes is larger than the {settings.message_bytes_max} bytes"
        f" that '{settings.path}' allows."
    )


def quota_fault(settings: FragmentSettings, used_bytes: int) -> QuotaExceeded:
    return QuotaExceeded(
        "The maximum entity size has been reached or exceeded for the entity."
        f" Entity: '{settings.path}', size: {used_bytes} bytes, maximum: {settings.size_bytes_max} bytes."
    )


def namespace_fault(bytes_max: int) -> QuotaExceeded:
    """L-4: what the sender is told when the namespace is full."""
    return QuotaExceeded(
        f"The maximum size of the namespace, {bytes_max} bytes over all entities, has been reached or exceeded."
    )
