"""Windows, numbers and settlement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.deliveries import OutgoingDelivery
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionEvent,
    DeliveriesArrived,
    LinkDetached,
    OutcomesArrived,
    SessionBegun,
    SessionEnded,
    SettlementsAnswered,
    WindowOpened,
)
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Transfer,
)
from tests.harness.engine_pair import EnginePair
from tests.harness.examples import examples_of
from tests.harness.frame_factory import FrameFactory, performatives, split_frames

WRAP = 2**32


def names(events: list[ConnectionEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def sending(factory: FrameFactory, credit: int = 100, handle: int = 0, name: str = "link") -> Link:
    """A link on which the server sends."""
    factory.attach(sends=False, handle=handle, name=name)
    link = factory.server.sessions[0].links[handle]
    link.accept(source=link.source, target=link.target)
    factory.credit(credit, handle=handle)
    factory.written()
    return link


def send(link: Link, count: int) -> list[OutgoingDelivery]:
    return [link.send(b"%d" % number, b"x", settled=False) for number in range(count)]


def test_a_begin_is_answered_with_the_numbers_of_the_service() -> None:
    factory = FrameFactory().opened()
    factory.written()
    factory.send(Begin(None, 0, 65_536, 65_536), channel=1)
    assert factory.written() == [Begin(1, 1, 5_000, 65_536, 255)]


def test_the_answer_comes_on_a_channel_the_peer_admits() -> None:
    factory = FrameFactory().opened(Open("c", channel_max=0))
    factory.server.bytes_to_send()
    factory.send(Begin(None, 0, 1, 1), channel=40)
    [(_, channel, begin, _)] = split_frames(factory.server.bytes_to_send())
    assert channel == 0
    assert isinstance(begin, Begin)
    assert begin.remote_channel == 40


def test_the_first_delivery_id_is_at_least_one_and_ids_have_no_gaps() -> None:
    """M-27a: the first delivery-id of a session is ≥ 1; then +1 for every delivery on any link."""
    factory = FrameFactory().begun()
    one, two = sending(factory), sending(factory, handle=1, name="other")
    ids = [
        link.send(b"t", b"x" * size, settled=False).delivery_id
        for link in (one, two, one)
        for size in (1, 200_000)
    ]
    assert ids == [1, 2, 3, 4, 5, 6]


def test_delivery_ids_and_transfer_ids_wrap() -> None:
    settings = EngineSettings(
        first_delivery_id=WRAP - 2,
        first_transfer_id=WRAP - 1,
        first_delivery_count=WRAP - 2,
        container_id="s",
    )
    pair = EnginePair(server=settings, client=settings).opened()
    session = pair.begin()
    to_server, from_client = pair.sender(session=session, credit=10)
    to_client, from_server = pair.receiver(session=session, credit=10)
    for number in range(6):
        to_server.send(b"t", b"%d" % number, settled=False)
        from_server.send(b"t", b"%d" % number * 70_000, settled=False)
        pair.pump()
    assert [one.delivery_id for e in pair.server_saw(DeliveriesArrived) for one in e.deliveries] == [
        WRAP - 2,
        WRAP - 1,
        0,
        1,
        2,
        3,
    ]
    from_client.settle(WRAP - 2, 3, ACCEPTED)
    to_client.settle(WRAP - 2, 3, ACCEPTED, settled=False)
    pair.pump()
    assert len(pair.last_client(OutcomesArrived).deliveries) == 6
    outcome = pair.last_server(OutcomesArrived)
    assert len(outcome.deliveries) == 6
    from_server.answer(outcome.deliveries, ACCEPTED)
    pair.pump()
    assert pair.last_client(SettlementsAnswered).delivery_ids == [WRAP - 2, WRAP - 1, 0, 1, 2, 3]
    assert (to_server.credit(), from_server.credit()) == (4, 4)
    from_client.grant_credit(10)
    to_client.grant_credit(10)
    pair.pump()
    assert (to_server.credit(), from_server.credit()) == (10, 10)


# --- incoming window ---------------------------------------------------------------------------------------------


def test_our_window_is_refilled_before_anybody_runs_dry() -> None:
    pair = EnginePair(server=EngineSettings(incoming_window=10)).opened()
    ours, theirs = pair.sender(credit=1_000)
    del theirs
    for _ in range(100):
        ours.send(b"t", b"x", settled=True)
        pair.pump()
    assert sum(len(event.deliveries) for event in pair.server_saw(DeliveriesArrived)) == 100


def test_a_peer_that_counts_transfers_its_own_way_is_served() -> None:
    """One SDK counts its next-outgoing-id per delivery instead of per frame: its number is never checked."""
    factory = FrameFactory().begun()
    factory.attach()
    for delivery_id in range(3):
        factory.transfer(delivery_id, more=True)
        factory.transfer(delivery_id, more=True)
        factory.transfer(delivery_id)
        assert factory.send(Flow(None, 65_536, delivery_id, 65_536)) == []
    assert not factory.server.over
    assert len([event for event in factory.events if isinstance(event, DeliveriesArrived)]) == 3


def test_a_flow_with_echo_is_answered_and_one_without_is_not() -> None:
    factory = FrameFactory().begun()
    factory.attach()
    factory.transfer(0)
    factory.written()
    factory.send(Flow(1, 10, 0, 10))
    assert factory.written() == []
    factory.send(Flow(1, 10, 0, 10, echo=True))
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.next_incoming_id, flow.incoming_window, flow.echo) == (None, 1, 5_000, False)


# --- outgoing window ---------------------------------------------------------------------------------------------


def test_a_shut_window_stops_sending_and_an_open_one_is_told() -> None:
    factory = FrameFactory().opened()
    factory.send(Begin(None, 0, 2, 2))
    link = sending(factory)
    factory.send(Flow(1, 2, 0, 2))
    assert link.room() == 2
    send(link, 2)
    assert link.room() == 0
    with pytest.raises(RuntimeError, match="no room"):
        link.send(b"t", b"x", settled=False)
    [event] = factory.send(Flow(3, 5, 0, 2))
    assert isinstance(event, WindowOpened)
    assert link.room() == 5


def test_frames_under_way_are_taken_off_the_window() -> None:
    """The peer's flow was written before it saw our last two transfers."""
    factory = FrameFactory().begun()
    link = sending(factory)
    send(link, 5)
    factory.send(Flow(4, 10, 0, 10))
    assert link.session.outgoing_room() == 8


