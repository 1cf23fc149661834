"""Nodes without servers: keepers on real databases, with short leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from busway.clock import Clock, Entropy
from busway.cluster.cluster_node import ClusterNode, NodeSettings
from busway.store.postgres.url import parse

#: Longer than a busy machine lets a thread wait, now and then.
LEASE_S = 2.0
MakeNode = Callable[..., ClusterNode]


@pytest.fixture
def make_node() -> MakeNode:
    def make(name: str, *urls: str, last_life: bytes = b"", lease_s: float = LEASE_S) -> ClusterNode:
        life = Entropy().bytes(12)
        settings = NodeSettings(name, f"{name}:5672", "1", life, last_life, lease_s)
        return ClusterNode([parse(url) for url in urls], Clock(), settings)

    return make


@asynccontextmanager
async def entered(*nodes: ClusterNode) -> AsyncIterator[None]:
    """All of them, one after the other; stopped at the end."""
    try:
        for node in nodes:
            await node.enter()
        yield
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
