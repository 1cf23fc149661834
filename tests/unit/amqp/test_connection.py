"""Open, close, heartbeats and silence."""

from __future__ import annotations

import pytest

from busway.amqp.connection import Connection, Role
from busway.amqp.decode import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    ConnectionOpened,
    LinkDetached,
    SaslFinished,
    SaslInitArrived,
    SessionBegun,
    SessionEnded,
)
from busway.amqp.performatives import Attach, Begin, Close, Detach, End, Open, SaslInit, Source, Transfer
from tests.harness.engine_pair import EnginePair
from tests.harness.frame_factory import FrameFactory, make_frame, performatives, sasl


def names(events: list[ConnectionEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def error_of(events: list[ConnectionEvent]) -> AmqpError:
    closed = events[-1]
    assert isinstance(closed, ConnectionClosed)
    assert closed.error is not None
    return closed.error


def test_the_server_opens_with_the_numbers_of_the_service() -> None:
    """L-20: max-frame-size 65,536; channel-max 4999, idle-time-out 120,000 ms."""
    factory = FrameFactory(EngineSettings(container_id="bus")).opened()
    ours = factory.written()[-1]
    assert isinstance(ours, Open)
    assert (ours.container_id, ours.max_frame_size, ours.channel_max, ours.idle_time_out) == (
        "bus",
        65_536,
        4_999,
        120_000,
    )


def test_begins_pipelined_behind_the_open_are_answered_behind_our_open() -> None:
    """SDKs do not wait for our open; our answers must still come after it, however late the owner is."""
    server = Connection(Role.SERVER, EngineSettings(), 0.0)
    server.receive(SASL_HEADER + sasl(SaslInit("ANONYMOUS")), 0.0)
    server.sasl_outcome(True)
    events = server.receive(
        AMQP_HEADER + make_frame(Open("c")) + make_frame(Begin(None, 0, 1, 1), channel=1), 0.0
    )
    assert names(events) == ["ConnectionOpened", "SessionBegun"]
    assert server.bytes_to_send().endswith(AMQP_HEADER)
    assert not server.has_bytes()
    assert server.bytes_to_send() == b""
    server.open()
    assert server.has_bytes()
    assert [type(frame) for frame in performatives(server.bytes_to_send())] == [Open, Begin]


def test_open_properties_reach_the_peer() -> None:
    pair = EnginePair()
    pair.pump()
    assert pair.last_client(ConnectionOpened).open.container_id == "server"
    assert pair.last_server(ConnectionOpened).open.container_id == "client"
    assert pair.server.peer is not None


def test_a_second_open_closes_the_connection() -> None:
    factory = FrameFactory().opened()
    assert error_of(factory.send(Open("again"))).condition == Condition.NOT_ALLOWED


@pytest.mark.parametrize("early", [Begin(None, 0, 1, 1), Close(), Transfer(0, 0, b"t")])
def test_nothing_comes_before_the_open(early: Begin | Close | Transfer) -> None:
    """The answer still is an open and a close, because a close may not come alone."""
    factory = FrameFactory().logged_in()
    factory.written()
    events = factory.send(early)
    assert isinstance(events[-1], ConnectionClosed)
    assert [type(frame) for frame in factory.written()] == [Open, Close]


@pytest.mark.parametrize("size", [0, 1, 511])
def test_a_max_frame_size_below_512_is_refused(size: int) -> None:
    """0 does not mean "unlimited"."""
    factory = FrameFactory().logged_in()
    assert error_of(factory.send(Open("c", max_frame_size=size))).condition == Condition.INVALID_FIELD


def test_an_idle_time_out_that_cannot_be_kept_is_refused() -> None:
    factory = FrameFactory().logged_in()
    error = error_of(factory.send(Open("c", idle_time_out=999)))
    assert "999 ms" in str(error.description)


def test_an_idle_time_out_of_zero_means_none() -> None:
    factory = FrameFactory().logged_in()
    factory.send(Open("c", idle_time_out=0))
    factory.server.bytes_to_send()
    factory.server.tick(factory.now + 100)
    assert factory.server.bytes_to_send() == b""


def test_heartbeats_leave_at_less_than_half_of_the_peers_patience() -> None:
    factory = FrameFactory().opened(Open("c", idle_time_out=60_000))
    server = factory.server
    server.bytes_to_send()
    now, sent_at = factory.now, factory.now
    for _ in range(7):
        deadline = server.next_deadline()
        assert deadline is not None
        assert deadline - sent_at <= 30
        now = sent_at = deadline
        server.tick(now)
        assert server.bytes_to_send() == EMPTY_FRAME


def test_a_quiet_peer_that_sends_empty_frames_stays() -> None:
    """R-22: empty frames from the client keep the connection open."""
    factory = FrameFactory().begun()
    for step in range(1, 10):
        factory.now = 1_000 + step * 200.0
        assert factory.server.tick(factory.now) == []
        assert factory.feed(EMPTY_FRAME) == []
    assert not factory.server.over


def test_silence_of_240_seconds_ends_everything_with_the_sentence() -> None:
    """R-22, ERR-24: detach on every link, end, close, all amqp:connection:forced."""
    factory = FrameFactory(EngineSettings(container_id="abc")).begun()
    factory.attach()
    factory.events.clear()
    link = next(iter(factory.server.sessions[0].links.values()))
    link.accept(source=link.source, target=link.target)
    factory.written()
    assert factory.server.next_deadline() == factory.now + 240
    assert factory.server.tick(factory.now + 239.9) == []
    events = factory.server.tick(factory.now + 240)
    assert names(events) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    error = error_of(events)
    assert error.condition == Condition.CONNECTION_FORCED
    assert error.description == (
        "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'abc'."
    )
    assert factory.written() == [Detach(0, True, error), End(error), Close(error)]
    assert factory.server.next_deadline() is None


def test_a_trickle_without_a_complete_frame_is_silence() -> None:
    """R-22: one byte a minute does not keep a connection."""
    factory = FrameFactory().opened()
    for step in range(1, 4):
        factory.server.receive(b"\x00", factory.now + step * 60)
    assert isinstance(factory.server.tick(factory.now + 240)[-1], ConnectionClosed)


@pytest.mark.parametrize(
    "sent", [b"", SASL_HEADER, SASL_HEADER + sasl(SaslInit("ANONYMOUS")), b"AMQ", SASL_HEADER + b"\x00\x00"]
)
def test_a_peer_that_never_opens_is_closed_in_time(sent: bytes) -> None:
    server = Connection(Role.SERVER, EngineSettings(handshake_max_s=10), 100.0)
    server.receive(sent, 100.0)
    assert server.tick(109.0) == []
    assert server.next_deadline() == 110.0
    assert isinstance(server.tick(110.0)[-1], ConnectionClosed)
    assert server.over


def test_a_close_is_answered() -> None:
    factory = FrameFactory().begun()
    factory.written()
    events = factory.send(Close(AmqpError("amqp:internal-error", "tired")))
    assert names(events) == ["SessionEnded", "ConnectionClosed"]
    assert error_of(events).description == "tired"
    assert factory.written() == [Close()]
    assert factory.server.over


def test_our_close_waits_for_the_answer_and_drops_what_crosses_it() -> None:
    factory = FrameFactory().begun()
    factory.written()
    factory.server.close()
    assert factory.written() == [Close()]
    assert names(factory.send(Begin(None, 0, 1, 1), 9)) == ["SessionEnded"]
    assert factory.attach() == []
    assert factory.written() == []
    assert names(factory.send(Close())) == ["ConnectionClosed"]


def test_our_close_with_a_reason_detaches_every_link_first() -> None:
    """R-22: what a stopping server does."""
    pair = EnginePair().opened()
    session = pair.begin()
    pair.sender(session=session)
    pair.receiver(session=session)
    stop = AmqpError(Condition.CONNECTION_FORCED, "The server stops.")
    pair.server.close(stop)
    frames = performatives(pair.server.bytes_to_send())
    assert [type(frame) for frame in frames] == [Detach, Detach, End, Close]
    assert all(frame.error == stop for frame in frames if isinstance(frame, (Detach, End, Close)))


def test_a_close_that_is_never_answered_is_given_up() -> None:
    factory = FrameFactory(EngineSettings(close_wait_s=5)).opened()
    factory.server.close()
    assert factory.server.tick(factory.now + 4.9) == []
    assert names(factory.server.tick(factory.now + 5)) == ["ConnectionClosed"]


def test_a_close_before_the_open_exchange_gives_up() -> None:
    server = Connection(Role.SERVER, EngineSettings(), 0.0)
    server.close()
    assert server.over
    assert names(server.tick(0.0)) == ["ConnectionClosed"]
    server.close()
    assert server.tick(1.0) == []


def test_a_lost_transport_tells_every_link_and_session_once() -> None:
    pair = EnginePair().opened()
    pair.sender()
    events = pair.server.transport_lost()
    assert names(events) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    assert pair.server.transport_lost() == []
    assert not pair.server.has_bytes()


def test_commands_on_what_is_over_do_nothing() -> None:
    pair = EnginePair().opened()
    session = pair.begin()
    sender, receiver = pair.sender(session=session)
    theirs, ours = pair.receiver("other", session=session)
    del sender, theirs
    delivery = ours.send(b"t", b"x", settled=False)
    pair.server.transport_lost()
    receiver.grant_credit(10)
    receiver.settle(0, 1, None)
    receiver.detach()
    receiver.refuse(AmqpError("amqp:not-found"))
    receiver.accept(source=None, target=None)
    ours.answer([delivery], None)
    ours.drained()
    receiver.session.end()
    pair.server.open()
    assert ours.room() == 0
    assert pair.server.bytes_to_send() == b""


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00",
        b"\x00\x53\x10",
        b"\x00\x53\x99\xc0\x01\x00",
        b"\x45",
        b"\xff" * 20,
        b"\x00\xa3\x04open\xc0\x01\x00",
    ],
)
def test_bytes_that_are_no_performative_close_with_decode_error(garbage: bytes) -> None:
    factory = FrameFactory().opened()
    assert error_of(factory.feed(make_frame(garbage))).condition == Condition.DECODE_ERROR


