"""AMQP straight on a socket: the event loop's callbacks, handed on to the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from busway.gateway.amqp.connection import OUTPUT_HIGH_BYTES

if TYPE_CHECKING:
    from busway.gateway.amqp.connection import AmqpConnection
    from busway.gateway.amqp.gateway import AmqpGateway


class AmqpProtocol(asyncio.Protocol):
    """One per socket. Everything of interest is in `AmqpConnection`."""

    def __init__(self, server: AmqpGateway) -> None:
        self._server = server
        self._connection: AmqpConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        # It tells of what is above its mark, and at OUTPUT_HIGH_BYTES there is no room any more.
        stream.set_write_buffer_limits(high=OUTPUT_HIGH_BYTES - 1)
        address = stream.get_extra_info("peername")
        peer = str(address[0]) if isinstance(address, tuple) and address else ""
        self._connection = self._server.connect(stream, peer)

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.data_received(data)

    def eof_received(self) -> bool:
        """The client speaks no more: nothing is left to be said to it either."""
        return False

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._connection is not None:
            self._connection.connection_lost()
            self._connection = None