@pytest.mark.parametrize("next_incoming_id", [0, 2**31, WRAP - 1, 77, 2])
def test_a_senseless_next_incoming_id_neither_stalls_nor_floods(next_incoming_id: int) -> None:
    factory = FrameFactory().begun()
    link = sending(factory)
    factory.send(Flow(next_incoming_id, 10, 0, 10))
    assert 0 <= link.session.outgoing_room() <= 10
    factory.send(Flow(None, 10, 0, 10))
    assert link.session.outgoing_room() == 10


def test_the_rest_of_a_large_delivery_waits_for_the_window() -> None:
    factory = FrameFactory().opened(Open("c", max_frame_size=512))
    factory.send(Begin(None, 0, 3, 3))
    link = sending(factory)
    factory.send(Flow(1, 3, 0, 3))
    link.send(b"tag", b"a" * 2_000, settled=False)
    first = split_frames(factory.server.bytes_to_send())
    assert len(first) == 3
    assert link.room() == 0
    assert names(factory.send(Flow(4, 1, 0, 3))) == []
    second = split_frames(factory.server.bytes_to_send())
    assert names(factory.send(Flow(5, 9, 0, 3))) == ["WindowOpened"]
    third = split_frames(factory.server.bytes_to_send())
    frames = [*first, *second, *third]
    assert b"".join(payload for _, _, _, payload in frames) == b"a" * 2_000
    flags = [transfer.more for _, _, transfer, _ in frames if isinstance(transfer, Transfer)]
    assert flags == [True] * (len(frames) - 1) + [False]


def test_a_detached_link_leaves_nothing_in_the_queue() -> None:
    """Transfers behind a detach would be a violation of ours."""
    factory = FrameFactory().opened(Open("c", max_frame_size=512))
    factory.send(Begin(None, 0, 3, 3))
    link, other = sending(factory), sending(factory, handle=1, name="other")
    factory.send(Flow(1, 1, 0, 3))
    link.send(b"tag", b"a" * 2_000, settled=False)
    factory.written()
    link.detach()
    factory.written()
    factory.send(Flow(2, 100, 0, 3))
    assert factory.written() == []
    assert other.room() == 100


