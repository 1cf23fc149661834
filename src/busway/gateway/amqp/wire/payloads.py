"""Payloads ↔ messages for the other gateway, which speaks of the same messages in HTTP's words."""

from busway.clock import Entropy
from busway.gateway.amqp.wire.message_ids import ensure_message_id
from busway.gateway.amqp.wire.message_mapping import delivery_payload, message_of
from busway.message.message import Message
from busway.model.limits import Limits


class PayloadCodec:
    """A `busway.gateway.http.messages.messages.MessageCodec`."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def message(self, payload: bytes, wants_message_id: bool, limits: Limits) -> Message:
        """As if a link had brought it. Raises DecodeError, BadArgument."""
        made = message_of(payload, wants_message_id, limits)
        ensure_message_id(made, self._entropy)
        return made

    def payload(self, message: Message, token: bytes, locked_until_ms: int) -> bytes:
        """As a link would deliver it."""
        return delivery_payload(message, token, locked_until_ms)
