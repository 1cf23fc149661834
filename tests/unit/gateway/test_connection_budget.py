"""What a connection may make the server hold after its login, and all connections together.

Attackers write raw frames on a connection of their own, which has the root key; what they make the server keep is
counted, not measured. Beside each of them an honest client goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from busway.amqp.frames import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    ROLE_RECEIVER,
    ROLE_SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Properties,
    Rejected,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.sasl import plain_response
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, encode_composite, encode_message
from busway.amqp.types import Array, Int, Long, UInt
from busway.broker.descriptions import QueueDescription
from busway.broker.limits import Limits
from busway.broker.sas_keys import ROOT_RULE_NAME
from busway.gateway.amqp import connection as connection_module
from busway.gateway.amqp.connection import BOOK_EVERY_BYTES
from busway.gateway.amqp.request_link import UNSENT_BYTES_MAX
from busway.gateway.connection_budget import SMALL_BYTES, ConnectionBudget
from busway.streams.hub_descriptions import ConsumerGroupDescription, EventHubDescription
from tests.harness.frame_factory import make_frame, performatives, sasl
from tests.unit.gateway.amqp_peer import KEY, MemoryTransport, Peer, Room, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller
from tests.unit.gateway.event_room import EventRoom, in_event_room
from tests.unit.gateway.http_exchange import VERSION, Exchange, queue_body

QUEUE = QueueDescription("q")
KIB = 1024
MIB = 1024 * KIB
CONNECTION_BYTES_MAX = 64 * MIB
#: What a socket's transport reads at most at once.
READ_BYTES = 256 * KIB
WINDOW = 65_536


class Attacker:
    """Bytes of a test's choice on a connection that is logged in."""

    def __init__(self, room: Room, address: str = "10.9.9.9") -> None:
        self.transport = MemoryTransport()
        self.connection = room.gateway.connect(self.transport, address)
        self.transport.lost = self.connection.connection_lost
        room.peers.append(self)  # type: ignore[arg-type]
        self.say(
            SASL_HEADER
            + sasl(SaslInit("PLAIN", plain_response(ROOT_RULE_NAME, KEY)))
            + AMQP_HEADER
            + make_frame(Open("attacker"))
            + make_frame(Begin(None, 0, WINDOW, WINDOW))
        )
        assert self.connection.is_authenticated

    def say(self, data: bytes) -> None:
        for at in range(0, len(data), READ_BYTES):
            if self.transport.is_reading and not self.transport.is_closed:
                self.connection.data_received(data[at : at + READ_BYTES])

    def pump(self) -> None:
        """It has said what it says."""

    def heard(self, kind: type) -> list[Any]:
        return [one for one in performatives(b"".join(self.transport.written)) if isinstance(one, kind)]

    def sends_to(self, address: str | Coordinator, handle: int = 0, channel: int = 0) -> None:
        target = Target(address) if isinstance(address, str) else address
        attach = Attach(
            f"s{channel}-{handle}",
            handle,
            ROLE_SENDER,
            source=Source("here"),
            target=target,
            initial_delivery_count=0,
        )
        self.say(make_frame(attach, channel=channel))

    def receives_from(self, address: str, handle: int = 0, channel: int = 0, target: str = "there") -> None:
        attach = Attach(
            f"r{channel}-{handle}", handle, ROLE_RECEIVER, source=Source(address), target=Target(target)
        )
        self.say(make_frame(attach, channel=channel))

    def gives_credit(self, credit: int, handle: int = 0, channel: int = 0, window: int = WINDOW) -> None:
        flow = Flow(None, window, 0, WINDOW, handle, 0, credit)
        self.say(make_frame(flow, channel=channel))

    def sends(
        self,
        data: bytes,
        handle: int = 0,
        delivery: int = 0,
        *,
        more: bool = False,
        state: object = None,
        message_format: int = 0,
        channel: int = 0,
        tag: bytes = b"t",
    ) -> None:
        frames = b""
        room = 60_000
        pieces = [data[at : at + room] for at in range(0, len(data), room)] or [b""]
        for number, piece in enumerate(pieces):
            is_last = number == len(pieces) - 1
            transfer = Transfer(
                handle, delivery, tag, message_format, False, more or not is_last, state=state
            )
            frames += make_frame(transfer, payload=piece, channel=channel)
        self.say(frames)


