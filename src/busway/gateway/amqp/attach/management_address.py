"""`X/$management` for one link: which node answers, and what a request may."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.amqp.sections import AmqpMessage
from busway.gateway.amqp.links.addresses import LinkNode
from busway.gateway.amqp.nodes.event_management import EventManagementNode
from busway.gateway.amqp.nodes.node_response import refuse
from busway.model.authorization import MALFORMED
from busway.model.errors import (
    AuthenticationFailed,
    BrokerError,
)

if TYPE_CHECKING:
    from busway.amqp.sections import AmqpMessage
    from busway.gateway.amqp.carrier import Carrier
    from busway.gateway.amqp.links.addresses import LinkNode
    from busway.gateway.amqp.nodes.request_link import RequestNode
    from busway.model.authorization import Grant

from busway.gateway.amqp.nodes.management_node import ManagementNode


class RequestRights:
    """What a request of one connection may: by its own token, else by those of the connection."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    def grants_for(self, path: str, request: AmqpMessage) -> list[Grant]:
        """Raises AuthenticationFailed for a token that is not good for the path."""
        token = own_token(request)
        if token is None:
            return self._carrier.tokens.grants_for(path)
        if not isinstance(token, str):
            raise AuthenticationFailed(
                "MalformedToken: The 'security_token' of the request is no string.", MALFORMED
            )
        carrier = self._carrier
        authorizer = carrier.namespace.authorizer
        grant = authorizer.grant_of_token(token, f"/{path}", asked_host=carrier.asked_host)
        carrier.recognise()
        return [grant]


class ManagementAddress:
    """`X/$management` for one link, whatever X is: a queue, a topic, a subscription, an event hub, or nothing."""

    def __init__(self, carrier: Carrier, node: LinkNode) -> None:
        self._carrier = carrier
        self._node = node
        self._rights = RequestRights(carrier)
        self._entity = self._management(carrier.tokens.grants_for)

    async def handle(self, request: AmqpMessage, txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        carrier, path = self._carrier, self._node.path
        namespace = carrier.namespace
        try:
            grants = self._rights.grants_for(path, request)
            namespace.authorizer.authorise_any(grants, path)
        except BrokerError as error:
            namespace.flows.known(path).refused(error)
            return refuse(request, error, carrier.tracking, path)
        return await self._asked(request, grants).handle(request, txn_id)

    def answers_at_length(self, request: AmqpMessage) -> bool:
        return self._entity.answers_at_length(request)

    def _asked(self, request: AmqpMessage, grants: list[Grant]) -> RequestNode:
        """What is there now under this name."""
        hubs = self._carrier.shared.hubs
        if hubs is not None and hubs.exists(self._node.address.path):
            return EventManagementNode(
                self._carrier.namespace, hubs, self._rights.grants_for, self._carrier.tracking
            )
        return self._entity if own_token(request) is None else self._management(lambda _path: grants)

    def _management(self, grants: Callable[[str], list[Grant]]) -> ManagementNode:
        carrier = self._carrier
        return ManagementNode(
            carrier.namespace,
            self._node.address,
            grants,
            carrier.links,
            carrier.tracking,
            carrier.entropy,
            carrier.transactions,
        )


def own_token(request: AmqpMessage) -> object:
    return (request.application_properties or {}).get("security_token")
