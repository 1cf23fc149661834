"""Which verb an outcome of a receiver means, and which outcome answers it."""

import pytest

from busway.amqp.errors import AmqpError
from busway.amqp.performatives import Accepted, Modified, Received, Rejected, Released
from busway.amqp.types import Array, Described, Int, Symbol
from busway.gateway.amqp.links.receive_link import answer_to, settlement_of
from busway.model.errors import BadArgument
from busway.model.settlement import Settlement, Verb

DEAD_LETTER = Symbol("com.microsoft:dead-letter")


def settlement(state: object) -> Settlement:
    found = settlement_of(state, False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("state", "verb"),
    [
        (Accepted(), Verb.COMPLETE),
        (Released(), Verb.RELEASE),
        (Modified(), Verb.ABANDON),
        (Modified(True, False), Verb.ABANDON),
        (Modified(False, False), Verb.ABANDON),
        (Modified(None, True), Verb.DEFER),
        (Modified(True, True), Verb.DEFER),
        (Rejected(), Verb.DEAD_LETTER),
    ],
)
def test_outcomes_are_verbs(state: object, verb: Verb) -> None:
    """R-10, R-11, R-12, R-13, R-14: as the SDKs write them."""
    assert settlement(state).verb is verb


def test_modified_annotations_are_properties_to_change() -> None:
    """R-11, R-13, R-21: with their types, null included."""
    found = settlement(Modified(True, False, {Symbol("a"): Int(5), "b": None}))
    assert found.properties == {"a": Int(5), "b": None}
    assert all(type(name) is str for name in found.properties)


def test_a_dead_letter_names_reason_description_and_more() -> None:
    """R-14, D-16: the info map; what else stands there are properties to change."""
    info = {Symbol("DeadLetterReason"): "why", "DeadLetterErrorDescription": "how", "extra": 5}
    found = settlement(Rejected(AmqpError(DEAD_LETTER, "text", info)))
    assert found.verb is Verb.DEAD_LETTER
    assert (found.dead_letter_reason, found.dead_letter_description) == ("why", "how")
    assert found.properties == {"extra": 5}


def test_a_dead_letter_needs_no_reason() -> None:
    """R-14: .NET sends a bare one."""
    for state in (Rejected(), Rejected(AmqpError(DEAD_LETTER)), Rejected(AmqpError(DEAD_LETTER, None, {}))):
        found = settlement(state)
        assert (found.verb, found.dead_letter_reason, found.properties) == (Verb.DEAD_LETTER, None, None)


def test_another_condition_is_the_reason_itself() -> None:
    """R-15: another condition is the reason itself."""
    found = settlement(Rejected(AmqpError(Symbol("amqp:decode-error"), "bad bytes")))
    assert (found.verb, found.dead_letter_reason, found.dead_letter_description) == (
        Verb.DEAD_LETTER,
        "amqp:decode-error",
        "bad bytes",
    )


@pytest.mark.parametrize(
    "state",
    [
        Modified(True, False, {"a": {"b": 1}}),
        Modified(True, False, {"a": Described(Symbol("x"), [1])}),
        Modified(True, False, {"a": Array([1])}),
        Modified(True, False, {5: "numeric name"}),
        Rejected(AmqpError(DEAD_LETTER, None, {"DeadLetterReason": 5})),
    ],
)
def test_what_cannot_be_a_property_is_refused(state: object) -> None:
    """M-34, R-21: what cannot be a property is refused."""
    with pytest.raises(BadArgument):
        settlement_of(state, False)


def test_a_state_that_ends_nothing_is_none() -> None:
    """R-16: unless the receiver has settled, then it has let go of the message."""
    assert settlement_of(Received(0, 0), False) is None
    assert settlement_of(None, False) is None
    released = settlement_of(None, True)
    assert released is not None
    assert released.verb is Verb.RELEASE


def test_the_answer_is_the_same_outcome_without_its_trimmings() -> None:
    """R-16: a dead letter is answered by `rejected` without an error, else one SDK raises it."""
    assert answer_to(Accepted()) == Accepted()
    assert answer_to(Rejected(AmqpError(DEAD_LETTER, "x", {"a": 1}))) == Rejected(None)
    assert answer_to(Modified(True, True, {"a": 1})) == Modified(True, True, None)
    assert answer_to(Released()) == Released()
