"""What a connection may make the server hold after its login: each kind of attacker (`attacker`)."""

from __future__ import annotations

import asyncio

import pytest

from busway.amqp.performatives import (
    Accepted,
    Begin,
    Detach,
    Disposition,
    Flow,
    Modified,
    Properties,
    Rejected,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.sections import BATCH_FORMAT, DATA, AmqpMessage, encode_message
from busway.amqp.types import Array, Long, UInt
from busway.gateway.amqp import carrier as carrier_module
from busway.gateway.amqp.nodes.request_link import UNSENT_BYTES_MAX
from busway.model.limits import Limits
from busway.streams.hub_descriptions import ConsumerGroupDescription, EventHubDescription
from tests.harness.frame_factory import make_frame
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload
from tests.unit.gateway.amqp_transactions import Controller
from tests.unit.gateway.attacker import (
    KIB,
    MIB,
    QUEUE,
    WINDOW,
    Attacker,
    filled,
    goes_on,
    held_frame_bytes,
    peek,
    unsent_bytes,
)
from tests.unit.gateway.event_room import EventRoom, in_event_room


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
        unsent = sum(sum(map(len, link._unsent)) for link in asking.connection.carrier.requests._responses)
        assert UNSENT_BYTES_MAX < 30 * 200_000 < unsent < 35 * 200_000
        await goes_on(honest)
        answers.grant_credit(10)
        told = await asking.received(answers, 2)
        assert all(len(one.payload) > 30 * 200_000 for one in told)
        await room.turns()
        assert asking.connection.carrier.requests.unsent_bytes == 0

    in_room(scenario, QUEUE)


def test_frames_that_wait_for_windows_are_bounded_for_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a window of one frame on each of fifty sessions kept the rest of a delivery each."""
    monkeypatch.setattr(carrier_module, "KEPT_FREE_BYTES", 2 * MIB)

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
        assert 4 * MIB < attacker.connection.carrier.holdings.input_bytes <= 5 * MIB
        room.store.release_commits()
        await room.turns(40)
        assert attacker.connection.carrier.holdings.input_bytes == 0
        assert attacker.transport.is_reading
        await goes_on(honest)

    in_room(scenario, QUEUE)


def test_envelopes_that_end_in_one_read_are_refused_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: sixteen links end their envelopes within one read: what is too much is told to come later."""
    monkeypatch.setattr(carrier_module, "INPUT_FULL_BYTES", 2 * MIB)

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
        assert 2 * MIB < attacker.connection.carrier.holdings.input_bytes <= 3 * MIB
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
        room.gateway.shared.engine_settings.unsettled_max = 100
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
        room.gateway.shared.engine_settings.partial_bytes_max = 256 * KIB
        attacker = Attacker(room)
        for handle in range(20):
            attacker.sends_to("q", handle=handle)
            tiny = make_frame(Transfer(handle, handle, b"t", 0, False, True), payload=b"xy")
            attacker.say(tiny * 2_000)
        links = [link for link in attacker.connection.carrier.engine.sessions[0].links.values()]
        parts = sum(0 if link._partial is None else len(link._partial.parts) for link in links)
        allowance = attacker.connection.carrier.engine.allowance
        assert parts * 64 < allowance.partial_bytes() <= 2 * links[0].delivery_bytes_max
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
        links = attacker.connection.carrier.engine.sessions[0].links
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
        tokens = peer.connection.carrier.tokens
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
        kept = sum(len(link._data) for link in attacker.connection.carrier.links)
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
