"""Rules that are changed in a transaction over AMQP."""

from __future__ import annotations

import pytest

from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Properties
from busway.model.descriptions import NewEntity, SubscriptionDescription, TopicDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload
from tests.unit.gateway.amqp_transactions import (
    Controller,
    asked_in,
    bodies_in,
    condition_of,
    sent_in,
    settled_in,
)


async def _rule_room(room: Room) -> tuple[Peer, Controller, tuple[Link, Link]]:
    subscription = NewEntity(SubscriptionDescription("t/Subscriptions/a"))
    await room.namespace.create([NewEntity(TopicDescription("t")), subscription])
    peer = await room.client()
    links = await peer.request_links("t/Subscriptions/a/$management")
    return peer, await Controller.attached(peer), links


def _rule_names(room: Room) -> list[str]:
    return [rule.name for rule in room.namespace.rules.of("t/Subscriptions/a")]


@pytest.mark.parametrize("fail", [True, False])
def test_rules_of_a_plain_topic_change_with_the_commit(fail: bool) -> None:
    """T-13: what is published in the same transaction follows the new rules."""

    async def scenario(room: Room) -> None:
        peer, controller, links = await _rule_room(room)
        sender = await peer.sender("t")
        txn_id = await controller.declare()
        red: dict[str, object] = {
            "rule-name": "red",
            "rule-description": {"sql-filter": {"expression": "sys.Label = 'red'"}},
        }
        assert (await asked_in(peer, links, txn_id, "add-rule", red))[0] == 200
        assert (await asked_in(peer, links, txn_id, "remove-rule", {"rule-name": "$Default"}))[0] == 200
        for body, subject in ((b"1", "red"), (b"2", "blue")):
            await sent_in(peer, sender, txn_id, payload(body, properties=Properties(subject=subject)))
        assert _rule_names(room) == ["$Default"]
        assert isinstance(await controller.discharge(txn_id, fail=fail), Accepted)
        assert _rule_names(room) == (["$Default"] if fail else ["red"])
        count = 0 if fail else 1
        assert await bodies_in(peer, "t/Subscriptions/a", count) == [b"1"] * count

    in_room(scenario)


def test_rules_are_changed_back_when_the_commit_fails() -> None:
    """T-13, TX-9: because one cannot be changed, or because of a message."""

    async def scenario(room: Room) -> None:
        peer, controller, links = await _rule_room(room)
        rule: dict[str, object] = {
            "rule-name": "r",
            "rule-description": {"sql-filter": {"expression": "1=1"}},
        }
        txn_id = await controller.declare()
        for _ in range(2):
            assert (await asked_in(peer, links, txn_id, "add-rule", rule))[0] == 200
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert _rule_names(room) == ["$Default"]
        await peer.sent(await peer.sender("t"), payload())
        receiver = await peer.receiver("t/Subscriptions/a")
        receiver.grant_credit(1)
        deliveries = await peer.received(receiver, 1)
        txn_id = await controller.declare()
        assert (await asked_in(peer, links, txn_id, "add-rule", rule))[0] == 200
        await settled_in(peer, receiver, txn_id, deliveries, Accepted())
        await room.pass_time(61)
        assert condition_of(await controller.discharge(txn_id)) == "amqp:transaction:rollback"
        await room.turns(40)
        assert _rule_names(room) == ["$Default"]

    in_room(scenario)
