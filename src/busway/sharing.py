"""A server that shares its stores with others: an owner, which serves the bus, or a standby, which waits for it.

Theory of operation. One node has the stores and serves; the others wait, answer their balancers, and say whom they
wait for. When the owner stops, is killed or cut off, one of them takes the stores, builds the bus and serves.

    entering ──▶ standby ──stores are ours──▶ starting ──▶ ready ──stores are lost──▶ standby

An owner that has lost its stores takes its bus down: links end with "try again", and nothing of it is written, since
the stores refuse it. Then it is a standby like others, in the same process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from busway import __version__
from busway.clock import Clock, Entropy
from busway.cluster.cluster_node import ClusterNode, NodeSettings, shown
from busway.data_directory import DataDirectory
from busway.gateway.http.entrance import Entrance
from busway.gateway.served_protocols import ServedProtocols
from busway.serve_options import ServeOptions
from busway.served_bus import ServedBus
from busway.store.contract import StoreError
from busway.store.postgres.url import is_postgres, parse

if TYPE_CHECKING:
    from busway.config.config import Config
    from busway.gateway.http.standby import StandbyAnswers

_log = logging.getLogger("busway.server")

_LIFE_BYTES: Final = 12


class Announcing(Protocol):
    """The server."""

    bus: ServedBus | None

    def new_bus(self, node: ClusterNode | None) -> ServedBus: ...
    def read_config(self) -> Config | None: ...
    def announce(self) -> None: ...
    def withdraw(self) -> None: ...


class Sharing:
    """See the head of this file."""

    node: ClusterNode

    def __init__(
        self,
        options: ServeOptions,
        directory: DataDirectory,
        clock: Clock,
        entropy: Entropy,
        protocols: ServedProtocols,
        server: Announcing,
    ) -> None:
        self._options = options
        self._directory = directory
        self._clock = clock
        self._entropy = entropy
        self._protocols = protocols
        self._server = server
        self._state = "standby"
        protocols.stand_by(Entrance(self._standby))

    async def enter(self, stack: contextlib.AsyncExitStack, address: str) -> None:
        """As a node, with this address. Raises StoreError."""
        life = self._entropy.bytes(_LIFE_BYTES)
        identity = self._directory.begin_life(self._options.node, life)
        urls = [parse(each) for each in self._options.store_urls if is_postgres(each)]
        settings = NodeSettings(
            identity.node, address, __version__, life, identity.last_life, float(self._options.lease)
        )
        self.node = ClusterNode(urls, self._clock, settings)
        stack.push_async_callback(self.node.stop)
        await self.node.enter()

    async def run(self, stopping: asyncio.Event) -> None:
        """Serves whenever the stores are ours, until then."""
        end = asyncio.ensure_future(stopping.wait())
        try:
            while await _before(end, self.node.owned()):
                await self._serve(end)
        finally:
            end.cancel()

    async def _serve(self, end: asyncio.Future[Any]) -> None:
        self._state = "starting"
        try:
            async with contextlib.AsyncExitStack() as stack:
                bus = self._server.bus = self._server.new_bus(self.node)
                try:
                    await bus.start(stack, self._server.read_config())
                except StoreError as error:
                    if self.node.has_kept_all:
                        raise  # and the process ends: another node may do better, or a supervisor starts it again
                    _log.error("The stores were lost before they were served: %s", error)
                    return
                self._protocols.begin(bus.amqp, bus.http)
                stack.callback(self._leave)
                self._state = "ready"
                self._server.announce()
                await _before(end, self._lost())
        finally:
            self._state = "standby"

    async def _lost(self) -> None:
        reason = await self.node.lost()
        _log.error("The stores of this node are lost. %s; it is a standby now.", reason)

    def _leave(self) -> None:
        """The bus is about to be taken down."""
        self._state = "stopping"
        self._protocols.end()
        self._server.withdraw()

    def readiness(self) -> str:
        """What GET /ready says."""
        return "suspended" if self._state == "ready" and self.node.is_suspended else self._state

    # -- while it does not serve

    def _standby(self) -> StandbyAnswers:
        from busway.gateway.http.app import HttpSettings  # what the entrance has loaded
        from busway.gateway.http.standby import StandbyAnswers
        from busway.signals.lease_figures import figures_of_a_standby

        return StandbyAnswers(
            HttpSettings.for_host(self._options.host, self._options.is_loopback),
            self._told,
            lambda: figures_of_a_standby(self.node),
        )

    def _told(self) -> tuple[str, str]:
        holder = self.node.holder
        if self._state == "standby" and holder is not None:
            return self._state, f"This node is a standby. The bus is served by {shown(holder)}."
        return self._state, "This node does not serve the bus just now. Please try again."


async def _before(end: asyncio.Future[Any], work: Coroutine[None, None, object]) -> bool:
    """Waits for the work; False when the end came first."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    await asyncio.wait([end, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return not end.done()
    task.cancel()
    await asyncio.wait([task])
    return False
