"""The life of a message as a table: state × input → state and effect (M-38, M-43…M-45, M-50, R-1…R-15, R-40…R-53).

A pair that is not in the table cannot happen to a message in that state; whoever asks for it gets an error and
nothing changes. The conditions under which an input arises (a count that reached its maximum, a time that has
passed) are decided by the fragment; what the input then does is decided here.

"Locked" is no state of the store (M-50): LOCKED and LOCKED_DEFERRED are rows in their old place with a lock in
memory, which is why a restart leads from them back to ACTIVE and DEFERRED.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from busway.broker.fragment.settlement import Verb


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
    CANCELLED = "cancelled"  # S-33
    LOCKED = "locked"  # delivered under peek-lock, or fetched by number
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
    CLAIM_RELEASED = "claim-released"  # the claim that had deferred it gives it up
    RESTARTED = "restarted"  # the broker lost its memory


class Effect(Enum):
    NONE = "none"
    NEW_NUMBER = "new-number"  # and a new enqueued time (S-34)
    COUNT = "count"  # delivery count + 1, written
    REMOVE = "remove"
    MOVE = "move"  # to another place or fragment, keeping its number (M-38)
    COUNT_AND_MOVE = "count-and-move"


_S = MessageState
_I = MessageInput
_E = Effect

TRANSITIONS: Final[dict[tuple[MessageState, MessageInput], tuple[MessageState, Effect]]] = {
    (_S.SCHEDULED, _I.ACTIVATED): (_S.ACTIVE, _E.NEW_NUMBER),
    (_S.SCHEDULED, _I.CANCELLED): (_S.GONE, _E.REMOVE),
    (_S.SCHEDULED, _I.RESTARTED): (_S.SCHEDULED, _E.NONE),
    (_S.ACTIVE, _I.LOCKED): (_S.LOCKED, _E.NONE),
    (_S.ACTIVE, _I.CONSUMED): (_S.GONE, _E.REMOVE),
    (_S.ACTIVE, _I.EXPIRED): (_S.GONE, _E.REMOVE),
    (_S.ACTIVE, _I.EXPIRED_TO_DEAD_LETTER): (_S.DEAD_LETTERED, _E.MOVE),
    (_S.ACTIVE, _I.DELETED): (_S.GONE, _E.REMOVE),
    (_S.ACTIVE, _I.RESTARTED): (_S.ACTIVE, _E.NONE),
    # A locked message knows no expiry until its lock ends (M-43); the pair (LOCKED, EXPIRED) arises only then.
    (_S.LOCKED, _I.COMPLETED): (_S.GONE, _E.REMOVE),
    (_S.LOCKED, _I.ABANDONED): (_S.ACTIVE, _E.COUNT),
    (_S.LOCKED, _I.RELEASED): (_S.ACTIVE, _E.NONE),
    # A deferral ends a delivery, so it counts as one; it is never the last one.
    (_S.LOCKED, _I.DEFERRED): (_S.DEFERRED, _E.COUNT_AND_MOVE),
    (_S.LOCKED, _I.HELD): (_S.DEFERRED, _E.MOVE),
    (_S.LOCKED, _I.DEAD_LETTERED): (_S.DEAD_LETTERED, _E.MOVE),
    (_S.LOCKED, _I.LOCK_ENDED): (_S.ACTIVE, _E.COUNT),
    (_S.LOCKED, _I.DELIVERIES_USED_UP): (_S.DEAD_LETTERED, _E.COUNT_AND_MOVE),
    (_S.LOCKED, _I.EXPIRED): (_S.GONE, _E.REMOVE),
    (_S.LOCKED, _I.EXPIRED_TO_DEAD_LETTER): (_S.DEAD_LETTERED, _E.MOVE),
    (_S.LOCKED, _I.RESTARTED): (_S.ACTIVE, _E.NONE),
    # Deferred messages are not swept (M-45): they expire only when somebody asks for them.
    (_S.DEFERRED, _I.LOCKED): (_S.LOCKED_DEFERRED, _E.NONE),
    (_S.DEFERRED, _I.CONSUMED): (_S.GONE, _E.REMOVE),
    (_S.DEFERRED, _I.EXPIRED): (_S.GONE, _E.REMOVE),
    (_S.DEFERRED, _I.EXPIRED_TO_DEAD_LETTER): (_S.DEAD_LETTERED, _E.MOVE),
    (_S.DEFERRED, _I.RESTARTED): (_S.DEFERRED, _E.NONE),
    # What a claim holds knows no expiry until it is released; the pairs with EXPIRED arise only then.
    (_S.DEFERRED, _I.COMPLETED): (_S.GONE, _E.REMOVE),
    (_S.DEFERRED, _I.CLAIM_RELEASED): (_S.ACTIVE, _E.MOVE),
    # Whatever ends the lock of a deferred message without settling it leaves it deferred.
    (_S.LOCKED_DEFERRED, _I.COMPLETED): (_S.GONE, _E.REMOVE),
    (_S.LOCKED_DEFERRED, _I.ABANDONED): (_S.DEFERRED, _E.COUNT),
    (_S.LOCKED_DEFERRED, _I.RELEASED): (_S.DEFERRED, _E.NONE),
    (_S.LOCKED_DEFERRED, _I.DEFERRED): (_S.DEFERRED, _E.COUNT),
    (_S.LOCKED_DEFERRED, _I.HELD): (_S.DEFERRED, _E.NONE),
    (_S.LOCKED_DEFERRED, _I.DEAD_LETTERED): (_S.DEAD_LETTERED, _E.MOVE),
    (_S.LOCKED_DEFERRED, _I.LOCK_ENDED): (_S.DEFERRED, _E.COUNT),
    (_S.LOCKED_DEFERRED, _I.DELIVERIES_USED_UP): (_S.DEAD_LETTERED, _E.COUNT_AND_MOVE),
    (_S.LOCKED_DEFERRED, _I.RESTARTED): (_S.DEFERRED, _E.NONE),
}

#: R-43: in a dead-letter queue deliveries are no longer counted.
_UNCOUNTED: Final[dict[Effect, Effect]] = {Effect.COUNT: Effect.NONE, Effect.COUNT_AND_MOVE: Effect.MOVE}

#: What each verb of a client means to a locked message.
INPUT_OF_VERB: Final[dict[Verb, MessageInput]] = {
    Verb.COMPLETE: MessageInput.COMPLETED,
    Verb.ABANDON: MessageInput.ABANDONED,
    Verb.RELEASE: MessageInput.RELEASED,
    Verb.DEFER: MessageInput.DEFERRED,
    Verb.HOLD: MessageInput.HELD,
    Verb.DEAD_LETTER: MessageInput.DEAD_LETTERED,
}


class ImpossibleTransition(AssertionError):
    """The broker asked for a step the table does not know: a bug of ours."""


def transition(
    state: MessageState, happened: MessageInput, in_dead_letter: bool = False
) -> tuple[MessageState, Effect]:
    step = TRANSITIONS.get((state, happened))
    if step is None:
        raise ImpossibleTransition(f"A message that is {state.value} cannot be {happened.value}.")
    if in_dead_letter:
        after, effect = step
        return after, _UNCOUNTED.get(effect, effect)
    return step
