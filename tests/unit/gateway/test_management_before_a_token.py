"""`$management` before a token: everybody may attach, each request shows what it may."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.engine_settings import EngineSettings
from busway.amqp.performatives import Properties
from busway.amqp.sections import AmqpMessage, encode_message
from busway.amqp.types import Int, Long
from busway.client.connection_string import sas_token
from busway.gateway.amqp.shared import GatewaySettings
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from busway.model.limits import Limits
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, in_room
from tests.unit.gateway.event_room import EventRoom, in_event_room

HUB = "com.microsoft:eventhub"
PEEK = "com.microsoft:peek-message"
QUEUE = QueueDescription("q")
ROOT = "RootManageSharedAccessKey"
READS = AuthorizationRule("reads", frozenset({"Listen"}), "r" * 44, "s" * 44)
CLAIMS = "Unauthorized access. 'Send, Listen' claim(s) are required to perform this operation."


def token(
    room: Room, scope: str = "amqp://ns.local/hub", rule: str = ROOT, key: str = KEY, lives_s: int = 60
) -> str:
    return sas_token(scope, rule, key, room.clock.wall_ms() // 1000 + lives_s)


def read(**properties: Any) -> AmqpMessage:
    """As Java's Event Hubs client asks."""
    return AmqpMessage(
        None,
        properties=Properties(message_id="7", reply_to="answers"),
        application_properties={"operation": "READ", "type": HUB, "name": "hub", **properties},
    )


def peek(**properties: Any) -> AmqpMessage:
    return AmqpMessage(
        {"from-sequence-number": Long(0), "message-count": Int(1)},
        properties=Properties(message_id="7", reply_to="answers"),
        application_properties={"operation": PEEK, **properties},
    )


async def newcomer(room: Room, hostname: str | None) -> Peer:
    """One who has only shown up, and says by which name it knows us."""
    peer = Peer(room, "10.0.0.1", EngineSettings(hostname=hostname))
    await peer.open()
    return peer


def status(answer: AmqpMessage) -> int:
    return int((answer.application_properties or {})["status-code"])


def told(answer: AmqpMessage) -> tuple[int, str, str]:
    """Status, condition and sentence, without the tail that differs each time."""
    facts = answer.application_properties or {}
    sentence = str(facts["status-description"]).partition(" TrackingId:")[0]
    return int(facts["status-code"]), str(facts["error-condition"]), sentence


def test_a_request_with_its_own_token_needs_none_on_cbs() -> None:
    """A-7 H-27: Java's Event Hubs client attaches `$management` and never puts a token for it."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        links = await peer.request_links("$management")
        answer = await peer.request(links, read(security_token=token(room)))
        assert status(answer) == 200
        assert answer.body["partition_count"] == 2

    in_event_room(scenario)


def test_who_brings_tokens_with_requests_is_no_stranger() -> None:
    """A-7 L-11: the connection stays beyond the time for a first token, and counts as a client."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        links = await peer.request_links("$management")
        assert status(await peer.request(links, read(security_token=token(room, key="forged")))) == 401
        assert peer.connection.carrier.is_stranger
        assert status(await peer.request(links, read(security_token=token(room)))) == 200
        assert not peer.connection.carrier.is_stranger
        await room.pass_time(25)
        assert peer.closed_with() is None
        # The token was good for that request, and for nothing else.
        assert status(await peer.request(links, read())) == 401
        refusal = peer.refusal(await peer.receiver("hub/ConsumerGroups/$Default/Partitions/0"))
        assert refusal is not None
        assert refusal[0] == "amqp:unauthorized-access"

    in_event_room(scenario)


def test_a_namespace_that_is_full_takes_no_client_by_a_request() -> None:
    """L-11: a token inside a request opens no place that is not there."""

    async def scenario(room: EventRoom) -> None:
        await room.client()
        peer = await room.stranger()
        links = await peer.request_links("$management")
        peer.send(links[0], encode_message(read(security_token=token(room))))
        await room.turns()
        assert peer.closed_with() == "amqp:resource-limit-exceeded"

    in_event_room(scenario, limits=Limits(connections_max=1))


def test_who_only_attaches_is_closed_in_time() -> None:
    """A-7: twenty seconds for a token hold for `$management` as for `$cbs`."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        links = await peer.request_links("$management")
        assert status(await peer.request(links, read())) == 401
        await room.pass_time(21)
        assert peer.closed_with() == "amqp:unauthorized-access"

    in_event_room(scenario, settings=GatewaySettings(token_s=20.0))


def test_an_attach_may_come_before_its_token() -> None:
    """A-7: Java's older Service Bus stack attaches `X/$management` while its put-token is still under way."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        links = await peer.request_links("q/$management")
        assert told(await peer.request(links, peek())) == (401, "amqp:unauthorized-access", CLAIMS)
        assert await peer.put_token("amqp://localhost/q") == 202
        assert status(await peer.request(links, peek())) == 204

    in_room(scenario, QUEUE)