def peek(number: int, reply_to: str) -> bytes:
    message = AmqpMessage(
        {"from-sequence-number": Long(0), "message-count": Int(5)},
        properties=Properties(message_id=f"{number}", reply_to=reply_to),
        application_properties={"operation": "com.microsoft:peek-message"},
    )
    return encode_message(message)


async def filled(room: Room, count: int, size: int, queue: str = "q") -> Peer:
    """Messages in the queue, and the honest client that sent them."""
    honest = await room.client(address="10.0.0.7")
    sender = await honest.sender(queue)
    for first in range(0, count, 20):
        await honest.sent(sender, *(payload(bytes(size)) for _ in range(min(20, count - first))))
    return honest


async def goes_on(honest: Peer, queue: str = "q") -> None:
    """The honest client still sends."""
    sender = await honest.sender(queue)
    [outcome] = await honest.sent(sender, payload(b"still here"))
    assert isinstance(outcome, Accepted)


def unsent_bytes(attacker: Attacker) -> int:
    return sum(sum(map(len, link._unsent)) for link in attacker.connection.desk._responses)


def held_frame_bytes(attacker: Attacker) -> int:
    sessions = attacker.connection._engine.sessions.values()
    return sum(len(head) + len(data) for session in sessions for _, head, data in session.held)


# -- each kind of attacker


def test_answers_that_wait_for_credit_are_bounded_for_all_links_of_a_connection() -> None:
    """Attack: a hundred response links without credit kept an answer each."""

    async def scenario(room: Room) -> None:
        honest = await filled(room, 5, 50_000)
        attacker = Attacker(room)
        for pair in range(50):
            attacker.receives_from("q/$management", handle=2 * pair, target=f"a{pair}")
            attacker.sends_to("q/$management", handle=2 * pair + 1)
        for pair in range(50):
            attacker.sends(peek(pair, f"a{pair}"), handle=2 * pair + 1, delivery=pair)
            await room.turns(6)
        assert 0 < unsent_bytes(attacker) <= UNSENT_BYTES_MAX
        await goes_on(honest)

    in_room(scenario, QUEUE)


def fetch(numbers: range, message_id: str, reply_to: str) -> bytes:
    message = AmqpMessage(
        {
            "sequence-numbers": Array([Long(number) for number in numbers], 0x81),
            "receiver-settle-mode": UInt(1),
        },
        properties=Properties(message_id=message_id, reply_to=reply_to),
        application_properties={"operation": "com.microsoft:receive-by-sequence-number"},
    )
    return encode_message(message)


async def deferred(room: Room, count: int, size: int) -> Peer:
    honest = await filled(room, count, size)
    receiver = await honest.receiver("q")
    receiver.grant_credit(count)
    deliveries = await honest.received(receiver, count)
    await honest.settle(receiver, deliveries, Modified(undeliverable_here=True))
    return honest


def test_an_answer_larger_than_the_brake_gets_out_and_not_many_at_once() -> None:
    """Attack: one answer of many megabytes waits for credit and comes whole; the next is not built meanwhile."""

    async def scenario(room: Room) -> None:
        honest = await deferred(room, 60, 200_000)
        asking = await room.client()
        answers = await asking.receiver("q/$management", max_message_size=16 * MIB, target=Target("a"))
        requests = await asking.sender("q/$management")
        for first in (1, 31):
            asking.send(requests, fetch(range(first, first + 30), f"{first}", "a"))
            await room.turns(20)
        unsent = sum(sum(map(len, link._unsent)) for link in asking.connection.desk._responses)
        assert UNSENT_BYTES_MAX < 30 * 200_000 < unsent < 35 * 200_000
        await goes_on(honest)
        answers.grant_credit(10)
        told = await asking.received(answers, 2)
        assert all(len(one.payload) > 30 * 200_000 for one in told)
        await room.turns()
        assert asking.connection.desk.unsent_bytes == 0

    in_room(scenario, QUEUE)


