"""What a connection may hold before it has shown a token: enough to put one, and little besides."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from busway.amqp.decode import AMQP_HEADER, SASL_HEADER
from busway.amqp.engine_settings import EngineSettings
from busway.amqp.events import LinkAttached, SessionBegun, SessionEnded
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Flow,
    Open,
    Properties,
    SaslInit,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from busway.amqp.sasl import plain_response
from busway.amqp.sections import AmqpMessage, encode_message
from busway.client.connection_string import sas_token
from busway.model.descriptions import ROOT_RULE_NAME, QueueDescription
from tests.harness.frame_factory import make_frame, performatives, sasl
from tests.unit.gateway.amqp_peer import KEY, MemoryTransport, Peer, Room, in_room, payload

QUEUE = QueueDescription("q")
KIB = 1024
STRANGER_BYTES_MAX = 256 * KIB
STRANGERS = 8
#: What a socket's transport reads at most at once.
READ_BYTES = 256 * KIB
HELLO = (
    SASL_HEADER
    + sasl(SaslInit("ANONYMOUS"))
    + AMQP_HEADER
    + make_frame(Open("stranger"))
    + make_frame(Begin(None, 0, 65_536, 65_536))
)


def on_cbs(handle: int, *, sends: bool = True, name: str = "", properties: int = 0, node: str = "") -> bytes:
    """An attach to `$cbs`, which takes one sender of a connection; the others are for another node that a stranger
    may attach to. With so many bytes of properties."""
    node = node or ("$cbs" if handle == 0 or not sends else "q/$management")
    attach = Attach(
        name or f"l{handle}",
        handle,
        ROLE_SENDER if sends else ROLE_RECEIVER,
        source=Source("here" if sends else node),
        target=Target(node if sends else "answers"),
        initial_delivery_count=0 if sends else None,
    )
    if properties:
        attach.properties = {f"p{n}": "x" * 90 for n in range(properties // 100)}
    return make_frame(attach)


def part(handle: int, size: int, *, delivery: int = 0, more: bool = True) -> bytes:
    return make_frame(Transfer(handle, delivery, b"t", 0, False, more), payload=bytes(size))


def request(delivery: int, message_id: str) -> bytes:
    message = AmqpMessage("no token", properties=Properties(message_id=message_id, reply_to="answers"))
    return make_frame(Transfer(0, delivery, b"t", 0, False, False), payload=encode_message(message))


class Stranger:
    """Bytes of a test's choice on a connection, and what was answered to them."""

    def __init__(self, room: Room, *, reads: bool = True) -> None:
        self.transport = MemoryTransport()
        self.transport.holds = not reads
        self.connection = room.gateway.connect(self.transport, "127.0.0.1")

    def say(self, data: bytes) -> None:
        if data.startswith(HELLO):  # what comes behind it must not be too much to come with it
            self.connection.data_received(HELLO)
            data = data[len(HELLO) :]
        for at in range(0, len(data), READ_BYTES):
            if self.transport.is_reading and not self.transport.is_closed:
                self.connection.data_received(data[at : at + READ_BYTES])

    def heard(self) -> list[object]:
        return list(performatives(self.transport.take()))

    def condition(self, kind: type[Close] | type[Detach]) -> str | None:
        """Of the first such good-bye that was heard."""
        for said in self.heard():
            if isinstance(said, kind) and said.error is not None:
                return str(said.error.condition)
        return None


def test_a_stranger_has_four_sessions_and_eight_links() -> None:
    """Attack: what is beyond is refused alone, and everything is there after the first token."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        more = [peer.engine.begin() for _ in range(4)]
        await room.turns()
        [ended] = peer.seen(SessionEnded)
        assert ended.session is more[-1]
        assert ended.error is not None
        assert ended.error.condition == "amqp:resource-limit-exceeded"
        for _ in range(8):
            await peer.sender("q/$management")
        assert peer.refusal(await peer.sender("q/$management")) == (
            "amqp:resource-limit-exceeded",
            "The connection has 8 links already.",
        )

    in_room(scenario, QUEUE)


def test_a_client_has_all_it_may_have_after_its_token() -> None:
    """A-7, L-12: sessions and links as announced."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        assert await peer.put_token("sb://localhost/") == 202
        peer.session = peer.engine.begin()
        await room.turns()
        assert len(peer.seen(SessionBegun)) == 2
        for _ in range(20):
            assert peer.refusal(await peer.sender("q")) is None

    in_room(scenario, QUEUE)


