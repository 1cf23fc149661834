"""An atomic batch that would make too many copies, as a client sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.amqp.performatives import Accepted, Properties, Rejected
from busway.amqp.sections import DATA, AmqpMessage, encode_message
from busway.model.descriptions import NewEntity, SubscriptionDescription, TopicDescription
from busway.model.entity_path import subscription_path
from busway.model.limits import Limits
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.test_amqp_send_link import BATCH_FORMAT

LIMITS = replace(Limits(), publish_copies_max=2_000)


def batch(count: int) -> bytes:
    payloads = [payload(b"%d" % number) for number in range(count)]
    return encode_message(AmqpMessage(payloads, DATA, properties=Properties(message_id="envelope")))


async def topic(room: Room, count: int) -> None:
    await room.namespace.create([NewEntity(TopicDescription("t"))])
    for number in range(count):
        description = SubscriptionDescription(subscription_path("t", f"s{number}"))
        await room.namespace.create([NewEntity(description)])


@pytest.mark.parametrize("is_fitting", [True, False])
def test_too_many_copies_are_a_resource_limit(is_fitting: bool) -> None:
    """ERR-9, Attack: messages, subscriptions and the limit are named; what fits is accepted, whole."""

    async def scenario(room: Room) -> None:
        await topic(room, 20)
        peer = await room.client()
        link = await peer.sender("t")
        number = peer.send(link, batch(100 if is_fitting else 101), message_format=BATCH_FORMAT)
        await room.until(lambda: number in peer.outcomes(link))
        outcome = peer.outcomes(link)[number]
        active = (await room.namespace.counts(subscription_path("t", "s19"))).active
        if is_fitting:
            assert (outcome, active) == (Accepted(), 100)
            return
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert (outcome.error.condition, active) == ("amqp:resource-limit-exceeded", 0)
        assert str(outcome.error.description).startswith(
            "Publishing 101 messages at once to the 20 subscriptions of 't' makes more than 2000 copies, which is the"
            " most that one publish may make."
        )

    in_room(scenario, limits=LIMITS)


def test_single_messages_are_all_accepted() -> None:
    """S-4: each is a publish of its own, however many come at once."""

    async def scenario(room: Room) -> None:
        await topic(room, 20)
        peer = await room.client()
        link = await peer.sender("t")
        numbers = [peer.send(link, payload(b"%d" % number)) for number in range(400)]
        await room.until(lambda: len(peer.outcomes(link)) == 400)
        assert {type(peer.outcomes(link)[number]) for number in numbers} == {Accepted}
        assert (await room.namespace.counts(subscription_path("t", "s0"))).active == 400

    in_room(scenario, limits=LIMITS)
