"""The namespace's `$management` node: what clients ask about event hubs."""

from typing import Any

import pytest

from busway.amqp.performatives import Properties
from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Array, Int, Long, Timestamp
from busway.client.connection_string import sas_token
from busway.model.descriptions import AuthorizationRule
from busway.streams.hub_descriptions import EventHubDescription
from tests.unit.gateway.amqp_peer import KEY, Peer
from tests.unit.gateway.event_room import EventRoom, event, in_event_room, publish

HUB = "com.microsoft:eventhub"
PARTITION = "com.microsoft:partition"
RULES = (AuthorizationRule("reads", frozenset({"Listen"}), "r" * 44, "s" * 44),)


def token(room: EventRoom, path: str = "hub", rule: str = "RootManageSharedAccessKey", key: str = KEY) -> str:
    return sas_token(f"sb://ns.local/{path}", rule, key, room.clock.wall_ms() // 1000 + 60)


async def ask(peer: Peer, node: str = "$management", **properties: Any) -> AmqpMessage:
    reply_to = f"answers-{len(peer.events)}"
    links = await peer.request_links(node, reply_to)
    request = AmqpMessage(
        None,
        properties=Properties(message_id="7", reply_to=reply_to),
        application_properties={"operation": "READ", "name": "hub", **properties},
    )
    return await peer.request(links, request)


def facts(answer: AmqpMessage) -> dict[str, Any]:
    return answer.application_properties or {}


def test_a_hub_tells_what_it_is() -> None:
    """H-4, H-27: with the types that Go and Python insist on."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        answer = await ask(peer, type=HUB, name="HUB", security_token=token(room))
        assert facts(answer)["status-code"] == 200
        assert answer.properties is not None
        assert answer.properties.correlation_id == "7"
        assert answer.body == {
            "name": "hub",
            "type": HUB,
            "created_at": room.hubs.description("hub").created_at_ms,
            "partition_count": 2,
            "partition_ids": Array(["0", "1"]),
            "georeplication_factor": 1,
        }
        types = {name: type(value) for name, value in answer.body.items()}
        assert (types["created_at"], types["partition_count"]) == (Timestamp, Int)
        assert types["georeplication_factor"] is Int

    in_event_room(scenario)


def test_an_empty_partition_tells_so() -> None:
    """H-16, H-27: an empty partition tells so."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        answer = await ask(peer, type=PARTITION, partition="1", security_token=token(room))
        assert answer.body == {
            "name": "hub",
            "type": PARTITION,
            "partition": "1",
            "begin_sequence_number": -1,
            "begin_sequence_number_epoch": -1,
            "last_enqueued_sequence_number": -1,
            "last_enqueued_sequence_number_epoch": -1,
            "last_enqueued_offset": "-1",
            "last_enqueued_time_utc": -62_135_596_800_000,
            "is_partition_empty": True,
        }

    in_event_room(scenario)


def test_a_partition_tells_how_far_it_is() -> None:
    """H-16, H-27: with the epochs of its numbers, without which Rust's client takes no answer."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        await publish(peer, "hub/Partitions/1", event(b"a"), event(b"b"))
        answer = await ask(peer, type=PARTITION, partition="1", security_token=token(room))
        assert answer.body == {
            "name": "hub",
            "type": PARTITION,
            "partition": "1",
            "begin_sequence_number": 0,
            "begin_sequence_number_epoch": -1,
            "last_enqueued_sequence_number": 1,
            "last_enqueued_sequence_number_epoch": -1,
            "last_enqueued_offset": "1",
            "last_enqueued_time_utc": room.clock.wall_ms(),
            "is_partition_empty": False,
        }
        types = {name: type(value) for name, value in answer.body.items()}
        assert types["last_enqueued_sequence_number"] is types["begin_sequence_number"] is Long
        assert types["last_enqueued_time_utc"] is Timestamp
        assert types["begin_sequence_number_epoch"] is types["last_enqueued_sequence_number_epoch"] is Int

    in_event_room(scenario)


@pytest.mark.parametrize(
    ("properties", "status", "condition"),
    [
        ({"type": HUB, "name": "nowhere"}, 404, "amqp:not-found"),
        ({"type": PARTITION, "partition": "9"}, 400, "com.microsoft:argument-out-of-range"),
        ({"type": PARTITION, "partition": ""}, 400, "com.microsoft:argument-out-of-range"),
        ({"type": PARTITION}, 400, "com.microsoft:argument-error"),
        ({"type": PARTITION, "partition": 0}, 400, "com.microsoft:argument-error"),
        ({"type": HUB, "name": 5}, 400, "com.microsoft:argument-error"),
        ({"type": HUB, "name": "%ff"}, 400, "com.microsoft:argument-error"),
        ({"type": "com.microsoft:queue"}, 501, "amqp:not-implemented"),
        ({}, 501, "amqp:not-implemented"),
        ({"type": HUB, "operation": "CREATE"}, 501, "amqp:not-implemented"),
        ({"type": HUB, "operation": None}, 501, "amqp:not-implemented"),
    ],
)
def test_a_question_without_an_answer_is_told_why(
    properties: dict[str, Any], status: int, condition: str
) -> None:
    """H-27, ERR-1, ERR-8: a question without an answer is told why."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        answer = await ask(peer, **properties)
        assert (facts(answer)["status-code"], facts(answer)["error-condition"]) == (status, condition)
        assert answer.body is None

    in_event_room(scenario)


def test_any_right_on_the_hub_will_do() -> None:
    """A-7, H-27: a token of the hub's own rule, put for whatever of it."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        await peer.put_token("sb://ns.local/hub/$management", rule="reads", key="r" * 44)
        own = token(room, "hub", "reads", "r" * 44)
        assert facts(await ask(peer, type=HUB, security_token=own))["status-code"] == 200
        assert facts(await ask(peer, type=HUB))["status-code"] == 200
        assert facts(await ask(peer, "hub/$management", type=HUB))["status-code"] == 200
        # That of another hub does not open this one.
        assert facts(await ask(peer, type=HUB, name="other"))["status-code"] == 401

    in_event_room(
        scenario, EventHubDescription("hub", authorization_rules=RULES), EventHubDescription("other")
    )


@pytest.mark.parametrize("kind", ["forged", "for another hub", "for a part", "no token", "no string"])
def test_a_token_that_does_not_fit_is_refused(kind: str) -> None:
    """A-6, A-7: even on a connection that may do everything."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.client()
        given: dict[str, object] = {
            "forged": token(room, key="another key"),
            "for another hub": token(room, "other"),
            "for a part": token(room, "hub/Partitions/0"),
            "no token": "eyJhbGciOiJub25lIn0.e30.",
            "no string": 5,
        }
        answer = await ask(peer, type=HUB, security_token=given[kind])
        assert facts(answer)["status-code"] == 401

    in_event_room(scenario, EventHubDescription("hub"), EventHubDescription("other"))


def test_who_has_no_token_gets_no_answer_but_401() -> None:
    """A-7: the attach stands, each request is authorised by itself."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        for name in ("hub", "nowhere"):
            answer = await ask(peer, type=HUB, name=name)
            assert facts(answer)["status-code"] == 401
            assert facts(answer)["error-condition"] == "amqp:unauthorized-access"

    in_event_room(scenario)


def test_a_token_for_a_missing_hub_is_refused_at_once() -> None:
    """A-7, S-10: a token for a missing hub is refused at once."""

    async def scenario(room: EventRoom) -> None:
        peer = await room.stranger()
        assert await peer.put_token("sb://ns.local/nowhere") == 404
        for audience in (
            "hub",
            "hub/Partitions/0",
            "hub/ConsumerGroups/$Default/Partitions/1",
            "hub/$management",
        ):
            assert await peer.put_token(f"sb://ns.local/{audience}") == 202

    in_event_room(scenario)
