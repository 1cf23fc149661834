"""The table from broker errors to conditions, and the tail of every text."""

import re

import pytest

from busway.amqp.decode import DecodeError
from busway.gateway.amqp.error_conditions import CONDITIONS, amqp_error, condition_of, status_of, undecodable
from busway.gateway.tracking import Tracking
from busway.model import errors
from busway.model.errors import BrokerError, EntityNotFound, QuotaExceeded
from tests.harness.manual_clock import ManualClock, SeededEntropy


def every_error() -> list[type[BrokerError]]:
    found = [BrokerError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return [kind for kind in found if kind.__module__ == errors.__name__]


@pytest.fixture
def tracking() -> Tracking:
    return Tracking("ns.local", ManualClock(), SeededEntropy())


def test_every_broker_error_has_a_condition_and_a_status() -> None:
    """ERR-1, ERR-2, ERR-3, ERR-4, ERR-40: nothing reaches a client without its name."""
    assert len(every_error()) > 20
    assert set(every_error()) <= set(CONDITIONS)


@pytest.mark.parametrize(
    ("name", "condition", "status"),
    [
        ("EntityNotFound", "amqp:not-found", 404),
        ("EntityAlreadyExists", "com.microsoft:entity-already-exists", 409),
        ("EntityDisabled", "com.microsoft:entity-disabled", 400),
        ("Unauthorized", "amqp:unauthorized-access", 401),
        ("AuthenticationFailed", "com.microsoft:auth-failed", 401),
        ("InvalidOperation", "amqp:not-allowed", 400),
        ("BadArgument", "com.microsoft:argument-error", 400),
        ("ArgumentOutOfRange", "com.microsoft:argument-out-of-range", 400),
        ("QuotaExceeded", "amqp:resource-limit-exceeded", 403),
        ("TooManySqlFilters", "amqp:resource-limit-exceeded", 403),
        ("TooManyCorrelationFilters", "amqp:resource-limit-exceeded", 403),
        ("TooManySubscriptions", "amqp:resource-limit-exceeded", 403),
        ("ForwardTargetNotFound", "com.microsoft:argument-error", 400),
        ("NoMatchingSubscription", "com.microsoft:no-matching-subscription", 500),
        ("MessageTooLarge", "amqp:link:message-size-exceeded", 403),
        ("MessageLockLost", "com.microsoft:message-lock-lost", 410),
        ("SessionLockLost", "com.microsoft:session-lock-lost", 410),
        ("SessionCannotBeLocked", "com.microsoft:session-cannot-be-locked", 410),
        ("MessageNotFound", "com.microsoft:message-not-found", 404),
        ("OperationTimedOut", "com.microsoft:timeout", 408),
        ("ServerBusy", "com.microsoft:server-busy", 503),
        ("InternalError", "amqp:internal-error", 500),
        ("OperationCancelled", "com.microsoft:operation-cancelled", 503),
        ("EntityUpdated", "com.microsoft:entity-updated", 503),
        ("NotImplementedByServer", "amqp:not-implemented", 501),
        ("UpdateConflict", "com.microsoft:precondition-failed", 412),
    ],
)
def test_conditions_and_statuses_are_those_that_clients_map(name: str, condition: str, status: int) -> None:
    """ERR-1, ERR-2, ERR-3, ERR-4, ERR-6, ERR-7, ERR-8, ERR-9, ERR-10, ERR-11, ERR-12, ERR-13, ERR-14, ERR-16,
    ERR-17, ERR-18, ERR-19, ERR-20, ERR-25, ERR-26, E-72, F-2: conditions and statuses are those that clients
    map."""
    error = getattr(errors, name)()
    assert (condition_of(error), status_of(error)) == (condition, status)


def test_a_kind_of_a_known_error_is_known_too() -> None:
    """ERR-9: subclasses made elsewhere take the entry of their parent."""

    class DiskFull(QuotaExceeded):
        """The disk is full."""

    assert condition_of(DiskFull()) == "amqp:resource-limit-exceeded"


def test_descriptions_end_in_tracking(tracking: Tracking) -> None:
    """S-2, S-10: the sentence two SDKs parse, then TrackingId, SystemTracker, Timestamp."""
    error = amqp_error(EntityNotFound.at("sb://ns.local/orders"), tracking, "orders")
    assert error.condition == "amqp:not-found"
    assert re.fullmatch(
        r"The messaging entity 'sb://ns\.local/orders' could not be found\. "
        r"TrackingId:[0-9a-f-]{36}_G0, SystemTracker:ns\.local:orders, Timestamp:2023-11-14T22:13:20",
        error.description or "",
    )


def test_two_failures_have_two_tracking_ids(tracking: Tracking) -> None:
    """S-2: two failures have two tracking ids."""
    assert tracking.tail() != tracking.tail()


def test_a_path_cannot_smuggle_lines_into_texts(tracking: Tracking) -> None:
    """S-2: control characters and endless names stay out of errors and logs."""
    tail = tracking.tail("a\r\nb\x00" + "c" * 5_000)
    assert "\n" not in tail
    assert "\x00" not in tail
    assert len(tail) < 500


def test_unreadable_messages_have_a_condition(tracking: Tracking) -> None:
    """S-2: unreadable messages have a condition."""
    error = undecodable(DecodeError("the section is cut off"), tracking)
    assert error.condition == "amqp:decode-error"
    assert "the section is cut off" in (error.description or "")