def test_frames_spelled_with_symbolic_descriptors_are_understood() -> None:
    factory = FrameFactory().begun()
    factory.attach()
    fields = b"\xc0\x07\x04\x43\x43\xa0\x01t\x43"  # handle, delivery-id, tag, message-format
    [event] = factory.feed(make_frame(b"\x00\xa3\x12amqp:transfer:list" + fields, payload=b"hello"))
    assert names([event]) == ["DeliveriesArrived"]


def test_a_frame_on_a_channel_without_session_closes_the_connection() -> None:
    for performative in (End(), Transfer(0, 0, b"t"), Attach("n", 0, True)):
        factory = FrameFactory().begun()
        assert error_of(factory.send(performative, channel=7)).condition == Condition.NOT_ALLOWED


def test_a_detach_behind_the_end_of_its_session_is_overlooked() -> None:
    """Python's SDK detaches its management links after it has ended their session; nothing is left to detach."""
    factory = FrameFactory().begun(1)
    factory.attach(channel=1)
    factory.send(End(), channel=1)
    factory.written()
    assert factory.send(Detach(0, False), channel=1) == []
    assert factory.written() == []
    assert names(factory.begun(1).events)[-1] == "SessionBegun"


def test_a_second_begin_on_a_channel_closes_the_connection() -> None:
    factory = FrameFactory().begun()
    assert error_of(factory.send(Begin(None, 0, 1, 1))).condition == Condition.NOT_ALLOWED


