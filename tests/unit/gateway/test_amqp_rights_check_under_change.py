"""Rights that change again while links are still being looked at, slice by slice: what counts is what holds now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busway.gateway.amqp import shared
from busway.model.descriptions import NewEntity, QueueDescription
from tests.unit.gateway.amqp_peer import Peer, Room, in_room
from tests.unit.gateway.test_amqp_rights_check import with_links, with_rule

LINKS = 60


@pytest.fixture(autouse=True)
def _small_slices() -> Iterator[None]:
    patched = pytest.MonkeyPatch()
    patched.setattr(shared, "SLICE_LINKS", 2)
    patched.setattr(shared, "SLICE_CONNECTIONS", 1)
    patched.setattr(shared, "SLICE_LEVELS", 1)
    yield
    patched.undo()


def ended(peer: Peer, links: list[object]) -> int:
    return sum(peer.refusal(link) is not None for link in links)  # type: ignore[arg-type]


async def some_turns(room: Room, peer: Peer, links: list[object]) -> int:
    """Until a part of the links is ended."""
    for _ in range(200):
        await room.turns(1)
        if 0 < ended(peer, links) < LINKS:
            return ended(peer, links)
    raise AssertionError("there was no moment in between")


def test_a_key_that_is_put_back_meanwhile_keeps_the_links_not_yet_looked_at() -> None:
    """A-10: who was ended in between attaches again; nobody is ended by a rule of yesterday."""

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, LINKS, "q0")
        await room.namespace.update(with_rule("q0", "second"))
        count = await some_turns(room, peer, links)
        await room.namespace.update(with_rule("q0"))
        await room.turns(200)
        assert ended(peer, links) <= count + 10
        assert not room.gateway.shared.rights._concerned
        assert not room.gateway.shared.rights._links
        assert room.namespace.queue("q0") is not None

    in_room(scenario, with_rule("q0"))


def test_a_queue_that_is_made_again_meanwhile_knows_no_link_of_the_former() -> None:
    """A-10, E-8: all links of the one that is gone end, though the new one has the same rule."""

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, LINKS, "q0")
        await room.namespace.update(with_rule("q0", "second"))
        await some_turns(room, peer, links)
        await room.namespace.delete("q0")
        await room.namespace.create([NewEntity(with_rule("q0"))])
        await room.turns(200)
        assert ended(peer, links) == LINKS
        assert not room.gateway.shared.rights._links

    in_room(scenario, with_rule("q0"))


def test_links_that_come_while_others_are_looked_at_are_held_to_the_new_rule() -> None:
    """A-10: none slips in by the old key."""

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, LINKS, "q0")
        await room.namespace.update(with_rule("q0", "second"))
        await some_turns(room, peer, links)
        late = await peer.sender("q0")
        await room.turns(200)
        assert ended(peer, [*links, late]) == LINKS + 1

    in_room(scenario, with_rule("q0"))


def test_a_connection_that_goes_meanwhile_takes_its_part_along() -> None:
    """A-10: the others are looked at all the same."""

    async def scenario(room: Room) -> None:
        first, first_links = await with_links(room, LINKS, "q0")
        second, second_links = await with_links(room, LINKS, "q0")
        await room.namespace.update(with_rule("q0", "second"))
        gone, left = first, second
        left_links = second_links
        for _ in range(200):
            await room.turns(1)
            if ended(first, first_links) or ended(second, second_links):
                if ended(second, second_links):
                    gone, left, left_links = second, first, first_links
                break
        gone.connection.connection_lost()
        await room.turns(300)
        assert ended(left, left_links) == LINKS
        assert not room.gateway.shared.rights._concerned
        assert not room.gateway.shared.rights._links
        assert gone.connection not in {
            c for holders in room.gateway.shared.rights._holders.values() for c in holders
        }

    in_room(scenario, with_rule("q0"))


def test_a_store_that_is_switched_off_meanwhile_stops_no_check() -> None:
    """A-10, P-48: rights are the catalogue's business."""

    async def scenario(room: Room) -> None:
        peer, links = await with_links(room, LINKS, "q0")
        await room.namespace.update(with_rule("q0", "second"))
        await some_turns(room, peer, links)
        await room.namespace.stores.disable("a")
        await room.turns(200)
        assert ended(peer, links) == LINKS
        assert not room.gateway.shared.rights._links
        await room.namespace.stores.enable("a")
        assert isinstance(room.namespace.description("q0"), QueueDescription)

    in_room(scenario, with_rule("q0"))
