"""What a dead letter becomes when it goes back to work: a new message with the old content.

Without changes only what made it a dead letter goes, and the stored bytes are used as they are. With changes the
message is encoded anew, and read as if a client had sent it: every limit holds for it.
"""

from __future__ import annotations

from typing import Final

from busway.amqp.decode import DecodeError, decode_value
from busway.amqp.encode import EncodeError
from busway.broker.entity_path import shown
from busway.broker.errors import BadArgument
from busway.broker.fragment.claim_stamp import CLAIM_PROPERTY
from busway.broker.fragment.property_changes import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON
from busway.broker.limits import Limits
from busway.clock import Clock
from busway.gateway.http.messages.messages import MessageCodec
from busway.message.bare import entries_by_name, with_application_properties
from busway.message.changed_payload import SCHEDULED, changed_payload, is_part
from busway.message.head import FORWARDED, read_head
from busway.message.message import Message

#: Milliseconds from now on, by this server's clock, that it is scheduled for.
DELAY: Final = "delay"
_LEFT_OUT: Final = (DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION, CLAIM_PROPERTY)
_REMOVED: Final = {name.encode(): True for name in _LEFT_OUT}
#: Where neither stands in a message there is nothing to remove.
_DEAD_LETTER: Final = b"DeadLetter"
_CLAIM: Final = CLAIM_PROPERTY.encode()
_DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000


class RemadeLetters:
    def __init__(self, codec: MessageCodec, clock: Clock, limits: Limits) -> None:
        self._codec = codec
        self._clock = clock
        self._limits = limits

    def message(self, row: Message, changes: bytes) -> Message:
        """Raises BadArgument, and what else a message is refused with."""
        if not changes:
            return _as_it_is(row)
        try:
            payload = changed_payload(self._codec.payload(row, b"", 0), self._parts(changes), _LEFT_OUT)
            return self._codec.message(payload, False, self._limits)
        except (DecodeError, EncodeError, ValueError, TypeError, OverflowError) as error:
            raise BadArgument(f"It cannot be encoded as an AMQP message: {error}") from error

    def _parts(self, changes: bytes) -> dict[str, object]:
        found, end = decode_value(changes)
        if not isinstance(found, dict) or end != len(changes):
            raise BadArgument("Changes must be a map.")
        parts: dict[str, object] = {str(name): value for name, value in found.items()}
        delay = parts.pop(DELAY, None)
        unknown = next((name for name in parts if not is_part(name)), None)
        if unknown is not None:
            raise BadArgument(f"There is no part {shown(unknown)} of a message.")
        if isinstance(delay, int):
            parts[SCHEDULED] = self._clock.wall_ms() + max(0, min(delay, _DELAY_MS_MAX))
        elif delay is not None:
            raise BadArgument("delay must be a number of milliseconds.")
        return parts


def _as_it_is(row: Message) -> Message:
    head, bare = row.head, row.bare
    if head and head[0] & FORWARDED:
        parts = read_head(head)
        parts.hops = 0
        head = parts.encoded()
    fresh: dict[bytes, bytes] = {}
    if row.changes is not None:
        entries = entries_by_name(row.changes, 0, len(row.changes))
        fresh = {name: entry for name, entry in entries.items() if name not in _REMOVED}
    if fresh or _DEAD_LETTER in bare or _CLAIM in bare:
        bare = with_application_properties(bare, fresh, _REMOVED)
    return Message(head, bare, ttl_ms=row.ttl_ms, session_id=row.session_id, partition_key=row.partition_key)
