"""What a broker error is over HTTP: status, sub-code, and the body that clients take apart (ERR-1…ERR-42).

One table; a test proves that it covers every `BrokerError`. The numbers are chosen for what the clients do
with them: JS turns 403 into "quota exceeded" unless the text holds SubCode=40301, both turn 401, 404 and 409
into classes of their own, and a status outside JS's list ends as "unrecognized HTTP status code".
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from starlette.responses import Response

from busway.model import errors
from busway.model.entity_path import shown
from busway.model.errors import AuthenticationFailed, BrokerError


class Status(NamedTuple):
    """An HTTP status and the service's own number behind it; not every error has one (ERR-41)."""

    http: int
    sub_code: int | None


class HttpRefusal(Exception):
    """An answer that exists over HTTP only and has no sub-code."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}


def method_not_allowed(allowed: str) -> HttpRefusal:
    return HttpRefusal(405, f"The method is not allowed here; possible are {allowed}.", {"Allow": allowed})


def missing_below_topic(namespace_name: str, *names: str | None) -> HttpRefusal:
    """A subscription or rule that does not exist, in the service's own words (ERR-43): topic, subscription, rule."""
    path = shown(f"{namespace_name}:Topic:{'|'.join(name for name in names if name is not None)}")
    return HttpRefusal(404, f"Entity {path} was not found.")


STATUSES: Final[dict[type[BrokerError], Status]] = {
    BrokerError: Status(500, 50000),
    errors.EntityNotFound: Status(404, 40400),
    errors.EntityAlreadyExists: Status(409, 40900),
    errors.EntityDisabled: Status(403, 40301),
    errors.Unauthorized: Status(401, None),
    errors.AuthenticationFailed: Status(401, None),
    errors.InvalidOperation: Status(403, 40301),
    errors.BadArgument: Status(400, 40000),
    errors.ForwardTargetNotFound: Status(400, 40400),
    errors.ArgumentOutOfRange: Status(400, 40000),
    errors.QuotaExceeded: Status(403, 40300),
    errors.TooManySqlFilters: Status(403, 40501),
    errors.TooManyCorrelationFilters: Status(403, 40502),
    errors.TooManySubscriptions: Status(403, 40503),
    errors.MessageTooLarge: Status(403, 40300),
    errors.MessageLockLost: Status(410, 41000),
    errors.SessionLockLost: Status(410, 41000),
    errors.SessionCannotBeLocked: Status(410, 41000),
    errors.MessageNotFound: Status(404, 40401),
    errors.SessionNotFound: Status(404, 40401),
    errors.NoMatchingSubscription: Status(500, 50000),
    errors.OperationTimedOut: Status(408, None),
    errors.OperationCancelled: Status(503, None),
    errors.EntityUpdated: Status(503, None),
    errors.ServerBusy: Status(503, 50004),
    errors.InternalError: Status(500, 50000),
    errors.NotImplementedByServer: Status(501, None),
    errors.UpdateConflict: Status(412, 40504),
    errors.TransactionUnknown: Status(400, 40000),
    errors.TransactionTimedOut: Status(408, None),
    errors.TransactionRolledBack: Status(400, 40000),
    errors.StoreOutcomeUnknown: Status(500, 50000),
    errors.ReceiverStolen: Status(409, 40900),
    errors.TooManyReaders: Status(403, 40300),
    errors.EventsLost: Status(500, 50000),
    errors.PublisherRevoked: Status(401, None),
    errors.OutOfOrderSequence: Status(400, 40000),
    errors.ProducerStolen: Status(409, 40900),
}

#: A bad signature carries no SubCode in the service's own answers (A-6); the other token faults do (ERR-42).
_SIGNATURE_SUB_CODE: Final = 40103
_RETRY_AFTER_S: Final = 10
#: Nobody knows whether it took effect; whoever asks for something that does nothing twice may ask again soon.
_UNKNOWN_RETRY_AFTER_S: Final = 1
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def status_of(error: BrokerError) -> Status:
    """The row of the error's class, or of the nearest class above it."""
    if isinstance(error, AuthenticationFailed):
        return Status(401, None if error.sub_code == _SIGNATURE_SUB_CODE else error.sub_code)
    for kind in type(error).__mro__:
        found = STATUSES.get(kind)
        if found is not None:
            return found
    raise AssertionError(f"{type(error).__name__} is not a BrokerError")


def detail_of(error: BrokerError) -> str:
    """The sentence, behind its SubCode if it has one."""
    sub_code = status_of(error).sub_code
    return error.sentence if sub_code is None else f"SubCode={sub_code}. {error.sentence}"


def error_response(
    error: BrokerError | HttpRefusal,
    tail: str,
    addressed: Callable[[str], str] = str,
    retry_after_s: int | None = None,
) -> Response:
    """The XML body of ERR-41; `tail` is TrackingId, SystemTracker, Timestamp. `addressed` makes the addresses in the
    sentence those that the client knows."""
    if isinstance(error, HttpRefusal):
        return _response(error.status, f"{error.sentence} {tail}", error.headers)
    return _response(
        status_of(error).http, f"{addressed(detail_of(error))} {tail}", headers_of(error, retry_after_s)
    )


def _response(status: int, detail: str, headers: dict[str, str]) -> Response:
    body = f"<Error><Code>{status}</Code><Detail>{escape(xml_text(detail))}</Detail></Error>"
    return Response(body, status, headers, media_type="application/xml; charset=utf-8")


def headers_of(error: BrokerError, retry_after_s: int | None = None) -> dict[str, str]:
    status = status_of(error).http
    if status == 401:
        return {"WWW-Authenticate": "SharedAccessSignature"}
    if status == 503:
        return {"Retry-After": str(retry_after_s or _RETRY_AFTER_S)}
    if isinstance(error, errors.StoreOutcomeUnknown):
        return {"Retry-After": str(_UNKNOWN_RETRY_AFTER_S)}
    return {}


def xml_text(text: str) -> str:
    """Without what XML 1.0 cannot carry, not even escaped."""
    return _NOT_XML.sub("�", text)
