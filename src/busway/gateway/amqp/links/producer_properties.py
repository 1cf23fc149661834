"""What an idempotent producer and the broker tell each other when they attach (H-18).

A producer asks for it by a desired capability. It brings back the id, epoch and last number it had, or some of
them; the answer says which ones count from now on. They have the narrow AMQP types that clients look for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.performatives import Attach, Fields
from busway.amqp.types import Int, Long, Short, Symbol, Timestamp
from busway.broker.errors import BadArgument

if TYPE_CHECKING:
    from busway.streams.producers import Producer

IDEMPOTENT_PRODUCER: Final = Symbol("com.microsoft:idempotent-producer")
_ID: Final = Symbol("com.microsoft:producer-id")
_EPOCH: Final = Symbol("com.microsoft:producer-epoch")
_SEQUENCE: Final = Symbol("com.microsoft:producer-sequence-number")


class ProducerClaim:
    """What a client says it was; None where it says nothing."""

    __slots__ = ("epoch", "producer_id", "sequence")

    def __init__(self, producer_id: int | None, epoch: int | None, sequence: int | None) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence


def desires(attach: Attach | None, capability: str) -> bool:
    """Whether the peer's attach asks for a capability."""
    wanted = None if attach is None else attach.desired_capabilities
    return wanted is not None and capability in wanted


def producer_claim(properties: Fields | None) -> ProducerClaim:
    """Whether the numbers make sense is for the log to say. Raises BadArgument for what is none."""
    given: Fields = {} if properties is None else properties
    return ProducerClaim(_whole(given, _ID), _whole(given, _EPOCH), _whole(given, _SEQUENCE))


def producer_answer(producer: Producer) -> Fields:
    """The link properties of the answering attach."""
    return {
        _ID: Long(producer.producer_id),
        _EPOCH: Short(producer.epoch),
        _SEQUENCE: Int(producer.last_sequence),
    }


def _whole(properties: Fields, name: Symbol) -> int | None:
    value: object = properties.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp):
        raise BadArgument(f"The link property '{name}' must be a whole number.")
    return int(value)
