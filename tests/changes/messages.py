"""Messages that can be told apart: a value, which is also the message id, and something for rules to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.message.message import Message

VALUE_CHARACTERS: Final = 8
_PLACE: Final = "0" * VALUE_CHARACTERS
_COLOURS: Final = ("red", "green", "blue")


def _template(colour: str, size: int) -> bytes:
    message = AmqpMessage([_PLACE.encode()], DATA, application_properties={"colour": colour, "size": size})
    message.properties = Properties()
    message.properties.message_id = _PLACE
    return encode_message(message)


_TEMPLATES: Final = tuple(_template(colour, size) for colour in _COLOURS for size in (1, 5))


def value_of(bare: bytes) -> str:
    return bare[-VALUE_CHARACTERS:].decode()


def bare_of(value: str) -> bytes:
    return _TEMPLATES[int(value) % len(_TEMPLATES)].replace(_PLACE.encode(), value.encode())


@dataclass
class Draft:
    """A message that somebody wants to have sent, however often that must be tried."""

    value: str
    session_id: str | None = None
    partition_key: str | None = None
    ttl_ms: int = -1
    #: Wall clock; 0 when it is not scheduled.
    due_ms: int = 0
    #: Sent again under the same id even when nobody knows what became of it.
    is_repeatable: bool = False

    def message(self, *, is_scheduled: bool = True) -> Message:
        """A new one for each try."""
        return Message(
            b"",
            bare_of(self.value),
            ttl_ms=self.ttl_ms,
            message_id=self.value if self.is_repeatable else None,
            session_id=self.session_id,
            partition_key=self.partition_key,
            scheduled_at_ms=self.due_ms if is_scheduled else 0,
        )
