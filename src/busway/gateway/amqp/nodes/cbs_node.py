"""The node `$cbs`: clients put tokens there before they attach anything else (A-7).

The checks in their order: form, rule, signature, expiry, audience (401 each), then whether the entity exists
(404), then the token is held by the connection (403 when it holds too many, L-18). Rights are not looked at here:
a token that lacks the wanted one is accepted, and the attach is refused (A-6).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from busway.amqp.sections import AmqpMessage
from busway.gateway.amqp.links.addresses import hub_path_of, path_of
from busway.gateway.amqp.nodes.management_request import symbol_or_text
from busway.gateway.amqp.nodes.node_response import refuse, respond
from busway.gateway.tracking import Tracking
from busway.model.authorization import MALFORMED
from busway.model.entity_path import EntityAddress
from busway.model.errors import (
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    InternalError,
    NotImplementedByServer,
)

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.gateway.amqp.nodes.tokens import TokenHolder
    from busway.streams.event_hubs import EventHubs

ACCEPTED: Final = 202
_SIGNATURE_PREFIX: Final = "sharedaccesssignature "
_log = logging.getLogger(__name__)


class CbsNode:
    def __init__(
        self, tokens: TokenHolder, namespace: Namespace, tracking: Tracking, hubs: EventHubs | None = None
    ) -> None:
        self._tokens = tokens
        self._namespace = namespace
        self._tracking = tracking
        self._hubs = hubs

    async def handle(self, request: AmqpMessage, _txn_id: bytes | None = None) -> AmqpMessage:
        """The answer to one request; whatever the request holds, there is one."""
        flow = self._namespace.flows.namespace
        try:
            self._put_token(request)
        except BrokerError as error:
            flow.refused(error)
            return refuse(request, error, self._tracking, "$cbs")
        except Exception:
            _log.exception("A put-token request failed unexpectedly")
            flow.failed()
            return refuse(request, InternalError(), self._tracking, "$cbs")
        flow.answered(1, [])
        return respond(request, ACCEPTED, "Accepted")

    def answers_at_length(self, _request: AmqpMessage) -> bool:
        return False

    def _put_token(self, request: AmqpMessage) -> None:
        properties = request.application_properties or {}
        operation = symbol_or_text(properties.get("operation"))
        if operation != "put-token":
            raise NotImplementedByServer("The node '$cbs' knows one operation: 'put-token'.")
        name = symbol_or_text(properties.get("name"))
        if not name:
            raise BadArgument("The request lacks 'name', the audience of the token.")
        grant = self._namespace.authorizer.grant_of_token(_token(request.body), _audience(name))
        self._check_exists(path_of(name))
        self._tokens.hold(grant)

    def _check_exists(self, path: str) -> None:
        """S-10: a missing entity fails here already. The namespace itself always exists."""
        entity = EntityAddress.parse(path).path
        if self._hubs is not None and self._hubs.exists(hub_path_of(entity)):
            return
        if entity:
            self._namespace.description(entity)


def _token(body: object) -> str:
    """The type property is no help: Python's client says `jwt` for shared access signatures too."""
    if not isinstance(body, str) or not body:
        raise BadArgument("The body of a put-token request must be an AMQP value with the token as a string.")
    if not body.lower().startswith(_SIGNATURE_PREFIX):
        raise AuthenticationFailed(
            "The token is not a shared access signature. This server has no identity provider configured, so "
            "it accepts no other kind: use a connection string with a key.",
            MALFORMED,
        )
    return body


def _audience(name: str) -> str:
    """Scheme and escapes differ between clients; host and path are what is compared."""
    _, separator, rest = name.partition("://")
    host = rest.partition("/")[0] if separator else ""
    return f"sb://{host}/{path_of(name)}"