def test_what_comes_right_behind_a_good_key_is_no_strangers() -> None:
    """A-7: a client that logs in with SASL PLAIN may write its links behind its key, in one go."""

    async def scenario(room: Room) -> None:
        client = Stranger(room)
        attaches = [
            make_frame(Attach(f"l{n}", n, ROLE_SENDER, source=Source("x"), target=Target("q")))
            for n in range(20)
        ]
        client.say(
            SASL_HEADER
            + sasl(SaslInit("PLAIN", plain_response(ROOT_RULE_NAME, KEY)))
            + AMQP_HEADER
            + make_frame(Open("client"))
            + make_frame(Begin(None, 0, 65_536, 65_536))
            + make_frame(Begin(None, 0, 65_536, 65_536), channel=1)
            + b"".join(attaches)
        )
        heard = client.heard()
        assert len([said for said in heard if isinstance(said, Begin)]) == 2
        assert len([said for said in heard if isinstance(said, Attach)]) == 20
        assert not [said for said in heard if isinstance(said, Detach)]

    in_room(scenario, QUEUE)


def test_a_stranger_has_one_unfinished_delivery() -> None:
    """Attack: the second one ends its link."""

    async def scenario(room: Room) -> None:
        stranger = Stranger(room)
        stranger.say(HELLO + on_cbs(0) + on_cbs(1) + part(0, 100))
        assert stranger.condition(Detach) is None
        stranger.say(part(1, 100, delivery=1))
        assert stranger.condition(Detach) == "amqp:resource-limit-exceeded"
        stranger.say(part(0, 100, more=False))
        await room.turns()
        assert stranger.condition(Close) is None

    in_room(scenario, QUEUE)


