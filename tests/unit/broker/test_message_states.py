"""The table of a message's life, exhaustively."""

import itertools

import pytest

from busway.broker.fragment.message_states import (
    INPUT_OF_VERB,
    TRANSITIONS,
    Effect,
    ImpossibleTransition,
    MessageInput,
    MessageState,
    transition,
)
from busway.broker.fragment.settlement import Verb


@pytest.mark.parametrize(("state", "happened"), list(itertools.product(MessageState, MessageInput)))
def test_each_pair_is_in_the_table_or_impossible(state: MessageState, happened: MessageInput) -> None:
    """M-50: for each (state, input) either the table's move or an error."""
    if (state, happened) in TRANSITIONS:
        assert transition(state, happened) == TRANSITIONS[state, happened]
    else:
        with pytest.raises(ImpossibleTransition, match=happened.value):
            transition(state, happened)


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("state", [MessageState.LOCKED, MessageState.LOCKED_DEFERRED])
def test_every_verb_settles_every_lock(state: MessageState, verb: Verb) -> None:
    """R-10, R-11, R-12, R-13, R-14: every verb settles every lock."""
    after, _ = transition(state, INPUT_OF_VERB[verb])
    assert after not in (MessageState.LOCKED, MessageState.LOCKED_DEFERRED)


def test_failed_and_deferred_deliveries_count() -> None:
    """R-40, R-44: abandon, the end of a lock and a deferral, nothing else; not what a claim holds."""
    counting = {
        happened
        for (_, happened), (_, effect) in TRANSITIONS.items()
        if effect in (Effect.COUNT, Effect.COUNT_AND_MOVE)
    }
    assert counting == {
        MessageInput.ABANDONED,
        MessageInput.DEFERRED,
        MessageInput.LOCK_ENDED,
        MessageInput.DELIVERIES_USED_UP,
    }


@pytest.mark.parametrize(("state", "happened"), list(TRANSITIONS))
def test_nothing_counts_in_a_dead_letter_queue(state: MessageState, happened: MessageInput) -> None:
    """R-43: the same step, without the count."""
    after, effect = transition(state, happened, in_dead_letter=True)
    assert after is TRANSITIONS[state, happened][0]
    assert effect not in (Effect.COUNT, Effect.COUNT_AND_MOVE)
    assert (effect is Effect.MOVE) == (
        TRANSITIONS[state, happened][1] in (Effect.MOVE, Effect.COUNT_AND_MOVE)
    )


def test_only_activation_changes_the_number() -> None:
    """M-38: only activation changes the number."""
    assert [key for key, (_, effect) in TRANSITIONS.items() if effect is Effect.NEW_NUMBER] == [
        (MessageState.SCHEDULED, MessageInput.ACTIVATED)
    ]


def test_an_unsettled_deferred_message_stays_deferred() -> None:
    """R-53: an unsettled deferred message stays deferred."""
    for happened in (MessageInput.ABANDONED, MessageInput.RELEASED, MessageInput.LOCK_ENDED):
        assert transition(MessageState.LOCKED_DEFERRED, happened)[0] is MessageState.DEFERRED


def test_nothing_leaves_the_end() -> None:
    """D-5: gone is gone, and a dead letter begins a new life in its own fragment."""
    ends = {MessageState.GONE, MessageState.DEAD_LETTERED}
    assert not [state for state, _ in TRANSITIONS if state in ends]
