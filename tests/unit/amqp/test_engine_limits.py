"""Everything a peer can use up has an end, and reaching it ends as little as possible."""

from __future__ import annotations

import pytest

from busway.amqp.deliveries import PART_BYTES
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    DeliveriesArrived,
    LinkDetached,
    SessionEnded,
)
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Source,
    Target,
    Transfer,
)
from tests.harness.frame_factory import FrameFactory


def names(events: list[ConnectionEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def condition_of(event: ConnectionEvent) -> str:
    assert isinstance(event, (ConnectionClosed, SessionEnded, LinkDetached))
    assert event.error is not None
    return event.error.condition


def factory_with(settings: EngineSettings) -> FrameFactory:
    return FrameFactory(settings).begun()


def accepted(factory: FrameFactory, handle: int = 0, size: int | None = None, *, sends: bool = True) -> Link:
    factory.attach(handle=handle, name=f"link{handle}", sends=sends)
    link = factory.server.sessions[0].links[handle]
    link.accept(source=link.source, target=link.target, max_message_size=size)
    factory.written()
    return link


def test_too_many_sessions_are_refused_one_by_one() -> None:
    factory = FrameFactory(EngineSettings(sessions_max=3)).opened()
    for channel in range(3):
        assert names(factory.send(Begin(None, 0, 1, 1), channel)) == ["SessionBegun"]
    factory.written()
    assert factory.send(Begin(None, 0, 1, 1), 3) == []
    begin, end = factory.written()
    assert isinstance(begin, Begin)
    assert isinstance(end, End)
    assert end.error is not None
    assert end.error.condition == Condition.RESOURCE_LIMIT_EXCEEDED
    assert factory.send(End(), 3) == []
    assert names(factory.send(End(), 0)) == ["SessionEnded"]
    assert names(factory.send(Begin(None, 0, 1, 1), 9)) == ["SessionBegun"]


def test_a_peer_that_ignores_refusals_of_sessions_is_closed() -> None:
    factory = FrameFactory(EngineSettings(sessions_max=3)).opened()
    events: list[ConnectionEvent] = []
    for channel in range(10):
        events += factory.send(Begin(None, 0, 1, 1), channel)
    assert condition_of(events[-1]) == Condition.RESOURCE_LIMIT_EXCEEDED
    assert isinstance(events[-1], ConnectionClosed)
    assert len(factory.server.sessions) == 0


def test_a_channel_beyond_the_maximum_closes_the_connection() -> None:
    factory = FrameFactory().opened()
    [event] = factory.send(Begin(None, 0, 1, 1), 5_000)
    assert condition_of(event) == Condition.CONNECTION_FRAMING_ERROR
    fine = FrameFactory().opened()
    assert names(fine.send(Begin(None, 0, 1, 1), 4_999)) == ["SessionBegun"]


def test_a_handle_beyond_the_maximum_closes_the_connection() -> None:
    factory = FrameFactory().begun()
    assert condition_of(factory.attach(handle=256)[-1]) == Condition.CONNECTION_FRAMING_ERROR
    fine = FrameFactory().begun()
    assert names(fine.attach(handle=255)) == ["LinkAttached"]


def test_a_session_holds_256_links() -> None:
    factory = FrameFactory().begun()
    for handle in range(256):
        assert names(factory.attach(handle=handle, name=str(handle))) == ["LinkAttached"]


def test_a_peer_with_few_handles_of_its_own_gets_no_more_links() -> None:
    factory = FrameFactory().opened()
    factory.send(Begin(None, 0, 1, 1, handle_max=0))
    factory.attach(handle=0, name="a")
    assert condition_of(factory.attach(handle=1, name="b")[-1]) == Condition.RESOURCE_LIMIT_EXCEEDED


def test_too_many_links_of_a_connection_are_refused_one_by_one() -> None:
    factory = FrameFactory(EngineSettings(links_max=2)).begun(0).begun(1)
    factory.attach(handle=0, name="a")
    factory.attach(handle=0, name="b", channel=1)
    factory.written()
    assert factory.attach(handle=1, name="c", channel=1) == []
    attach, detach = factory.written()
    assert isinstance(attach, Attach)
    assert isinstance(detach, Detach)
    assert detach.error is not None
    assert detach.error.condition == Condition.RESOURCE_LIMIT_EXCEEDED
    assert factory.send(Detach(1, True), 1) == []
    assert names(factory.send(Detach(0, True))) == ["LinkDetached"]
    assert names(factory.attach(handle=5, name="d")) == ["LinkAttached"]


def test_a_peer_that_ignores_refusals_of_links_is_closed() -> None:
    factory = FrameFactory(EngineSettings(links_max=2, handle_max=7)).begun(0).begun(1)
    events: list[ConnectionEvent] = []
    for number in range(16):
        events += factory.attach(handle=number % 8, name=str(number), channel=number // 8)
    assert isinstance(events[-1], ConnectionClosed)


def test_outgoing_unsettled_deliveries_are_bounded_whatever_the_credit() -> None:
    """R-70: at most `unsettled_per_link_max` are locked for one link."""
    factory = factory_with(EngineSettings(unsettled_per_link_max=5))
    link = accepted(factory, sends=False)
    factory.credit(1_000)
    sent = []
    while link.room() > 0:
        sent.append(link.send(b"t", b"x", settled=False))
    assert len(sent) == 5
    factory.send(Disposition(ROLE_RECEIVER, 1, 2, False, Accepted()))
    assert link.room() == 0  # decided, not settled
    link.answer(sent[:2], Accepted())
    assert link.room() == 2


def test_a_message_larger_than_announced_detaches_the_link() -> None:
    """ERR-10: amqp:link:message-size-exceeded; the connection lives on."""
    factory = FrameFactory().begun()
    accepted(factory, size=1_000)
    assert len([e for e in factory.transfer(0, b"x" * 1_000) if isinstance(e, DeliveriesArrived)]) == 1
    [event] = factory.transfer(1, b"x" * 1_001)
    assert condition_of(event) == Condition.LINK_MESSAGE_SIZE_EXCEEDED
    assert factory.transfer(2) == []
    assert factory.send(Detach(0, True)) == []
    assert not factory.server.over


def test_the_sum_of_the_parts_is_held_against_the_size() -> None:
    factory = FrameFactory().begun()
    accepted(factory, size=1_000)
    assert factory.transfer(0, b"x" * 600, more=True) == []
    [event] = factory.transfer(0, b"x" * 600, more=True)
    assert condition_of(event) == Condition.LINK_MESSAGE_SIZE_EXCEEDED
    assert factory.transfer(0, b"x" * 600) == []


@pytest.mark.parametrize("announced", [None, 0, 2**64 - 1])
def test_an_unlimited_announcement_is_still_limited(announced: int | None) -> None:
    factory = factory_with(EngineSettings(delivery_bytes_max=100))
    accepted(factory, size=announced)
    [event] = factory.transfer(0, b"x" * 101)
    assert condition_of(event) == Condition.LINK_MESSAGE_SIZE_EXCEEDED


def test_a_link_may_have_a_limit_of_its_own_behind_an_unlimited_announcement() -> None:
    factory = FrameFactory().begun()
    factory.attach()
    link = factory.server.sessions[0].links[0]
    link.accept(source=Source("a"), target=Target("b"), max_message_size=2**64 - 1, delivery_bytes_max=10)
    [event] = factory.transfer(0, b"x" * 11)
    assert condition_of(event) == Condition.LINK_MESSAGE_SIZE_EXCEEDED


def test_a_link_may_bear_more_than_it_announces() -> None:
    """ERR-10: so that an oversized message can be rejected by name instead of costing the link."""
    factory = FrameFactory().begun()
    factory.attach()
    link = factory.server.sessions[0].links[0]
    link.accept(source=Source("a"), target=Target("b"), max_message_size=100, delivery_bytes_max=200)
    assert names(factory.transfer(0, b"x" * 200)) == ["DeliveriesArrived"]
    assert names(factory.transfer(1, b"x" * 201)) == ["LinkDetached"]


def test_the_number_of_frames_of_a_delivery_is_bounded() -> None:
    """Empty frames cost no bytes, so they are counted."""
    factory = factory_with(EngineSettings(frames_per_delivery_max=10))
    accepted(factory)
    for _ in range(10):
        assert factory.transfer(0, b"", more=True) == []
    [event] = factory.transfer(0, b"", more=True)
    assert condition_of(event) == Condition.NOT_ALLOWED


def test_unfinished_deliveries_of_a_connection_share_a_budget() -> None:
    bytes_max = 4 * (100 + PART_BYTES)
    factory = factory_with(EngineSettings(delivery_bytes_max=100, partial_bytes_max=bytes_max))
    links = [accepted(factory, handle) for handle in range(6)]
    for number, _ in enumerate(links[:4]):
        assert factory.transfer(number, b"x" * 100, handle=number, more=True) == []
    [event] = factory.transfer(4, b"x", handle=4, more=True)
    assert condition_of(event) == Condition.RESOURCE_LIMIT_EXCEEDED
    factory.send(Transfer(0, aborted=True))
    assert factory.transfer(5, b"x" * 100, handle=5, more=True) == []
    factory.send(Detach(1, True))
    assert names(factory.transfer(5, b"", handle=5)) == ["DeliveriesArrived"]
    factory.send(End())
    assert factory.begun().server.allowance.reserve_partial_bytes(bytes_max)


def test_accepted_links_with_large_messages_raise_the_budget() -> None:
    factory = factory_with(EngineSettings(partial_bytes_max=400))
    accepted(factory, size=1_000)
    assert factory.transfer(0, b"x" * 1_000, more=True) == []


def test_a_sender_may_overdraw_its_credit_but_not_for_ever() -> None:
    """Python senders assume 10,000 credits before any flow arrives."""
    factory = factory_with(EngineSettings(overdraft_max=10))
    link = accepted(factory)
    link.grant_credit(5)
    for number in range(15):
        assert names(factory.transfer(number)) == ["DeliveriesArrived"]
    assert link.credit() == 0
    [event] = factory.transfer(15)
    assert condition_of(event) == Condition.LINK_TRANSFER_LIMIT_EXCEEDED


def test_granting_credit_pays_the_overdraft() -> None:
    factory = factory_with(EngineSettings(overdraft_max=10))
    link = accepted(factory)
    for number in range(50):
        assert names(factory.transfer(number)) == ["DeliveriesArrived"]
        if number % 10 == 9:
            link.grant_credit(5)


def test_the_default_overdraft_is_what_python_assumes() -> None:
    assert EngineSettings().overdraft_max == 10_000


def test_limits_of_one_link_leave_its_neighbours_alone() -> None:
    factory = FrameFactory().begun()
    accepted(factory, 0, 10)
    accepted(factory, 1, 10)
    factory.transfer(0, b"x" * 11)
    assert names(factory.transfer(1, b"x" * 10, handle=1)) == ["DeliveriesArrived"]


def test_attaching_and_detaching_for_ever_leaves_nothing_behind() -> None:
    factory = FrameFactory().begun()
    for number in range(500):
        link = accepted(factory, handle=0, sends=number % 2 == 0)
        if number % 3:
            link.detach(AmqpError("amqp:internal-error"))
        factory.send(Detach(0, True))
    session = factory.server.sessions[0]
    assert (factory.server.link_count, len(session.links)) == (0, 0)
    assert factory.server.touched == []


def test_stealing_a_name_for_ever_is_bounded_by_the_handles() -> None:
    factory = FrameFactory().begun()
    events: list[ConnectionEvent] = []
    for handle in range(300):
        events += factory.send(Attach("same", handle, ROLE_SENDER, target=Target("q")))
        if factory.server.over:
            break
    assert isinstance(events[-1], ConnectionClosed)