def test_frames_that_wait_for_windows_are_bounded_for_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a window of one frame on each of fifty sessions kept the rest of a delivery each."""
    monkeypatch.setattr(connection_module, "KEPT_FREE_BYTES", 2 * MIB)

    async def scenario(room: Room) -> None:
        honest = await filled(room, 30, 250_000)
        attacker = Attacker(room)
        for channel in range(1, 31):
            attacker.say(make_frame(Begin(None, 0, 1, WINDOW), channel=channel))
            attacker.receives_from("q", channel=channel)
            attacker.gives_credit(1, channel=channel, window=1)
            await asyncio.sleep(0)
        await room.turns(3)
        assert 0 < held_frame_bytes(attacker) <= 3 * MIB
        # Who takes what it has been given gets the rest.
        for channel in range(1, 31):
            attacker.say(make_frame(Flow(None, WINDOW, 0, WINDOW), channel=channel))
        await room.turns(40)
        assert held_frame_bytes(attacker) == 0
        whole = [one for one in attacker.heard(Transfer) if not one.more]
        assert len(whole) == 30
        await goes_on(honest)

    in_room(scenario, QUEUE)


def envelope(count: int) -> bytes:
    """So many messages, as small as they can be."""
    inner = encode_message(AmqpMessage([b""], DATA))
    return encode_message(AmqpMessage([inner] * count, DATA))


def test_many_tiny_messages_count_as_what_they_weigh_in_memory() -> None:
    """Attack: envelopes of very many empty messages, while nothing is stored."""

    async def scenario(room: Room) -> None:
        honest = await room.client()
        attacker = Attacker(room)
        room.store.hold_commits()
        attacker.sends_to("q")
        for delivery in range(40):
            attacker.sends(envelope(1_000), delivery=delivery, message_format=BATCH_FORMAT)
        await room.turns(3)
        assert not attacker.transport.is_reading
        assert 4 * MIB < attacker.connection.holdings.input_bytes <= 5 * MIB
        room.store.release_commits()
        await room.turns(40)
        assert attacker.connection.holdings.input_bytes == 0
        assert attacker.transport.is_reading
        await goes_on(honest)

    in_room(scenario, QUEUE)


def test_envelopes_that_end_in_one_read_are_refused_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: sixteen links end their envelopes within one read: what is too much is told to come later."""
    monkeypatch.setattr(connection_module, "INPUT_FULL_BYTES", 2 * MIB)

    async def scenario(room: Room) -> None:
        honest = await room.client()
        attacker = Attacker(room)
        room.store.hold_commits()
        large = envelope(500)
        for handle in range(16):
            attacker.sends_to("q", handle=handle)
            attacker.sends(large[:-1], handle=handle, delivery=handle, message_format=BATCH_FORMAT, more=True)
        last = b"".join(
            make_frame(Transfer(handle, handle, b"t", BATCH_FORMAT, False, False), payload=large[-1:])
            for handle in range(16)
        )
        attacker.say(last)
        await room.turns(3)
        assert 2 * MIB < attacker.connection.holdings.input_bytes <= 3 * MIB
        refused = [one for one in attacker.heard(Disposition) if isinstance(one.state, Rejected)]
        assert refused
        assert {one.state.error.condition for one in refused} == {"com.microsoft:server-busy"}
        room.store.release_commits()
        await room.turns(60)
        await goes_on(honest)

    in_room(scenario, QUEUE)


