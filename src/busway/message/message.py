"""A message as the broker holds it.

The sender's bytes are split once, at the gateway, and never re-encoded afterwards:

  head   what the sender put *before* the bare message and gets back: header fields and annotations, in the
         compact form of `busway.gateway.amqp.wire.message_mapping` (opaque to broker and store; often empty)
  bare   properties, application properties, body and footer exactly as they arrived (opaque everywhere)

Everything else is what broker decisions need. `changes` holds application properties that settlement changed
(R-11, R-14, D-6): an encoded AMQP map laid over the bare message's own application properties at delivery.
"""

from typing import Final

#: Where the row of a message lies, and what clients are told as its state: the same numbers.
PLACE_ACTIVE: Final = 0
PLACE_DEFERRED: Final = 1
PLACE_SCHEDULED: Final = 2

#: Expiry of a message that never expires: past every date a client can write (`dotnet_time`).
NEVER_MS: Final = 1 << 60


class Message:
    """One message of one fragment. Plain slots: hundreds of thousands of these are made each second."""

    __slots__ = (
        "bare",
        "changes",
        "delivery_count",
        "enqueued_at_ms",
        "expires_at_ms",
        "head",
        "message_id",
        "partition_key",
        "scheduled_at_ms",
        "sequence_number",
        "session_id",
        "state",
        "ttl_ms",
    )

    def __init__(
        self,
        head: bytes,
        bare: bytes,
        *,
        ttl_ms: int = -1,
        message_id: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        scheduled_at_ms: int = 0,
    ) -> None:
        self.head = head
        self.bare = bare
        #: The sender's own time to live, -1 when it set none. Comes back in the header as sent (M-27a).
        self.ttl_ms = ttl_ms
        #: Text form of properties.message-id (M-1). Filled only where the entity detects duplicates.
        self.message_id = message_id
        #: properties.group-id; the empty string is a session id, None is none (S-7).
        self.session_id = session_id
        self.partition_key = partition_key
        #: x-opt-scheduled-enqueue-time, 0 when absent.
        self.scheduled_at_ms = scheduled_at_ms
        # The broker's own fields, set when the message is appended or read back from a store.
        self.sequence_number = 0
        self.enqueued_at_ms = 0
        self.expires_at_ms = NEVER_MS
        self.delivery_count = 0
        self.changes: bytes | None = None
        self.state = PLACE_ACTIVE

    def size(self) -> int:
        """Bytes that count toward the entity's size (L-21, M-24)."""
        changes = self.changes
        return len(self.head) + len(self.bare) + (0 if changes is None else len(changes))
