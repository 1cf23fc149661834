"""The management node of an entity, `X/$management`: every operation a queue has besides its links.

Theory of operation. Each request is handled by itself: its operation is looked up in OPERATIONS, the right that
belongs to it is checked against the connection's tokens as they are now (A-9; tokens expire and keys are
rotated while links stay), the queue is looked up again (it may be another one under the old name, E-86), and the
body is read key by key. Whatever a client sends, there is an answer; only answers go back, never exceptions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from busway.amqp.sections import AmqpMessage
from busway.broker.descriptions import LISTEN, MANAGE, SEND
from busway.broker.entity_path import EntityAddress
from busway.broker.errors import (
    BadArgument,
    BrokerError,
    InternalError,
    InvalidOperation,
    NotImplementedByServer,
)
from busway.gateway.amqp.addresses import Node, NodeKind
from busway.gateway.amqp.link_lookup import LinkLookup
from busway.gateway.amqp.managed_entity import ManagedEntity
from busway.gateway.amqp.management_answer import DESCRIPTIONS, Answer
from busway.gateway.amqp.management_locks import renew_lock, update_disposition
from busway.gateway.amqp.management_messages import (
    batch_delete_messages,
    cancel_scheduled_message,
    peek_message,
    receive_by_sequence_number,
    schedule_message,
)
from busway.gateway.amqp.management_request import RequestBody, symbol_or_text
from busway.gateway.amqp.management_sessions import (
    get_message_sessions,
    get_session_state,
    renew_session_lock,
    set_session_state,
)
from busway.gateway.amqp.node_response import refuse, respond
from busway.gateway.amqp.transfer_dead_letter import answer_of_empty
from busway.gateway.tracking import Tracking

if TYPE_CHECKING:
    from busway.broker.authorization import Grant
    from busway.broker.namespace import Namespace
    from busway.clock import Entropy

_log = logging.getLogger(__name__)
_PREFIX: Final = "com.microsoft:"

Operation = Callable[[ManagedEntity, RequestBody], Awaitable[Answer]]


async def _has_no_rules(entity: ManagedEntity, body: RequestBody) -> Answer:
    del body
    raise InvalidOperation(f"The entity '{entity.path}' is a queue: only subscriptions have rules.")


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
    "add-rule": (MANAGE, _has_no_rules),
    "remove-rule": (MANAGE, _has_no_rules),
    "enumerate-rules": (LISTEN, _has_no_rules),
}


class ManagementNode:
    def __init__(
        self,
        namespace: Namespace,
        address: EntityAddress,
        grants: Callable[[], list[Grant]],
        links: LinkLookup,
        tracking: Tracking,
        entropy: Entropy,
    ) -> None:
        self._namespace = namespace
        self._address = address
        self._grants = grants
        self._links = links
        self._tracking = tracking
        self._entropy = entropy
        #: For rights, sentences and the log: with the sub-queue, without `$management`.
        plain = EntityAddress(address.path, address.dead_letter, address.transfer_dead_letter)
        self._path = Node(NodeKind.ENTITY, plain).path

    async def handle(self, request: AmqpMessage) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        try:
            answer = await self._answer(request)
        except BrokerError as error:
            return refuse(request, error, self._tracking, self._path)
        except Exception:
            _log.exception("A management request on %s failed unexpectedly", self._path)
            return refuse(request, InternalError(), self._tracking, self._path)
        return respond(request, answer.status, DESCRIPTIONS[answer.status], answer.condition, answer.body)

    async def _answer(self, request: AmqpMessage) -> Answer:
        properties = request.application_properties or {}
        name = symbol_or_text(properties.get("operation"))
        if name is None:
            raise BadArgument("The request lacks 'operation'.")
        right, operation = _operation(name)
        self._namespace.authorizer.authorise(self._grants(), self._path, right)
        link_name = symbol_or_text(properties.get("associated-link-name"))
        if link_name is not None:
            self._links.touch_link(link_name)
        if self._address.transfer_dead_letter:
            self._namespace.queue(self._address.path)
            return answer_of_empty(name.removeprefix(_PREFIX), self._path)
        return await operation(self._entity(link_name), RequestBody(request.body))

    def _entity(self, link_name: str | None) -> ManagedEntity:
        address = self._address
        queue = self._namespace.queue(address.path)
        return ManagedEntity(
            path=self._path,
            queue=None if address.dead_letter else queue,
            outlet=queue.outlet(address.dead_letter),
            limits=self._namespace.limits,
            links=self._links,
            link_name=link_name,
            detects_duplicates=queue.description.requires_duplicate_detection,
            entropy=self._entropy,
        )


def _operation(name: str) -> tuple[str, Operation]:
    found = OPERATIONS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if found is None:
        raise NotImplementedByServer(f"The operation '{name[:80]}' is not known.")
    return found
