"""The table of a message's life, exhaustively."""

import itertools

import pytest

from busway.broker.fragment.message_states import (
    INPUT_OF_VERB,
    TRANSITIONS,
    ImpossibleTransition,
    MessageInput,
    MessageState,
    step_of,
)
from busway.broker.fragment.settlement import Verb


@pytest.mark.parametrize(
    ("state", "happened"),
    [
        pair
        for pair in itertools.product(MessageState, MessageInput)
        if pair[0] in (MessageState.GONE, MessageState.DEAD_LETTERED)
    ],
)
def test_nothing_happens_to_what_has_left(state: MessageState, happened: MessageInput) -> None:
    """D-5: gone is gone, and a dead letter begins a new life in its own fragment."""
    with pytest.raises(ImpossibleTransition, match=happened.value):
        step_of(state, happened)


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("state", [MessageState.LOCKED, MessageState.LOCKED_DEFERRED])
def test_every_verb_settles_every_lock(state: MessageState, verb: Verb) -> None:
    """R-10, R-11, R-12, R-13, R-14: every verb settles every lock."""
    assert step_of(state, INPUT_OF_VERB[verb]).after not in (
        MessageState.LOCKED,
        MessageState.LOCKED_DEFERRED,
    )


def test_failed_and_deferred_deliveries_count() -> None:
    """R-40, R-44: abandon, the end of a lock and a deferral, nothing else; not what a claim holds."""
    counting = {step.happened for step in TRANSITIONS.values() if step.counts}
    assert counting == {
        MessageInput.ABANDONED,
        MessageInput.DEFERRED,
        MessageInput.LOCK_ENDED,
        MessageInput.DELIVERIES_USED_UP,
    }


def test_an_unsettled_deferred_message_stays_deferred() -> None:
    """R-53: an unsettled deferred message stays deferred."""
    for happened in (MessageInput.ABANDONED, MessageInput.RELEASED, MessageInput.LOCK_ENDED):
        assert step_of(MessageState.LOCKED_DEFERRED, happened).after is MessageState.DEFERRED
