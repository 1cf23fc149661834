"""Who should own what: everybody finds the same, nobody gets too much, little moves."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from busway.cluster.ownership import PossibleOwner, owners, shares

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
members = st.lists(
    st.builds(PossibleOwner, names, st.integers(1, 5), st.booleans()),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.node,
)


@settings(max_examples=100, deadline=None)
@given(members, st.integers(1, 40), st.randoms(use_true_random=False))
def test_every_node_finds_the_same(nodes: list[PossibleOwner], count: int, chance: random.Random) -> None:
    """P-40: in whatever order it learned of the members and the stores; and every store has an owner."""
    stores = list(range(count))
    found = owners(stores, nodes)
    assert sorted(found) == stores
    shuffled, others = list(nodes), list(stores)
    chance.shuffle(shuffled)
    chance.shuffle(others)
    assert owners(others, shuffled) == found


@settings(max_examples=100, deadline=None)
@given(members, st.integers(1, 40))
def test_nobody_gets_more_than_its_share_rounded_up(nodes: list[PossibleOwner], count: int) -> None:
    """P-40: by weight; one that drains gets nothing while there is another."""
    staying = [each for each in nodes if not each.is_draining] or nodes
    most = shares(count, staying)
    got = Counter(owners(list(range(count)), nodes).values())
    assert set(got) <= {each.node for each in staying}
    assert all(got[node] <= most[node] for node in got)


def test_sixteen_stores_over_three_nodes_are_five_five_and_six() -> None:
    found = Counter(owners(range(16), [PossibleOwner("a"), PossibleOwner("b"), PossibleOwner("c")]).values())
    assert max(found.values()) <= 6
    assert sum(found.values()) == 16


def test_without_nodes_nobody_owns_anything() -> None:
    assert owners(range(4), []) == {}


def test_a_node_that_goes_moves_little_more_than_its_own_stores() -> None:
    """P-40: with shares rounded up a few others may have to move; on average hardly any."""
    chance, moved_beyond = random.Random(1), 0
    for _ in range(200):
        nodes = [PossibleOwner(f"node-{chance.randrange(10_000)}-{index}") for index in range(4)]
        before = owners(range(16), nodes)
        after = owners(range(16), nodes[1:])
        moved_beyond += sum(
            1 for store, node in before.items() if node != nodes[0].node and after[store] != node
        )
    assert moved_beyond / 200 < 2.0


def test_a_node_of_twice_the_weight_has_about_twice_the_stores() -> None:
    found = Counter(owners(range(900), [PossibleOwner("a"), PossibleOwner("b", weight=2)]).values())
    assert found["a"] <= 300
    assert found["b"] == 900 - found["a"]