def test_a_strangers_frames_and_deliveries_share_64_kib() -> None:
    """Attack: a frame that would make it more is refused by its size field, before any byte of it is waited for."""

    async def scenario(room: Room) -> None:
        alone = Stranger(room)
        alone.say(HELLO + (65_000).to_bytes(4, "big") + b"\x02\x00\x00\x00")
        assert alone.condition(Close) is None
        stranger = Stranger(room)
        stranger.say(HELLO + on_cbs(0) + part(0, 20_000))
        assert stranger.condition(Close) is None
        stranger.say((50_000).to_bytes(4, "big") + b"\x02\x00\x00\x00")
        assert stranger.condition(Close) == "amqp:connection:framing-error"

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("frame_bytes", [65_536, 512])
def test_a_token_of_16_kib_opens_the_connection(frame_bytes: int) -> None:
    """A-7: in one frame, and in as many as a client of small frames needs."""

    async def scenario(room: Room) -> None:
        peer = Peer(room, "10.0.0.1", EngineSettings(max_frame_size=frame_bytes))
        await peer.open()
        links = await peer.request_links("$cbs", "answers")
        token = sas_token("sb://localhost/q", ROOT_RULE_NAME, KEY, room.clock.wall_ms() // 1000 + 3600)
        token += "&padding=" + "x" * (16 * KIB - len(token))
        asked = AmqpMessage(
            token,
            properties=Properties(message_id="1", reply_to="answers"),
            application_properties={"operation": "put-token", "name": "sb://localhost/q"},
        )
        answer = await peer.request(links, asked)
        assert (answer.application_properties or {})["status-code"] == 202
        assert await peer.sent(await peer.sender("q"), payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_of_an_attach_only_its_name_and_addresses_are_kept() -> None:
    """Attack: what a link said of itself is let go when it is answered, and it is counted until it is gone."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        properties = {f"p{n}": "x" * 90 for n in range(200)}
        links = [await peer.sender("q", properties=properties) for _ in range(20)]
        engine = peer.connection.carrier.engine
        [session] = engine.sessions.values()
        for link in session.links.values():
            assert (link.source, link.target, link.properties) == (None, None, None)
        assert 0 < engine.allowance.attach_bytes() < 20 * 100
        for link in links:
            link.detach()
        await room.turns()
        assert engine.allowance.attach_bytes() == 0

    in_room(scenario, QUEUE)


def test_links_that_wait_for_their_answer_are_counted_whole() -> None:
    """Attack: receivers that wait for a session hold what they said; beyond 2 MiB of it a link is refused."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        properties = {f"p{n}": "x" * 200 for n in range(250)}
        wanted = {"com.microsoft:session-filter": None}
        links = [
            peer.session.attach(
                f"r{n}",
                is_sender=False,
                source=Source("s", filter=wanted),
                target=Target("x"),
                properties=properties,
            )
            for n in range(45)
        ]
        await room.turns()
        refused = [link for link in links if peer.refusal(link) is not None]
        assert 0 < len(refused) < 20
        assert {peer.refusal(link)[0] for link in refused} == {"amqp:resource-limit-exceeded"}  # type: ignore[index]
        assert not [link for link in links if link not in refused and peer.seen(LinkAttached, link)]

    in_room(scenario, QUEUE, QueueDescription("s", requires_session=True))


def unfinished() -> bytes:
    """The old way: eight deliveries of a megabyte that never end."""
    links = b"".join(on_cbs(handle) for handle in range(8))
    return HELLO + links + b"".join(part(handle, 32_000) for handle in range(8) for _ in range(40))


def long_attaches() -> bytes:
    return HELLO + b"".join(on_cbs(handle, properties=60_000) for handle in range(12))


def long_names() -> bytes:
    return HELLO + b"".join(on_cbs(handle, name=f"{handle}" + "n" * 60_000) for handle in range(8))


def refused_links() -> bytes:
    return HELLO + b"".join(on_cbs(handle) for handle in range(256))


def small_values() -> bytes:
    """A request of many small values: large once it is decoded."""
    body = [True, 1, 2] * 5_000
    frames = [
        make_frame(Transfer(0, n, b"t", 0, False, False), payload=encode_message(AmqpMessage(body)))
        for n in range(30)
    ]
    return HELLO + on_cbs(0) + b"".join(frames)


def unwanted_answers() -> bytes:
    """No credit for the answers, which bear the long ids of their requests."""
    links = on_cbs(0) + b"".join(on_cbs(handle, sends=False) for handle in range(1, 8))
    return HELLO + links + b"".join(request(n, "i" * 20_000) for n in range(60))


def managing() -> bytes:
    """Nodes that may be managed by those who have a token, and that do not exist either: long names, long requests,
    tokens that are none, answers that nobody wants."""
    nodes = [f"{'n' * 900}{handle}/$management" for handle in range(4)] + ["q/$management"] * 4
    links = b"".join(on_cbs(handle, sends=handle % 2 == 0, node=nodes[handle]) for handle in range(8))
    asked = AmqpMessage(
        {"from-sequence-number": 0, "message-count": 1},
        properties=Properties(message_id="i" * 10_000, reply_to="answers"),
        application_properties={"operation": "com.microsoft:peek-message", "security_token": "x" * 15_000},
    )
    frames = [
        make_frame(Transfer(n % 4 * 2, n, b"t", 0, False, False), payload=encode_message(asked))
        for n in range(60)
    ]
    return HELLO + links + b"".join(frames)


def managing_at_length() -> bytes:
    """A request to a management node may be of megabytes, for those who have a token."""
    links = b"".join(on_cbs(handle, node="q/$management") for handle in range(8))
    return HELLO + links + b"".join(part(handle, 32_000) for handle in range(8) for _ in range(40))


def half_a_frame() -> bytes:
    return HELLO + on_cbs(0) + part(0, 30_000) + part(0, 30_000)[:-1]


def echoes() -> bytes:
    flow = make_frame(Flow(1, 1, 0, 1, echo=True))
    return HELLO + flow * 2_000


def begins() -> bytes:
    frames = [make_frame(Begin(None, 0, 1, 1), channel=n) for n in range(1, 1_000)]
    return HELLO + b"".join(frames)


def transactions() -> bytes:
    attach = Attach("c", 0, ROLE_SENDER, source=Source("x"), target=Coordinator(), initial_delivery_count=0)
    declare = b"\x00\x53\x77" + encode_performative(Declare())
    frames = [make_frame(Transfer(0, n, b"t", 0, False, False), payload=declare) for n in range(300)]
    return HELLO + make_frame(attach) + b"".join(frames)


def long_open() -> bytes:
    properties = {f"{n}": True for n in range(1_000)}
    return HELLO.replace(make_frame(Open("stranger")), make_frame(Open("stranger", properties=properties)))


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "never-reads"])
@pytest.mark.parametrize(
    "attack",
    [
        unfinished,
        long_attaches,
        long_names,
        refused_links,
        small_values,
        unwanted_answers,
        managing,
        managing_at_length,
        half_a_frame,
        echoes,
        begins,
        transactions,
        long_open,
    ],
)
def test_a_stranger_holds_at_most_256_kib(attack: object, reads: bool) -> None:
    """Attack: whatever it says before its first token; so a thousand of them hold at most 256 MiB."""
    assert callable(attack)
    said = attack()

    async def scenario(room: Room) -> None:
        Stranger(room, reads=reads).say(said)  # what is made once for all is made
        await room.turns()
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            strangers = []
            for _ in range(STRANGERS):
                strangers.append(Stranger(room, reads=reads))
                strangers[-1].say(said)
            # Now, when all have spoken and nothing was worked on in the background, and after that.
            at_once = tracemalloc.get_traced_memory()[0] - before
            for stranger in strangers:
                stranger.transport.take()
            await room.turns()
            await asyncio.sleep(0)
            later = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert later / STRANGERS < STRANGER_BYTES_MAX
        answered = 0 if not reads else READ_BYTES  # the test itself holds what it has not taken yet
        assert at_once / STRANGERS < STRANGER_BYTES_MAX + answered

    in_room(scenario, QUEUE)
