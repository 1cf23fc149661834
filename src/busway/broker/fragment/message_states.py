"""The life of a message as a table: state × what happens → state (M-38, M-43…M-45, M-50, R-1…R-15, R-40…R-53).

Whatever changes a stored message asks for its step here, once for each run of messages, and writes what the step
says (`write`). A pair that is not in the table cannot happen to a message in that state: asking for it is a bug of
ours. The conditions under which something happens (a count that reached its maximum, a time that has passed) are
decided by whoever asks.

"Locked" is no state of the store (M-50): LOCKED and LOCKED_DEFERRED are rows in their old place with a lock in
memory, which is why a restart leads from them back to ACTIVE and DEFERRED without any step.

Behind the table stands why a message is dead: the properties that say so (D-6, D-10…D-17). How it gets there:
`write`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from busway.broker.fragment import journal
from busway.broker.fragment.property_changes import DEAD_LETTER_REASON, dead_letter_properties
from busway.message.message import PLACE_ACTIVE, PLACE_DEFERRED, PLACE_SCHEDULED
from busway.model.errors import BrokerError, EntityDisabled, EntityNotFound, QuotaExceeded
from busway.model.settlement import Verb


class MessageState(Enum):
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    LOCKED = "locked"
    DEFERRED = "deferred"
    LOCKED_DEFERRED = "locked-deferred"
    DEAD_LETTERED = "dead-lettered"  # ACTIVE in the dead-letter fragment: a new life of the same message
    GONE = "gone"


class MessageInput(Enum):
    ACTIVATED = "activated"  # its scheduled time came (S-34)
    PUBLISHED = "published"  # the same in a topic: only copies of it go on
    CANCELLED = "cancelled"  # S-33
    CONSUMED = "consumed"  # receive-and-delete
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    RELEASED = "released"  # also: handed over but never sent, or its session was closed
    DEFERRED = "deferred"
    HELD = "held"  # a claim defers what it has taken
    DEAD_LETTERED = "dead-lettered"
    LOCK_ENDED = "lock-ended"  # its own or its session's
    DELIVERIES_USED_UP = "deliveries-used-up"  # abandoned or lock ended for the last time
    EXPIRED = "expired"  # and the entity drops expired messages
    EXPIRED_TO_DEAD_LETTER = "expired-to-dead-letter"
    DELETED = "deleted"  # batch delete
    FORWARDED = "forwarded"  # another entity has it (F-1)
    RESUBMITTED = "resubmitted"  # a dead letter that goes back to work
    CLAIM_RELEASED = "claim-released"  # the claim that had deferred it gives it up


_S = MessageState
_I = MessageInput

#: Where rows of a state lie. Dead letters lie in another fragment.
_PLACES: Final[dict[MessageState, int]] = {
    _S.SCHEDULED: PLACE_SCHEDULED,
    _S.ACTIVE: PLACE_ACTIVE,
    _S.LOCKED: PLACE_ACTIVE,
    _S.DEFERRED: PLACE_DEFERRED,
    _S.LOCKED_DEFERRED: PLACE_DEFERRED,
}
#: What a journal calls it. Of consumption it hears when the messages are delivered, of releases nothing.
_OPERATIONS: Final[dict[MessageInput, int]] = {
    _I.ACTIVATED: journal.ACTIVATE,
    _I.PUBLISHED: journal.ACTIVATE,
    _I.CANCELLED: journal.CANCEL,
    _I.COMPLETED: journal.COMPLETE,
    _I.ABANDONED: journal.ABANDON,
    _I.DEFERRED: journal.DEFER,
    _I.HELD: journal.DEFER,
    _I.DEAD_LETTERED: journal.DEAD_LETTER,
    _I.LOCK_ENDED: journal.LOCK_LOST,
    _I.DELIVERIES_USED_UP: journal.DEAD_LETTER,
    _I.EXPIRED: journal.EXPIRE,
    _I.EXPIRED_TO_DEAD_LETTER: journal.DEAD_LETTER,
    _I.DELETED: journal.DELETE,
    _I.FORWARDED: journal.FORWARD,
    _I.RESUBMITTED: journal.COMPLETE,
}
#: R-40, R-44: what counts as a delivery. A deferral ends one; it is never the last one.
_COUNTED: Final = (_I.ABANDONED, _I.DEFERRED, _I.LOCK_ENDED, _I.DELIVERIES_USED_UP)


class Step:
    """One row of the table."""

    __slots__ = ("after", "before", "counts", "happened", "operation", "place", "place_after")

    def __init__(self, before: MessageState, happened: MessageInput, after: MessageState) -> None:
        self.before = before
        self.happened = happened
        self.after = after
        #: Whether the delivery count grows; never in a dead-letter queue (R-43).
        self.counts = happened in _COUNTED
        self.place = _PLACES[before]
        #: `place` where the row stays; -1 where it leaves the fragment.
        self.place_after = _PLACES.get(after, -1)
        #: For the journal; UNKNOWN: it is told nothing, or by whoever asks for the step.
        self.operation = _OPERATIONS.get(happened, journal.UNKNOWN)


_TABLE: Final = (
    (_S.SCHEDULED, _I.ACTIVATED, _S.ACTIVE),  # with a new number
    (_S.SCHEDULED, _I.PUBLISHED, _S.GONE),
    (_S.SCHEDULED, _I.CANCELLED, _S.GONE),
    (_S.ACTIVE, _I.CONSUMED, _S.GONE),
    (_S.ACTIVE, _I.EXPIRED, _S.GONE),
    (_S.ACTIVE, _I.EXPIRED_TO_DEAD_LETTER, _S.DEAD_LETTERED),
    (_S.ACTIVE, _I.DELETED, _S.GONE),
    (_S.ACTIVE, _I.FORWARDED, _S.GONE),
    (_S.ACTIVE, _I.RESUBMITTED, _S.GONE),
    (_S.ACTIVE, _I.DEAD_LETTERED, _S.DEAD_LETTERED),  # it cannot be forwarded
    # A locked message knows no expiry until its lock ends (M-43); then it expires instead of being returned.
    (_S.LOCKED, _I.COMPLETED, _S.GONE),
    (_S.LOCKED, _I.ABANDONED, _S.ACTIVE),
    (_S.LOCKED, _I.RELEASED, _S.ACTIVE),
    (_S.LOCKED, _I.DEFERRED, _S.DEFERRED),
    (_S.LOCKED, _I.HELD, _S.DEFERRED),
    (_S.LOCKED, _I.DEAD_LETTERED, _S.DEAD_LETTERED),
    (_S.LOCKED, _I.LOCK_ENDED, _S.ACTIVE),
    (_S.LOCKED, _I.DELIVERIES_USED_UP, _S.DEAD_LETTERED),
    (_S.LOCKED, _I.EXPIRED, _S.GONE),
    (_S.LOCKED, _I.EXPIRED_TO_DEAD_LETTER, _S.DEAD_LETTERED),
    # Deferred messages are not swept (M-45): they expire when somebody asks for them, or when a claim gives them up.
    (_S.DEFERRED, _I.CONSUMED, _S.GONE),
    (_S.DEFERRED, _I.DELETED, _S.GONE),
    (_S.DEFERRED, _I.EXPIRED, _S.GONE),
    (_S.DEFERRED, _I.EXPIRED_TO_DEAD_LETTER, _S.DEAD_LETTERED),
    (_S.DEFERRED, _I.RESUBMITTED, _S.GONE),
    (_S.DEFERRED, _I.COMPLETED, _S.GONE),
    (_S.DEFERRED, _I.CLAIM_RELEASED, _S.ACTIVE),
    # Whatever ends the lock of a deferred message without settling it leaves it deferred.
    (_S.LOCKED_DEFERRED, _I.COMPLETED, _S.GONE),
    (_S.LOCKED_DEFERRED, _I.ABANDONED, _S.DEFERRED),
    (_S.LOCKED_DEFERRED, _I.RELEASED, _S.DEFERRED),
    (_S.LOCKED_DEFERRED, _I.DEFERRED, _S.DEFERRED),
    (_S.LOCKED_DEFERRED, _I.HELD, _S.DEFERRED),
    (_S.LOCKED_DEFERRED, _I.DEAD_LETTERED, _S.DEAD_LETTERED),
    (_S.LOCKED_DEFERRED, _I.LOCK_ENDED, _S.DEFERRED),
    (_S.LOCKED_DEFERRED, _I.DELIVERIES_USED_UP, _S.DEAD_LETTERED),
)
TRANSITIONS: Final = {(before, happened): Step(before, happened, after) for before, happened, after in _TABLE}

#: What each verb of a client means to a locked message.
INPUT_OF_VERB: Final[dict[Verb, MessageInput]] = {
    Verb.COMPLETE: MessageInput.COMPLETED,
    Verb.ABANDON: MessageInput.ABANDONED,
    Verb.RELEASE: MessageInput.RELEASED,
    Verb.DEFER: MessageInput.DEFERRED,
    Verb.HOLD: MessageInput.HELD,
    Verb.DEAD_LETTER: MessageInput.DEAD_LETTERED,
}


class ImpossibleTransition(Exception):
    """The broker asked for a step the table does not know: a bug of ours."""


def step_of(before: MessageState, happened: MessageInput) -> Step:
    step = TRANSITIONS.get((before, happened))
    if step is None:
        raise ImpossibleTransition(f"A message that is {before.value} cannot be {happened.value}.")
    return step


#: D-11
EXPIRED: Final = dead_letter_properties("TTLExpiredException", "The message expired and was dead lettered.")
#: D-13
HEADER_SIZE_EXCEEDED: Final = dead_letter_properties(
    "HeaderSizeExceeded", "The size quota for this stream has been exceeded."
)


#: D-12
SESSION_ID_IS_NULL: Final = dead_letter_properties(
    "Session ID is null.",
    "Session enabled entity doesn't allow a message whose session identifier is null.",
)


def rule_failed(reason: str, sentence: str) -> dict[str, object]:
    """D-15: why a message is dead whose filter or action failed."""
    return dead_letter_properties(reason, sentence)


def hops_used_up(hops_max: int) -> dict[str, object]:
    """D-14: why a message is dead that was forwarded too often."""
    return dead_letter_properties(
        "MaxTransferHopCountExceeded",
        f"The message was forwarded {hops_max} times, which is the most allowed.",
    )


def transfer_failed(target_path: str, error: BrokerError) -> dict[str, object]:
    """D-17: why a message is dead that its destination refused."""
    reason = "TransferDestinationRefused"
    if isinstance(error, EntityNotFound):
        reason = "TransferDestinationNotFound"
    elif isinstance(error, EntityDisabled):
        reason = "TransferDestinationDisabled"
    elif isinstance(error, QuotaExceeded):
        reason = "TransferDestinationQuotaExceeded"
    return dead_letter_properties(reason, f"Forwarding to '{target_path}' failed. {error.sentence}")


def reason_in(properties: dict[str, object] | None) -> str | None:
    reason = None if properties is None else properties.get(DEAD_LETTER_REASON)
    return str(reason) if isinstance(reason, str) else None


def deliveries_used_up(delivery_count: int) -> dict[str, object]:
    """D-10: why a message is dead that failed as often as it may."""
    return dead_letter_properties(
        "MaxDeliveryCountExceeded",
        f"Message could not be consumed after {delivery_count} delivery attempts.",
    )
