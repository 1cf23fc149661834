"""Any performative at any moment, with any numbers, whatever the owner does: only proper ends, never an exception."""

from __future__ import annotations

import random
from collections import Counter
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.errors import AmqpError
from busway.amqp.events import (
    ConnectionClosed,
    ConnectionEvent,
    CreditArrived,
    DeliveriesArrived,
    LinkAttached,
    LinkDetached,
    OutcomesArrived,
    SessionEnded,
)
from busway.amqp.link import Link
from busway.amqp.performatives import (
    ACCEPTED,
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Performative,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.states import SessionState
from tests.harness.examples import examples_of
from tests.harness.frame_factory import FrameFactory, make_frame, sasl, split_frames

SMALL = EngineSettings(
    sessions_max=3,
    links_max=5,
    handle_max=6,
    incoming_window=8,
    overdraft_max=6,
    unsettled_per_link_max=6,
    delivery_bytes_max=300,
    partial_bytes_max=500,
    frames_per_delivery_max=5,
    channel_max=8,
)

uints = st.sampled_from([0, 1, 2, 3, 5, 6, 7, 255, 256, 5_000, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
few = st.sampled_from([0, 0, 0, 1, 1, 2, 5, 6, 7, 2**32 - 1])
maybe_uints = st.one_of(st.none(), uints)
flags = st.booleans()
channels = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 8, 9, 65_535])
errors = st.sampled_from([None, AmqpError("amqp:internal-error", "x" * 900), AmqpError("é".encode().hex())])
states = st.sampled_from(
    [
        None,
        Accepted(),
        Released(),
        Rejected(AmqpError("com.microsoft:dead-letter", "d", {"DeadLetterReason": "r"})),
        Modified(True, True, {"k": 1}),
        Received(1, 2),
        TransactionalState(b"tx", Accepted()),
    ]
)
payloads = st.sampled_from([b"", b"x", b"y" * 150, b"z" * 301])
link_names = st.sampled_from(["a", "b", "c", "ü" * 100])

attaches = st.builds(
    Attach,
    link_names,
    few,
    st.sampled_from([ROLE_SENDER, ROLE_RECEIVER]),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([None, Source("q"), Source("q" * 3_000)]),
    st.sampled_from([None, Target("q"), Coordinator()]),
    initial_delivery_count=maybe_uints,
    max_message_size=st.sampled_from([None, 0, 2**64 - 1]),
)
transfers = st.builds(
    Transfer,
    few,
    maybe_uints,
    st.sampled_from([None, b"", b"tag", b"t" * 40]),
    st.sampled_from([None, 0, 0x80013700]),
    st.sampled_from([None, True, False]),
    flags,
    state=states,
    aborted=st.sampled_from([False, False, False, True]),
)
performatives_of_any_kind: st.SearchStrategy[Performative] = st.one_of(
    st.builds(Open, st.just("c"), max_frame_size=maybe_uints, idle_time_out=maybe_uints),
    st.builds(Begin, st.one_of(st.none(), st.just(0)), uints, uints, uints, maybe_uints),
    attaches,
    attaches,
    transfers,
    transfers,
    transfers,
    st.builds(
        Flow,
        maybe_uints,
        uints,
        uints,
        uints,
        st.one_of(st.none(), few),
        maybe_uints,
        maybe_uints,
        maybe_uints,
        flags,
        flags,
    ),
    st.builds(Flow, maybe_uints, uints, uints, uints, few, maybe_uints, uints, st.none(), flags, flags),
    st.builds(Disposition, flags, uints, maybe_uints, flags, states),
    st.builds(Detach, few, flags, errors),
    st.builds(End, errors),
    st.builds(Close, errors),
    st.sampled_from([SaslInit("ANONYMOUS"), SaslMechanisms(["PLAIN"]), SaslOutcome(0), SaslChallenge(b"")]),
)
#: Mostly frames, and what the owner does in between.
steps = st.lists(
    st.one_of(
        st.tuples(performatives_of_any_kind, channels, payloads),
        st.tuples(performatives_of_any_kind, st.just(0), st.just(b"x")),
        st.sampled_from(
            [
                "accept",
                "refuse",
                "grant",
                "settle",
                "send",
                "large",
                "answer",
                "drained",
                "detach",
                "end",
                "tick",
            ]
        ),
    ),
    max_size=40,
)


class Owner:
    """Does what it is told with whatever links there are, and keeps the books on events."""

    def __init__(self, factory: FrameFactory) -> None:
        self.factory = factory
        self.links: list[Link] = []
        self.outcomes: list[OutcomesArrived] = []
        self.arrivals: list[DeliveriesArrived] = []
        self.ends: Counter[ConnectionEvent | object] = Counter()
        self.closed = 0
        self.written = b""

    def see(self, events: list[ConnectionEvent]) -> None:
        for event in events:
            assert self.closed == 0, "nothing is told after ConnectionClosed"
            match event:
                case LinkAttached(link=link):
                    self.links.append(link)
                case LinkDetached(link=link):
                    self.ends[link] += 1
                case SessionEnded(session=session):
                    self.ends[session] += 1
                case DeliveriesArrived():
                    self.arrivals.append(event)
                    assert all(len(one.payload) <= 300 for one in event.deliveries)
                case OutcomesArrived():
                    self.outcomes.append(event)
                case CreditArrived(link=link):
                    assert link.is_sender
                case ConnectionClosed():
                    self.closed += 1
                case _:
                    pass

    def act(self, verb: str) -> None:
        for link in self.links[-4:]:
            self._act_on(link, verb)
        if verb == "tick":
            self.factory.now += 30
            self.see(self.factory.server.tick(self.factory.now))
        elif verb == "end" and self.links:
            self.links[-1].session.end()

    def _act_on(self, link: Link, verb: str) -> None:
        if verb == "accept":
            link.accept(source=link.source, target=link.target)
        elif verb == "refuse":
            link.refuse(AmqpError("amqp:not-found", "n" * 400))
        elif verb == "grant":
            link.grant_credit(5)
        elif verb == "drained":
            link.drained()
        elif verb == "detach":
            link.detach()
        elif verb == "settle":
            for arrival in self.arrivals[-3:]:
                arrival.link.settle(
                    arrival.deliveries[0].delivery_id, arrival.deliveries[-1].delivery_id, ACCEPTED
                )
        elif verb == "answer":
            for outcome in self.outcomes[-3:]:
                outcome.link.answer(outcome.deliveries, outcome.state)
        elif verb in ("send", "large"):
            while link.room() > 0:
                link.send(b"tag", b"x" * (3 if verb == "send" else 1_500), settled=False)

    def collect(self) -> None:
        self.written += self.factory.server.bytes_to_send()

    def check(self) -> None:
        """The books must balance, and what we wrote must be readable and in order."""
        assert set(self.ends.values()) <= {1}
        server = self.factory.server
        if server.over:
            assert self.closed == 1
            assert all(self.ends[link] == 1 for link in self.links)
        frames = split_frames(self.written)
        kinds = [type(performative) for _, _, performative, _ in frames]
        assert Close not in kinds[:-1], "nothing follows our close"
        _check_sessions(frames)


def _check_sessions(frames: list[tuple[int, int, Performative | None, bytes]]) -> None:
    """Per channel: begin first, nothing behind an end, transfers only on attached handles, ids without gaps."""
    attached: dict[int, set[int]] = {}
    next_ids: dict[int, int] = {}
    for _, channel, performative, _ in frames:
        match performative:
            case Begin():
                assert channel not in attached
                attached[channel] = set()
                next_ids[channel] = 1
            case End():
                del attached[channel]
            case Attach(handle=handle):
                assert handle not in attached[channel]
                attached[channel].add(handle)
            case Detach(handle=handle):
                attached[channel].remove(handle)
            case Flow(handle=handle) if handle is not None:
                assert handle in attached[channel]
            case Transfer(handle=handle, delivery_id=delivery_id):
                assert handle in attached[channel]
                assert delivery_id in (next_ids[channel], next_ids[channel] - 1)
                if delivery_id == next_ids[channel]:
                    next_ids[channel] += 1
            case Disposition():
                assert channel in attached
            case _:
                pass


@settings(max_examples=examples_of(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.sampled_from([None, 512, 65_536]))
def test_any_sequence_ends_properly(
    sequence: list[str | tuple[Performative, int, bytes]], peer_frame_bytes: int | None
) -> None:
    factory = FrameFactory(SMALL)
    owner = Owner(factory)
    owner.see(factory.opened(Open("c", max_frame_size=peer_frame_bytes)).events[:])
    owner.see(factory.send(Begin(None, 0, 5, 5)))
    for step in sequence:
        _take(owner, step)
    _finish(owner)


class Mischief:
    """Draws steps that are lawful more often than not, so that a long sequence reaches every corner of a session."""

    def __init__(self, seed: int, factory: FrameFactory) -> None:
        self.chance = random.Random(seed)
        self.factory = factory
        self.delivery_id = 0

    def step(self) -> str | tuple[Performative, int, bytes]:
        chance = self.chance
        session = self.factory.server.sessions.get(0)
        if session is None:
            return Begin(None, 0, 5, 5), 0, b""
        if session.state is not SessionState.MAPPED:
            return End(), 0, b""
        if chance.random() < 0.4:
            return chance.choice(
                [
                    "accept",
                    "accept",
                    "grant",
                    "settle",
                    "send",
                    "send",
                    "large",
                    "answer",
                    "answer",
                    "drained",
                ]
            )
        if chance.random() < 0.05:
            return chance.choice(["refuse", "detach", "tick", "end"])
        frame = chance.choice(
            [self._attach, self._transfer, self._transfer, self._flow, self._disposition, self._detach]
        )()
        return frame, 0, chance.choice([b"", b"x", b"y" * 100, b"z" * 301])

    def _handles(self, is_sender: bool) -> list[int]:
        links = self.factory.server.sessions[0].links
        return [handle for handle, link in links.items() if link.is_sender == is_sender]

    def _attach(self) -> Performative:
        links = self.factory.server.sessions[0].links
        handle = self.chance.choice([handle for handle in range(7) if handle not in links] or [0])
        role = self.chance.choice([ROLE_SENDER, ROLE_RECEIVER])
        return Attach(self.chance.choice("abcde"), handle, role, target=Target("q"))

    def _transfer(self) -> Performative:
        chance = self.chance
        handles = self._handles(is_sender=False)
        if not handles:
            return self._attach()
        handle = chance.choice(handles)
        more = chance.random() < 0.3
        if chance.random() < 0.4:
            return Transfer(handle, None, None, None, None, more, aborted=chance.random() < 0.2)
        self.delivery_id = (self.delivery_id + chance.choice([0, 1, 1, 1])) % 2**32
        return Transfer(handle, self.delivery_id, b"tag", 0, chance.random() < 0.2, more)

    def _flow(self) -> Performative:
        chance = self.chance
        handle = chance.choice([None, *self._handles(is_sender=True), *self._handles(is_sender=False)])
        numbers = [chance.choice([0, 1, 2, 5, 9, 2**32 - 1]) for _ in range(3)]
        return Flow(
            numbers[0],
            chance.choice([0, 1, 9]),
            0,
            9,
            handle,
            numbers[1],
            numbers[2],
            None,
            chance.random() < 0.3,
            chance.random() < 0.3,
        )

    def _disposition(self) -> Performative:
        chance = self.chance
        first = chance.randrange(12)
        last = chance.choice([None, first, first + 3, 2**32 - 1])
        state = chance.choice(
            [None, Accepted(), Accepted(), Released(), Modified(), Received(0, 0), TransactionalState(b"t")]
        )
        return Disposition(chance.random() < 0.9, first, last, chance.random() < 0.3, state)

    def _detach(self) -> Performative:
        handles = self._handles(is_sender=self.chance.random() < 0.5)
        if not handles or self.chance.random() < 0.7:
            return self._attach()
        return Detach(self.chance.choice(handles), True)


@pytest.mark.parametrize("peer_frame_bytes", [None, 512])
@pytest.mark.parametrize("block", range(8))
def test_long_mischief_ends_properly(block: int, peer_frame_bytes: int | None) -> None:
    for seed in range(block * 15, block * 15 + 15):
        factory = FrameFactory(SMALL)
        owner = Owner(factory)
        owner.see(factory.opened(Open("c", max_frame_size=peer_frame_bytes)).events[:])
        mischief = Mischief(seed, factory)
        for _ in range(150):
            _take(owner, mischief.step())
        _finish(owner)


def _take(owner: Owner, step: str | tuple[Performative, int, bytes]) -> None:
    if isinstance(step, str):
        owner.act(step)
    else:
        performative, channel, payload = step
        body = payload if isinstance(performative, Transfer) else b""
        owner.see(owner.factory.send(performative, channel, body))
    owner.collect()


def _finish(owner: Owner) -> None:
    owner.see(owner.factory.server.tick(owner.factory.now))
    owner.collect()
    owner.check()


@settings(max_examples=examples_of(300), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), performatives_of_any_kind), max_size=8), st.integers(0, 4))
def test_any_bytes_at_any_phase_end_properly(pieces: list[bytes | Performative], phase: int) -> None:
    factory = FrameFactory()
    prologue = [SASL_HEADER, sasl(SaslInit("ANONYMOUS")), AMQP_HEADER, make_frame(Open("c"))]
    events = factory.feed(b"".join(prologue[:phase]))
    for piece in pieces:
        if isinstance(piece, bytes):
            events += factory.feed(piece)
        else:
            events += factory.feed(make_frame(piece, frame_type=len(pieces) % 2))
    closes = [event for event in events if isinstance(event, ConnectionClosed)]
    assert len(closes) == (1 if factory.server.over else 0)
    if closes:
        assert events[-1] is closes[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_conversation_never_raises(seed: int) -> None:
    """Bits flipped, bytes lost and doubled in an otherwise lawful stream."""
    chance = random.Random(seed)
    lawful = b"".join(
        (
            SASL_HEADER,
            sasl(SaslInit("ANONYMOUS", b"", "host")),
            AMQP_HEADER,
            make_frame(Open("c", "host", 65_536, 10, 60_000, properties={"product": "x"})),
            make_frame(Begin(None, 0, 100, 100, 255)),
            make_frame(
                Attach("up", 0, ROLE_SENDER, source=Source("s"), target=Target("q"), initial_delivery_count=0)
            ),
            make_frame(Attach("down", 1, ROLE_RECEIVER, source=Source("q"), target=Target("s"))),
            make_frame(Flow(1, 100, 0, 100, 1, 0, 50)),
            *(make_frame(Transfer(0, n, b"t", 0), payload=b"m" * 50) for n in range(10)),
            make_frame(Disposition(ROLE_RECEIVER, 0, 9, True, Accepted())),
            make_frame(Detach(0, True)),
            make_frame(End()),
            make_frame(Close()),
        )
    )
    for _ in range(60):
        data = bytearray(lawful)
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data))
            kind = chance.randrange(4)
            if kind == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                del data[at : at + chance.randint(1, 9)]
            elif kind == 2:
                data[at:at] = data[at : at + chance.randint(1, 30)]
            else:
                data[at : at + 4] = pack(">I", chance.choice([0, 1, 8, 2**31, 2**32 - 1]))
        factory = FrameFactory()
        for start in range(0, len(data), 97):
            for event in factory.feed(bytes(data[start : start + 97])):
                if isinstance(event, LinkAttached):
                    event.link.accept(source=event.link.source, target=event.link.target)
        split_frames(factory.server.bytes_to_send())
