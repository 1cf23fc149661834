"""Looking again at links that may have lost their right: only those that are concerned, and a few in each turn."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from busway.client.connection_string import sas_token
from busway.gateway.amqp import shared
from busway.model.authorization import Authorizer
from busway.model.descriptions import ROOT_RULE_NAME, AuthorizationRule, QueueDescription
from tests.harness.measured import check_within, measured
from tests.unit.gateway.amqp_peer import KEY, Peer, Room, in_room

TOKENS = 200
LINKS = 240


def with_rule(path: str, key: str = "first") -> QueueDescription:
    rule = AuthorizationRule("worker", frozenset({"Send", "Listen"}), key, f"{key}-2")
    return QueueDescription(path, authorization_rules=(rule,))


class Steps:
    """Counts how often a grant is held against a path, and how often a rule is looked up."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.count = 0
        present = Authorizer._present_rights

        def counted(authorizer: Authorizer, grant: object) -> frozenset[str]:
            self.count += 1
            return present(authorizer, grant)  # type: ignore[arg-type]

        patched.setattr(Authorizer, "_present_rights", counted)


async def with_links(room: Room, count: int, *paths: str) -> tuple[Peer, list[object]]:
    peer = await room.stranger()
    for path in paths:
        assert await peer.put_token(f"sb://localhost/{path}", rule="worker", key="first") == 202
    return peer, [await peer.sender(paths[n % len(paths)]) for n in range(count)]


def test_a_further_token_looks_at_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a put-token held every link against every token; a token that takes nothing away looks at none."""
    queues = [with_rule(f"q{n}") for n in range(4)]

    async def scenario(room: Room) -> None:
        peer, _ = await with_links(room, 40, *(queue.path for queue in queues))
        steps = Steps(monkeypatch)
        for lifetime_s in (3600, 7200):  # a new audience, and a renewal
            assert await peer.put_token("sb://localhost/q0/x", lifetime_s=lifetime_s) in (202, 404)
            assert (
                await peer.put_token("sb://localhost/q1", rule="worker", key="first", lifetime_s=lifetime_s)
                == 202
            )
        await room.turns()
        assert steps.count == 0

    in_room(scenario, *queues)


def test_a_lesser_token_ends_the_links_below_it_and_looks_at_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A-8: replaced by one of a rule that may only listen."""
    listener = AuthorizationRule("listener", frozenset({"Listen"}), "ears", "ears-2")
    first = with_rule("q0")
    first = replace(first, authorization_rules=(*first.authorization_rules, listener))

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, 40, "q0", "q1")
        steps = Steps(monkeypatch)
        assert await peer.put_token("sb://localhost/q0", rule="listener", key="ears") == 202
        await room.turns()
        refusals = [peer.refusal(link) for link in links]  # type: ignore[arg-type]
        assert [refusal is not None for refusal in refusals] == [True, False] * 20
        assert steps.count == 20

    in_room(scenario, first, with_rule("q1"))


def test_a_changed_rule_ends_its_links_in_slices_and_looks_at_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A-10: so many in each turn of the loop, and only those of the entity whose key was changed."""
    monkeypatch.setattr(shared, "SLICE_LINKS", 10)

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, 80, "q0", "q1")
        steps = Steps(monkeypatch)
        await room.namespace.update(with_rule("q0", "second"))
        largest, before = 0, steps.count
        for _ in range(60):
            await room.turns(1)
            largest, before = max(largest, steps.count - before), steps.count
        assert 0 < largest <= 20  # two turns of the check may fall into one of the room's
        assert steps.count == 40
        refusals = [peer.refusal(link) for link in links]  # type: ignore[arg-type]
        assert [refusal is not None for refusal in refusals] == [True, False] * 40

    in_room(scenario, with_rule("q0"), with_rule("q1"))


def test_a_deleted_entity_concerns_nobody_who_lives_by_other_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: each deletion held all links of all connections against all their tokens."""

    async def scenario(room: Room) -> None:
        await with_links(room, 40, "q0")
        steps = Steps(monkeypatch)
        await room.namespace.delete("q1")
        await room.turns()
        assert steps.count == 0

    in_room(scenario, with_rule("q0"), with_rule("q1"))


def test_a_connection_that_ends_leaves_no_note_of_its_grants() -> None:
    """A-10: whoever is gone is not looked at again."""

    async def scenario(room: Room) -> None:
        peer, _ = await with_links(room, 2, "q0", "q1")
        assert len(room.gateway.shared.rights._holders) == 2
        peer.transport.lose()
        await room.turns()
        assert room.gateway.shared.rights._holders == {}
        assert room.gateway.shared.rights._seen == {}

    in_room(scenario, with_rule("q0"), with_rule("q1"))


@measured
def test_a_token_among_many_costs_what_it_would_alone() -> None:
    """Attack: a thousand tokens and as many links made each further one cost a fifth of a second."""
    queues = [QueueDescription(f"q{n}") for n in range(TOKENS)]

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        links = await peer.request_links("$cbs", "answers")
        assert links
        for queue in queues:
            grant = room.namespace.authorizer.grant_of_token(_token(room, queue.path), f"/{queue.path}")
            peer.connection.carrier.tokens.hold(grant)
        for n in range(LINKS):
            await peer.sender(f"q{n % TOKENS}")
        again = room.namespace.authorizer.grant_of_token(_token(room, "q1"), "/q1")
        began = time.process_time()
        for _ in range(10):
            peer.connection.carrier.tokens.hold(again)
            await room.turns(1)
        check_within((time.process_time() - began) / 10, 0.05)

    in_room(scenario, *queues)


def _token(room: Room, path: str) -> str:
    return sas_token(f"sb://localhost/{path}", ROOT_RULE_NAME, KEY, room.clock.wall_ms() // 1000 + 3600)
