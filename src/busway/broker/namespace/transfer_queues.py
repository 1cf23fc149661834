"""Messages for one entity by way of another (TX-3): the transfer queue beside an entity, made at its first use."""

from collections.abc import Callable

from busway.broker.entity.queue import Queue
from busway.broker.entity.topic import Topic
from busway.broker.forward.send_via import SendVia, transfer_key
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.entity_creation import EntityCreation
from busway.model.descriptions import SubscriptionDescription
from busway.model.entity_path import shown
from busway.model.errors import InvalidOperation


class TransferQueues:
    """Each verb raises EntityNotFound."""

    def __init__(
        self,
        contents: NamespaceContents,
        creation: EntityCreation,
        sender: Callable[[str], Queue | Topic],
    ) -> None:
        self._contents = contents
        self._creation = creation
        self._sender = sender

    def of(self, via_path: str) -> Queue | None:
        """None before something was sent via this entity."""
        entities = self._contents.entities
        row = entities.rows.get(transfer_key(self._contents.entity_row(via_path).key))
        return None if row is None else entities.queue(row)

    def send_via(self, via_path: str, destination_path: str) -> SendVia | None:
        """None when `prepare` must come first. Raises InvalidOperation for a subscription."""
        via = self._contents.entity_row(via_path)
        destination = self._contents.entity_row(destination_path)
        for row in (via, destination):
            if isinstance(row.description, SubscriptionDescription):
                raise InvalidOperation(f"Nobody can send to the subscription {shown(row.description.path)}.")
        transfers = self.of(via_path)
        if transfers is None:
            return None
        path = destination.description.path
        sender, limits = self._sender, self._contents.limits
        return SendVia(sender(via_path), transfers, path, lambda: sender(path), limits)

    async def prepare(self, via_path: str) -> None:
        """Once for each entity. Raises ServerBusy."""
        via = self._contents.entity_row(via_path)
        await self._contents.background.finish(self._creation.create_transfer_queue(via))
