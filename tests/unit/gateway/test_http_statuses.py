"""The table of HTTP statuses, and the error body."""

import pytest

from busway.gateway.http.statuses import STATUSES, HttpRefusal, error_response, status_of
from busway.model import errors
from busway.model.errors import AuthenticationFailed, BrokerError


def every_broker_error() -> list[type[BrokerError]]:
    return [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BrokerError)
    ]


@pytest.mark.parametrize("kind", every_broker_error())
def test_every_broker_error_has_a_row(kind: type[BrokerError]) -> None:
    """ERR-41 ERR-42: no error falls through to its base class's row."""
    assert kind in STATUSES
    status = STATUSES[kind]
    assert 400 <= status.http <= 599
    assert status.sub_code is None or 40000 <= status.sub_code <= 50400


@pytest.mark.parametrize(
    ("error", "status", "sub_code"),
    [
        (errors.EntityNotFound(), 404, 40400),
        (errors.EntityAlreadyExists(), 409, 40900),
        (errors.InvalidOperation(), 403, 40301),
        (errors.QuotaExceeded(), 403, 40300),
        (errors.TooManySqlFilters(), 403, 40501),
        (errors.TooManyCorrelationFilters(), 403, 40502),
        (errors.TooManySubscriptions(), 403, 40503),
        (errors.ForwardTargetNotFound(), 400, 40400),
        (errors.NoMatchingSubscription(), 500, 50000),
        (errors.BadArgument(), 400, 40000),
        (errors.ServerBusy(), 503, 50004),
        (errors.InternalError(), 500, 50000),
        (errors.NotImplementedByServer(), 501, None),
        (errors.MessageLockLost(), 410, 41000),
        (errors.UpdateConflict(), 412, 40504),
        (AuthenticationFailed(sub_code=40103), 401, None),
        (AuthenticationFailed(sub_code=40106), 401, 40106),
    ],
)
def test_the_numbers_clients_rely_on(error: BrokerError, status: int, sub_code: int | None) -> None:
    """ERR-1 ERR-2 ERR-6 ERR-7 ERR-9 ERR-11 ERR-17 ERR-18 ERR-19 ERR-20 ERR-26 ERR-42 E-72 F-2: the numbers
    clients rely on."""
    assert tuple(status_of(error)) == (status, sub_code)


def test_a_new_kind_of_error_takes_the_row_above_it() -> None:
    """ERR-42: a subclass made elsewhere is its parent over HTTP."""

    class Stranger(errors.QuotaExceeded):
        """One of a kind."""

    assert status_of(Stranger()).http == 403


def test_the_body_is_code_and_detail_escaped() -> None:
    """ERR-41: markup and control characters in a sentence stay text."""
    response = error_response(
        errors.BadArgument("<b> & \x00\ud800"), "TrackingId:1, SystemTracker:x, Timestamp:t"
    )
    assert (
        response.body
        == (
            "<Error><Code>400</Code><Detail>SubCode=40000. &lt;b&gt; &amp; \ufffd\ufffd"
            " TrackingId:1, SystemTracker:x, Timestamp:t</Detail></Error>"
        ).encode()
    )
    assert response.headers["content-type"] == "application/xml; charset=utf-8"


def test_busy_says_when_to_come_back() -> None:
    """ERR-17: Retry-After ten seconds."""
    assert error_response(errors.ServerBusy(), "").headers["retry-after"] == "10"


def test_an_unknown_outcome_says_when_to_ask_again_and_lost_events_do_not() -> None:
    """ERR-17: whoever asks for something that does nothing twice may ask again; what is lost does not come back."""
    assert error_response(errors.StoreOutcomeUnknown(), "").headers["retry-after"] == "1"
    lost = errors.EventsLost.in_partition("p", 1, 2)
    assert "retry-after" not in error_response(lost, "").headers


def test_a_refusal_of_http_alone_has_no_sub_code() -> None:
    """ERR-41: not every error carries SubCode=."""
    assert b"SubCode" not in error_response(HttpRefusal(404, "Not here."), "").body
