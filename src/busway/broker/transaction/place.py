"""Which fragment an operation of a transaction takes place in (TX-12…TX-17, TX-19).

A plain entity has one. Of a partitioned one, a transaction keeps to the fragment of its messages' key: every message
must have a key, and all the same one. Keys are compared, not fragments, so that a transaction does not depend on
how keys happen to be spread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.broker.entity.partition_keys import fragment_of_key, index_of_number, index_of_token, key_of
from busway.message.message import Message
from busway.model.errors import InvalidOperation, MessageLockLost, MessageNotFound

if TYPE_CHECKING:
    from busway.broker.fragment.fragment import Fragment
    from busway.broker.fragment.outlet import Outlet

OTHER_FRAGMENT: Final = "Local transactions cannot span multiple entities or partitions."


def place_of_messages(
    outlet: Outlet, messages: list[Message], known_key: str | None
) -> tuple[Fragment, str | None]:
    """The fragment that takes them, and their common key; `known_key` is that of what was sent before. Raises
    InvalidOperation, and ServerBusy while the fragment's store is away."""
    settings = outlet.settings
    if not settings.is_partitioned:
        return outlet.member(0), None
    key = known_key
    for message in messages:
        found = key_of(message, settings.detects_duplicates)
        if found is None:
            raise InvalidOperation(
                f"'{settings.path}' is partitioned: a message sent to it in a transaction needs a PartitionKey"
                " or a SessionId, or a MessageId where duplicates are detected."
            )
        if key is not None and found != key:
            raise InvalidOperation(
                f"'{settings.path}' is partitioned: all messages sent to it in one transaction must have the same"
                " SessionId or PartitionKey."
            )
        key = found
    assert key is not None, "there is a message"
    return outlet.member(fragment_of_key(key, settings.fragment_count)), key


def place_of_tokens(outlet: Outlet, tokens: list[bytes]) -> Fragment:
    """Raises InvalidOperation when they belong to several fragments."""
    if not outlet.settings.is_partitioned:
        return outlet.member(0)
    try:
        return _only(outlet, {index_of_token(token) for token in tokens})
    except MessageNotFound:
        raise MessageLockLost from None


def place_of_numbers(outlet: Outlet, numbers: list[int]) -> Fragment:
    if not outlet.settings.is_partitioned:
        return outlet.member(0)
    return _only(outlet, {index_of_number(number) for number in numbers})


def via_index(via: Outlet, via_key: str | None, known_index: int | None) -> int:
    """TX-18: the fragment of the via entity by the ViaPartitionKey; without one, where the transaction takes place
    already."""
    if not via.settings.is_partitioned:
        return 0
    if via_key is not None:
        return fragment_of_key(via_key, via.settings.fragment_count)
    if known_index is None:
        raise InvalidOperation(
            f"'{via.settings.path}' is partitioned: a message sent via it in a transaction needs a ViaPartitionKey."
        )
    return known_index


def _only(outlet: Outlet, indexes: set[int]) -> Fragment:
    if len(indexes) > 1:
        raise InvalidOperation(OTHER_FRAGMENT)
    return outlet.member(indexes.pop())