def test_an_answer_to_a_begin_that_was_never_sent_closes_the_connection() -> None:
    factory = FrameFactory().opened()
    assert error_of(factory.send(Begin(5, 0, 1, 1))).condition == Condition.NOT_ALLOWED


def test_a_frame_that_does_not_fit_the_peer_ends_the_connection() -> None:
    """An attach that cannot be written would leave the peer waiting for ever."""
    factory = FrameFactory().opened(Open("c", max_frame_size=512))
    factory.begun()
    factory.attach()
    link = factory.server.sessions[0].links[0]
    factory.written()
    link.accept(source=Source("a" * 600), target=link.target)
    assert names(factory.server.tick(factory.now)) == ["LinkDetached", "SessionEnded", "ConnectionClosed"]
    close = factory.written()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == Condition.FRAME_SIZE_TOO_SMALL


def test_a_long_reason_is_shortened_for_a_peer_with_small_frames() -> None:
    factory = FrameFactory().opened(Open("c", max_frame_size=512))
    factory.written()
    factory.server.close(AmqpError("amqp:connection:forced", "é" * 1_000))
    data = factory.server.bytes_to_send()
    assert len(data) <= 512
    close = performatives(data)[0]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:forced"


def test_events_that_arose_outside_of_a_turn_are_due_at_once() -> None:
    pair = EnginePair().opened()
    pair.sender()
    pair.server.close()
    deadline = pair.server.next_deadline()
    assert deadline is not None
    assert deadline <= pair.clock.monotonic()
    assert names(pair.server.tick(pair.clock.monotonic())) == ["LinkDetached", "SessionEnded"]


