"""A settlement that somebody waits for."""

from __future__ import annotations

import asyncio

from busway.broker.fragment.outlet import Outlet
from busway.model.errors import BrokerError
from busway.model.settlement import Settlement


async def settle_durably(
    outlet: Outlet, tokens: list[bytes], settlement: Settlement, session_id: str | None
) -> list[tuple[int, BrokerError]]:
    """What was refused, by its place; everything else is durable."""
    ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()

    def report(refused: list[tuple[int, BrokerError]]) -> None:
        if not ended.done():  # whoever asked may be gone meanwhile
            ended.set_result(refused)

    outlet.settle(tokens, settlement, report, session_id)
    return await ended
