"""Attach, credit, transfers, drain, detach."""

from __future__ import annotations

import pytest

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError, Condition
from busway.amqp.events import (
    ConnectionEvent,
    CreditArrived,
    CreditDrained,
    DeliveriesArrived,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
)
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Attach,
    Coordinator,
    Detach,
    Disposition,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from tests.harness.engine_pair import EnginePair
from tests.harness.frame_factory import FrameFactory, make_frame, split_frames

WRAP = 2**32


def names(events: list[ConnectionEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def attached(factory: FrameFactory, *, sends: bool, handle: int = 0, name: str = "link") -> Link:
    """A link that the server has accepted; `sends` is the client's role."""
    factory.attach(sends=sends, handle=handle, name=name)
    link = factory.server.sessions[0].links[handle]
    link.accept(source=link.source, target=link.target)
    factory.written()
    return link


def deliveries(events: list[ConnectionEvent]) -> list[IncomingDelivery]:
    return [one for event in events if isinstance(event, DeliveriesArrived) for one in event.deliveries]


# --- attaching ---------------------------------------------------------------------------------------------------


def test_the_peers_wishes_are_on_the_link() -> None:
    factory = FrameFactory().begun()
    source = Source("queue", filter={"f": "x"})
    [event] = factory.send(Attach("n", 4, ROLE_RECEIVER, 0, 1, source, Target("me"), properties={"p": 1}))
    assert isinstance(event, LinkAttached)
    link = event.link
    assert (link.name, link.is_sender, link.snd_settle_mode, link.rcv_settle_mode) == ("n", True, 0, 1)
    assert link.source is not None
    assert link.source.address == "queue"
    assert link.properties == {"p": 1}
    assert link.owner is None
    assert link.peer is not None
    assert link.peer.handle == 4


def test_the_answer_echoes_and_carries_an_initial_delivery_count_when_we_send() -> None:
    """R-70: a Python receiver detaches itself when the count is missing."""
    factory = FrameFactory().begun()
    factory.attach(sends=False, name="q")
    link = factory.server.sessions[0].links[0]
    factory.written()
    termini = (link.source, link.target)
    link.accept(source=link.source, target=link.target, properties={"k": "v"})
    [reply] = factory.written()
    assert isinstance(reply, Attach)
    assert (reply.name, reply.role, reply.initial_delivery_count) == ("q", ROLE_SENDER, 0)
    assert (reply.source, reply.target) == termini
    assert reply.properties == {"k": "v"}


def test_the_answer_to_a_sender_announces_the_size() -> None:
    factory = FrameFactory().begun()
    factory.attach(sends=True)
    link = factory.server.sessions[0].links[0]
    factory.written()
    link.accept(source=link.source, target=link.target, max_message_size=262_144, snd_settle_mode=0)
    [reply] = factory.written()
    assert isinstance(reply, Attach)
    assert (reply.role, reply.max_message_size, reply.snd_settle_mode) == (ROLE_RECEIVER, 262_144, 0)
    assert reply.initial_delivery_count is None


def test_a_coordinator_is_a_target_like_any_other() -> None:
    factory = FrameFactory().begun()
    [event] = factory.send(Attach("tx", 0, ROLE_SENDER, target=Coordinator(["amqp:local-transactions"])))
    assert isinstance(event, LinkAttached)
    assert isinstance(event.link.target, Coordinator)


@pytest.mark.parametrize("sends", [True, False])
def test_a_refusal_is_an_attach_without_terminus_and_a_detach(sends: bool) -> None:
    """A detach without an attach before it makes Python close the connection."""
    factory = FrameFactory().begun()
    factory.attach(sends=sends)
    factory.written()
    error = AmqpError(Condition.NOT_FOUND, "The messaging entity 'sb://ns/q' could not be found.", None)
    factory.server.sessions[0].links[0].refuse(error)
    reply, detach = factory.written()
    assert isinstance(reply, Attach)
    assert (reply.target if sends else reply.source) is None
    assert (reply.source if sends else reply.target) is not None
    assert reply.initial_delivery_count == (None if sends else 0)
    assert detach == Detach(0, True, error)
    assert names(factory.send(Detach(0, True))) == ["LinkDetached"]
    assert factory.written() == []
    assert factory.server.link_count == 0


def test_a_peer_that_gives_up_before_the_answer_still_gets_both_frames() -> None:
    factory = FrameFactory().begun()
    factory.attach(sends=False)
    factory.written()
    assert names(factory.send(Detach(0, True))) == ["LinkDetached"]
    assert [type(frame) for frame in factory.written()] == [Attach, Detach]
    factory.events.clear()
    link_gone = factory.attach(sends=False)
    assert names(link_gone) == ["LinkAttached"]


def test_a_second_attach_of_the_same_name_and_role_steals_the_link() -> None:
    """ERR-22: the older one is detached with amqp:link:stolen."""
    factory = FrameFactory().begun()
    old = attached(factory, sends=False, name="n")
    events = factory.attach(sends=False, name="n", handle=1)
    assert names(events) == ["LinkDetached", "LinkAttached"]
    stolen = events[0]
    assert isinstance(stolen, LinkDetached)
    assert stolen.link is old
    assert stolen.error is not None
    assert stolen.error.condition == Condition.LINK_STOLEN
    detach = factory.written()[0]
    assert isinstance(detach, Detach)
    assert detach.closed
    assert factory.send(Detach(0, True)) == []
    assert names(factory.send(Detach(1, True))) == ["LinkDetached"]


def test_the_two_directions_of_a_name_are_two_links() -> None:
    """JS names both its sender and its receiver after the address."""
    factory = FrameFactory().begun()
    factory.attach(sends=True, name="queue", handle=0)
    assert names(factory.attach(sends=False, name="queue", handle=1)) == ["LinkAttached"]


def test_the_same_name_on_another_session_is_another_link() -> None:
    factory = FrameFactory().begun(0).begun(1)
    factory.attach(name="n", channel=0)
    assert names(factory.attach(name="n", channel=1)) == ["LinkAttached"]


def test_a_name_is_free_again_after_the_detach() -> None:
    factory = FrameFactory().begun()
    for _ in range(3):
        link = attached(factory, sends=False, name="n")
        link.detach(AmqpError(Condition.LINK_DETACH_FORCED, "idle"))
        assert names(factory.send(Detach(0, True))) == ["LinkDetached"]


# --- receiving ---------------------------------------------------------------------------------------------------


def test_transfers_that_arrive_together_are_one_event() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    data = b"".join(make_frame(Transfer(0, n, b"%d" % n, 0), payload=b"body%d" % n) for n in range(50))
    [event] = factory.feed(data)
    assert isinstance(event, DeliveriesArrived)
    assert event.link is link
    assert [(one.delivery_id, one.tag, one.payload) for one in event.deliveries] == [
        (n, b"%d" % n, b"body%d" % n) for n in range(50)
    ]
    assert len(deliveries(factory.transfer(50))) == 1


def test_interleaved_links_still_give_one_event_each() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    attached(factory, sends=True, handle=1, name="other")
    data = b"".join(make_frame(Transfer(n % 2, n, b"t", 0), payload=b"x") for n in range(20))
    events = factory.feed(data)
    assert [len(event.deliveries) for event in events if isinstance(event, DeliveriesArrived)] == [10, 10]


def test_what_a_transfer_says_is_on_the_delivery() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    state = TransactionalState(b"txn")
    [one] = deliveries(factory.send(Transfer(0, 7, b"tag", 0x80013700, True, state=state), payload=b"x"))
    assert (one.delivery_id, one.tag, one.message_format, one.settled, one.state) == (
        7,
        b"tag",
        0x80013700,
        True,
        state,
    )
    [bare] = deliveries(factory.send(Transfer(0, 8), payload=b"x"))
    assert (bare.tag, bare.message_format, bare.settled, bare.state) == (b"", 0, False, None)


def test_a_presettled_delivery_is_marked_and_gets_no_outcome_from_the_engine() -> None:
    """S-3: pre-settled transfers are accepted and no outcome is sent."""
    pair = EnginePair().opened()
    ours, theirs = pair.sender()
    del theirs
    delivery = ours.send(b"t", b"x", settled=True)
    assert delivery.settled
    pair.pump()
    [one] = deliveries(list(pair.server_saw(DeliveriesArrived)))
    assert one.settled
    assert ours.unsettled_count() == 0
    assert pair.client_saw(OutcomesArrived) == []


@pytest.mark.parametrize("repeat", [True, False])
def test_a_delivery_in_parts_arrives_whole(repeat: bool) -> None:
    """Python repeats id, tag and format on every frame; others give them once."""
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    delivery_id, tag, message_format = (5, b"tag", 0) if repeat else (None, None, None)
    assert factory.send(Transfer(0, 5, b"tag", 0, False, True), payload=b"ab") == []
    assert factory.send(Transfer(0, delivery_id, tag, message_format, False, True), payload=b"") == []
    assert factory.send(Transfer(0, delivery_id, tag, message_format, None, True), payload=b"cd") == []
    [one] = deliveries(factory.send(Transfer(0, delivery_id, tag, message_format), payload=b"ef"))
    assert (one.delivery_id, one.tag, one.payload, one.settled) == (5, b"tag", b"abcdef", False)


def test_parts_of_two_links_may_interleave() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    attached(factory, sends=True, handle=1, name="other")
    factory.transfer(0, b"a", more=True)
    factory.transfer(1, b"x", handle=1, more=True)
    [first] = deliveries(factory.transfer(0, b"b"))
    [second] = deliveries(factory.transfer(1, b"y", handle=1))
    assert (first.payload, second.payload) == (b"ab", b"xy")


def test_settled_on_any_frame_settles_the_delivery() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    factory.send(Transfer(0, 5, b"tag", 0, None, True), payload=b"ab")
    [one] = deliveries(factory.send(Transfer(0, settled=True), payload=b"cd"))
    assert one.settled


def test_an_aborted_delivery_never_happened_but_spends_credit() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    link.grant_credit(10)
    factory.transfer(0, b"ab", more=True)
    assert factory.send(Transfer(0, aborted=True)) == []
    assert factory.send(Transfer(0, 1, b"t", 0, aborted=True), payload=b"zz") == []
    [one] = deliveries(factory.transfer(2, b"cd"))
    assert one.payload == b"cd"
    assert link.credit() == 7


@pytest.mark.parametrize(
    "other", [Transfer(0, 1, b"tag", 0), Transfer(0, 0, b"tug", 0), Transfer(0, 0, b"tag", 9)]
)
def test_a_delivery_inside_another_detaches_the_link(other: Transfer) -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    factory.transfer(0, more=True)
    assert names(factory.send(other, payload=b"x")) == ["LinkDetached"]
    assert not factory.server.over


def test_a_first_frame_without_delivery_id_detaches_the_link() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=True)
    [event] = factory.send(Transfer(0, None, b"t", 0), payload=b"x")
    assert isinstance(event, LinkDetached)
    assert event.error is not None
    assert event.error.condition == Condition.INVALID_FIELD


def test_transfers_that_crossed_our_detach_are_dropped() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    link.detach()
    assert factory.transfer(0) == []
    assert factory.credit(5) == []
    assert names(factory.send(Detach(0, True))) == ["LinkDetached"]


def test_a_transfer_against_the_direction_ends_the_session() -> None:
    factory = FrameFactory().begun()
    attached(factory, sends=False)
    assert names(factory.transfer(0)) == ["LinkDetached", "SessionEnded"]


def test_eager_peers_may_transfer_before_the_attach_is_answered() -> None:
    """Some senders take credit for granted."""
    factory = FrameFactory().begun()
    events = factory.attach(sends=True)
    events += factory.transfer(0)
    assert names(events) == ["LinkAttached", "DeliveriesArrived"]


def test_granted_credit_is_set_not_added() -> None:
    """R-70: link-credit counts from the delivery-count in the same flow."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    link.grant_credit(10)
    for number in range(4):
        factory.transfer(number)
    assert link.credit() == 6
    factory.written()
    link.grant_credit(10)
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (0, 4, 10, False)
    assert link.credit() == 10


def test_a_receiver_counts_from_where_the_sender_says() -> None:
    factory = FrameFactory().begun()
    factory.send(Attach("n", 0, ROLE_SENDER, initial_delivery_count=WRAP - 1))
    link = factory.server.sessions[0].links[0]
    link.accept(source=link.source, target=link.target)
    factory.transfer(0)
    factory.transfer(1)
    factory.written()
    link.grant_credit(5)
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert flow.delivery_count == 1


def test_outcomes_leave_as_one_range() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    for number in range(4):
        factory.transfer(number)
    link.settle(0, 3, ACCEPTED)
    [disposition] = factory.written()
    assert isinstance(disposition, Disposition)
    assert (disposition.role, disposition.first, disposition.last, disposition.settled) == (
        ROLE_RECEIVER,
        0,
        3,
        True,
    )
    assert disposition.state == ACCEPTED


def test_a_long_reason_in_an_outcome_is_written_too() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    factory.transfer(0)
    reason = Rejected(AmqpError("amqp:internal-error", "x" * 5_000, None))
    link.settle(0, 0, reason)
    [disposition] = factory.written()
    assert isinstance(disposition, Disposition)
    assert disposition.state == reason


# --- sending -----------------------------------------------------------------------------------------------------


def test_credit_arrives_and_is_spent() -> None:
    """R-70: prefetch is link credit."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    assert link.room() == 0
    [event] = factory.credit(3)
    assert isinstance(event, CreditArrived)
    assert (link.credit(), link.room()) == (3, 3)
    for _ in range(3):
        link.send(b"t", b"x", settled=True)
    assert link.room() == 0
    with pytest.raises(RuntimeError, match="no room"):
        link.send(b"t", b"x", settled=True)


def test_deliveries_under_way_are_taken_off_the_credit() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(10)
    for _ in range(4):
        link.send(b"t", b"x", settled=True)
    factory.credit(10, delivery_count=1)
    assert link.credit() == 7
    factory.credit(2, delivery_count=1)
    assert link.credit() == 0
    factory.credit(0, delivery_count=4)
    assert link.credit() == 0


def test_credit_before_our_attach_counts_from_our_first_count() -> None:
    """A pipelining receiver cannot know our delivery-count."""
    factory = FrameFactory(EngineSettings(first_delivery_count=WRAP - 3)).begun()
    factory.attach(sends=False)
    events = factory.credit(10)
    assert names(events) == ["CreditArrived"]
    link = factory.server.sessions[0].links[0]
    assert link.room() == 0  # not answered yet
    link.accept(source=link.source, target=link.target)
    assert link.room() == 10
    factory.send(Flow(1, 100, 0, 100, 0, None, 20))
    assert link.room() == 20


@pytest.mark.parametrize("count", [5, 2**31, WRAP - 1])
def test_a_senseless_delivery_count_gives_no_more_than_was_granted(count: int) -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(10, delivery_count=count)
    assert 0 <= link.credit() <= 10


def test_a_flow_without_link_credit_changes_nothing() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(10)
    assert factory.send(Flow(1, 100, 0, 100, 0)) == []
    assert link.credit() == 10


def test_many_flows_of_one_read_are_one_event() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    data = b"".join(make_frame(Flow(1, 100, 0, 100, 0, 0, credit)) for credit in range(1, 9))
    [event] = factory.feed(data)
    assert isinstance(event, CreditArrived)
    assert link.credit() == 8


def test_a_large_delivery_leaves_in_frames_the_peer_can_read() -> None:
    """L-20: no frame is longer than the peer's max-frame-size."""
    for size in (512, 1_000, 65_536, 1_000_000):
        factory = FrameFactory().opened(Open("c", max_frame_size=size)).begun()
        link = attached(factory, sends=False)
        factory.credit(10)
        for payload in (b"", b"a" * 400, b"b" * 511, b"c" * 70_000):
            link.send(b"sixteen byte tag", payload, settled=False)
        data = factory.server.bytes_to_send()
        at, bodies, current = 0, [], b""
        while at < len(data):
            length = int.from_bytes(data[at : at + 4], "big")
            assert length <= min(size, 65_536)
            [(transfer, payload)] = [
                (performative, payload)
                for _, _, performative, payload in split_frames(data[at : at + length])
                if isinstance(performative, Transfer)
            ]
            assert transfer.delivery_tag == b"sixteen byte tag"
            current += payload
            if not transfer.more:
                bodies.append(current)
                current = b""
            at += length
        assert bodies == [b"", b"a" * 400, b"b" * 511, b"c" * 70_000]


def test_a_payload_may_take_several_frames_and_come_with_a_format() -> None:
    pair = EnginePair().opened()
    ours, theirs = pair.sender()
    del theirs
    ours.send(b"t", b"abcd", settled=False)
    ours.send(b"t", b"x" * 70_000 + b"y", settled=True, message_format=0x80013700)
    pair.pump()
    one, two = deliveries(list(pair.server_saw(DeliveriesArrived)))
    assert (one.payload, one.message_format, one.settled) == (b"abcd", 0, False)
    assert (two.payload, two.message_format, two.settled) == (b"x" * 70_000 + b"y", 0x80013700, True)


def test_a_tag_longer_than_32_bytes_is_our_mistake() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(1)
    with pytest.raises(ValueError, match="32"):
        link.send(b"t" * 33, b"x", settled=False)
    assert link.credit() == 1
    assert link.send(b"t" * 32, b"x", settled=False).delivery_id == 1


# --- drain -------------------------------------------------------------------------------------------------------


def test_a_drain_uses_up_the_credit_at_once() -> None:
    """R-9: what there is is sent, then delivery-count advances by the rest and credit is 0."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(10, drain=True)
    assert link.drain_requested()
    for _ in range(3):
        link.send(b"t", b"x", settled=True)
    factory.written()
    link.drained()
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (0, 10, 0, True)
    assert not link.drain_requested()
    assert link.room() == 0
    link.drained()
    assert factory.written() == []


def test_a_drain_without_credit_is_answered_too() -> None:
    """R-9: Python drains with link-credit 0 when it closes."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    assert names(factory.credit(0, drain=True)) == ["CreditArrived"]
    assert link.drain_requested()
    link.drained()
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


def test_a_drain_can_be_taken_back() -> None:
    """R-9: a drain can be taken back."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.credit(10, drain=True)
    factory.credit(10)
    assert not link.drain_requested()


def test_our_client_drains() -> None:
    """R-9: and counts what was given back, over the wrap."""
    settings = EngineSettings(first_delivery_count=WRAP - 4)
    pair = EnginePair(server=settings).opened()
    ours, theirs = pair.receiver(credit=0)
    ours.grant_credit(10, drain=True)
    pair.pump()
    theirs.send(b"t", b"x", settled=True)
    theirs.drained()
    pair.pump()
    assert names(pair.client_events[-2:]) == ["DeliveriesArrived", "CreditDrained"]
    assert pair.last_client(CreditDrained).link is ours
    assert ours.credit() == 0
    ours.grant_credit(3)
    pair.pump()
    assert theirs.credit() == 3


def test_an_echo_on_a_link_is_answered_with_the_link() -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    factory.send(Flow(1, 10, 0, 10, 0, 0, 7, echo=True))
    link.send(b"t", b"x", settled=True)
    factory.written()
    factory.send(Flow(2, 10, 0, 10, 0, 1, 7, echo=True))
    [flow] = factory.written()
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.echo) == (0, 1, 7, False)


def test_a_flow_of_the_peers_own_sender_is_harmless() -> None:
    """Python writes one after its attach."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=True)
    link.grant_credit(10)
    factory.written()
    assert factory.credit(10_000) == []
    assert link.credit() == 10
    assert factory.written() == []


# --- detaching ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind(closed: bool) -> None:
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    why = AmqpError("amqp:internal-error", "because")
    [event] = factory.send(Detach(0, closed, why))
    assert isinstance(event, LinkDetached)
    assert (event.link, event.closed, event.error) == (link, closed, why)
    assert factory.written() == [Detach(0, closed)]
    assert factory.server.sessions[0].links == {}


def test_our_detach_carries_the_reason_and_is_told_when_answered() -> None:
    """ERR-23: an idle link is detached with amqp:link:detach-forced."""
    factory = FrameFactory().begun()
    link = attached(factory, sends=False)
    idle = AmqpError(Condition.LINK_DETACH_FORCED, "The link is idle.")
    link.detach(idle)
    link.detach(idle)
    assert factory.written() == [Detach(0, True, idle)]
    assert names(factory.send(Detach(0, True))) == ["LinkDetached"]
    assert factory.written() == []


def test_detaches_that_cross_end_the_link_once() -> None:
    pair = EnginePair().opened()
    ours, theirs = pair.sender()
    ours.detach()
    theirs.detach()
    pair.pump()
    assert len(pair.client_saw(LinkDetached)) == len(pair.server_saw(LinkDetached)) == 1


def test_handles_are_used_again() -> None:
    pair = EnginePair().opened()
    session = pair.begin()
    for _ in range(5):
        ours, theirs = pair.sender(session=session)
        assert (ours.handle, theirs.handle) == (0, 0)
        ours.detach()
        pair.pump()
    assert pair.server.link_count == pair.client.link_count == 0


def test_our_client_hears_a_refusal() -> None:
    error = AmqpError(Condition.NOT_FOUND, "gone", None)
    pair = EnginePair(on_attach=lambda link: link.refuse(error)).opened()
    session = pair.begin()
    session.attach("n", is_sender=True, target=Target("q"))
    pair.pump()
    assert names(pair.client_events[-2:]) == ["LinkAttached", "LinkDetached"]
    assert pair.last_client(LinkDetached).error == error
    assert pair.last_client(LinkAttached).link.target is None


def test_our_client_may_detach_before_it_is_answered() -> None:
    pair = EnginePair(on_attach=None).opened()
    session = pair.begin()
    link = session.attach("n", is_sender=True, target=Target("q"))
    link.detach()
    pair.pump()
    assert pair.client_saw(LinkAttached) == []
    assert len(pair.client_saw(LinkDetached)) == 1


def test_a_refusal_may_leave_out_both_termini() -> None:
    """H-22: so the service refuses readers of event hubs."""
    pair = EnginePair(
        on_attach=lambda link: link.refuse(AmqpError("amqp:not-found", "no"), names_terminus=False)
    )
    pair.opened()
    ours = pair.begin().attach("reader", is_sender=False, source=Source("hub"), target=Target("here"))
    pair.pump()
    assert ours.peer is not None
    assert (ours.peer.source, ours.peer.target) == (None, None)
    [event] = pair.client_saw(LinkDetached)
    assert event.error is not None
    assert event.error.condition == "amqp:not-found"
