"""Cutting the byte stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.connection import Connection, Role
from busway.amqp.decode import AMQP_HEADER, SASL_HEADER, FrameBuffer, frame, head_fault
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import Condition
from busway.amqp.events import ConnectionClosed, ConnectionOpened, SessionBegun
from busway.amqp.performatives import Begin, Close, Open, SaslInit
from tests.harness.frame_factory import FrameFactory, make_frame, sasl


def test_a_frame_has_its_size_offset_type_and_channel_in_front() -> None:
    assert frame(3, b"body") == b"\x00\x00\x00\x0c\x02\x00\x00\x03body"


@pytest.mark.parametrize(
    ("size", "doff", "word"),
    [(65_537, 2, "exceeds"), (7, 2, "cannot be"), (0, 2, "cannot be"), (8, 1, "offset"), (8, 3, "offset")],
)
def test_a_malformed_head_is_named(size: int, doff: int, word: str) -> None:
    fault = head_fault(size, doff, 65_536)
    assert fault is not None
    assert word in fault


def test_a_sound_head_has_no_fault() -> None:
    assert head_fault(65_536, 2, 65_536) is None
    assert head_fault(12, 3, 65_536) is None


def test_an_unfinished_frame_is_only_appended_to_until_it_is_complete() -> None:
    buffer = FrameBuffer()
    buffer.keep(b"xxabcd", 2, 10)
    assert buffer.join(b"ef") == b""
    assert len(buffer) == 6
    assert buffer.join(b"ghijkl") == b"abcdefghijkl"
    assert len(buffer) == 0
    assert buffer.join(b"next") == b"next"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_slices_of_any_size_give_the_same_events(cuts: list[int]) -> None:
    whole = (
        SASL_HEADER
        + sasl(SaslInit("ANONYMOUS"))
        + AMQP_HEADER
        + make_frame(Open("client"))
        + make_frame(Begin(None, 0, 10, 10), channel=4)
        + make_frame(Close())
    )
    factory = FrameFactory()
    at = 0
    for cut in cuts:
        factory.feed(whole[at : at + cut])
        at += cut
    factory.feed(whole[at:])
    kinds = [type(event) for event in factory.events]
    assert kinds.count(ConnectionOpened) == kinds.count(SessionBegun) == kinds.count(ConnectionClosed) == 1


def test_an_extended_header_is_skipped() -> None:
    factory = FrameFactory().opened()
    assert isinstance(factory.feed(make_frame(Begin(None, 0, 10, 10), doff=5))[0], SessionBegun)


@pytest.mark.parametrize(
    "lie",
    [
        make_frame(Begin(None, 0, 10, 10), size=4),
        make_frame(Begin(None, 0, 10, 10), doff=0),
        make_frame(Begin(None, 0, 10, 10), doff=1),
        make_frame(Begin(None, 0, 10, 10), doff=255, size=200),
        make_frame(Begin(None, 0, 10, 10), frame_type=7),
    ],
)
def test_a_lying_frame_head_closes_the_connection(lie: bytes) -> None:
    factory = FrameFactory().opened()
    factory.written()
    events = factory.feed(lie + b"\x00" * 300)
    assert isinstance(events[-1], ConnectionClosed)
    close = factory.written()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == Condition.CONNECTION_FRAMING_ERROR


def test_a_declared_size_is_refused_before_its_bytes_come() -> None:
    """L-20: frames beyond the announced 65,536 bytes are refused at their head, nothing is waited for or reserved."""
    factory = FrameFactory().opened()
    events = factory.feed(b"\x00\x01\x00\x01\x02\x00\x00\x00")
    assert isinstance(events[-1], ConnectionClosed)
    assert factory.server.over


def test_sasl_frames_are_capped_at_512_bytes() -> None:
    factory = FrameFactory()
    events = factory.feed(SASL_HEADER + sasl(SaslInit("PLAIN", b"\x00" * 600)))
    assert isinstance(events[-1], ConnectionClosed)


def test_an_open_is_capped_at_8192_bytes() -> None:
    factory = FrameFactory().logged_in()
    events = factory.feed(make_frame(Open("c" * 8_200)))
    assert isinstance(events[-1], ConnectionClosed)
    fine = FrameFactory().logged_in()
    assert isinstance(fine.feed(make_frame(Open("c" * 8_000)))[0], ConnectionOpened)


def test_a_trickling_frame_is_put_together_once() -> None:
    """Attack: a frame of the largest size comes byte by byte. Nothing is looked at, and so nothing is copied, before
    the last of them is there."""
    big = make_frame(Begin(None, 0, 10, 10), channel=1, payload=b"\x00" * 60_000)
    buffer = FrameBuffer()
    buffer.keep(big[:8], 0, len(big))
    assert all(buffer.join(big[at : at + 1]) == b"" for at in range(8, len(big) - 1))
    assert buffer.join(big[-1:]) == big

    factory = FrameFactory().begun()
    for at in range(len(big) - 1):
        factory.server.receive(big[at : at + 1], 0.0)
    assert not factory.server.over
    assert isinstance(factory.feed(big[-1:])[-1], ConnectionClosed)  # only a transfer has a payload


@pytest.mark.parametrize(
    "header", [b"AMQP\x01\x01\x00\x00", b"AMQP\x02\x01\x00\x00", b"AMQP\x03\x01\x00\x01", b"GET / HT"]
)
def test_a_wrong_header_is_answered_with_ours_and_the_end(header: bytes) -> None:
    server = Connection(Role.SERVER, EngineSettings(), 0.0)
    events = server.receive(header, 0.0)
    assert isinstance(events[-1], ConnectionClosed)
    assert server.bytes_to_send() == SASL_HEADER
    assert server.over
    assert server.receive(SASL_HEADER, 1.0) == []


def test_a_wrong_header_after_sasl_is_answered_with_the_amqp_header() -> None:
    factory = FrameFactory()
    factory.feed(SASL_HEADER + sasl(SaslInit("ANONYMOUS")))
    factory.server.bytes_to_send()
    assert isinstance(factory.feed(SASL_HEADER)[-1], ConnectionClosed)
    assert factory.server.bytes_to_send() == AMQP_HEADER
