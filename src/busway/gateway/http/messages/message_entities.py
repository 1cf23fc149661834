"""The entities that the message API works on, found by address (E-8, E-10): the one seam to the namespace."""

from dataclasses import dataclass

from busway.broker.fragment.outlet import Attachment, Outlet
from busway.broker.namespace.namespace import Namespace, Queue, Topic
from busway.model.entity_path import EntityAddress, not_found
from busway.model.errors import BrokerError, InvalidOperation


@dataclass(frozen=True)
class ReceivePoint:
    """Where messages are received: the entity that a receiver holds open, and what it receives from. `outlet` is
    None for the transfer dead-letter queue of an entity that nothing was ever sent via."""

    entity: Queue
    outlet: Outlet | None


class MessageEntities:
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def sender(self, path: str) -> Queue | Topic:
        """Raises EntityNotFound, EntityDisabled, ServerBusy; InvalidOperation for what takes no messages (E-10)."""
        address = self._address(path)
        if address.dead_letter or address.transfer_dead_letter:
            raise InvalidOperation(f"Nobody can send to '{path}': messages enter it by dead-lettering only.")
        found = self._namespace.sender(address.path)
        check = _SendCheck()
        found.attach(check, sends=True)
        found.detach(check)
        return found

    def receive_point(self, path: str, *, with_sessions: bool = False) -> ReceivePoint:
        """Raises EntityNotFound, ServerBusy; InvalidOperation for topics (E-9), and for sessions, which messages over
        HTTP do not have (R-23)."""
        address = self._address(path)
        if address.transfer_dead_letter:
            return self._transfer_dead_letters(address.path)
        found = self._namespace.queue(address.path)
        outlet = found.outlet(address.dead_letter)
        if outlet.requires_session and not with_sessions:
            raise InvalidOperation(
                f"'{path}' requires sessions, which cannot be received over HTTP. It is not possible for an entity"
                " that requires sessions to create a non-sessionful message receiver."
            )
        return ReceivePoint(found, outlet)

    def _transfer_dead_letters(self, via_path: str) -> ReceivePoint:
        """D-22: empty where nothing was ever sent via the entity."""
        transfers = self._namespace.transfer_queues.of(via_path)
        if transfers is None:
            return ReceivePoint(self._namespace.queue(via_path), None)
        return ReceivePoint(transfers, transfers.outlet(True))

    def _address(self, path: str) -> EntityAddress:
        address = EntityAddress.parse(path)
        if address.management or not address.path:
            raise not_found(self._namespace.name, path)
        return address


class _SendCheck(Attachment):
    """Asks whether sending is allowed, and is gone before anything can happen to it."""

    def evict(self, error: BrokerError) -> None: ...
