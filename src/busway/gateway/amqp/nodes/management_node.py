"""The management nodes: `X/$management` of an entity, with every operation besides its links, and the namespace's.

Theory of operation. Each request is handled by itself: its operation is looked up in OPERATIONS, the right that
belongs to it is checked against the connection's tokens as they are now (A-9; tokens expire and keys are rotated
while links stay), the queue is looked up again (it may be another one under the old name, E-86), and the body is
read key by key. Whatever a client sends, there is an answer; only answers go back, never exceptions.

Everybody may attach to such a node, and each request shows what it may (A-7). Java's Event Hubs client attaches
without ever putting a token on `$cbs`; each of its requests brings one of its own, `security_token`. Java's older
Service Bus stack attaches while its token is still under way. So an attach says nothing about rights, and nothing
about what exists: whoever has no right on an entity gets the same answers whether it is a queue, an event hub or
nothing at all. What the node is, is looked up for each request, after its right (`ManagementAddress`).

The node `$management` of the namespace tells what an event hub and its partitions are like now (H-27,
`EventManagementNode`). It belongs to no entity, so each request brings a token of its own for the hub it asks
about, `security_token`; without one the tokens of the connection count. Any right on the hub will do. Whatever a
client sends, there is an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Int, Long, Timestamp
from busway.broker.namespace.namespace import Queue
from busway.gateway.amqp.links.addresses import LinkNode, NodeKind, path_of
from busway.gateway.amqp.links.link_host import LinkLookup
from busway.gateway.amqp.nodes.management_operations import (
    ManagedEntity,
    add_rule,
    batch_delete_messages,
    cancel_scheduled_message,
    enumerate_rules,
    get_message_sessions,
    get_session_state,
    peek_message,
    receive_by_sequence_number,
    remove_rule,
    renew_lock,
    renew_session_lock,
    schedule_message,
    set_session_state,
    update_disposition,
)
from busway.gateway.amqp.nodes.request_and_answer import (
    DESCRIPTIONS,
    OK,
    Answer,
    RequestBody,
    nothing,
    refuse,
    respond,
    string_array,
    symbol_or_text,
)
from busway.gateway.tracking import Tracking
from busway.message.message import FIRST_INSTANT_MS
from busway.model.authorization import note_caller
from busway.model.descriptions import LISTEN, MANAGE, SEND, SubscriptionDescription
from busway.model.entity_path import EntityAddress
from busway.model.errors import (
    BadArgument,
    BrokerError,
    InternalError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    NotImplementedByServer,
    TransactionUnknown,
)

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.broker.transaction.transactions import Transaction, Transactions
    from busway.clock import Entropy
    from busway.model.authorization import Grant
    from busway.model.flow import FlowCounts
    from busway.streams.event_hub import EventHub
    from busway.streams.event_hubs import EventHubs

_log = logging.getLogger(__name__)
_PREFIX: Final = "com.microsoft:"
#: Of the empty sub-queue of failed transfers.
_FINDS_NOTHING: Final = frozenset({"peek-message", "batch-delete-messages"})
_KNOWS_NO_LOCK: Final = frozenset({"renew-lock", "update-disposition"})
_RECEIVES: Final = "receive-by-sequence-number"
#: They send: a refusal dooms the transaction that they are part of.
_SENDING: Final = frozenset({"schedule-message"})
#: They change something and could not be undone. What only reads or renews takes place beside the transaction.
_NEVER_IN_TRANSACTIONS: Final = frozenset(
    {"batch-delete-messages", "set-session-state", "receive-by-sequence-number"}
)
#: With the bodies of messages that the client chooses, or with rules by the hundred.
_AT_LENGTH: Final = frozenset({"peek-message", "receive-by-sequence-number", "enumerate-rules"})

Operation = Callable[[ManagedEntity, RequestBody], Awaitable[Answer]]


#: Operation → (the right it needs, what does it) (A-9, T-12).
OPERATIONS: Final[dict[str, tuple[str, Operation]]] = {
    "renew-lock": (LISTEN, renew_lock),
    "update-disposition": (LISTEN, update_disposition),
    "peek-message": (LISTEN, peek_message),
    "receive-by-sequence-number": (LISTEN, receive_by_sequence_number),
    "batch-delete-messages": (LISTEN, batch_delete_messages),
    "renew-session-lock": (LISTEN, renew_session_lock),
    "get-session-state": (LISTEN, get_session_state),
    "set-session-state": (LISTEN, set_session_state),
    "get-message-sessions": (LISTEN, get_message_sessions),
    "schedule-message": (SEND, schedule_message),
    "cancel-scheduled-message": (SEND, cancel_scheduled_message),
    "add-rule": (MANAGE, add_rule),
    "remove-rule": (MANAGE, remove_rule),
    "enumerate-rules": (LISTEN, enumerate_rules),
}


class ManagementNode:
    """The management node of an entity, `X/$management`: every operation it has besides its links."""

    def __init__(
        self,
        namespace: Namespace,
        address: EntityAddress,
        grants: Callable[[str], list[Grant]],
        links: LinkLookup,
        tracking: Tracking,
        entropy: Entropy,
        transactions: Transactions | None = None,
    ) -> None:
        self._namespace = namespace
        self._address = address
        self._grants = grants
        self._links = links
        self._tracking = tracking
        self._entropy = entropy
        #: Of the asking connection.
        self._transactions = transactions
        #: For rights, sentences and the log: with the sub-queue, without `$management`.
        plain = EntityAddress(address.path, address.dead_letter, address.transfer_dead_letter)
        self._path = LinkNode(NodeKind.ENTITY, plain).path

    async def handle(self, request: AmqpMessage, txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        try:
            answer = await self._answer(request, txn_id)
        except BrokerError as error:
            self._flow().refused(error)
            return refuse(request, error, self._tracking, self._path)
        except Exception:
            _log.exception("A management request on %s failed unexpectedly", self._path)
            self._flow().failed()
            return refuse(request, InternalError(), self._tracking, self._path)
        self._flow().answered(1, [])
        return respond(request, answer.status, DESCRIPTIONS[answer.status], answer.condition, answer.body)

    def answers_at_length(self, request: AmqpMessage) -> bool:
        name = symbol_or_text((request.application_properties or {}).get("operation"))
        return name is not None and name.removeprefix(_PREFIX) in _AT_LENGTH

    def _flow(self) -> FlowCounts:
        return self._namespace.flows.known(self._address.path)

    async def _answer(self, request: AmqpMessage, txn_id: bytes | None) -> Answer:
        properties = request.application_properties or {}
        name = symbol_or_text(properties.get("operation"))
        if name is None:
            raise BadArgument("The request lacks 'operation'.")
        right, operation = _operation(name)
        grant = self._namespace.authorizer.authorise(self._grants(self._path), self._path, right)
        note_caller(grant.rule_name)
        link_name = symbol_or_text(properties.get("associated-link-name"))
        if link_name is not None:
            self._links.touch_link(link_name)
        if (
            self._address.transfer_dead_letter
            and self._namespace.transfer_queues.of(self._address.path) is None
        ):
            self._namespace.queue(self._address.path)
            return _answer_of_empty(name.removeprefix(_PREFIX), self._path)
        entity = self._entity(link_name)
        if txn_id is not None:
            entity.transaction = self._transaction(txn_id, name.removeprefix(_PREFIX))
        try:
            return await operation(entity, RequestBody(request.body))
        except BrokerError as error:
            if entity.transaction is not None and name.removeprefix(_PREFIX) in _SENDING:
                entity.transaction.doom(error)  # as a refused transfer does
            raise

    def _transaction(self, txn_id: bytes, operation: str) -> Transaction:
        """Raises TransactionUnknown, and InvalidOperation for what cannot be part of one (TX-1)."""
        if self._transactions is None:
            raise TransactionUnknown
        transaction = self._transactions.find(txn_id)
        transaction.check_open()
        if operation in _NEVER_IN_TRANSACTIONS:
            raise InvalidOperation(f"The operation '{operation}' cannot be part of a transaction.")
        return transaction

    def _entity(self, link_name: str | None) -> ManagedEntity:
        address = self._address
        transfers = self._namespace.transfer_queues.of(address.path) if address.transfer_dead_letter else None
        found = self._namespace.sender(address.path) if transfers is None else transfers
        is_dead_letter = address.dead_letter or address.transfer_dead_letter
        takes_messages = not is_dead_letter and not isinstance(found.description, SubscriptionDescription)
        return ManagedEntity(
            path=self._path,
            sender=found if takes_messages else None,
            outlet=found.outlet(is_dead_letter) if isinstance(found, Queue) else None,
            namespace=self._namespace,
            links=self._links,
            link_name=link_name,
            detects_duplicates=found.settings.detects_duplicates,
            entropy=self._entropy,
        )


def _operation(name: str) -> tuple[str, Operation]:
    found = OPERATIONS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if found is None:
        raise NotImplementedByServer(f"The operation '{name[:80]}' is not known.")
    return found


HUB_TYPE: Final = "com.microsoft:eventhub"
PARTITION_TYPE: Final = "com.microsoft:partition"
_READ: Final = "read"
#: Which copy in another region gave out a number: none did. Rust's client wants the field (H-26).
_NO_EPOCH: Final = -1


class EventManagementNode:
    """The node `$management` of the namespace: what an event hub and its partitions are like now (H-27)."""

    def __init__(
        self,
        namespace: Namespace,
        hubs: EventHubs,
        grants: Callable[[str, AmqpMessage], list[Grant]],
        tracking: Tracking,
    ) -> None:
        self._namespace = namespace
        self._hubs = hubs
        #: What a request may at a path (`RequestRights.grants_for`).
        self._grants = grants
        self._tracking = tracking

    async def handle(self, request: AmqpMessage, _txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        path = _hub_name(request)
        flow = self._namespace.flows.known(path)
        try:
            body = self._read(request)
        except BrokerError as error:
            flow.refused(error)
            return refuse(request, error, self._tracking, path or "$management")
        except Exception:
            _log.exception("A request on $management failed unexpectedly")
            flow.failed()
            return refuse(request, InternalError(), self._tracking, path or "$management")
        flow.answered(1, [])
        return respond(request, OK, DESCRIPTIONS[OK], None, body)

    def answers_at_length(self, _request: AmqpMessage) -> bool:
        return False

    def _read(self, request: AmqpMessage) -> dict[str, object]:
        properties = request.application_properties or {}
        operation = symbol_or_text(properties.get("operation"))
        if operation is None or operation.lower() != _READ:
            raise NotImplementedByServer("The node '$management' knows one operation: 'READ'.")
        kind = symbol_or_text(properties.get("type"))
        if kind not in (HUB_TYPE, PARTITION_TYPE):
            raise NotImplementedByServer(
                f"The node '$management' tells about the types '{HUB_TYPE}' and '{PARTITION_TYPE}'."
            )
        path = _hub_name(request)
        if path == "":
            raise BadArgument("The request lacks 'name', the name of the event hub.")
        self._namespace.authorizer.authorise_any(self._grants(path, request), path)
        hub = self._hubs.hub(path)
        if kind == HUB_TYPE:
            return hub_information(hub)
        partition_id = symbol_or_text(properties.get("partition"))
        if partition_id is None:
            raise BadArgument("The request lacks 'partition', the id of the partition.")
        return partition_information(hub, partition_id)


def hub_information(hub: EventHub) -> dict[str, object]:
    description = hub.description
    return {
        "name": description.path,
        "type": HUB_TYPE,
        "created_at": Timestamp(description.created_at_ms),
        "partition_count": Int(hub.partition_count),
        "partition_ids": string_array([str(index) for index in range(hub.partition_count)]),
        # Go's client wants it: copies in other regions, which there are none of.
        "georeplication_factor": Int(1),
    }


def partition_information(hub: EventHub, partition_id: str) -> dict[str, object]:
    """Raises ArgumentOutOfRange, ServerBusy."""
    info = hub.partition(partition_id).info()
    return {
        "name": hub.description.path,
        "type": PARTITION_TYPE,
        "partition": partition_id,
        "begin_sequence_number": Long(info.begin_number),
        "begin_sequence_number_epoch": Int(_NO_EPOCH),
        "last_enqueued_sequence_number": Long(info.last_number),
        "last_enqueued_sequence_number_epoch": Int(_NO_EPOCH),
        "last_enqueued_offset": info.last_offset,
        "last_enqueued_time_utc": Timestamp(FIRST_INSTANT_MS if info.last_number < 0 else info.last_at_ms),
        "is_partition_empty": info.is_empty,
    }


def _hub_name(request: AmqpMessage) -> str:
    name = symbol_or_text((request.application_properties or {}).get("name"))
    try:
        return "" if name is None else path_of(name)
    except BrokerError:
        return ""


def _answer_of_empty(operation: str, path: str) -> Answer:
    """What it finds in a sub-queue of failed transfers of a queue that nothing was ever sent via (D-22)."""
    if operation in _FINDS_NOTHING:
        return nothing()
    if operation in _KNOWS_NO_LOCK:
        raise MessageLockLost
    if operation == _RECEIVES:
        raise MessageNotFound
    raise InvalidOperation(f"'{path}' holds nothing and takes nothing: no messages were sent via its queue.")
