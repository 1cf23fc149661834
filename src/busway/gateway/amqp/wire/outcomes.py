"""From the outcomes that receivers write to the verbs of the broker, and back (R-10…R-16).

  accepted                              complete
  released                              release, without a count
  modified, undeliverable-here = true   defer
  modified otherwise                    abandon
  rejected                              dead-letter: `com.microsoft:dead-letter` names reason and description in
                                        its info map; any other condition is itself the reason (R-15)

What else stands in the info map or among the message annotations are application properties to change (R-21).
"""

from typing import Final

from busway.amqp.errors import AmqpError, Condition
from busway.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Modified,
    Performative,
    Rejected,
    Released,
)
from busway.amqp.types import Array, Described
from busway.model.errors import BadArgument
from busway.model.settlement import Settlement, Verb

_COMPLETE: Final = Settlement(Verb.COMPLETE)
_RELEASE: Final = Settlement(Verb.RELEASE)
_ABANDON: Final = Settlement(Verb.ABANDON)
_DEFER: Final = Settlement(Verb.DEFER)
_DEAD_LETTER: Final = Settlement(Verb.DEAD_LETTER)

_REASON: Final = "DeadLetterReason"
_DESCRIPTION: Final = "DeadLetterErrorDescription"


def settlement_of(state: object, settled: bool) -> Settlement | None:
    """What the receiver wants done; None for a state that ends nothing. Raises BadArgument."""
    if isinstance(state, Accepted):
        return _COMPLETE
    if isinstance(state, Modified):
        return _modified(state)
    if isinstance(state, Rejected):
        return _rejected(state.error)
    if isinstance(state, Released):
        return _RELEASE
    # A receiver that settles without an outcome has forgotten the delivery and asked for nothing.
    return _RELEASE if settled else None


def answer_to(state: object) -> Performative:
    """The outcome that tells the receiver it was done: the same type, bare."""
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here, None)
    if isinstance(state, Rejected):
        return Rejected()
    if isinstance(state, Accepted):
        return ACCEPTED
    return RELEASED


def _modified(state: Modified) -> Settlement:
    defers = state.undeliverable_here is True
    if not state.message_annotations:
        return _DEFER if defers else _ABANDON
    return Settlement(Verb.DEFER if defers else Verb.ABANDON, _properties(state.message_annotations))


def _rejected(error: AmqpError | None) -> Settlement:
    if error is None:
        return _DEAD_LETTER
    if error.condition != Condition.DEAD_LETTER:
        return Settlement(
            Verb.DEAD_LETTER,
            dead_letter_reason=str(error.condition),
            dead_letter_description=error.description,
        )
    properties = _properties(error.info) if error.info else {}
    reason = _text(properties.pop(_REASON, None), _REASON)
    description = _text(properties.pop(_DESCRIPTION, None), _DESCRIPTION)
    return Settlement(Verb.DEAD_LETTER, properties or None, reason, description)


def _properties(given: dict[object, object]) -> dict[str, object]:
    """Names as text, values simple (M-34)."""
    properties: dict[str, object] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise BadArgument("The name of a property to modify must be a string.")
        if not _is_simple(value):
            raise BadArgument("The value of a property to modify cannot be a map, a list or an array.")
        properties[str(name)] = value
    return properties


def _is_simple(value: object) -> bool:
    while isinstance(value, Described):
        value = value.value
    return not isinstance(value, dict | list | Array)


def _text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise BadArgument(f"{name} must be a string.")
