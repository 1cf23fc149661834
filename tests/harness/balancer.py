"""What stands before several nodes: a TCP balancer that asks each whether it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_server import RunningServer

_LOOK_EVERY_S = 0.05
_ANSWER_S = 0.5


class Balancer(CuttingProxy):
    """`async with Balancer(nodes) as balancer:` leads from `balancer.port` to the node that is ready. Connections to
    one that is so no more are reset."""

    def __init__(self, nodes: Sequence[RunningServer]) -> None:
        super().__init__(0)
        self._nodes = nodes
        self.target: RunningServer | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Balancer:
        self.refuses = True
        await super().__aenter__()
        self._watch = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.wait([self._watch])
        await super().__aexit__()

    async def _keep_looking(self) -> None:
        while True:
            ready = await asyncio.gather(*(self._is_ready(node) for node in self._nodes))
            found = [node for node, is_ready in zip(self._nodes, ready, strict=True) if is_ready]
            if self.target not in found:
                self._lead_to(found[0] if found else None)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _lead_to(self, node: RunningServer | None) -> None:
        self.target = node
        self.refuses = node is None
        if node is not None:
            self._target_port = node.port
        self.cut_all()

    async def _is_ready(self, node: RunningServer) -> bool:
        if not node.is_running or not node.ready:
            return False
        status, _ = await asyncio.to_thread(node.asked, "ready", _ANSWER_S)
        return status == 200

    async def wait_for_other_than(self, node: RunningServer | None, seconds_max: float) -> RunningServer:
        async with asyncio.timeout(seconds_max):
            while self.target is None or self.target is node:  # noqa: ASYNC110 (a look every 10 ms is enough)
                await asyncio.sleep(0.01)
        return self.target