# --- dispositions ------------------------------------------------------------------------------------------------


def test_one_disposition_settles_a_range_over_several_links() -> None:
    factory = FrameFactory().begun()
    one, two = sending(factory), sending(factory, handle=1, name="other")
    sent = [*send(one, 3), *send(two, 2), *send(one, 1)]
    events = factory.send(Disposition(ROLE_RECEIVER, 1, 6, False, Accepted()))
    assert [(e.link, len(e.deliveries), e.settled) for e in events if isinstance(e, OutcomesArrived)] == [
        (one, 4, False),
        (two, 2, False),
    ]
    factory.written()
    one.answer([sent[0], sent[1], sent[2], sent[5]], ACCEPTED)
    two.answer(sent[3:5], ACCEPTED)
    ranges = [(d.role, d.first, d.last, d.settled) for d in factory.written() if isinstance(d, Disposition)]
    assert ranges == [(ROLE_SENDER, 1, 3, True), (ROLE_SENDER, 6, 6, True), (ROLE_SENDER, 4, 5, True)]
    assert (one.unsettled_count(), two.unsettled_count()) == (0, 0)


def test_equal_outcomes_of_one_read_are_one_event() -> None:
    pair = EnginePair().opened()
    ours, theirs = pair.receiver()
    send(theirs, 10)
    pair.pump()
    for delivery_id in range(1, 11):
        ours.settle(delivery_id, delivery_id, ACCEPTED, settled=False)
    pair.pump()
    [event] = pair.server_saw(OutcomesArrived)
    assert [one.delivery_id for one in event.deliveries] == list(range(1, 11))


def test_outcomes_with_details_keep_their_own_events() -> None:
    factory = FrameFactory().begun()
    link = sending(factory)
    send(link, 4)
    states = [
        Rejected(AmqpError("com.microsoft:dead-letter", "bad")),
        Modified(True, False),
        Modified(True, True),
        Released(),
    ]
    events = []
    for number, state in enumerate(states, 1):
        events += factory.send(Disposition(ROLE_RECEIVER, number, None, False, state))
    assert [e.state for e in events if isinstance(e, OutcomesArrived)] == states


@pytest.mark.parametrize(("first", "last"), [(0, WRAP - 1), (5, 4), (1, 0), (2**31, 2**31 - 1)])
def test_a_range_over_everything_costs_no_more_than_what_we_sent(first: int, last: int) -> None:
    """The bounds are the peer's choice: four billion ids must not be walked."""
    factory = FrameFactory().begun()
    link = sending(factory)
    send(link, 3)
    for _ in range(50):
        factory.send(Disposition(ROLE_RECEIVER, first, last, False, Accepted()))
    events = [event for event in factory.events if isinstance(event, OutcomesArrived)]
    assert [len(event.deliveries) for event in events] == [3]


@settings(max_examples=examples_of(150), deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 14), st.integers(-3, 14), st.booleans()), max_size=12))
def test_any_ranges_decide_what_lies_in_them_once(ranges: list[tuple[int, int, bool]]) -> None:
    """[2.7.6]: of two links in turns, over the wrap of ids; a range that ends before it begins goes once around."""
    factory = FrameFactory(EngineSettings(first_delivery_id=WRAP - 5)).begun()
    links = [sending(factory), sending(factory, handle=1, name="other")]
    sent = {one.delivery_id: one for _ in range(6) for link in links for one in send(link, 1)}
    undecided, unsettled = dict.fromkeys(sent), dict.fromkeys(sent)
    for first, last, settled in ((first % WRAP, last % WRAP, settled) for first, last, settled in ranges):
        first, last = (first - 5) % WRAP, (last - 5) % WRAP
        events = factory.send(Disposition(ROLE_RECEIVER, first, last, settled, Accepted()))
        within = [key for key in sent if (key - first) % WRAP <= (last - first) % WRAP]
        told = [
            one.delivery_id
            for event in events
            if isinstance(event, OutcomesArrived)
            for one in event.deliveries
        ]
        assert sorted(told) == sorted(key for key in within if key in undecided)
        for key in within:
            undecided.pop(key, None)
            if settled:
                unsettled.pop(key, None)
        assert {key for key, one in sent.items() if not one.settled} == set(unsettled)
        assert sum(link.unsettled_count() for link in links) == len(unsettled)
        assert factory.server.sessions[0].books.unsettled_count() == len(unsettled)


