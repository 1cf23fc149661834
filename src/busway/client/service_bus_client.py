"""The client: one connection, tokens for the entities it uses, senders, receivers and management."""

from pathlib import Path
from typing import Final

from busway.amqp.performatives import TransactionalState
from busway.client.client_connection import ClientConnection, ControlEnd, ServiceBusTransaction
from busway.client.connection_string import ConnectionString
from busway.client.events import DEFAULT_GROUP, EventProducer, PartitionReader, ProducerClaim, StartPosition
from busway.client.management import Management
from busway.client.receiver import PEEK_LOCK, ServiceBusReceiver
from busway.client.sender import ServiceBusSender
from busway.client.wire import Wire

_SESSION_WAIT_S: Final = 60.0


class ServiceBusClient:
    """An asynchronous context manager. With `plain_login` it logs in by SASL PLAIN instead of tokens."""

    def __init__(
        self, target: ConnectionString, ca_file: Path | None = None, *, plain_login: bool = False
    ) -> None:
        self.connection = ClientConnection(target, ca_file, plain_login=plain_login)

    @classmethod
    def from_connection_string(
        cls, text: str, ca_file: Path | None = None, *, plain_login: bool = False
    ) -> "ServiceBusClient":
        return cls(ConnectionString.parse(text), ca_file, plain_login=plain_login)

    async def __aenter__(self) -> "ServiceBusClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.connection.close()

    def get_queue_sender(self, queue_name: str) -> ServiceBusSender:
        return ServiceBusSender(self.connection, queue_name)

    def get_topic_sender(self, topic_name: str) -> ServiceBusSender:
        return ServiceBusSender(self.connection, topic_name)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, *, receive_mode: str = PEEK_LOCK
    ) -> ServiceBusReceiver:
        """`subscription_name` may end in /$DeadLetterQueue."""
        return self.get_queue_receiver(
            f"{topic_name}/Subscriptions/{subscription_name}", receive_mode=receive_mode
        )

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        receive_mode: str = PEEK_LOCK,
        session_id: str | bool | None = None,
        session_wait: float = _SESSION_WAIT_S,
    ) -> ServiceBusReceiver:
        """`queue_name` is any address that can be received from: it may end in /$DeadLetterQueue."""
        return ServiceBusReceiver(self.connection, queue_name, receive_mode, session_id, session_wait)

    def get_event_reader(
        self,
        hub_name: str,
        partition_id: str,
        start: StartPosition,
        consumer_group: str = DEFAULT_GROUP,
    ) -> PartitionReader:
        """Reads one partition of an event hub from any position."""
        return PartitionReader(self.connection, hub_name, partition_id, start, consumer_group)

    def get_event_producer(
        self, hub_name: str, partition_id: str, claim: ProducerClaim | None = None
    ) -> EventProducer:
        """Publishes to one partition; with a claim each event is stored once where the server can tell."""
        return EventProducer(self.connection, hub_name, partition_id, claim)

    def get_management(self, queue_name: str) -> Management:
        return self.connection.get_management(queue_name)

    def transaction(self) -> ServiceBusTransaction:
        """`async with client.transaction(): …`: what the block sends and settles happens together or not at all."""
        return ServiceBusTransaction(self.connection)

    def transaction_state(self) -> TransactionalState | None:
        """What transfers bear inside the block of a transaction; None outside."""
        return self.connection.transaction_state()

    async def control_link(self) -> ControlEnd:
        """One for the connection; its loss rolls back what is open."""
        return await self.connection.control_link()

    async def wire_for(self, entity: str) -> Wire:
        """The open connection, with a token put for the entity."""
        return await self.connection.wire_for(entity)
