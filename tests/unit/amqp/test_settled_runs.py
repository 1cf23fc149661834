"""Runs of settled deliveries with empty tags, cut out of one piece of bytes: what readers of event hubs get."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import DeliveriesArrived
from busway.amqp.link import Link
from busway.amqp.session import Session
from tests.harness.engine_pair import EnginePair
from tests.harness.examples import examples_of

NEAR_WRAP = EngineSettings(
    first_delivery_id=2**32 - 3, first_transfer_id=2**32 - 5, first_delivery_count=2**32 - 2
)


def cut(sizes: list[int], before: int = 7) -> tuple[bytes, list[int]]:
    """Bytes in which records of these sizes lie behind something else."""
    bounds = [before]
    data = b"\xff" * before
    for number, size in enumerate(sizes):
        data += bytes([number % 251]) * size
        bounds.append(len(data))
    return data + b"rest", bounds


def arrived(pair: EnginePair) -> list[IncomingDelivery]:
    return [one for event in pair.client_saw(DeliveriesArrived) for one in event.deliveries]


def in_frames_of(
    frame_bytes: int, credit: int, settings: EngineSettings | None = None
) -> tuple[EnginePair, Link, Link]:
    client = EngineSettings(max_frame_size=frame_bytes)
    pair = EnginePair(client=client, server=settings or EngineSettings()).opened()
    to_client, from_server = pair.receiver(session=pair.begin(), credit=credit)
    return pair, to_client, from_server


def test_a_run_arrives_settled_in_order_with_empty_tags() -> None:
    """H-21: as single sends would, ids one by one."""
    pair, _, link = in_frames_of(65_536, 100)
    data, bounds = cut([5, 0, 300])
    assert link.send_settled_run(data, bounds, 0, b"") == 3
    pair.pump()
    found = arrived(pair)
    assert [one.payload for one in found] == [bytes([0]) * 5, b"", bytes([2]) * 300]
    assert all(one.settled and one.tag == b"" and one.message_format == 0 for one in found)
    assert [one.delivery_id - found[0].delivery_id for one in found] == [0, 1, 2]
    assert (link.credit(), link.unsettled_count()) == (97, 0)


def test_a_run_ends_where_credit_ends_and_goes_on_from_there() -> None:
    """R-70: a run ends where credit ends and goes on from there."""
    pair, to_client, link = in_frames_of(65_536, 2)
    data, bounds = cut([1, 2, 3, 4])
    assert link.send_settled_run(data, bounds, 0, b"") == 2
    assert link.send_settled_run(data, bounds, 2, b"") == 2
    pair.pump()
    to_client.grant_credit(10)
    pair.pump()
    assert link.send_settled_run(data, bounds, 2, b"") == 4
    pair.pump()
    assert [len(one.payload) for one in arrived(pair)] == [1, 2, 3, 4]


def test_what_stands_before_each_record_is_written_each_time() -> None:
    """H-26: what stands before each record is written each time."""
    pair, _, link = in_frames_of(65_536, 100)
    data, bounds = cut([3, 4])
    link.send_settled_run(data, bounds, 0, b"front")
    pair.pump()
    assert [one.payload for one in arrived(pair)] == [b"front" + bytes(3), b"front" + bytes([1]) * 4]


def test_a_window_of_a_few_frames_cuts_a_large_record_and_the_run() -> None:
    """The rest of the record leaves when the window opens; the run stops behind it."""
    _, _, link = in_frames_of(512, 100)
    session: Session = link.session
    session.peer_window = 2
    data, bounds = cut([2_000, 10, 10])
    assert link.send_settled_run(data, bounds, 0, b"") == 1
    assert link.room() == 0
    assert link.send_settled_run(data, bounds, 1, b"") == 1


@settings(max_examples=examples_of(60), deadline=None)
@given(
    st.lists(st.integers(0, 1_500), min_size=1, max_size=30),
    st.integers(512, 2_000),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_run_arrives_as_single_sends_would(
    sizes: list[int], frame_bytes: int, credit: int, has_front: bool
) -> None:
    """H-21: records smaller and larger than a frame, over the wrap of every counter."""
    front = b"f" * 40 if has_front else b""
    pair, _, link = in_frames_of(frame_bytes, credit, NEAR_WRAP)
    data, bounds = cut(sizes)
    sent = link.send_settled_run(data, bounds, 0, front)
    pair.pump()
    assert sent == min(credit, len(sizes))
    expected = [front + data[bounds[n] : bounds[n + 1]] for n in range(sent)]
    assert [one.payload for one in arrived(pair)] == expected
    assert link.credit() == credit - sent