def test_a_delivery_is_reported_once_until_it_is_answered() -> None:
    """A peer that repeats itself makes no work; after an answer that leaves it open it may decide again."""
    factory = FrameFactory().begun()
    link = sending(factory)
    sent = send(link, 1)
    accept = Disposition(ROLE_RECEIVER, 1, 1, False, Accepted())
    assert names(factory.send(accept)) == ["OutcomesArrived"]
    assert names(factory.send(accept)) == []
    link.answer(sent, None, settled=False)
    assert names(factory.send(accept)) == ["OutcomesArrived"]
    link.answer(sent, ACCEPTED)
    assert names(factory.send(accept)) == []
    factory.written()
    link.answer(sent, ACCEPTED)
    assert factory.written() == []


def test_a_settling_peer_needs_no_answer() -> None:
    factory = FrameFactory().begun()
    link = sending(factory)
    sent = send(link, 3)
    [event] = factory.send(Disposition(ROLE_RECEIVER, 1, 3, True, Accepted()))
    assert isinstance(event, OutcomesArrived)
    assert event.settled
    factory.written()
    link.answer(sent, ACCEPTED)
    assert factory.written() == []
    assert link.unsettled_count() == 0


def test_a_peer_may_decide_first_and_settle_later() -> None:
    factory = FrameFactory().begun()
    link = sending(factory)
    sent = send(link, 2)
    factory.send(Disposition(ROLE_RECEIVER, 1, 2, False, Accepted()))
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 2, True, Accepted())) == []
    assert all(one.settled for one in sent)
    assert link.unsettled_count() == 0


def test_we_may_settle_before_the_peer_says_anything() -> None:
    """A lock that ended: the delivery is over, whatever the receiver makes of it later."""
    factory = FrameFactory().begun()
    link = sending(factory)
    sent = send(link, 2)
    factory.written()
    link.answer(sent, Released())
    [disposition] = factory.written()
    assert isinstance(disposition, Disposition)
    assert (disposition.first, disposition.last, disposition.settled) == (1, 2, True)
    assert link.unsettled_count() == 0
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 2, False, Accepted())) == []


def test_an_outcome_that_does_not_fit_the_peer_ends_the_connection() -> None:
    factory = FrameFactory().opened(Open("c", max_frame_size=512)).begun()
    factory.attach()
    link = factory.server.sessions[0].links[0]
    link.accept(source=link.source, target=link.target)
    factory.transfer(0)
    link.settle(0, 0, Rejected(AmqpError("amqp:internal-error", "x" * 600)))
    assert factory.server.over


def test_late_outcomes_for_a_link_that_is_gone_are_taken_off_the_books() -> None:
    factory = FrameFactory().begun()
    gone, there = sending(factory), sending(factory, handle=1, name="other")
    send(gone, 2)
    kept = send(there, 9)
    factory.send(Detach(0, True))
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 1, False, Accepted())) == []
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 2, True, Accepted())) == []
    assert sorted(there.session.books.unsettled) == [one.delivery_id for one in kept]


@pytest.mark.parametrize("state", [None, Received(0, 0)])
def test_progress_is_no_outcome(state: Received | None) -> None:
    factory = FrameFactory().begun()
    send(sending(factory), 1)
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 1, False, state)) == []


def test_dispositions_about_unknown_deliveries_are_ignored() -> None:
    factory = FrameFactory().begun()
    send(sending(factory), 1)
    for role in (ROLE_RECEIVER, ROLE_SENDER):
        assert factory.send(Disposition(role, 77, 99, True, Accepted())) == []
        assert factory.send(Disposition(role, 77, 77, False, Accepted())) == []
    assert not factory.server.over


