"""Who may send via one entity to another, as long as the link stands (TX-3, A-8, A-10)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from busway.amqp.performatives import Accepted
from busway.amqp.types import Symbol
from busway.model.descriptions import AuthorizationRule, NewEntity, QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room, payload

DESTINATION = Symbol("com.microsoft:transfer-destination-address")
UNAUTHORIZED = "amqp:unauthorized-access"


def rule(name: str) -> AuthorizationRule:
    return AuthorizationRule(name, frozenset({"Send"}), name[0] * 43 + "=", "l" * 43 + "=")


VIA = QueueDescription("via", authorization_rules=(rule("via-only"),))
FINAL = QueueDescription("final", authorization_rules=(rule("final-only"),))


async def with_two_tokens(room: Room, *, via_s: int = 3600, final_s: int = 3600) -> Peer:
    """A client with a token for each of the two queues and nothing else."""
    peer = await room.stranger()
    await peer.put_token("sb://ns.local/via", rule="via-only", key="v" * 43 + "=", lifetime_s=via_s)
    await peer.put_token("sb://ns.local/final", rule="final-only", key="f" * 43 + "=", lifetime_s=final_s)
    return peer


def test_a_via_link_goes_when_either_token_ends() -> None:
    """TX-3, A-8: as a link to the destination itself would."""

    async def scenario(room: Room) -> None:
        for lifetimes in ({"via_s": 60}, {"final_s": 60}):
            peer = await with_two_tokens(room, **lifetimes)
            sender = await peer.sender("via", properties={DESTINATION: "final"})
            assert isinstance((await peer.sent(sender, payload()))[0], Accepted)
            await room.pass_time(50)
            assert peer.refusal(sender) is None
            await room.pass_time(15)
            assert (peer.refusal(sender) or ("",))[0] == UNAUTHORIZED

    in_room(scenario, VIA, FINAL)


def test_a_renewed_token_keeps_the_via_link() -> None:
    """TX-3, A-8: a renewed token keeps the via link."""

    async def scenario(room: Room) -> None:
        peer = await with_two_tokens(room, final_s=60)
        sender = await peer.sender("via", properties={DESTINATION: "final"})
        await peer.put_token("sb://ns.local/final", rule="final-only", key="f" * 43 + "=")
        await room.pass_time(70)
        assert isinstance((await peer.sent(sender, payload()))[0], Accepted)

    in_room(scenario, VIA, FINAL)


def test_a_rule_of_the_destination_that_changes_ends_the_via_link() -> None:
    """TX-3, A-10: its right was taken away."""

    async def scenario(room: Room) -> None:
        peer = await with_two_tokens(room)
        sender = await peer.sender("via", properties={DESTINATION: "final"})
        plain = await peer.sender("via")
        await room.namespace.update(replace(FINAL, authorization_rules=()))
        await room.turns()
        assert (peer.refusal(sender) or ("",))[0] == UNAUTHORIZED
        assert peer.refusal(plain) is None

    in_room(scenario, VIA, FINAL)


def test_a_right_that_is_lost_while_the_via_entity_is_prepared_counts() -> None:
    """TX-3, A-8: the first link ever waits a moment, and its token ends in that moment."""

    async def scenario(room: Room) -> None:
        peer = await with_two_tokens(room, final_s=60)
        room.store.hold_commits()
        attaching = asyncio.get_running_loop().create_task(
            peer.sender("via", properties={DESTINATION: "final"})
        )
        await room.turns()
        room.clock.advance(61)
        room.gateway.tick()
        room.store.release_commits()
        sender = await attaching
        assert (peer.refusal(sender) or ("",))[0] == UNAUTHORIZED

    in_room(scenario, VIA, FINAL)


def test_the_destination_may_be_made_anew() -> None:
    """TX-3, E-86: rights are looked up by name; a new queue without the rule refuses."""

    async def scenario(room: Room) -> None:
        peer = await with_two_tokens(room)
        sender = await peer.sender("via", properties={DESTINATION: "final"})
        await room.namespace.delete("final")
        await room.namespace.create([NewEntity(replace(FINAL, authorization_rules=()))])
        await room.turns()
        assert (peer.refusal(sender) or ("",))[0] == UNAUTHORIZED

    in_room(scenario, VIA, FINAL)
