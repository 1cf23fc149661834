"""Who is there: the exchange before the connection."""

from __future__ import annotations

import pytest

from busway.amqp.connection import Connection, Role
from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import Condition
from busway.amqp.events import ConnectionClosed, ConnectionOpened, SaslFinished, SaslInitArrived
from busway.amqp.performatives import (
    Begin,
    Open,
    Performative,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from busway.amqp.sasl import plain_response, read_plain
from tests.harness.engine_pair import EnginePair
from tests.harness.frame_factory import FrameFactory, make_frame, performatives, sasl


def fresh() -> Connection:
    return Connection(Role.SERVER, EngineSettings(), 0.0)


def test_the_server_offers_the_mechanisms_of_the_service_in_its_order() -> None:
    """A-7: MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL, as an array of symbols."""
    server = fresh()
    server.receive(SASL_HEADER, 0.0)
    written = server.bytes_to_send()
    assert written.startswith(SASL_HEADER)
    assert performatives(written) == [SaslMechanisms(["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"])]
    assert b"\xe0" in written  # array8


def test_a_welcome_comes_with_the_outcome() -> None:
    """A-7: the outcome carries "Welcome!" as the service's does."""
    server = fresh()
    [init] = server.receive(SASL_HEADER + sasl(SaslInit("ANONYMOUS", b"\x00key", "host")), 0.0)
    assert isinstance(init, SaslInitArrived)
    assert (init.mechanism, init.response, init.hostname) == ("ANONYMOUS", b"\x00key", "host")
    server.bytes_to_send()
    assert server.sasl_outcome(True) == []
    assert performatives(server.bytes_to_send()) == [SaslOutcome(0, b"Welcome!")]


def test_a_secret_response_is_never_shown() -> None:
    assert "hunter2" not in repr(SaslInitArrived("PLAIN", plain_response("root", "hunter2"), None))


def test_a_refused_login_is_told_and_ends_the_connection() -> None:
    server = fresh()
    server.receive(SASL_HEADER + sasl(SaslInit("PLAIN", b"\x00a\x00b")), 0.0)
    server.bytes_to_send()
    [closed] = server.sasl_outcome(False)
    assert isinstance(closed, ConnectionClosed)
    assert performatives(server.bytes_to_send()) == [SaslOutcome(1)]
    assert server.over


def test_a_mechanism_that_was_not_offered_is_refused_by_the_engine() -> None:
    server = fresh()
    events = server.receive(SASL_HEADER + sasl(SaslInit("GSSAPI")), 0.0)
    assert [type(event) for event in events] == [ConnectionClosed]
    assert SaslOutcome(1) in performatives(server.bytes_to_send())


def test_what_a_client_pipelines_behind_its_init_waits_for_the_outcome() -> None:
    server = fresh()
    pipelined = AMQP_HEADER + make_frame(Open("client")) + make_frame(Begin(None, 0, 1, 1))
    events = server.receive(SASL_HEADER + sasl(SaslInit("ANONYMOUS")) + pipelined, 0.0)
    assert [type(event) for event in events] == [SaslInitArrived]
    assert server.receive(make_frame(Begin(None, 0, 1, 1), channel=1), 0.0) == []
    kinds = [type(event).__name__ for event in server.sasl_outcome(True)]
    assert kinds == ["ConnectionOpened", "SessionBegun", "SessionBegun"]


def test_a_refused_client_has_pipelined_in_vain() -> None:
    server = fresh()
    server.receive(SASL_HEADER + sasl(SaslInit("PLAIN")) + AMQP_HEADER + make_frame(Open("client")), 0.0)
    assert [type(event) for event in server.sasl_outcome(False)] == [ConnectionClosed]
    assert server.peer is None


def test_pipelining_before_the_outcome_is_bounded() -> None:
    server = fresh()
    server.receive(SASL_HEADER + sasl(SaslInit("ANONYMOUS")), 0.0)
    for _ in range(64):
        assert server.receive(b"\x00" * 1_024, 0.0) == []
    [closed] = server.receive(b"\x00", 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == Condition.RESOURCE_LIMIT_EXCEEDED


def test_a_connection_without_a_sasl_layer_is_one_of_nobody() -> None:
    """A-7: JavaScript's client with a SharedAccessSignature in its connection string begins with AMQP itself."""
    server = fresh()
    events = server.receive(AMQP_HEADER + make_frame(Open("client")) + make_frame(Begin(None, 0, 1, 1)), 0.0)
    assert [type(event).__name__ for event in events] == ["ConnectionOpened", "SessionBegun"]
    assert server.bytes_to_send() == AMQP_HEADER
    server.open()
    assert [type(frame) for frame in performatives(server.bytes_to_send())] == [Open, Begin]


def test_who_went_without_sasl_cannot_come_back_to_it() -> None:
    """Attack: a second header, or SASL frames behind the first, end the connection."""
    for intruder in (
        SASL_HEADER,
        AMQP_HEADER,
        sasl(SaslInit("ANONYMOUS")),
        sasl(SaslInit("PLAIN", b"\0a\0b")),
    ):
        server = fresh()
        events = server.receive(AMQP_HEADER + intruder + make_frame(Open("client")), 0.0)
        assert [type(event) for event in events] == [ConnectionClosed], intruder
        assert server.over


def test_where_nobody_is_welcome_sasl_cannot_be_left_out() -> None:
    """Attack: a server that offers no ANONYMOUS says which header it wants, and is gone."""
    server = Connection(Role.SERVER, EngineSettings(sasl_mechanisms=("PLAIN",)), 0.0)
    [closed] = server.receive(AMQP_HEADER + make_frame(Open("client")), 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert server.bytes_to_send() == SASL_HEADER


@pytest.mark.parametrize(
    "header", [b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x01\x00\x01"]
)
def test_other_first_headers_are_told_the_right_one(header: bytes) -> None:
    """2.2: TLS inside AMQP, and other versions."""
    server = fresh()
    [closed] = server.receive(header, 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert server.bytes_to_send() == SASL_HEADER


@pytest.mark.parametrize(
    "intruder",
    [
        make_frame(Open("client")),
        make_frame(Begin(None, 0, 1, 1)),
        make_frame(SaslInit("ANONYMOUS")),  # right content, wrong frame type
        sasl(Open("client")),  # AMQP dressed as SASL
        sasl(Begin(None, 0, 1, 1)),
        sasl(SaslOutcome(0)),
        sasl(SaslMechanisms(["ANONYMOUS"])),
        sasl(SaslChallenge(b"")),
        sasl(SaslResponse(b"")),
        sasl(b""),
        sasl(b"\x00\x53\x41\xc0"),
        AMQP_HEADER,
    ],
)
def test_nothing_but_an_init_passes_before_the_login(intruder: bytes) -> None:
    """No AMQP frame in SASL's clothes, and no skipped login (the kind of CVE-2026-114230)."""
    server = fresh()
    events = server.receive(SASL_HEADER + intruder + AMQP_HEADER + make_frame(Open("client")), 0.0)
    assert [type(event) for event in events] == [ConnectionClosed]
    assert server.peer is None


@pytest.mark.parametrize("frame", [SaslInit("ANONYMOUS"), SaslOutcome(0), SaslMechanisms(["PLAIN"])])
def test_sasl_frames_after_the_login_close_the_connection(frame: Performative) -> None:
    for data in (sasl(frame), make_frame(frame)):
        factory = FrameFactory().opened()
        assert isinstance(factory.feed(data)[-1], ConnectionClosed)


def test_an_outcome_that_nobody_asked_for_changes_nothing() -> None:
    server = fresh()
    assert server.sasl_outcome(True) == []
    server.receive(SASL_HEADER, 0.0)
    server.bytes_to_send()
    assert server.sasl_outcome(True) == []
    assert server.bytes_to_send() == b""


def test_plain_says_user_and_password() -> None:
    assert plain_response("root", "kéy") == b"\x00root\x00k\xc3\xa9y"
    assert read_plain(b"\x00root\x00k\xc3\xa9y") == ("root", "kéy")
    assert read_plain(b"someone\x00root\x00key") == ("root", "key")


@pytest.mark.parametrize("response", [b"", b"\x00a", b"\x00a\x00b\x00c", b"\x00\xff\x00x"])
def test_a_malformed_plain_response_is_none(response: bytes) -> None:
    assert read_plain(response) is None


def test_our_client_logs_in_with_plain() -> None:
    settings = EngineSettings(
        sasl_mechanism="PLAIN", sasl_response=plain_response("name", "key"), hostname="bus"
    )
    pair = EnginePair(client=settings).opened()
    init = pair.last_server(SaslInitArrived)
    assert (init.mechanism, init.response, init.hostname) == ("PLAIN", b"\x00name\x00key", "bus")
    assert pair.last_client(SaslFinished).ok
    assert pair.client_saw(ConnectionOpened)


def test_our_client_hears_of_a_refusal() -> None:
    client = Connection(Role.CLIENT, EngineSettings(), 0.0)
    events = client.receive(SASL_HEADER + sasl(SaslMechanisms(["ANONYMOUS"])) + sasl(SaslOutcome(1)), 0.0)
    assert [type(event) for event in events] == [SaslFinished, ConnectionClosed]


def test_our_client_leaves_a_server_without_its_mechanism() -> None:
    client = Connection(Role.CLIENT, EngineSettings(), 0.0)
    [closed] = client.receive(SASL_HEADER + sasl(SaslMechanisms(["GSSAPI"])), 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert closed.error is not None
    assert "ANONYMOUS" in str(closed.error.description)