def test_channels_are_used_again_after_their_session() -> None:
    factory = FrameFactory().begun(3)
    assert names(factory.send(End(), 3)) == ["SessionEnded"]
    assert names(factory.send(Begin(None, 0, 1, 1), 3)) == ["SessionBegun"]
    assert isinstance(factory.events[-1], SessionBegun)
    assert len([event for event in factory.events if isinstance(event, SessionEnded)]) == 1


def test_settings_that_break_the_protocol_are_refused() -> None:
    with pytest.raises(ValueError, match="512"):
        EngineSettings(max_frame_size=511)
    with pytest.raises(ValueError, match="handle_max"):
        EngineSettings(handle_max=256)


def test_a_detached_link_is_told_once_even_when_all_ends_together() -> None:
    factory = FrameFactory().begun()
    factory.attach()
    events = factory.feed(make_frame(Detach(0, True)) + make_frame(End()) + make_frame(Close()))
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, ConnectionClosed]


def test_flows_and_dispositions_may_be_spelled_with_symbols_too() -> None:
    factory = FrameFactory().begun()
    flow = b"\x00\xa3\x0eamqp:flow:list\xc0\x0c\x0a\x43\x52\x05\x43\x43\x40\x40\x40\x40\x42\x41"
    disposition = b"\x00\xa3\x15amqp:disposition:list\xc0\x03\x02\x41\x43"
    factory.written()
    assert factory.feed(make_frame(flow) + make_frame(disposition)) == []
    assert len(factory.written()) == 1  # the echo
    assert factory.server.sessions[0].outgoing_room() == 4


def test_a_peer_that_admits_one_channel_cannot_have_two_sessions() -> None:
    factory = FrameFactory().opened(Open("c", channel_max=0)).begun(0)
    assert error_of(factory.send(Begin(None, 0, 1, 1), 1)).condition == Condition.RESOURCE_LIMIT_EXCEEDED


def test_our_client_keeps_its_sessions_apart() -> None:
    pair = EnginePair().opened()
    first, second = pair.client.begin(), pair.client.begin()
    pair.pump()
    assert (first.channel, second.channel) == (0, 1)
    assert len(pair.client_saw(SessionBegun)) == 2
    first.end()
    pair.pump()
    assert pair.begin().channel == 0


def test_sessions_begun_before_the_peers_open_learn_its_frame_size() -> None:
    pair = EnginePair(
        server=EngineSettings(max_frame_size=1_000), client=EngineSettings(max_frame_size=2_000)
    )
    while pair.client.peer is None and not pair.client_saw(SaslFinished):
        step = pair.client.bytes_to_send()
        for event in pair.server.receive(step, 0.0):
            pair.server_events.append(event)
            if isinstance(event, SaslInitArrived):
                pair.server.sasl_outcome(True)
        pair.client_events += pair.client.receive(pair.server.bytes_to_send(), 0.0)
    pair.client.open()
    session = pair.client.begin()
    assert session.frame_bytes_max == 512
    pair.pump()
    assert session.frame_bytes_max == 1_000


def test_a_violation_behind_our_close_is_not_answered_twice() -> None:
    factory = FrameFactory().opened()
    factory.server.close()
    factory.written()
    assert isinstance(factory.feed(b"\x00\x00\x00\x00\x00\x00\x00\x00")[-1], ConnectionClosed)
    assert factory.written() == []


def test_our_client_leaves_a_server_that_speaks_something_else() -> None:
    client = Connection(Role.CLIENT, EngineSettings(), 0.0)
    assert client.bytes_to_send() == SASL_HEADER
    [closed] = client.receive(AMQP_HEADER, 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert client.bytes_to_send() == b""
