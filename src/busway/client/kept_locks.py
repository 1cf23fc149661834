"""Locks that are kept on messages while others are worked on, by their tokens."""

from typing import Final
from uuid import UUID

from busway.client.errors import LockLost
from busway.client.management import Management

_TOKENS_AT_ONCE: Final = 500


def slices(tokens: list[UUID]) -> list[list[UUID]]:
    """As many as one request takes."""
    return [tokens[start : start + _TOKENS_AT_ONCE] for start in range(0, len(tokens), _TOKENS_AT_ONCE)]


async def renewed(management: Management, tokens: list[UUID]) -> list[UUID]:
    """Those that still hold."""
    kept: list[UUID] = []
    for some in slices(tokens):
        kept += await _renewed(management, some)
    return kept


async def _renewed(management: Management, tokens: list[UUID]) -> list[UUID]:
    """A run is renewed as a whole or not at all, so a lost lock is looked for."""
    try:
        await management.renew_message_locks(tokens)
    except LockLost:
        if len(tokens) == 1:
            return []
        half = len(tokens) // 2
        return [*await _renewed(management, tokens[:half]), *await _renewed(management, tokens[half:])]
    return tokens