def test_unsettled_deliveries_of_a_connection_are_bounded_and_every_link_goes_on_later() -> None:
    """Attack: a thousand links, and two thousand deliveries on each that nobody ever settles."""

    async def scenario(room: Room) -> None:
        room.gateway.engine_settings.unsettled_max = 100
        honest = await filled(room, 1, 10)
        sender = await honest.sender("q")
        await honest.sent(sender, *(payload(b"x") for _ in range(299)))
        client = await room.client()
        links = [await client.receiver("q") for _ in range(6)]
        for link in links:
            link.grant_credit(50)
            await room.turns(5)
        assert sum(len(client.deliveries(link)) for link in links) <= 150
        await goes_on(honest)
        while any(len(client.deliveries(link)) < 50 for link in links):
            before = sum(len(client.deliveries(link)) for link in links)
            for link in links:
                for delivery in client.deliveries(link):
                    link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
            await room.turns(20)
            assert sum(len(client.deliveries(link)) for link in links) > before

    in_room(scenario, QUEUE)


def test_parts_of_deliveries_count_with_what_they_weigh_beside_their_bytes() -> None:
    """Attack: unfinished deliveries of two-byte frames cost thirty times their bytes."""

    async def scenario(room: Room) -> None:
        room.gateway.engine_settings.partial_bytes_max = 256 * KIB
        attacker = Attacker(room)
        for handle in range(20):
            attacker.sends_to("q", handle=handle)
            tiny = make_frame(Transfer(handle, handle, b"t", 0, False, True), payload=b"xy")
            attacker.say(tiny * 2_000)
        links = [link for link in attacker.connection._engine.sessions[0].links.values()]
        parts = sum(0 if link._partial is None else len(link._partial.parts) for link in links)
        allowance = attacker.connection._engine.allowance
        assert parts * 64 < allowance.partial_bytes() <= 2 * links[0]._delivery_bytes_max
        conditions = {one.error.condition for one in attacker.heard(Detach) if one.error is not None}
        assert conditions == {"amqp:resource-limit-exceeded"}

    in_room(scenario, QUEUE)


def test_nothing_large_is_kept_of_the_state_and_the_tag_of_an_unfinished_delivery() -> None:
    """Attack: sixty kilobytes in the delivery state, or in the tag, of an unfinished delivery on each link."""

    async def scenario(room: Room) -> None:
        attacker = Attacker(room)
        attacker.sends_to("q", handle=0)
        attacker.sends(b"x", handle=0, more=True, state=Rejected(None))
        attacker.sends_to("q", handle=1)
        attacker.sends(b"x", handle=1, more=True, state=TransactionalState(b"i" * 50_000, Accepted()))
        attacker.sends_to("q", handle=2)
        attacker.sends(b"x", handle=2, more=True, tag=b"t" * 200)
        links = attacker.connection._engine.sessions[0].links
        assert links[0]._partial.state is None
        assert len(links[1]._partial.state.txn_id) <= 64
        assert links[1]._partial.state.outcome is None
        assert [one.error.condition for one in attacker.heard(Detach)] == ["amqp:invalid-field"]
        attacker.sends(b"y", handle=1, state=TransactionalState(b"i" * 50_000))
        await room.turns()
        [outcome] = [one.state for one in attacker.heard(Disposition)]
        assert outcome.error.condition == "amqp:transaction:unknown-id"

    in_room(scenario, QUEUE)


