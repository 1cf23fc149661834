"""What each failure of the broker is called on the wire (ERR-1…ERR-43).

One table for links, outcomes and management answers: condition and status code. A test proves that it covers every
`BrokerError`.
"""

from typing import Final

from busway.amqp.decode import DecodeError
from busway.amqp.errors import AmqpError, Condition
from busway.gateway.tracking import Tracking
from busway.model.errors import (
    ArgumentOutOfRange,
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    EntityUpdated,
    EventsLost,
    ForwardTargetNotFound,
    InternalError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    NoMatchingSubscription,
    NotImplementedByServer,
    OperationCancelled,
    OperationTimedOut,
    OutOfOrderSequence,
    ProducerStolen,
    PublisherRevoked,
    QuotaExceeded,
    ReceiverStolen,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
    SessionNotFound,
    StoreOutcomeUnknown,
    TooManyCorrelationFilters,
    TooManyReaders,
    TooManySqlFilters,
    TooManySubscriptions,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
    Unauthorized,
    UpdateConflict,
)

#: Failure → (condition, status code of a management answer).
CONDITIONS: Final[dict[type[BrokerError], tuple[str, int]]] = {
    BrokerError: (Condition.INTERNAL_ERROR, 500),
    EntityNotFound: (Condition.NOT_FOUND, 404),  # ERR-1
    EntityAlreadyExists: (Condition.ENTITY_ALREADY_EXISTS, 409),  # ERR-2
    EntityDisabled: (Condition.ENTITY_DISABLED, 400),  # ERR-3
    Unauthorized: (Condition.UNAUTHORIZED_ACCESS, 401),  # ERR-4
    AuthenticationFailed: (Condition.AUTH_FAILED, 401),  # ERR-4, A-6
    InvalidOperation: (Condition.NOT_ALLOWED, 400),  # ERR-6
    BadArgument: (Condition.ARGUMENT_ERROR, 400),  # ERR-7
    ForwardTargetNotFound: (Condition.ARGUMENT_ERROR, 400),  # F-2
    ArgumentOutOfRange: (Condition.ARGUMENT_OUT_OF_RANGE, 400),  # ERR-8
    QuotaExceeded: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),  # ERR-9
    TooManySqlFilters: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),  # E-72
    TooManyCorrelationFilters: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    TooManySubscriptions: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),
    MessageTooLarge: (Condition.LINK_MESSAGE_SIZE_EXCEEDED, 403),  # ERR-10
    MessageLockLost: (Condition.MESSAGE_LOCK_LOST, 410),  # ERR-11
    SessionLockLost: (Condition.SESSION_LOCK_LOST, 410),  # ERR-12
    SessionCannotBeLocked: (Condition.SESSION_CANNOT_BE_LOCKED, 410),  # ERR-13
    MessageNotFound: (Condition.MESSAGE_NOT_FOUND, 404),  # ERR-14
    SessionNotFound: (Condition.SESSION_NOT_FOUND, 404),  # ERR-15
    NoMatchingSubscription: (Condition.NO_MATCHING_SUBSCRIPTION, 500),  # ERR-20
    OperationTimedOut: (Condition.TIMEOUT, 408),  # ERR-16
    ServerBusy: (Condition.SERVER_BUSY, 503),  # ERR-17
    InternalError: (Condition.INTERNAL_ERROR, 500),  # ERR-18
    OperationCancelled: (Condition.OPERATION_CANCELLED, 503),  # ERR-25
    EntityUpdated: (Condition.ENTITY_UPDATED, 503),  # ERR-27
    NotImplementedByServer: (Condition.NOT_IMPLEMENTED, 501),  # ERR-19
    UpdateConflict: (Condition.SERVICE_PRECONDITION_FAILED, 412),  # ERR-26
    TransactionUnknown: (Condition.TRANSACTION_UNKNOWN_ID, 400),  # TX-5
    TransactionTimedOut: (Condition.TRANSACTION_TIMEOUT, 408),  # TX-6
    TransactionRolledBack: (Condition.TRANSACTION_ROLLBACK, 400),  # TX-10
    ReceiverStolen: (Condition.LINK_STOLEN, 409),  # H-24, H-25
    TooManyReaders: (Condition.RESOURCE_LIMIT_EXCEEDED, 403),  # H-23
    EventsLost: (Condition.INTERNAL_ERROR, 500),
    PublisherRevoked: (Condition.PUBLISHER_REVOKED, 401),  # H-13
    OutOfOrderSequence: (Condition.OUT_OF_ORDER_SEQUENCE, 400),  # H-18
    ProducerStolen: (Condition.PRODUCER_EPOCH_STOLEN, 409),
    # Never an outcome of a message: the link goes, and the client asks again (S-1).
    StoreOutcomeUnknown: (Condition.LINK_DETACH_FORCED, 500),
}


def condition_of(error: BrokerError) -> str:
    return _entry(error)[0]


def status_of(error: BrokerError) -> int:
    """The status code of a management answer."""
    return _entry(error)[1]


def amqp_error(error: BrokerError, tracking: Tracking, path: str = "") -> AmqpError:
    """The error as detach and rejected carry it, with the tail that S-2 asks for."""
    return AmqpError(condition_of(error), tracking.describe(error.sentence, path))


def undecodable(problem: DecodeError, tracking: Tracking, path: str = "") -> AmqpError:
    """For a message whose bytes are no message."""
    return AmqpError(
        Condition.DECODE_ERROR, tracking.describe(f"The message cannot be read: {problem}.", path)
    )


def _entry(error: BrokerError) -> tuple[str, int]:
    for kind in type(error).__mro__:
        entry = CONDITIONS.get(kind)
        if entry is not None:
            return entry
    raise AssertionError(f"{type(error).__name__} is no BrokerError")
