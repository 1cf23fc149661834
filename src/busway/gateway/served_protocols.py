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


class ServedProtocols:
    """What a listener asks for the protocol of a connection."""

    def __init__(self) -> None:
        self._amqp: AmqpGateway | None = None
        self._http: Entrance | None = None
        #: Answers while nothing is served.
        self._standby: Entrance | None = None

    def begin(self, amqp: AmqpGateway, http: Entrance) -> None:
        """The bus is served."""
        self._amqp, self._http = amqp, http

    def end(self) -> None:
        """It is no more; open connections are the gateways' business."""
        self._amqp = self._http = None

    def stand_by(self, standby: Entrance) -> None:
        """Who answers HTTP while the bus is not served."""
        self._standby = standby

    async def close(self) -> None:
        if self._standby is not None:
            await self._standby.close()

    def amqp(self) -> asyncio.Protocol:
        """For one connection."""
        return TurnedAway() if self._amqp is None else AmqpProtocol(self._amqp)

    def http(self) -> asyncio.Protocol:
        """For one connection."""
        entrance = self._http or self._standby
        return TurnedAway() if entrance is None else entrance.protocol()


class TurnedAway(asyncio.Protocol):
    """Let go before a word is said."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).close()
