"""Which node should have which store: the same answer on every node that sees the same members. No node leads.

Theory of operation. Each pair of a store and a node has a score, a hash that everybody can work out, and a store
wants to be at the node with the highest one (rendezvous hashing): when a node comes or goes, only stores move that
come to it or leave it. But a few stores fall unevenly, so no node gets more than its share, rounded up. Stores are
dealt out by their best scores first; one whose first choice is full gets its next.

A node of weight 2 has twice the share, and the chance of two nodes to be chosen. One that is draining gets nothing,
as long as there is another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class PossibleOwner:
    """A live member of a database, as far as this is concerned."""

    node: str
    weight: int = 1
    is_draining: bool = False


def owners(stores: Sequence[int], candidates: Collection[PossibleOwner]) -> dict[int, str]:
    """Store → node; empty when there is no node."""
    nodes = [each for each in candidates if not each.is_draining] or list(candidates)
    if not nodes:
        return {}
    room = shares(len(stores), nodes)
    wishes = sorted(
        ((score(store, each), each.node, store) for store in stores for each in nodes),
        key=lambda wish: (-wish[0], wish[1], wish[2]),
    )
    found: dict[int, str] = {}
    for _, node, store in wishes:
        if store not in found and room[node] > 0:
            found[store] = node
            room[node] -= 1
    return found


def shares(stores: int, nodes: Collection[PossibleOwner]) -> dict[str, int]:
    """How many stores each node has at most: its share by weight, rounded up."""
    total = sum(each.weight for each in nodes)
    return {each.node: math.ceil(Fraction(stores * each.weight, total)) for each in nodes}


def score(store: int, candidate: PossibleOwner) -> float:
    """Higher is better. A node of weight 2 is the highest of a few as often as two nodes would be."""
    digest = hashlib.blake2b(f"{store}\0{candidate.node}".encode(), digest_size=8).digest()
    # 53 bits: what a float holds, so that every machine finds the same.
    chance = ((int.from_bytes(digest, "big") >> 11) + 0.5) / (1 << 53)
    return -candidate.weight / math.log(chance)
