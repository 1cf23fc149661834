"""What can go wrong for a client, in sentences for people."""

import os
import re
from typing import Final

from busway.amqp.errors import AmqpError, Condition

_SEVERAL: Final = re.compile(r"Multiple exceptions: \[Errno (\d+)\]")


class ClientError(Exception):
    """The operation failed."""

    def __init__(self, sentence: str, condition: str | None = None) -> None:
        super().__init__(sentence)
        #: The AMQP error condition, where one came over the wire.
        self.condition = condition


class Unreachable(ClientError):
    """No connection to the server, or it broke."""

    @classmethod
    def at(cls, host: str, port: int, cause: BaseException) -> "Unreachable":
        return cls(f"The server at {host}:{port} cannot be reached: {_reason(cause)}.")

    @classmethod
    def closed_by(cls, host: str, port: int) -> "Unreachable":
        return cls(f"The server at {host}:{port} closed the connection.")


def _reason(cause: BaseException) -> str:
    """What the system says. asyncio's own words say less, and where a name has several addresses much more."""
    number = getattr(cause, "errno", None) if isinstance(cause, ConnectionError) else None
    several = _SEVERAL.match(str(cause))
    if several is not None:
        number = int(several[1])
    if number is not None:
        return os.strerror(number)
    if isinstance(cause, TimeoutError) and not str(cause):
        return "timed out"
    return getattr(cause, "strerror", None) or str(cause).rstrip(".") or type(cause).__name__


class NotAuthorised(ClientError):
    """The key is wrong or does not allow the operation."""


class EntityMissing(ClientError):
    """There is no such entity."""


class EntityExists(ClientError):
    """The name is taken."""


class Refused(ClientError):
    """The server refused for another reason; the sentence tells it."""


class LockLost(ClientError):
    """The message or session lock is gone."""


class NothingTookPlace(ClientError):
    """Nothing of the transaction took place."""


class TimedOut(ClientError):
    """Nothing came in time."""


_BY_CONDITION: Final[dict[str, type[ClientError]]] = {
    Condition.NOT_FOUND: EntityMissing,
    Condition.UNAUTHORIZED_ACCESS: NotAuthorised,
    Condition.AUTH_FAILED: NotAuthorised,
    Condition.ENTITY_ALREADY_EXISTS: EntityExists,
    Condition.MESSAGE_LOCK_LOST: LockLost,
    Condition.SESSION_LOCK_LOST: LockLost,
    Condition.TRANSACTION_ROLLBACK: NothingTookPlace,
    Condition.TRANSACTION_TIMEOUT: NothingTookPlace,
    Condition.TRANSACTION_UNKNOWN_ID: NothingTookPlace,
    Condition.TIMEOUT: TimedOut,
    Condition.CONNECTION_FORCED: Unreachable,
}


def error_of(error: AmqpError) -> ClientError:
    """What a condition means to a client; the sentence without its tracking tail."""
    condition = str(error.condition)
    sentence = (error.description or "").partition(" TrackingId:")[
        0
    ].strip() or f"The server said {condition}."
    return _BY_CONDITION.get(condition, Refused)(sentence, condition)