def test_outcomes_for_a_link_that_is_gone_are_ignored_and_forgotten() -> None:
    pair = EnginePair().opened()
    session = pair.begin()
    ours, theirs = pair.receiver(session=session)
    for _ in range(20):
        send(theirs, 5)
        pair.pump()
        ours.detach()
        pair.pump()
        ours, theirs = pair.receiver(session=session)
    assert len(theirs.session.books.unsettled) <= 5
    ours.settle(1, 200, ACCEPTED, settled=False)
    pair.pump()
    assert pair.server_saw(OutcomesArrived) == []


def test_our_client_hears_what_became_of_its_proposals() -> None:
    pair = EnginePair().opened()
    ours, theirs = pair.receiver()
    send(theirs, 3)
    pair.pump()
    ours.settle(1, 2, ACCEPTED, settled=False)
    pair.pump()
    outcome = pair.last_server(OutcomesArrived)
    lost = Rejected(AmqpError("com.microsoft:message-lock-lost", "too late", {}))
    theirs.answer(outcome.deliveries[:1], ACCEPTED)
    theirs.answer(outcome.deliveries[1:], lost)
    pair.pump()
    answers = pair.client_saw(SettlementsAnswered)
    assert [(event.delivery_ids, event.state) for event in answers] == [([1], ACCEPTED), ([2], lost)]


# --- ends --------------------------------------------------------------------------------------------------------


def test_an_end_is_answered_and_takes_the_links_along() -> None:
    factory = FrameFactory().begun()
    sending(factory)
    events = factory.send(End())
    assert names(events) == ["LinkDetached", "SessionEnded"]
    assert factory.written() == [End()]
    assert factory.server.sessions == {}


def test_our_end_waits_for_the_answer_and_drops_what_crosses_it() -> None:
    factory = FrameFactory().begun()
    link = sending(factory)
    link.session.end(AmqpError("amqp:internal-error", "sorry"))
    link.detach()
    assert link.room() == 0
    assert performatives(factory.server.bytes_to_send()) == [End(AmqpError("amqp:internal-error", "sorry"))]
    assert names(factory.attach(handle=3)) == ["LinkDetached"]
    assert factory.credit(5) == []
    assert factory.transfer(0) == []
    assert factory.send(Disposition(ROLE_RECEIVER, 1, 1, True)) == []
    assert names(factory.send(End())) == ["SessionEnded"]
    assert factory.written() == []


def test_a_broken_session_does_not_harm_its_neighbour() -> None:
    factory = FrameFactory().begun(0).begun(1)
    factory.attach(channel=1)
    factory.written()
    events = factory.transfer(0, handle=9)
    assert names(events) == ["SessionEnded"]
    ended = events[0]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == Condition.SESSION_UNATTACHED_HANDLE
    assert factory.written() == [End(ended.error)]
    assert factory.transfer(1, handle=9) == []  # crossed our end
    assert names(factory.send(Transfer(0, 0, b"t", 0), 1, b"x")) == ["DeliveriesArrived"]
    assert factory.send(End()) == []
    assert names(factory.send(Begin(None, 0, 1, 1))) == ["SessionBegun"]


def test_a_handle_in_use_ends_the_session() -> None:
    factory = FrameFactory().begun()
    factory.attach(name="one")
    ended = factory.attach(name="two")[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == Condition.SESSION_HANDLE_IN_USE


def test_our_client_begins_attaches_and_ends() -> None:
    pair = EnginePair().opened()
    session = pair.client.begin()
    link = session.attach("early", is_sender=False)
    link.grant_credit(7)
    pair.pump()
    assert pair.client_saw(SessionBegun)
    assert next(iter(pair.server.sessions[0].links.values())).credit() == 7
    session.end()
    assert pair.client.next_deadline() is not None
    pair.pump()
    assert pair.client_saw(SessionEnded)
    assert pair.client_saw(LinkDetached)
    assert pair.server_saw(SessionEnded)
    with pytest.raises(RuntimeError, match="no new links"):
        session.attach("late", is_sender=False)


def test_our_client_may_not_use_a_name_twice() -> None:
    pair = EnginePair().opened()
    session = pair.begin()
    session.attach("name", is_sender=False)
    with pytest.raises(ValueError, match="exists already"):
        session.attach("name", is_sender=False)
    session.attach("name", is_sender=True)


def test_our_client_cannot_begin_before_it_opened() -> None:
    pair = EnginePair()
    with pytest.raises(RuntimeError, match="no new sessions"):
        pair.client.begin()
