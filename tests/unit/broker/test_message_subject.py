"""A message as rules see it."""

from __future__ import annotations

import pytest

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.amqp.types import Symbol
from busway.gateway.amqp.message_mapping import message_of
from busway.message.message_subject import MessageSubject


@pytest.mark.parametrize(("name", "value"), [("Label", "l" * 20_000), ("ViaPartitionKey", "v" * 100)])
def test_a_system_property_is_decoded_once(name: str, value: str) -> None:
    """Attack: T-24: a rule names the same long property sixty times; it is one piece of work."""
    annotations = {Symbol(f"x-filler-{at}"): "f" for at in range(500)}
    sent = AmqpMessage(
        [b"body"],
        DATA,
        properties=Properties(subject="l" * 20_000),
        message_annotations={**annotations, Symbol("x-opt-via-partition-key"): "v" * 100},
    )
    subject = MessageSubject(message_of(encode_message(sent), False))
    first = subject.system(name)
    assert first == value
    assert subject.system(name) is first
    assert subject.system("NoSuchProperty") is None
