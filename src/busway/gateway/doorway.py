"""Who gets a connection that has said what it speaks: the gateways while the bus is served, else a word of refusal.

A server that waits for its stores listens all the same: balancers ask it whether it is ready, and it says that it is
not. Whoever speaks AMQP is let go at once, and tries again elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from busway.gateway.amqp.gateway import AmqpGateway, AmqpProtocol
from busway.gateway.http.entrance import Entrance

ProtocolFactory = Callable[[], asyncio.Protocol]


class Doorway:
    """Where a listener leads."""

    def __init__(self) -> None:
        self._amqp: AmqpGateway | None = None
        self._http: Entrance | None = None
        #: Answers while nothing is served.
        self._porter: Entrance | None = None

    def open(self, amqp: AmqpGateway, http: Entrance) -> None:
        self._amqp, self._http = amqp, http

    def shut(self) -> None:
        """Those who are inside are the gateways' business."""
        self._amqp = self._http = None

    def keep(self, porter: Entrance) -> None:
        """Who answers HTTP while the doorway is shut."""
        self._porter = porter

    async def close(self) -> None:
        if self._porter is not None:
            await self._porter.close()

    def amqp(self) -> asyncio.Protocol:
        """For one connection."""
        return TurnedAway() if self._amqp is None else AmqpProtocol(self._amqp)

    def http(self) -> asyncio.Protocol:
        """For one connection."""
        entrance = self._http or self._porter
        return TurnedAway() if entrance is None else entrance.protocol()


class TurnedAway(asyncio.Protocol):
    """Let go before a word is said."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).close()
