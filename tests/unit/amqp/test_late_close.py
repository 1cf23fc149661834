"""A link whose close is answered by its owner, when what the close asks for is done."""

from __future__ import annotations

import pytest

from busway.amqp.errors import AmqpError, Condition
from busway.amqp.link import Link
from busway.amqp.performatives import Attach, Close, Detach, End, Flow, Performative
from tests.harness.frame_factory import FrameFactory


def standing(factory: FrameFactory) -> Link:
    factory.attach(sends=False, name="n")
    link = factory.server.sessions[0].links[0]
    link.accept(source=link.source, target=link.target)
    link.closes_late = True
    factory.written()
    return link


def names(events: list[object]) -> list[str]:
    return [type(event).__name__ for event in events]


@pytest.mark.parametrize("error", [None, AmqpError(Condition.NOT_ALLOWED, "It stays.")])
def test_a_close_is_answered_when_the_owner_says_so(error: AmqpError | None) -> None:
    """AMQP 2.6.6: the end is told at once, the answer comes once, and the link counts until then."""
    factory = FrameFactory().begun()
    link = standing(factory)
    assert names([*factory.send(Detach(0, True))]) == ["LinkDetached"]
    assert (factory.written(), factory.server.link_count, link.is_live()) == ([], 1, False)
    link.detach(error)
    link.detach()
    assert factory.written() == [Detach(0, True, error)]
    assert factory.server.link_count == 0
    assert names([*factory.attach(sends=False, name="n")]) == ["LinkAttached"]


def test_a_detach_that_closes_nothing_is_answered_at_once() -> None:
    """AMQP 2.6.6: only a close asks for something."""
    factory = FrameFactory().begun()
    link = standing(factory)
    factory.send(Detach(0, False))
    assert factory.written() == [Detach(0, False)]
    link.detach()
    assert (factory.written(), factory.server.link_count) == ([], 0)


def test_the_name_may_be_used_again_before_the_answer() -> None:
    """AMQP 2.6.1: under another handle; the answer of the old link takes nothing from the new one."""
    factory = FrameFactory().begun()
    old = standing(factory)
    factory.send(Detach(0, True))
    assert names([*factory.attach(sends=False, name="n", handle=1)]) == ["LinkAttached"]
    new = factory.server.sessions[0].links[1]
    new.accept(source=new.source, target=new.target)
    old.detach()
    assert [type(frame) for frame in factory.written()] == [Attach, Detach]
    assert factory.server.link_count == 1
    assert new.is_live()


@pytest.mark.parametrize("frame", [Detach(0, True), Flow(5, 5, 0, 5, handle=0, link_credit=1)])
def test_a_peer_that_goes_on_behind_its_close_loses_its_connection(frame: Performative) -> None:
    """Attack: AMQP 2.6.6: nothing may follow; the owner's answer goes nowhere then."""
    factory = FrameFactory().begun()
    link = standing(factory)
    factory.send(Detach(0, True))
    assert names([*factory.send(frame)]) == ["SessionEnded", "ConnectionClosed"]
    [close] = factory.written()
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == Condition.NOT_ALLOWED
    link.detach()
    assert factory.written() == []


def test_a_session_that_ends_meanwhile_takes_the_link_with_it() -> None:
    """AMQP 2.5.5: and the answer is not written any more."""
    factory = FrameFactory().begun()
    link = standing(factory)
    factory.send(Detach(0, True))
    assert names([*factory.send(End())]) == ["SessionEnded"]
    factory.written()
    link.detach()
    assert (factory.written(), factory.server.link_count) == ([], 0)
