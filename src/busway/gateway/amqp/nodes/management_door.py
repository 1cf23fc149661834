"""Whom a `$management` node answers: everybody may attach to it, and each request shows what it may (A-7).

Java's Event Hubs client attaches without ever putting a token on `$cbs`; each of its requests brings one of its own,
`security_token`. Java's older Service Bus stack attaches while its token is still under way. So an attach says
nothing about rights, and nothing about what exists: whoever has no right on an entity gets the same answers whether
it is a queue, an event hub or nothing at all. What the node is, is looked up for each request, after its right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.authorization import MALFORMED
from busway.broker.errors import AuthenticationFailed, BrokerError
from busway.gateway.amqp.nodes.event_management import EventManagementNode
from busway.gateway.amqp.nodes.management_node import ManagementNode
from busway.gateway.amqp.nodes.node_response import refuse

if TYPE_CHECKING:
    from busway.amqp.sections import AmqpMessage
    from busway.broker.authorization import Grant
    from busway.gateway.amqp.connection import AmqpConnection
    from busway.gateway.amqp.links.addresses import Node
    from busway.gateway.amqp.nodes.request_link import RequestNode


class RequestRights:
    """What a request of one connection may: by its own token, else by those of the connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection

    def grants_for(self, path: str, request: AmqpMessage) -> list[Grant]:
        """Raises AuthenticationFailed for a token that is not good for the path."""
        token = own_token(request)
        if token is None:
            return self._connection.tokens.grants_for(path)
        if not isinstance(token, str):
            raise AuthenticationFailed(
                "MalformedToken: The 'security_token' of the request is no string.", MALFORMED
            )
        connection = self._connection
        authorizer = connection.namespace.authorizer
        grant = authorizer.grant_of_token(token, f"/{path}", asked_host=connection.asked_host)
        connection.recognise()
        return [grant]


class ManagementDoor:
    """The node `X/$management` for one link: of a queue, a topic, a subscription, or of an event hub."""

    def __init__(self, connection: AmqpConnection, node: Node) -> None:
        self._connection = connection
        self._node = node
        self._rights = RequestRights(connection)
        self._entity = self._management(connection.tokens.grants_for)

    async def handle(self, request: AmqpMessage, txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        connection, path = self._connection, self._node.path
        namespace = connection.namespace
        try:
            grants = self._rights.grants_for(path, request)
            namespace.authorizer.authorise_any(grants, path)
        except BrokerError as error:
            namespace.flows.known(path).refused(error)
            return refuse(request, error, connection.tracking, path)
        return await self._asked(request, grants).handle(request, txn_id)

    def answers_at_length(self, request: AmqpMessage) -> bool:
        return self._entity.answers_at_length(request)

    def _asked(self, request: AmqpMessage, grants: list[Grant]) -> RequestNode:
        """What is there now under this name."""
        hubs = self._connection.gateway.hubs
        if hubs is not None and hubs.exists(self._node.address.path):
            return EventManagementNode(
                self._connection.namespace, hubs, self._rights.grants_for, self._connection.tracking
            )
        return self._entity if own_token(request) is None else self._management(lambda _path: grants)

    def _management(self, grants: Callable[[str], list[Grant]]) -> ManagementNode:
        connection = self._connection
        return ManagementNode(
            connection.namespace,
            self._node.address,
            grants,
            connection,
            connection.tracking,
            connection.entropy,
            connection.transactions,
        )


def own_token(request: AmqpMessage) -> object:
    return (request.application_properties or {}).get("security_token")
