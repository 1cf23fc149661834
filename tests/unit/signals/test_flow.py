"""What is counted, and for whom."""

import pytest

from busway.model.errors import BrokerError, InternalError, MessageLockLost, ServerBusy, StoreOutcomeUnknown
from busway.model.flow import LATENCY_STEPS_S, NAMESPACE_ONLY, FlowCounts, FlowTable
from busway.model.settlement import Settlement, Verb
from tests.unit.broker.rig import Rig, play, text, unheard


def test_messages_and_bytes_count_on_both_sides() -> None:
    """O-1: IncomingMessages, IncomingBytes, OutgoingMessages, OutgoingBytes, CompleteMessage."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("12345", "123")
        flow = rig.main.flow
        assert (flow.messages_in, flow.bytes_in, flow.messages_out) == (2, 8, 0)
        await rig.settle(await rig.receive())
        assert (flow.messages_out, flow.bytes_out) == (2, 8)
        assert (flow.completed, flow.abandoned) == (2, 0)

    play(scenario)


@pytest.mark.parametrize("deletes", [False, True])
def test_what_a_receiver_hands_back_was_not_delivered(deletes: bool) -> None:
    """O-1: OutgoingMessages counts what was taken, in both modes."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("12345", "123", "1")
        receiver = rig.receiver(0, deletes=deletes)
        receiver.refuses = 2
        receiver.credit = 3
        rig.main.wake(receiver)
        await rig.calm()
        assert (rig.main.flow.messages_out, rig.main.flow.bytes_out) == (1, 5)

    play(scenario)


def test_a_message_that_is_delivered_again_is_outgoing_again() -> None:
    """O-1: AbandonMessage; each delivery counts."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.ABANDON)
        await rig.receive()
        flow = rig.main.flow
        assert (flow.messages_in, flow.messages_out, flow.abandoned, flow.completed) == (1, 2, 1, 0)

    play(scenario)


def test_duplicates_are_incoming_though_they_are_dropped() -> None:
    """S-47, O-4: duplicates count in IncomingMessages, with their bytes."""

    async def scenario(rig: Rig) -> None:
        for _ in range(3):
            await rig.send(text("1234", message_id="one"))
        flow = rig.main.flow
        assert (flow.messages_in, flow.bytes_in) == (3, 12)
        assert rig.main.counters.active == 1

    play(scenario, requires_duplicate_detection=True)


def test_a_dead_lettered_message_is_not_outgoing() -> None:
    """O-4: the move counts nowhere; a delivery out of the dead-letter queue counts for its entity."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        await rig.settle(await rig.receive(), Verb.DEAD_LETTER)
        flow = rig.main.flow
        assert rig.dead_letter.flow is flow
        assert (flow.messages_in, flow.messages_out) == (1, 1)
        assert len(await rig.receive(dead_letter=True)) == 1
        assert (flow.messages_in, flow.messages_out) == (1, 2)

    play(scenario)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_deferred_message_that_is_fetched_is_outgoing(deletes: bool) -> None:
    """O-1, R-51: by number is a delivery too."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("abc")
        [got] = await rig.receive()
        await rig.settle([got], Verb.DEFER)
        await rig.main.receive_by_number([got.message.sequence_number], deletes=deletes)
        assert (rig.main.flow.messages_out, rig.main.flow.bytes_out) == (2, 6)

    play(scenario)


def test_peeked_messages_are_not_outgoing() -> None:
    """O-1, R-60: a look takes nothing."""

    async def scenario(rig: Rig) -> None:
        await rig.send_texts("a")
        assert len(await rig.main.peek(0, 10)) == 1
        assert rig.main.flow.messages_out == 0

    play(scenario)


def test_what_was_not_stored_is_not_incoming() -> None:
    """O-1: a refused message counts neither as message nor as bytes, nor does its verb."""

    async def scenario(rig: Rig) -> None:
        assert len(await rig.send(text("x" * 300_000), text("ok"))) == 1
        assert (rig.main.flow.messages_in, rig.main.flow.bytes_in) == (1, 2)
        assert await rig.settle(await rig.receive()) == []
        rig.main.settle([b"\0" * 16], Settlement(Verb.COMPLETE), unheard)
        await rig.calm()
        assert rig.main.flow.completed == 1

    play(scenario)


def test_the_time_of_a_send_ends_with_its_commit() -> None:
    """O-1: ServerSendLatency runs until the message is durable."""

    async def scenario(rig: Rig) -> None:
        rig.store.hold_commits()
        rig.queue.send([text("a"), text("b")], unheard)
        await rig.calm()
        assert sum(rig.main.flow.latency_steps) == 0
        rig.clock.advance(0.2)
        rig.store.release_commits()
        await rig.calm()
        flow = rig.main.flow
        assert flow.latency_s == pytest.approx(0.4)
        assert flow.latency_steps[LATENCY_STEPS_S.index(0.5)] == 2
        assert sum(flow.latency_steps) == 2

    play(scenario)


@pytest.mark.parametrize("waited_s", [*LATENCY_STEPS_S, 1e9])
def test_a_step_holds_its_upper_end(waited_s: float) -> None:
    """O-1: ServerSendLatency, as Prometheus defines steps; what is above all of them has one more."""
    flow = FlowCounts("q")
    flow.taken_in(1, 1, waited_s)
    last = len(LATENCY_STEPS_S)
    step = LATENCY_STEPS_S.index(waited_s) if waited_s in LATENCY_STEPS_S else last
    assert flow.latency_steps == [int(place == step) for place in range(last + 1)]


def test_the_results_of_requests_add_up() -> None:
    """O-3: UserErrors are the client's fault, ServerErrors ours, and being told to wait is neither."""
    flow = FlowCounts("q")
    flow.answered(10, [(0, MessageLockLost()), (3, ServerBusy()), (4, InternalError())])
    flow.refused(StoreOutcomeUnknown(), 2)
    flow.refused(BrokerError())
    flow.mistaken()
    flow.failed()
    assert (flow.successes, flow.user_errors, flow.server_errors, flow.throttled) == (7, 2, 5, 1)
    assert flow.requests == 15


def test_counts_outlive_the_fragments() -> None:
    """O-1: a store that fails takes its fragments with it, not what was counted."""
    flows = FlowTable()
    flows.of_fragment("Orders").taken_in(5, 5, 0)
    assert flows.of_fragment("orders/$DeadLetterQueue").messages_in == 5
    assert [flow.path for flow in flows.all()] == [NAMESPACE_ONLY, "Orders"]


def test_a_deleted_entity_is_forgotten() -> None:
    """O-1, E-86: another one under its name starts from zero."""
    flows = FlowTable()
    for path in ("a", "b", "c"):
        flows.of_fragment(path).taken_in(1, 1, 0)
    flows.forget("A")
    flows.keep(["B"])
    assert [flow.path for flow in flows.all()] == [NAMESPACE_ONLY, "b"]
    assert flows.of_fragment("a").messages_in == 0


def test_names_that_strangers_ask_for_make_no_entry() -> None:
    """O-2: what concerns no entity that is used counts for the namespace."""
    flows = FlowTable()
    used = flows.of_fragment("team/orders")
    assert flows.known("Team/Orders/$management") is used
    assert flows.nearest("team/orders/messages/head") is used
    for path in ("", "team", "nosuch", "team/orders2", "\ud800", "/" * 1000):
        assert flows.known(path) is flows.namespace
        assert flows.nearest(path) is flows.namespace
    assert len(flows.all()) == 2
