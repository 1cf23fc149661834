"""Error conditions, errors as values, and violations of the protocol with their scope."""

from __future__ import annotations

from typing import Any, Final

from busway.amqp.types import Symbol


class Condition:
    """The names of all conditions that Busway sends or understands."""

    # Of the AMQP standard.
    INTERNAL_ERROR: Final = Symbol("amqp:internal-error")
    NOT_FOUND: Final = Symbol("amqp:not-found")
    UNAUTHORIZED_ACCESS: Final = Symbol("amqp:unauthorized-access")
    DECODE_ERROR: Final = Symbol("amqp:decode-error")
    RESOURCE_LIMIT_EXCEEDED: Final = Symbol("amqp:resource-limit-exceeded")
    NOT_ALLOWED: Final = Symbol("amqp:not-allowed")
    INVALID_FIELD: Final = Symbol("amqp:invalid-field")
    NOT_IMPLEMENTED: Final = Symbol("amqp:not-implemented")
    FRAME_SIZE_TOO_SMALL: Final = Symbol("amqp:frame-size-too-small")
    CONNECTION_FORCED: Final = Symbol("amqp:connection:forced")
    CONNECTION_FRAMING_ERROR: Final = Symbol("amqp:connection:framing-error")
    SESSION_HANDLE_IN_USE: Final = Symbol("amqp:session:handle-in-use")
    SESSION_UNATTACHED_HANDLE: Final = Symbol("amqp:session:unattached-handle")
    LINK_DETACH_FORCED: Final = Symbol("amqp:link:detach-forced")
    LINK_TRANSFER_LIMIT_EXCEEDED: Final = Symbol("amqp:link:transfer-limit-exceeded")
    LINK_MESSAGE_SIZE_EXCEEDED: Final = Symbol("amqp:link:message-size-exceeded")
    LINK_STOLEN: Final = Symbol("amqp:link:stolen")
    TRANSACTION_UNKNOWN_ID: Final = Symbol("amqp:transaction:unknown-id")
    TRANSACTION_ROLLBACK: Final = Symbol("amqp:transaction:rollback")
    TRANSACTION_TIMEOUT: Final = Symbol("amqp:transaction:timeout")

    # Of Service Bus and Event Hubs.
    ARGUMENT_ERROR: Final = Symbol("com.microsoft:argument-error")
    ARGUMENT_OUT_OF_RANGE: Final = Symbol("com.microsoft:argument-out-of-range")
    AUTH_FAILED: Final = Symbol("com.microsoft:auth-failed")
    DEAD_LETTER: Final = Symbol("com.microsoft:dead-letter")
    ENTITY_ALREADY_EXISTS: Final = Symbol("com.microsoft:entity-already-exists")
    ENTITY_DISABLED: Final = Symbol("com.microsoft:entity-disabled")
    ENTITY_UPDATED: Final = Symbol("com.microsoft:entity-updated")
    MESSAGE_LOCK_LOST: Final = Symbol("com.microsoft:message-lock-lost")
    MESSAGE_NOT_FOUND: Final = Symbol("com.microsoft:message-not-found")
    NO_MATCHING_SUBSCRIPTION: Final = Symbol("com.microsoft:no-matching-subscription")
    OPERATION_CANCELLED: Final = Symbol("com.microsoft:operation-cancelled")
    OUT_OF_ORDER_SEQUENCE: Final = Symbol("com.microsoft:out-of-order-sequence")
    SERVICE_PRECONDITION_FAILED: Final = Symbol("com.microsoft:precondition-failed")
    PRODUCER_EPOCH_STOLEN: Final = Symbol("com.microsoft:producer-epoch-stolen")
    PUBLISHER_REVOKED: Final = Symbol("com.microsoft:publisher-revoked")
    SERVER_BUSY: Final = Symbol("com.microsoft:server-busy")
    SESSION_CANNOT_BE_LOCKED: Final = Symbol("com.microsoft:session-cannot-be-locked")
    SESSION_LOCK_LOST: Final = Symbol("com.microsoft:session-lock-lost")
    SESSION_NOT_FOUND: Final = Symbol("com.microsoft:session-not-found")
    TIMEOUT: Final = Symbol("com.microsoft:timeout")


class AmqpError:
    """The standard's error type as a value: what a detach, end, close or rejected outcome carries."""

    __slots__ = ("condition", "description", "info")

    def __init__(
        self, condition: str, description: str | None = None, info: dict[Any, Any] | None = None
    ) -> None:
        self.condition = condition
        self.description = description
        self.info = info

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AmqpError):
            return NotImplemented
        return (
            self.condition == other.condition
            and self.description == other.description
            and self.info == other.info
        )

    def __hash__(self) -> int:
        return hash((self.condition, self.description))

    def __repr__(self) -> str:
        return f"AmqpError({self.condition!r}, {self.description!r}, {self.info!r})"


class Scope:
    """How much a violation of the protocol ends."""

    CONNECTION: Final = "connection"
    SESSION: Final = "session"
    LINK: Final = "link"


class ProtocolViolation(Exception):
    """The peer broke the protocol. `scope` says what ends because of it: connection, session or link."""

    def __init__(self, scope: str, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.scope = scope
        self.condition = condition
        self.description = description

    def error(self) -> AmqpError:
        """What to tell the peer."""
        return AmqpError(self.condition, self.description)
