"""Usual transfers in runs are what they are one by one: the same bytes through both ways, and the same bytes out."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.amqp.deliveries import IncomingDelivery
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import ConnectionEvent, DeliveriesArrived, LinkAttached, LinkDetached
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Performative,
    Target,
    TransactionalState,
    Transfer,
    encode_performative,
)
from tests.harness.engine_pair import EnginePair
from tests.harness.examples import examples_of
from tests.harness.frame_factory import FrameFactory, make_frame
from tests.harness.real_transfers import mutated, real_transfers, transfer_of, with_right_size

HANDLES = 3
ROOMY = EngineSettings(container_id="server")
#: Every bound is near: windows, credit, sizes of frames and deliveries.
NARROW = EngineSettings(
    container_id="server",
    incoming_window=12,
    overdraft_max=7,
    delivery_bytes_max=300,
    partial_bytes_max=700,
    frames_per_delivery_max=4,
    max_frame_size=512,
)
NEAR_WRAP = EngineSettings(
    first_delivery_id=2**32 - 3, first_transfer_id=2**32 - 5, first_delivery_count=2**32 - 2
)


class Watched:
    """A server engine with links on two channels, and everything about it that can be seen."""

    def __init__(self, takes_runs: bool, settings: EngineSettings, initial_count: int = 0) -> None:
        self.takes_runs = takes_runs
        self.factory = FrameFactory(settings).opened()
        self.links: list[Link] = []
        #: How many deliveries came in runs.
        self.in_runs = 0
        for channel in (0, 1):
            self.factory.send(Begin(None, 2**32 - 2, 5_000, 5_000), channel)
            for handle in range(HANDLES):
                self.feed(
                    make_frame(
                        Attach(
                            f"{channel}-{handle}",
                            handle,
                            ROLE_SENDER,
                            target=Target("q"),
                            initial_delivery_count=initial_count,
                        ),
                        channel=channel,
                    )
                )

    def feed(self, data: bytes) -> list[object]:
        """What the owner is told, in words."""
        return [self._told(event) for event in self.factory.feed(data)]

    def _told(self, event: ConnectionEvent) -> object:
        match event:
            case LinkAttached(link=link):
                self.links.append(link)
                link.accept(source=link.source, target=link.target)
                link.takes_runs = self.takes_runs
                link.grant_credit(5)
                return "attached", link.name
            case DeliveriesArrived(link=link):
                return link.name, [_delivery(one) for one in self._deliveries(event)]
            case LinkDetached(link=link, error=error, closed=closed):
                return "detached", link.name, closed, None if error is None else vars_of(error)
            case _:
                error = getattr(event, "error", None)
                return type(event).__name__, None if error is None else vars_of(error)

    def _deliveries(self, event: DeliveriesArrived) -> list[IncomingDelivery]:
        run = event.run
        if run is None or run.count == 0:
            return event.deliveries
        assert event.deliveries == []
        self.in_runs += run.count
        found = [run.delivery(number) for number in range(run.count)]
        for number, one in enumerate(found):
            assert run.data[run.payload_at(number) : run.payload_end(number)] == one.payload
            assert run.answer_id(number) == (-1 if one.settled else one.delivery_id)
        return found

    def books(self) -> list[object]:
        server = self.factory.server
        return [
            server.over,
            server.bytes_to_send(),
            server.allowance.partial_bytes(),
            len(server._buffer),
            *(
                (channel, one.state, one._incoming_left, one._next_incoming_id)
                for channel, one in server.sessions.items()
            ),
            *((one.name, one.state, one.credit(), one._credit, one._delivery_count) for one in self.links),
        ]


def vars_of(error: object) -> tuple[object, ...]:
    return getattr(error, "condition", None), getattr(error, "description", None)


def _delivery(one: IncomingDelivery) -> tuple[object, ...]:
    state = one.state
    shown = state.txn_id if isinstance(state, TransactionalState) else type(state).__name__
    return one.delivery_id, one.tag, one.message_format, one.settled, one.payload, shown


def both_take(reads: list[bytes], settings: EngineSettings, initial_count: int = 0) -> int:
    """Feeds the same reads to an engine whose owner takes runs and to one whose owner does not. Returns how many
    deliveries came in runs."""
    with_runs, without = Watched(True, settings, initial_count), Watched(False, settings, initial_count)
    for number, read in enumerate(reads):
        assert with_runs.feed(read) == without.feed(read)
        assert with_runs.books() == without.books()
        if number % 3 == 2:
            for one, other in zip(with_runs.links, without.links, strict=True):
                one.grant_credit(4)
                other.grant_credit(4)
    assert without.in_runs == 0
    return with_runs.in_runs


def cut(chance: random.Random, data: bytes, places_max: int = 4) -> list[bytes]:
    """As reads may come: in one piece, or cut anywhere."""
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, places_max)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def widened(body: bytes) -> bytes:
    """The same list as some clients write it: with sizes of four bytes."""
    if body[3] != 0xC0:
        return body
    return body[:3] + b"\xd0" + (body[4] + 3).to_bytes(4, "big") + body[5].to_bytes(4, "big") + body[6:]


def trimmed(body: bytes) -> bytes:
    """The same list without the nulls at its end."""
    if body[3] != 0xC0:
        return body
    fields = body[5]
    while fields > 1 and body[-1] == 0x40:
        body, fields = body[:-1], fields - 1
    return body[:4] + bytes((len(body) - 5, fields)) + body[6:]


# --- reading


def wire_forms() -> list[tuple[str, bytes]]:
    """The first whole delivery of format 0 of each recording, outside of transactions and not too short to matter."""
    found: list[tuple[str, bytes]] = []
    for name, frames in real_transfers().items():
        for frame in frames:
            transfer, _ = transfer_of(frame)
            is_whole = not transfer.message_format and not transfer.more and transfer.state is None
            if is_whole and len(frame) >= 32:
                found.append((name, frame))
                break
    return found


def test_what_every_client_library_writes_is_usual_from_the_second_time_on() -> None:
    """Speed: the forms of all recorded clients, of either width, are taken in runs."""
    unusual: list[str] = []
    for name, frame in wire_forms():
        watched = Watched(True, ROOMY)
        on_channel_0 = frame[:6] + b"\0\0" + frame[8:]
        watched.feed(on_channel_0)
        watched.feed(on_channel_0 * 3)
        if watched.in_runs < 3:
            unusual.append(name)
    assert unusual == []
    assert len(wire_forms()) > 50


def test_only_who_asks_gets_runs() -> None:
    """Outside contract: everybody else gets a list, as ever."""
    watched = Watched(True, ROOMY)
    frames = b"".join(make_frame(Transfer(0, number, b"t", 0), payload=b"x" * 40) for number in range(3))
    watched.feed(frames)
    watched.links[0].takes_runs = False
    watched.factory.events.clear()
    watched.factory.feed(frames)
    [event] = watched.factory.events
    assert isinstance(event, DeliveriesArrived)
    assert event.run is None
    assert len(event.deliveries) == 3


def test_something_unusual_makes_a_list_of_the_whole_read() -> None:
    """S-4: in the order of arrival, whatever stands between them; the next read is a run again."""
    usual = [make_frame(Transfer(0, number, b"t", 0), payload=b"x" * 40) for number in range(6)]
    batch = make_frame(Transfer(0, 9, b"t", 0x80013700), payload=b"y" * 40)
    watched = Watched(True, ROOMY)
    watched.feed(usual[0] + batch)
    watched.factory.events.clear()
    watched.factory.feed(usual[0] + usual[1] + batch + usual[2])
    watched.factory.feed(usual[3] + usual[4])
    mixed, plain = watched.factory.events
    assert isinstance(mixed, DeliveriesArrived)
    assert isinstance(plain, DeliveriesArrived)
    assert [one.delivery_id for one in mixed.deliveries] == [0, 1, 9, 2]
    assert mixed.run is not None
    assert mixed.run.count == 0
    assert plain.deliveries == []
    assert plain.run is not None
    assert plain.run.count == 2


TAG = b"0123456789abcdef"


def usual(
    delivery_id: int = 1, payload: bytes = b"x" * 40, *, more: bool = False, aborted: bool = False
) -> bytes:
    transfer = Transfer(0, delivery_id, TAG, 0, False, more, aborted=aborted)
    return make_frame(transfer, payload=payload)


def resized(frame: bytes, list_bytes: int = 0, fields: int = 0, size: int = 0) -> bytes:
    """A usual frame that says of its list, of its fields or of itself that there are more or fewer."""
    said = (int.from_bytes(frame[:4], "big") + size).to_bytes(4, "big")
    return said + frame[4:12] + bytes((frame[12] + list_bytes, frame[13] + fields)) + frame[14:]


#: Each nearly usual, and what it is mistaken for when one look is left out.
NEARLY_USUAL: dict[str, list[bytes]] = {
    "more fields than it has": [resized(usual(), fields=1)],
    "fewer fields than it has": [resized(usual(), fields=-1)],
    "a list that ends in its payload": [resized(usual(payload=b"\x40" * 40), list_bytes=1)],
    "a list that ends in its tag": [resized(usual(), list_bytes=-12)],
    "a list that ends behind the frame": [resized(usual(), size=-42)],
    "a frame that is too large": [usual(payload=b"x" * 480)],
    "a delivery that is too large": [usual(payload=b"x" * 401)],
    "the first part of a delivery": [usual(2, more=True), usual(2), usual(3, more=True), usual(3)],
    "a delivery that is taken back": [usual(2, aborted=True), usual(3), usual(4, aborted=True)],
    "one delivery too many": [usual()] * 11,
    "one delivery too many, in several reads": [usual()] * 7 + [b""] + [usual()] * 4,
    "a frame that must open the window": [usual()] * 8,
    "an extended frame head": [make_frame(Transfer(0, 1, TAG, 0, False), payload=b"x" * 40, doff=3)],
    "a frame of another type": [make_frame(Transfer(0, 1, TAG, 0, False), payload=b"x" * 40, frame_type=1)],
    "a tag that is too long": [make_frame(Transfer(0, 1, b"t" * 129, 0, False), payload=b"x" * 40)],
    "a handle that nobody has": [make_frame(Transfer(7, 1, TAG, 0, False), payload=b"x" * 40)],
    "a channel that nobody has": [make_frame(Transfer(0, 1, TAG, 0, False), payload=b"x" * 40, channel=9)],
}


@pytest.mark.parametrize("name", NEARLY_USUAL)
def test_what_is_nearly_usual_means_the_same_in_runs(name: str) -> None:
    """[2.7.5]: behind usual transfers, before them, and in a read of its own."""
    bounds = EngineSettings(
        container_id="server", incoming_window=14, overdraft_max=3, delivery_bytes_max=400, max_frame_size=512
    )
    learned = [usual(), usual(), usual(2, more=True), usual(2)]
    nearly = NEARLY_USUAL[name]
    for before in (0, 1, 2):
        for reads in ([b"".join([usual()] * before + nearly + [usual()])], nearly):
            assert both_take([*learned[:2], *reads, usual()], bounds) > 0
            assert both_take([*learned, *reads, usual()], bounds) > 0
            roomy = EngineSettings(container_id="server", max_frame_size=512)
            assert both_take([*learned, *reads, usual()], roomy) > 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bounds", [ROOMY, NARROW], ids=["roomy", "narrow"])
def test_mutants_of_real_frames_mean_the_same_in_runs(seed: int, bounds: EngineSettings) -> None:
    """Attack: bytes changed anywhere, in any order, in reads cut anywhere: equal events, answers and books."""
    chance = random.Random(seed)
    corpus = [frame for frames in real_transfers().values() for frame in frames if len(frame) < 700]
    in_runs = 0
    for _ in range(examples_of(60)):
        frames: list[bytes] = []
        for _ in range(chance.randint(1, 12)):
            frame = chance.choice(corpus)
            if chance.random() < 0.5:
                frame = mutated(chance, frame)
            if chance.random() < 0.9:
                frame = with_right_size(frame)
            if chance.random() < 0.8:
                frame = frame[:6] + bytes((0, chance.choice((0, 0, 0, 1, 2)))) + frame[8:]
            frames += [frame] * chance.choice((1, 1, 2, 5, 30))
        in_runs += both_take(cut(chance, b"".join(frames)), bounds, chance.choice((0, 2**32 - 2)))
    assert in_runs > 0


few = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 255, 256, 2**32 - 1])
ids = st.one_of(st.integers(0, 5), st.sampled_from([255, 256, 2**31 - 1, 2**31, 2**32 - 1]))
transfers = st.builds(
    Transfer,
    few,
    st.one_of(st.none(), ids, ids, ids),
    st.one_of(
        st.none(), st.sampled_from([b"", b"t", b"0123456789abcdef", b"t" * 128, b"t" * 129, b"t" * 200])
    ),
    st.sampled_from([None, 0, 0, 0, 0x80013700]),
    st.sampled_from([None, True, False]),
    st.sampled_from([False] * 8 + [True]),
    state=st.sampled_from([None] * 8 + [Accepted(), TransactionalState(b"tx")]),
    aborted=st.sampled_from([False] * 8 + [True]),
)
others: st.SearchStrategy[Performative] = st.one_of(
    st.builds(
        Flow, st.none(), st.integers(0, 9), ids, ids, st.one_of(st.none(), few), ids, ids, echo=st.booleans()
    ),
    st.builds(Disposition, st.booleans(), ids, ids, st.booleans()),
    st.builds(Detach, few, st.booleans()),
    st.just(End()),
)
payloads = st.sampled_from([b"", b"x", b"y" * 9, b"y" * 60, b"z" * 300, b"z" * 301, b"z" * 460, b"z" * 600])
shapes = st.sampled_from([lambda body: body, widened, trimmed, lambda body: widened(trimmed(body))])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    channel = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
    if draw(st.integers(0, 9)) == 0:
        return make_frame(draw(others), channel=channel)
    body = draw(shapes)(encode_performative(draw(transfers)))
    doff = draw(st.sampled_from([2] * 12 + [3]))
    made = make_frame(body, channel=channel, payload=draw(payloads), doff=doff)
    return made * draw(st.sampled_from([1, 1, 2, 6, 20]))


@settings(max_examples=examples_of(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames(), min_size=1, max_size=12), st.randoms(use_true_random=False), st.booleans())
def test_any_frames_mean_the_same_in_runs(made: list[bytes], chance: random.Random, is_narrow: bool) -> None:
    """[2.6.12]: whole deliveries, parts, aborted ones; what ends links, sessions and the connection between them."""
    both_take(cut(chance, b"".join(made)), NARROW if is_narrow else ROOMY)


# --- writing


def written(pair: EnginePair, link: Link) -> tuple[object, ...]:
    """What has left, and what is booked."""
    session = link.session
    sent = pair.server.bytes_to_send()
    numbers = session.next_delivery_id, session.next_outgoing_id, session.peer_window
    unsettled = [
        (key, one.tag, one.settled, one.link is link) for key, one in session.books.unsettled.items()
    ]
    return sent, numbers, unsettled, link.credit(), link.unsettled_count(), link.room(), link._delivery_count


def receiving(credit: int) -> tuple[EnginePair, Link]:
    pair = EnginePair(server=NEAR_WRAP).opened()
    _, link = pair.receiver(session=pair.begin(), credit=credit)
    return pair, link


@settings(max_examples=examples_of(100), deadline=None)
@given(st.lists(st.binary(max_size=90), max_size=20), st.booleans(), st.sampled_from([0, 4, 16, 32]))
def test_a_run_is_written_and_booked_as_single_sends_are(
    payloads: list[bytes], settled: bool, tag_bytes: int
) -> None:
    """[2.7.5]: byte for byte, over the wrap of every counter."""
    (pair, one_by_one), (other_pair, at_once) = receiving(30), receiving(30)
    tags = [number.to_bytes(4, "big") * (tag_bytes // 4) for number in range(len(payloads))]
    for tag, payload in zip(tags, payloads, strict=True):
        one_by_one.send(tag, payload, settled=settled)
    run = at_once.begin_run(tag_bytes, settled)
    run_bytes = 0
    for tag, payload in zip(tags, payloads, strict=True):
        run.begin(tag, len(payload))
        run_bytes += run.head_bytes + len(payload)
        run.out.write(payload)
    at_once.end_run(run)
    expected = written(pair, one_by_one)
    assert written(other_pair, at_once) == expected
    assert isinstance(expected[0], bytes)
    assert len(expected[0]) == run_bytes


def test_a_run_without_room_is_our_mistake() -> None:
    """R-70: whoever writes has asked for room, as before a single send."""
    _, link = receiving(0)
    with pytest.raises(RuntimeError, match="no room to send"):
        link.begin_run(16, False)


def test_an_empty_run_leaves_nothing() -> None:
    """[2.7.5]: nothing to send is nothing to write."""
    pair, link = receiving(3)
    link.end_run(link.begin_run(16, False))
    assert not pair.server.has_bytes()
    assert link.credit() == 3
