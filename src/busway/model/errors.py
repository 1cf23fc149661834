"""What can go wrong in the broker, one class per fact. The docstring is the default sentence.

Gateways translate with tables (`gateway/amqp/error_conditions`, `gateway/http/statuses`); a test proves that
both cover every class here. Some clients parse the sentences, so their wording is part of the contract.
"""


class BrokerError(Exception):
    """The operation failed."""

    def __init__(self, sentence: str | None = None) -> None:
        super().__init__(sentence or (type(self).__doc__ or "").strip())

    @property
    def sentence(self) -> str:
        return str(self.args[0])


class EntityNotFound(BrokerError):
    """The messaging entity could not be found."""

    @classmethod
    def at(cls, url: str) -> "EntityNotFound":
        return cls(f"The messaging entity '{url}' could not be found.")


class EntityAlreadyExists(BrokerError):
    """An entity with this name already exists."""

    @classmethod
    def at(cls, url: str) -> "EntityAlreadyExists":
        return cls(f"The messaging entity '{url}' already exists.")


class EntityDisabled(BrokerError):
    """Messaging entity is currently disabled."""


class Unauthorized(BrokerError):
    """Unauthorized access."""


class AuthenticationFailed(BrokerError):
    """InvalidSignature: The token has an invalid signature."""

    #: ERR-42; 40103 signature, 40104 audience, 40105 malformed, 40106 expired, 40102 no token.
    sub_code = 40103

    def __init__(self, sentence: str | None = None, sub_code: int = 40103) -> None:
        super().__init__(sentence)
        self.sub_code = sub_code


class InvalidOperation(BrokerError):
    """The operation is not allowed in this state."""


class BadArgument(BrokerError):
    """An argument is not valid."""


class ForwardTargetNotFound(BadArgument):
    """The entity to forward to does not exist."""


class ArgumentOutOfRange(BrokerError):
    """An argument is out of range."""


class QuotaExceeded(BrokerError):
    """A quota has been exceeded."""


class TooManySqlFilters(QuotaExceeded):
    """The topic has as many SQL filters as it may have."""


class TooManyCorrelationFilters(QuotaExceeded):
    """The topic has as many correlation filters as it may have."""


class TooManySubscriptions(QuotaExceeded):
    """The topic has as many subscriptions as it may have."""


class MessageTooLarge(BrokerError):
    """The message is larger than the link allows."""


class MessageLockLost(BrokerError):
    """The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue, or was received by a different receiver instance."""  # noqa: E501 - one sentence that clients show


class SessionLockLost(BrokerError):
    """The session lock has expired on the message session. Accept a new message session."""


class SessionCannotBeLocked(BrokerError):
    """The requested session cannot be accepted. It may be locked by another receiver."""


class MessageNotFound(BrokerError):
    """Failed to lock one or more specified messages. Either the message is already locked or does not exist."""


class SessionNotFound(BrokerError):
    """No session was found."""


class NoMatchingSubscription(BrokerError):
    """There is no subscription whose rules select the message."""


class OperationTimedOut(BrokerError):
    """The operation did not complete within the allotted time."""


class OperationCancelled(BrokerError):
    """The operation was cancelled because the server closes the connection. Please try again."""


class EntityUpdated(BrokerError):
    """The entity was changed in a way that ends the links to it. Please attach again."""


class ServerBusy(BrokerError):
    """The server is busy. Please try again later."""

    @classmethod
    def without(cls, what: str) -> "ServerBusy":
        """This is needed, and cannot be reached for the moment."""
        return cls(f"{what} is not available just now. Please try again.")


class InternalError(BrokerError):
    """The server met an error it did not expect. Please try again."""


class NotImplementedByServer(BrokerError):
    """The operation is not supported."""


class UpdateConflict(BrokerError):
    """The precondition of the request does not hold."""


class TransactionUnknown(BrokerError):
    """Transaction hasn't been declared yet, or has already been discharged."""


class TransactionTimedOut(BrokerError):
    """The transaction took longer than it may, and was rolled back."""


class TransactionRolledBack(BrokerError):
    """The transaction was rolled back."""


class StoreOutcomeUnknown(BrokerError):
    """The store failed while it was writing: whether the operation took place is unknown."""


class ReceiverStolen(BrokerError):
    """Another receiver with an epoch has taken the partition over."""


class TooManyReaders(QuotaExceeded):
    """Exceeded the maximum number of allowed receivers per partition in a consumer group."""


class EventsLost(BrokerError):
    """Events of the partition cannot be read: what is stored of them is damaged."""

    @classmethod
    def in_partition(cls, name: str, first_number: int, last_number: int) -> "EventsLost":
        """`name`: of the partition, for the sentence."""
        return cls(
            f"Events {first_number} to {last_number} of {name} cannot be read: what is stored of them is damaged."
            f" Events from number {last_number + 1} on can be read."
        )

    @classmethod
    def from_number(cls, name: str, number: int) -> "EventsLost":
        """The same where nobody can say how far it goes."""
        return cls(
            f"Events from number {number} on of {name} cannot be read: the store does not give them out. A reader"
            " that begins further on may find others."
        )


class PublisherRevoked(BrokerError):
    """The publisher has been revoked."""


class OutOfOrderSequence(BrokerError):
    """The sequence number of a producer's event does not follow the one before it."""


class ProducerStolen(BrokerError):
    """Another producer with the same id and a higher epoch has taken over."""
