"""A connection from the first byte to the last: login, rights, deadlines, brakes, the end."""

import asyncio
import logging
from dataclasses import replace

import pytest

from busway.amqp.events import ConnectionClosed, LinkDetached, SaslFinished
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Properties, Source, Target
from busway.amqp.sections import AmqpMessage
from busway.amqp.types import ULong
from busway.gateway.amqp.shared import GatewaySettings
from busway.model.descriptions import AuthorizationRule, QueueDescription
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import KEY, MemoryTransport, Peer, Room, body_of, in_room, payload

QUEUE = QueueDescription("q")
AUDIENCE = "sb://localhost/q"


def with_rule(name: str, *rights: str) -> QueueDescription:
    rule = AuthorizationRule(name, frozenset(rights), f"{name}-key-1", f"{name}-key-2")
    return replace(QUEUE, authorization_rules=(rule,))


def condition_of(peer: Peer, link: Link) -> str | None:
    refusal = peer.refusal(link)
    return None if refusal is None else refusal[0]


# -- login and rights


def test_a_key_opens_the_whole_connection() -> None:
    """A-7: SASL PLAIN with a rule's name and key."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        assert await peer.sent(await peer.sender("q"), payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_a_wrong_key_is_refused_by_sasl() -> None:
    """A-6, A-7: and the connection is over."""

    async def scenario(room: Room) -> None:
        peer = await room.client(key="wrong")
        assert [event.ok for event in peer.seen(SaslFinished)] == [False]
        assert peer.transport.is_closed
        assert room.gateway.connections == 0

    in_room(scenario, QUEUE)


def test_before_a_token_no_entity_may_be_attached() -> None:
    """A-7: everything but `$cbs` and `$management` is refused, the connection stays."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        for address in ("q", "nothing", "q/$DeadLetterQueue"):
            assert condition_of(peer, await peer.receiver(address)) == "amqp:unauthorized-access"
            assert condition_of(peer, await peer.sender(address)) == "amqp:unauthorized-access"
        assert await peer.put_token(AUDIENCE) == 202
        assert await peer.sent(await peer.sender("q"), payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_a_token_opens_its_audience_and_nothing_else() -> None:
    """A-5, A-7: links are checked against the tokens whose name covers their path."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        assert await peer.put_token(AUDIENCE) == 202
        assert condition_of(peer, await peer.sender("q")) is None
        assert condition_of(peer, await peer.receiver("q/$DeadLetterQueue")) is None
        assert condition_of(peer, await peer.sender("q2")) == "amqp:unauthorized-access"

    in_room(scenario, QUEUE, QueueDescription("q2"))


def test_a_token_without_the_right_is_taken_and_the_attach_refused() -> None:
    """A-6, A-9: Send does not receive."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        assert await peer.put_token(AUDIENCE, rule="sends", key="sends-key-1") == 202
        assert condition_of(peer, await peer.sender("q")) is None
        refusal = peer.refusal(await peer.receiver("q"))
        assert refusal is not None
        assert refusal[0] == "amqp:unauthorized-access"
        assert "'Listen' claim(s) are required" in refusal[1]
        assert condition_of(peer, await peer.receiver("q/$management")) is None

    in_room(scenario, with_rule("sends", "Send"))


def test_an_expired_token_ends_its_links() -> None:
    """A-8: the connection and others' links stay."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        await peer.put_token(AUDIENCE, lifetime_s=120)
        await peer.put_token("sb://localhost/q2", lifetime_s=3600)
        ending, staying = await peer.sender("q"), await peer.sender("q2")
        await room.pass_time(110)
        assert condition_of(peer, ending) is None
        await room.pass_time(20)
        assert condition_of(peer, ending) == "amqp:unauthorized-access"
        assert condition_of(peer, staying) is None

    in_room(scenario, QUEUE, QueueDescription("q2"))


def test_a_renewed_token_keeps_its_links() -> None:
    """A-8: another put-token for the same audience."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        await peer.put_token(AUDIENCE, lifetime_s=120)
        link = await peer.sender("q")
        await room.pass_time(60)
        await peer.put_token(AUDIENCE, lifetime_s=3600)
        await room.pass_time(600)
        assert await peer.sent(link, payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_a_changed_key_ends_the_links_made_with_it() -> None:
    """A-10: a changed key ends the links made with it."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        await peer.put_token(AUDIENCE, rule="listens", key="listens-key-1")
        link = await peer.receiver("q")
        rule = room.namespace.description("q").authorization_rules[0]
        changed = replace(rule, primary_key="another")
        await room.namespace.update(replace(room.namespace.description("q"), authorization_rules=(changed,)))
        await room.turns()
        assert condition_of(peer, link) == "amqp:unauthorized-access"

    in_room(scenario, with_rule("listens", "Listen"))


def test_a_connection_holds_a_limited_number_of_tokens() -> None:
    """L-18: 1,000, here 2; a renewal is no new one."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        assert await peer.put_token("sb://localhost/q") == 202
        assert await peer.put_token("sb://localhost/q2") == 202
        assert await peer.put_token("sb://localhost/") == 403
        assert await peer.put_token("sb://localhost/q") == 202

    in_room(scenario, QUEUE, QueueDescription("q2"), limits=Limits(tokens_per_connection_max=2))


# -- requests


def test_answers_find_the_link_that_the_request_names() -> None:
    """A-7: by reply-to where it is some link's target, else on the same session."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        _, first = await peer.request_links("q/$management", "reply-1")
        requests, second = await peer.request_links("q/$management", "reply-2")
        request = AmqpMessage(
            {},
            properties=Properties(message_id=ULong(7), reply_to="reply-1"),
            application_properties={"operation": "com.microsoft:nonsense"},
        )
        answer = await peer.request((requests, first), request)
        assert answer.properties is not None
        assert answer.properties.correlation_id == ULong(7)
        assert type(answer.properties.correlation_id) is ULong
        assert (answer.application_properties or {})["statusCode"] == 501
        assert request.properties is not None
        request.properties.reply_to = "q/$management"
        await peer.request((requests, first), request)
        assert len(peer.deliveries(first)) == 2
        assert peer.deliveries(second) == []

    in_room(scenario, QUEUE)


def test_a_request_is_accepted_when_it_arrives() -> None:
    """A-7: with credit 100 and no limit on its size announced."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        requests, _ = await peer.request_links("$cbs")
        assert requests.credit() == 100
        assert requests.peer is not None
        assert requests.peer.max_message_size == 2**64 - 1
        [garbage] = await peer.sent(requests, b"garbage")
        assert garbage != Accepted()
        assert await peer.sent(requests, payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_answers_wait_for_credit() -> None:
    """A-7: and come when the client is ready for them."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        answers = peer.session.attach("a", is_sender=False, source=Source("$cbs"), target=Target("x"))
        requests = await peer.sender("$cbs")
        request = payload(properties=Properties(message_id="1", reply_to="x"))
        await peer.sent(requests, request, request)
        await room.turns()
        assert peer.deliveries(answers) == []
        answers.grant_credit(5)
        assert len(await peer.received(answers, 2)) == 2

    in_room(scenario, QUEUE)


# -- deadlines


def test_a_handshake_that_does_not_come_to_an_end_is_cut() -> None:
    """A-7: SASL and open within 10 s."""

    async def scenario(room: Room) -> None:
        transport = MemoryTransport()
        connection = room.gateway.connect(transport, "10.9.9.9")
        connection.data_received(b"AMQP\x03\x01\x00\x00")
        room.clock.advance(11)
        room.gateway.tick()
        assert transport.is_closed
        assert room.gateway.connections == 0

    in_room(scenario, QUEUE)


def test_a_connection_without_a_token_is_closed_after_20_seconds() -> None:
    """A-7: a connection without a token is closed after 20 seconds."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        await room.pass_time(19)
        assert peer.seen(ConnectionClosed) == []
        await room.pass_time(2)
        assert peer.closed_with() == "amqp:unauthorized-access"

    in_room(scenario, QUEUE)


def test_a_connection_without_links_is_closed() -> None:
    """R-22, ERR-24: after 60 s when it never had one, after 5 min when the last one went."""

    async def scenario(room: Room) -> None:
        new, used = await room.client(), await room.client()
        link = await used.sender("q")
        link.detach()
        await room.turns()
        await room.pass_time(59)
        assert new.seen(ConnectionClosed) == []
        await room.pass_time(2)
        assert new.closed_with() == "amqp:connection:forced"
        await room.pass_time(230)
        assert used.seen(ConnectionClosed) == []
        await room.pass_time(15)
        assert used.closed_with() == "amqp:connection:forced"

    in_room(scenario, QUEUE)


def test_an_idle_link_is_detached_and_one_with_credit_is_not() -> None:
    """R-22, ERR-23: 10 minutes without credit and traffic."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        idle, waiting, sender = await peer.receiver("q"), await peer.receiver("q"), await peer.sender("q")
        touched = await peer.receiver("q", name="touched")
        waiting.grant_credit(1)
        await room.turns()
        await room.pass_time(590)
        assert condition_of(peer, idle) is None
        peer.connection.carrier.links.touch_link("touched")
        await room.pass_time(40)
        assert condition_of(peer, idle) == "amqp:link:detach-forced"
        assert [condition_of(peer, link) for link in (waiting, sender, touched)] == [None, None, None]

    in_room(scenario, QUEUE)


def test_a_silent_client_is_closed_after_240_seconds() -> None:
    """R-22: every link is detached first, all with amqp:connection:forced."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.receiver("q")
        link.grant_credit(1)
        await room.turns()
        room.clock.advance(241)
        room.gateway.tick()
        await room.turns()
        assert peer.closed_with() == "amqp:connection:forced"
        assert condition_of(peer, link) == "amqp:connection:forced"
        assert room.gateway.connections == 0

    in_room(scenario, QUEUE)


def test_a_peer_that_takes_nothing_is_dropped_after_a_minute() -> None:
    """R-22: the write stall."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        await peer.receiver("q")
        peer.connection.pause_writing()
        await room.pass_time(59)
        assert not peer.transport.is_closed
        await room.pass_time(2)
        assert peer.transport.is_closed
        assert room.gateway.connections == 0

    in_room(scenario, QUEUE)


# -- bounds


def test_the_namespace_has_a_limit_on_connections() -> None:
    """L-11: 5,000, here two; a closed one makes room."""

    async def scenario(room: Room) -> None:
        first, _, third = await room.client(), await room.client(), await room.client()
        assert third.closed_with() == "amqp:resource-limit-exceeded"
        first.transport.lose()
        fourth = await room.client()
        assert condition_of(fourth, await fourth.sender("q")) is None

    in_room(scenario, QUEUE, limits=Limits(connections_max=2))


def test_strangers_push_out_the_oldest_stranger_and_never_a_client() -> None:
    """A-7: bounds in all and for each peer."""

    async def scenario(room: Room) -> None:
        client = await room.client(address="10.0.0.1")
        strangers = [await room.stranger("10.0.0.1") for _ in range(3)]
        assert [one.transport.is_closed for one in strangers] == [True, False, False]
        others = [await room.stranger(f"10.0.1.{index}") for index in range(3)]
        assert [one.transport.is_closed for one in strangers + others] == [
            True,
            True,
            False,
            False,
            False,
            False,
        ]
        assert not client.transport.is_closed
        assert room.gateway.connections == 5

    in_room(scenario, QUEUE, settings=GatewaySettings(strangers_max=4, strangers_per_peer_max=2))


# -- mistakes and the end


def test_a_mistake_of_ours_ends_one_connection_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-18: amqp:internal-error, one line in the log, no secret in it."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        link, other_link = await peer.sender("q"), await other.sender("q2")

        def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(room.namespace.queue("q"), "send_in_parts", broken)
        with caplog.at_level(logging.ERROR, logger="busway.gateway.amqp"):
            peer.send(link, payload(b"secret body"))
            await room.turns()
        assert peer.closed_with() == "amqp:internal-error"
        assert len(caplog.records) == 1
        assert "secret body" not in caplog.text
        assert KEY not in caplog.text
        assert await other.sent(other_link, payload()) == [Accepted()]

    in_room(scenario, QUEUE, QueueDescription("q2"))


def test_garbage_is_answered_and_ends_the_connection() -> None:
    """A-7: the server lives."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        peer.connection.data_received(b"\xff" * 64)
        await room.turns()
        assert peer.transport.is_closed
        assert room.gateway.connections == 0
        again = await room.client()
        assert await again.sent(await again.sender("q"), payload()) == [Accepted()]

    in_room(scenario, QUEUE)


def test_a_clean_stop_tells_every_client() -> None:
    """R-22: every link detached, every connection closed with amqp:connection:forced."""

    async def scenario(room: Room) -> None:
        peers = [await room.client(), await room.client()]
        links = [await peer.receiver("q") for peer in peers]

        async def pump() -> None:
            while room.gateway.connections:
                await room.turns(1)

        await asyncio.gather(room.gateway.close(), pump())
        for peer, link in zip(peers, links, strict=True):
            assert peer.closed_with() == "amqp:connection:forced"
            assert [event.error.condition for event in peer.seen(LinkDetached, link) if event.error] == [
                "amqp:connection:forced"
            ]
            assert peer.transport.is_closed

    in_room(scenario, QUEUE)


def test_a_lost_connection_leaves_nothing_behind() -> None:
    """R-19: its links are forgotten by the queue, and others go on."""

    async def scenario(room: Room) -> None:
        peer, other = await room.client(), await room.client()
        receiver = await peer.receiver("q")
        receiver.grant_credit(10)
        await peer.sender("q")
        await room.turns()
        peer.transport.lose()
        assert room.gateway.connections == 1
        await other.sent(await other.sender("q"), payload(b"x"))
        link = await other.receiver("q")
        link.grant_credit(1)
        assert [body_of(one) for one in await other.received(link, 1)] == [b"x"]

    in_room(scenario, QUEUE)
