"""What an idempotent producer and the broker tell each other when they attach."""

import pytest

from busway.amqp.performatives import ROLE_SENDER, Attach
from busway.amqp.types import Int, Long, Short, Symbol, Timestamp
from busway.gateway.amqp.attach.event_attaching import (
    IDEMPOTENT_PRODUCER,
    desires,
    producer_answer,
    producer_claim,
)
from busway.model.errors import BadArgument
from busway.streams.producers import Producer

NAMES = (
    "com.microsoft:producer-id",
    "com.microsoft:producer-epoch",
    "com.microsoft:producer-sequence-number",
)


def attach(capabilities: list[str] | None) -> Attach:
    return Attach("link", 0, ROLE_SENDER, desired_capabilities=capabilities)


def test_a_capability_is_desired_when_it_is_named() -> None:
    """H-18: a capability is desired when it is named."""
    assert desires(attach([Symbol("com.microsoft:georeplication"), IDEMPOTENT_PRODUCER]), IDEMPOTENT_PRODUCER)
    assert not desires(attach([Symbol("com.microsoft:georeplication")]), IDEMPOTENT_PRODUCER)
    assert not desires(attach(None), IDEMPOTENT_PRODUCER)
    assert not desires(None, IDEMPOTENT_PRODUCER)


def test_a_new_producer_claims_nothing() -> None:
    """H-18: JavaScript sends the three as nulls."""
    for properties in (None, {}, dict.fromkeys(map(Symbol, NAMES))):
        claim = producer_claim(properties)
        assert (claim.producer_id, claim.epoch, claim.sequence) == (None, None, None)


def test_a_returning_producer_claims_what_it_was() -> None:
    """H-18: a returning producer claims what it was."""
    claim = producer_claim(
        {Symbol(NAMES[0]): Long(2**40), Symbol(NAMES[1]): Short(3), Symbol(NAMES[2]): Int(17)}
    )
    assert (claim.producer_id, claim.epoch, claim.sequence) == (2**40, 3, 17)


@pytest.mark.parametrize("value", ["7", 7.0, True, Timestamp(7), [7]])
def test_a_claim_that_is_no_number_is_refused(value: object) -> None:
    """H-18: a claim that is no number is refused."""
    with pytest.raises(BadArgument, match="producer-epoch"):
        producer_claim({Symbol(NAMES[1]): value})


def test_the_answer_has_the_types_that_clients_look_for() -> None:
    """H-18: long, short, int."""
    answer = producer_answer(Producer(2**40, 3, 17, 0, True))
    assert {name: (type(answer[name]), answer[name]) for name in NAMES} == {
        NAMES[0]: (Long, 2**40),
        NAMES[1]: (Short, 3),
        NAMES[2]: (Int, 17),
    }