@pytest.mark.parametrize("request_of", [read, peek])
@pytest.mark.parametrize("has_other_token", [False, True])
def test_who_has_no_right_does_not_learn_what_exists(request_of: Any, has_other_token: bool) -> None:
    """Attack: a queue, a hub and a name that nobody has give one and the same answer, whatever is asked."""

    async def scenario(room: EventRoom) -> None:
        await room.namespace.create([NewEntity(QUEUE), NewEntity(QueueDescription("mine"))])
        peer = await room.stranger()
        if has_other_token:
            assert await peer.put_token("sb://localhost/mine") == 202
        answers = set()
        for path in ("q", "q/$DeadLetterQueue", "hub", "nothing", "nothing/Subscriptions/s"):
            links = await peer.request_links(f"{path}/$management", f"answers-{path}")
            assert [peer.refusal(link) for link in links] == [None, None]
            request = request_of()
            assert request.properties is not None
            request.properties.reply_to = f"answers-{path}"
            answers.add(told(await peer.request(links, request)))
            request.application_properties["operation"] = "no such thing"
            answers.add(told(await peer.request(links, request)))
            for link in links:
                link.detach()
        assert answers == {(401, "amqp:unauthorized-access", CLAIMS)}

    in_event_room(scenario)


def test_who_has_the_right_is_told_at_once_what_is_missing() -> None:
    """A-7 S-10: with a token for the namespace, an attach to a missing entity is refused as before."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        refusal = peer.refusal(await peer.sender("nothing/$management"))
        assert refusal is not None
        assert refusal[0] == "amqp:not-found"

    in_room(scenario, QUEUE)


def test_a_request_at_an_entity_may_bring_its_own_token_too() -> None:
    """A-7 A-9: it counts instead of the connection's tokens, with its own rights and no more."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        links = await peer.request_links("q/$management")
        own = token(room, "sb://ns.local/q", "reads", "r" * 44)
        assert status(await peer.request(links, peek(security_token=own))) == 204
        scheduling = peek(security_token=own, operation="com.microsoft:schedule-message")
        assert told(await peer.request(links, scheduling))[0] == 401
        assert await peer.put_token("sb://localhost/q") == 202
        forged = token(room, "sb://ns.local/q", key="forged")
        assert told(await peer.request(links, peek(security_token=forged)))[0] == 401

    in_room(scenario, QueueDescription("q", authorization_rules=(READS,)))


def test_what_a_node_is_is_looked_up_for_each_request() -> None:
    """E-86 H-27: a queue goes and a hub of its name comes; the link that stands asks the hub."""

    async def scenario(room: EventRoom) -> None:
        await room.namespace.create([NewEntity(QUEUE)])
        peer = await room.client()
        links = await peer.request_links("q/$management")
        assert status(await peer.request(links, peek())) == 204
        await room.namespace.delete("q")
        assert told(await peer.request(links, peek()))[0] == 404
        await room.hubs.create(EventHubDescription("q", partition_count=1))
        assert status(await peer.request(links, read(name="q"))) == 200

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("scope", "hostname", "expected"),
    [
        ("ns.local", "ns.local", 200),
        ("NS.local", "ns.local:5671", 200),
        ("ns.local/", "ns.local", 200),
        ("ns.local/hub", "ns.local", 200),
        ("localhost", "127.0.0.1", 200),
        ("sb://ns.local", "other.name", 200),
        ("ns.local", "other.name", 401),
        ("ns.local", None, 401),
        ("ns.local/other", "ns.local", 401),
        ("hub", "ns.local", 401),
        ("hub", None, 401),
    ],
)
def test_a_token_for_the_bare_host_opens_its_hubs(scope: str, hostname: str | None, expected: int) -> None:
    """A-5 A-7: `sr=host` is the namespace in a request as it is on `$cbs`; the client says which host it means."""

    async def scenario(room: EventRoom) -> None:
        peer = await newcomer(room, hostname)
        links = await peer.request_links("$management")
        answer = await peer.request(links, read(security_token=token(room, scope)))
        assert status(answer) == expected

    in_event_room(scenario, EventHubDescription("hub"), EventHubDescription("other"))


@pytest.mark.parametrize("kind", ["expired", "forged", "foreign", "huge", "no signature", "bytes", "empty"])
def test_a_bad_token_inside_a_request_is_refused(kind: str) -> None:
    """Attack: 401 with the words of `$cbs`, nothing of the token in the answer, the stranger stays one."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        given: dict[str, object] = {
            "expired": token(room, lives_s=-1),
            "forged": token(room, key="forged"),
            "foreign": token(room, "amqp://ns.local/other"),
            "huge": token(room, "amqp://ns.local/hub?" + "x" * 24_000),
            "no signature": "SharedAccessSignature sr=hub",
            "bytes": token(room).encode(),
            "empty": "",
        }
        links = await peer.request_links("$management")
        code, condition, sentence = told(await peer.request(links, read(security_token=given[kind])))
        assert (code, condition) == (401, "com.microsoft:auth-failed")
        assert len(sentence) < 200
        assert peer.connection.carrier.is_stranger

    in_event_room(scenario, EventHubDescription("hub"), EventHubDescription("other"))