def test_tokens_count_with_the_length_of_what_they_open() -> None:
    """Attack: tokens weigh something, and no less when they are renewed or end."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        tokens = peer.connection.tokens
        await peer.request_links("q/$management")  # without links it would be closed before they end
        assert await peer.put_token("sb://ns.local/q") == 202
        short = tokens.held_bytes
        assert short > 500
        assert await peer.put_token("sb://ns.local/q") == 202
        assert tokens.held_bytes == short
        assert await peer.put_token(f"sb://ns.local/q/{'a/' * 2_000}") == 400
        assert tokens.held_bytes == short
        await room.pass_time(4_000)
        assert tokens.held_bytes == 0

    in_room(scenario, QUEUE)


def test_messages_of_open_transactions_count_with_what_they_weigh_in_memory() -> None:
    """Attack: a thousand transactions with a hundred empty messages each."""

    async def scenario(room: Room) -> None:
        honest = await room.client(address="10.0.0.7")
        client = await room.client()
        control = await Controller.attached(client)
        sender = await client.sender("q")
        refused = ""
        for _ in range(10):
            txn_id = await control.declare()
            ids = [
                sender.send(b"t", payload(b""), settled=False, state=TransactionalState(txn_id)).delivery_id
                for _ in range(100)
            ]
            await room.until(lambda wanted=ids: all(one in client.outcomes(sender) for one in wanted))
            outcomes = [client.outcomes(sender)[one] for one in ids]
            refusals = [one.error.condition for one in outcomes if isinstance(one, Rejected) and one.error]
            if refusals:
                refused = refusals[0]
                break
        assert refused == "amqp:resource-limit-exceeded"
        await goes_on(honest)

    in_room(scenario, QUEUE, limits=Limits(transaction_bytes_per_connection_max=256 * KIB))


def test_readers_of_a_hub_that_take_one_event_each_keep_little() -> None:
    """Attack: a window of one frame on each of many sessions kept a chunk for each reader."""

    async def scenario(room: EventRoom) -> None:
        honest = await room.client(address="10.0.0.7")
        sender = await honest.sender("hub/Partitions/0")
        for _ in range(4):
            await honest.sent(sender, envelope_of_events(9, 100_000), message_format=BATCH_FORMAT)
        attacker = Attacker(room)
        for channel in range(1, 31):
            attacker.say(make_frame(Begin(None, 0, 1, WINDOW), channel=channel))
            attacker.receives_from(f"hub/ConsumerGroups/g{channel % 10}/Partitions/0", channel=channel)
            attacker.gives_credit(50, channel=channel, window=1)
            await room.turns(4)
        kept = sum(len(link._data) for link in attacker.connection._links)
        assert kept + held_frame_bytes(attacker) <= 20 * MIB
        [outcome] = await honest.sent(sender, payload(b"still here"))
        assert isinstance(outcome, Accepted)

    async def with_groups(room: EventRoom) -> None:
        for number in range(10):
            await room.hubs.create_group(ConsumerGroupDescription("hub", f"g{number}"))
        await scenario(room)

    in_event_room(with_groups, EventHubDescription("hub", partition_count=1))


def envelope_of_events(count: int, size: int) -> bytes:
    return encode_message(AmqpMessage([payload(bytes(size))] * count, DATA))


# -- all connections together


def holds_unfinished(room: Room, size: int, address: str) -> Attacker:
    """A delivery of that size that does not end."""
    attacker = Attacker(room, address)
    attacker.sends_to("q")
    attacker.sends(bytes(size), more=True)
    return attacker


def test_over_the_budget_the_largest_holders_are_braked_then_closed_by_name_and_small_clients_go_on() -> None:
    """Attack: many connections, each within its own bound, and too much together."""

    async def scenario(room: Room) -> None:
        budget = room.gateway.budget
        budget.bytes_max = 1 * MIB
        honest = await room.client(address="10.0.0.7")
        attackers = [holds_unfinished(room, 300 * KIB, f"10.9.9.{n}") for n in range(5)]
        largest = holds_unfinished(room, 400 * KIB, "10.9.9.99")
        assert budget.is_over
        assert budget.held_bytes >= 1_900 * KIB
        assert not largest.transport.is_reading
        await goes_on(honest)
        room.gateway.tick()
        assert not largest.transport.is_closed  # one look is no look
        room.gateway.tick()
        await room.turns()
        closed = [one for one in (*attackers, largest) if one.heard(Close)]
        assert largest in closed
        assert 1 < len(closed) < 6
        [close] = largest.heard(Close)
        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert "--connections-bytes-max" in close.error.description
        assert "unfinished deliveries" in close.error.description
        await goes_on(honest)
        assert not budget.is_over
        for one in attackers:
            assert one in closed or one.transport.is_reading
        room.gateway.tick()
        room.gateway.tick()
        assert [one for one in attackers if one.heard(Close)] == [one for one in attackers if one in closed]

    in_room(scenario, QUEUE)


def test_what_waits_for_the_store_brakes_and_closes_nobody() -> None:
    """S-1: senders wait until their messages are stored; none of them is sent away for a slow disk."""

    async def scenario(room: Room) -> None:
        room.gateway.budget.bytes_max = 1 * MIB
        senders = []
        for number in range(4):
            client = await room.client(address=f"10.0.0.{number}")
            senders.append((client, await client.sender("q")))
        room.store.hold_commits()
        for client, sender in senders:
            for _ in range(4):
                client.send(sender, payload(bytes(200_000)))
        await room.turns()
        assert room.gateway.budget.is_over
        for _ in range(5):
            room.gateway.tick()
        assert all(not client.transport.is_closed for client, _ in senders)
        room.store.release_commits()
        await room.until(lambda: all(len(client.outcomes(sender)) == 4 for client, sender in senders))
        for client, sender in senders:
            assert all(isinstance(one, Accepted) for one in client.outcomes(sender).values())
        room.gateway.tick()
        assert room.gateway.budget.held_bytes == 0
        assert all(client.transport.is_reading for client, _ in senders)

    in_room(scenario, QUEUE)


def test_a_connection_that_holds_too_much_of_everything_is_closed_by_name() -> None:
    """Attack: a little below each single bound is still too much in all."""

    async def scenario(room: Room) -> None:
        honest = await room.client(address="10.0.0.7")
        attacker = holds_unfinished(room, 300 * KIB, "10.9.9.9")
        attacker.connection.holdings.kept_bytes += 48 * MIB  # as readers of hubs would
        attacker.sends(bytes(BOOK_EVERY_BYTES), more=True)
        await room.turns()
        [close] = attacker.heard(Close)
        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert "This connection holds" in close.error.description
        attacker.say(make_frame(Close()))
        assert room.gateway.budget.held_bytes == 0
        await goes_on(honest)

    in_room(scenario, QUEUE)


Ending = Callable[[Room, Attacker], Coroutine[Any, Any, None]]


async def connection_lost(room: Room, attacker: Attacker) -> None:
    del room
    attacker.transport.lose()


async def aborted(room: Room, attacker: Attacker) -> None:
    del room
    attacker.connection.abort()


async def closed_by_peer(room: Room, attacker: Attacker) -> None:
    attacker.say(make_frame(Close()))
    await room.turns()


async def session_ended(room: Room, attacker: Attacker) -> None:
    attacker.say(make_frame(End()))
    await room.turns()


async def links_detached(room: Room, attacker: Attacker) -> None:
    for handle in range(6):
        attacker.say(make_frame(Detach(handle, True)))
    await room.turns()


async def protocol_broken(room: Room, attacker: Attacker) -> None:
    attacker.say(b"\x00\x00\x00\x02rubbish!")
    await room.turns()


async def entity_deleted(room: Room, attacker: Attacker) -> None:
    await room.namespace.delete("q")
    await room.turns()
    for handle in (1, 2, 5):  # requests and transactions may still be asked about
        attacker.say(make_frame(Detach(handle, True)))
    await room.turns()


async def server_closes(room: Room, attacker: Attacker) -> None:
    del attacker
    await room.gateway.close(grace_s=0)


@pytest.mark.parametrize(
    "ending",
    [
        connection_lost,
        aborted,
        closed_by_peer,
        session_ended,
        links_detached,
        protocol_broken,
        entity_deleted,
        server_closes,
    ],
)
def test_everything_is_given_back_however_it_ends(ending: Ending) -> None:
    """Attack: counters that leak would close honest clients in the end."""

    async def scenario(room: Room) -> None:
        honest = await filled(room, 3, 100_000)
        attacker = Attacker(room)
        attacker.sends_to("q", handle=0)
        attacker.sends(bytes(200_000), handle=0, more=True)
        attacker.receives_from("q/$management", handle=1, target="a")
        attacker.sends_to("q/$management", handle=2)
        attacker.sends(peek(1, "a"), handle=2, delivery=1)
        attacker.receives_from("q", handle=3)
        attacker.gives_credit(3, handle=3, window=1)
        attacker.sends_to("q", handle=4)
        attacker.sends_to(Coordinator(["amqp:local-transactions"]), handle=5)
        await room.turns(20)
        attacker.sends(encode_composite(Declare()), handle=5, delivery=2)
        await room.turns()
        [txn_id] = [
            one.state.txn_id for one in attacker.heard(Disposition) if isinstance(one.state, Declared)
        ]
        attacker.sends(payload(bytes(100_000)), handle=4, delivery=3, state=TransactionalState(txn_id))
        await room.turns()
        holds = attacker.connection.holdings
        assert holds.idle() > 500_000
        assert attacker.connection.transactions.held_bytes > 100_000
        assert attacker.connection.desk.unsent_bytes > 100_000
        attacker.transport.written.clear()  # it has read
        attacker.connection.book()
        assert room.gateway.budget.held_bytes > 500_000
        await ending(room, attacker)
        await room.turns()
        room.gateway.tick()
        assert room.gateway.budget.held_bytes == 0
        assert attacker.connection.transactions.held_bytes == 0
        assert attacker.connection.desk.unsent_bytes == 0
        assert attacker.connection._engine.allowance.partial_bytes() == 0
        assert holds.idle() < SMALL_BYTES
        if ending not in (entity_deleted, server_closes):
            await goes_on(honest)

    in_room(scenario, QUEUE)


def test_a_small_holder_is_not_booked_and_a_share_is_never_too_small_to_send_a_message() -> None:
    """Attack: ten thousand holders leave each of them its quarter of a megabyte."""

    class Small:
        peer = ""
        booked_bytes = 0

        def __init__(self) -> None:
            self.easings = 0

        def book(self) -> None: ...

        def idle_bytes(self) -> int:
            return 0

        def close_for_memory(self, all_bytes: int, bytes_max: int) -> None:
            raise AssertionError(f"it holds nothing to speak of: {all_bytes} {bytes_max}")

        def eased(self) -> None:
            self.easings += 1

    budget = ConnectionBudget(100 * SMALL_BYTES)
    small = Small()
    budget.book(small, SMALL_BYTES - 1)
    assert budget.held_bytes == 0
    many = [Small() for _ in range(200)]
    for one in many:
        budget.book(one, SMALL_BYTES)
    assert budget.is_over
    assert not any(budget.brakes(one) for one in many)
    greedy = Small()
    budget.book(greedy, 10 * SMALL_BYTES)
    assert budget.brakes(greedy)
    for _ in range(3):
        budget.look()
    for one in many:
        budget.forget(one)
    assert greedy.easings == 1
    budget.forget(greedy)
    budget.forget(greedy)
    assert budget.held_bytes == 0


def test_large_bodies_are_told_to_come_later_while_too_much_is_held_and_small_ones_are_taken(
    exchange: Exchange,
) -> None:
    """Attack: bodies of HTTP requests count as well, and are given back with the answer, whatever it is."""
    budget = ConnectionBudget(1 * MIB)
    exchange.gateway._budget = budget
    assert exchange.request("PUT", f"/q?{VERSION}", queue_body()).status == 201
    assert exchange.request("POST", "/q/messages", bytes(200 * KIB)).status == 201
    assert budget.held_bytes == 0
    budget.add(2 * MIB)
    refused = exchange.request("POST", "/q/messages", bytes(200 * KIB))
    assert refused.status == 503
    assert exchange.request("POST", "/q/messages", b"small").status == 201
    assert exchange.request("POST", "/nowhere/messages", b"small").status == 404
    assert budget.held_bytes == 2 * MIB
    budget.add(-2 * MIB)
    assert exchange.request("POST", "/q/messages", bytes(200 * KIB)).status == 201
    assert exchange.request("POST", "/q/messages", bytes(300 * KIB)).status in (400, 403, 413)
    assert budget.held_bytes == 0
