"""Both roles against each other, under every way of slicing the stream."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import (
    ConnectionClosed,
    DeliveriesArrived,
    LinkDetached,
    OutcomesArrived,
    SessionEnded,
    SettlementsAnswered,
)
from busway.amqp.performatives import ACCEPTED
from tests.harness.engine_pair import EnginePair
from tests.harness.examples import examples_of

#: Counters that wrap within the first few messages.
NEAR_WRAP = EngineSettings(
    first_delivery_id=2**32 - 3, first_transfer_id=2**32 - 5, first_delivery_count=2**32 - 2
)
FROM_ONE = EngineSettings()


def life(
    slice_bytes: int | None, sizes: list[int], numbers: EngineSettings
) -> tuple[EnginePair, list[bytes], list[bytes]]:
    """A whole conversation: messages both ways, settled, detached, closed."""
    pair = EnginePair(slice_bytes=slice_bytes, server=numbers, client=numbers).opened()
    session = pair.begin()
    to_server, from_client = pair.sender(session=session)
    to_client, from_server = pair.receiver(session=session)
    payloads = [bytes([size % 256]) * size for size in sizes]
    for payload in payloads:
        to_server.send(b"up", payload, settled=False)
        from_server.send(b"down", payload, settled=False)
    pair.pump()
    up = [one for event in pair.server_saw(DeliveriesArrived) for one in event.deliveries]
    down = [one for event in pair.client_saw(DeliveriesArrived) for one in event.deliveries]
    from_client.settle(up[0].delivery_id, up[-1].delivery_id, ACCEPTED)
    to_client.settle(down[0].delivery_id, down[-1].delivery_id, ACCEPTED, settled=False)
    pair.pump()
    for outcome in pair.server_saw(OutcomesArrived):
        outcome.link.answer(outcome.deliveries, outcome.state)
    pair.pump()
    to_server.detach()
    pair.pump()
    pair.client.close()
    pair.pump()
    return pair, [one.payload for one in up], [one.payload for one in down]


@pytest.mark.parametrize("slice_bytes", [None, 1, 2, 3, 7, 8, 9, 64, 1_000])
@pytest.mark.parametrize("numbers", [FROM_ONE, NEAR_WRAP], ids=["from one", "over the wrap"])
def test_a_whole_life_is_the_same_in_any_slices(slice_bytes: int | None, numbers: EngineSettings) -> None:
    sizes = [0, 1, 200, 511, 512, 3_000]
    pair, up, down = life(slice_bytes, sizes, numbers)
    assert [len(payload) for payload in up] == [len(payload) for payload in down] == sizes
    assert sum(len(event.deliveries) for event in pair.client_saw(OutcomesArrived)) == len(sizes)
    assert sum(len(event.delivery_ids) for event in pair.client_saw(SettlementsAnswered)) == len(sizes)
    for saw in (pair.server_saw, pair.client_saw):
        assert len(saw(LinkDetached)) == 2
        assert len(saw(SessionEnded)) == 1
        assert len(saw(ConnectionClosed)) == 1
    assert pair.server.over
    assert pair.client.over


@settings(max_examples=examples_of(30), deadline=None)
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=8), st.sampled_from([None, 13, 4_096]))
def test_messages_of_any_size_arrive_as_they_were(sizes: list[int], slice_bytes: int | None) -> None:
    _, up, down = life(slice_bytes, sizes, NEAR_WRAP)
    expected = [bytes([size % 256]) * size for size in sizes]
    assert up == expected
    assert down == expected


def test_the_bytes_do_not_depend_on_the_slices() -> None:
    whole, _, _ = life(None, [1, 1_000, 70_000], FROM_ONE)
    sliced, _, _ = life(777, [1, 1_000, 70_000], FROM_ONE)
    assert whole.from_client == sliced.from_client


def test_heartbeats_keep_two_quiet_engines_together_for_ever() -> None:
    """R-22: each sends empty frames well within the other's patience."""
    pair = EnginePair().opened()
    pair.sender()
    for _ in range(200):
        pair.tick(30)
        pair.pump()
    assert not pair.server.over
    assert not pair.client.over


def test_a_dead_client_is_noticed() -> None:
    """R-22, ERR-24: a dead client is noticed."""
    pair = EnginePair().opened()
    pair.sender()
    pair.clock.advance(240)
    events = pair.server.tick(pair.clock.monotonic())
    assert isinstance(events[-1], ConnectionClosed)
    for event in pair.client.receive(pair.server.bytes_to_send(), pair.clock.monotonic()):
        pair.client_events.append(event)
    error = pair.last_client(ConnectionClosed).error
    assert error is not None
    assert error.condition == "amqp:connection:forced"
    assert [type(event).__name__ for event in pair.client_events[-3:]] == [
        "LinkDetached",
        "SessionEnded",
        "ConnectionClosed",
    ]


def test_thousands_of_messages_pass_small_windows_both_ways() -> None:
    small = EngineSettings(incoming_window=7, unsettled_per_link_max=100_000)
    pair = EnginePair(server=small, client=small).opened()
    session = pair.begin()
    to_server, from_client = pair.sender(session=session, credit=5_000)
    to_client, from_server = pair.receiver(session=session, credit=5_000)
    del from_client, to_client
    sent = 0
    while sent < 2_000:
        room = min(to_server.room(), from_server.room())
        for _ in range(room):
            to_server.send(b"t", b"x", settled=False)
            from_server.send(b"t", b"x", settled=False)
        sent += room
        pair.pump()
        assert room > 0
    assert sum(len(event.deliveries) for event in pair.server_saw(DeliveriesArrived)) == sent
    assert sum(len(event.deliveries) for event in pair.client_saw(DeliveriesArrived)) == sent
