"""What one connection makes the server hold, by kind, in bytes.

Whatever can be counted where it lies is counted there and added up here when somebody asks; two numbers that have no
other place are kept here. So nothing is ever given back twice, or forgotten, however a connection ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from busway.amqp.session import held_bytes

if TYPE_CHECKING:
    from busway.amqp.connection import Connection
    from busway.broker.limits import Limits
    from busway.broker.transaction.transactions import Transactions
    from busway.gateway.amqp.connection import ByteTransport
    from busway.gateway.amqp.nodes.request_link import RequestDesk
    from busway.gateway.amqp.nodes.tokens import TokenHolder

#: A connection that holds more than this and one answer of the largest size is closed: with the bounds as they are at
#: 48 MiB. One more read, and one more answer, can add to it: never more than 64 MiB together.
HELD_BYTES_MAX: Final = 32 * 1024 * 1024
#: What may wait for windows, and be kept by readers, before no more is begun.
KEPT_FREE_BYTES: Final = 16 * 1024 * 1024


class Holdings:
    """Of one connection."""

    __slots__ = (
        "_desk",
        "_engine",
        "_tokens",
        "_transactions",
        "_transport",
        "bytes_max",
        "input_bytes",
        "kept_bytes",
    )

    def __init__(
        self,
        engine: Connection,
        transport: ByteTransport,
        desk: RequestDesk,
        transactions: Transactions,
        tokens: TokenHolder,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._transport = transport
        self._desk = desk
        self._transactions = transactions
        self._tokens = tokens
        self.bytes_max = HELD_BYTES_MAX + limits.fetch_bytes_max
        #: Messages that wait for the store, and requests that wait for their turn or are worked on.
        self.input_bytes = 0
        #: What readers of event hubs have fetched and not yet sent.
        self.kept_bytes = 0

    def total(self) -> int:
        return self.input_bytes + self.idle()

    def idle(self) -> int:
        """What does not go by itself, and goes with the connection."""
        return (
            held_bytes(self._engine)
            + self._transport.get_write_buffer_size()
            + self._desk.unsent_bytes
            + self._transactions.held_bytes
            + self._tokens.held_bytes
            + self.kept_bytes
        )

    def told(self) -> str:
        """In words, for whoever is closed because of it."""
        return (
            f"{self.input_bytes} bytes that are not stored yet,"
            f" {self._engine.allowance.partial_bytes()} of unfinished deliveries,"
            f" {self._transactions.held_bytes} in open transactions,"
            f" {self._transport.get_write_buffer_size() + self._desk.unsent_bytes} of output that is not taken,"
            f" {self.kept_bytes + self._engine.allowance.waiting_bytes} that wait for windows"
        )
