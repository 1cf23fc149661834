"""The node `$cbs`: clients put tokens there before they attach anything else (A-7), and the connection holds them.

The checks in their order: form, rule, signature, expiry, audience (401 each), then whether the entity exists
(404), then the token is held by the connection (403 when it holds too many, L-18). Rights are not looked at here:
a token that lacks the wanted one is accepted, and the attach is refused (A-6).

Tokens are held by audience (`TokenHolder`; A-7, A-8, L-18). Each grant knows what it opens (`Grant.audience`); the
one check for all of them is `Authorizer.authorise`. A later token for the same audience replaces the earlier one,
which is all a renewal is. Whoever asks about a path gets the few grants whose audience covers it, found by its
segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from busway.amqp.sections import AmqpMessage
from busway.gateway.amqp.links.addresses import hub_path_of, path_of
from busway.gateway.amqp.nodes.request_and_answer import refuse, respond, symbol_or_text
from busway.gateway.tracking import Tracking
from busway.model.authorization import MALFORMED, path_segments
from busway.model.entity_path import EntityAddress
from busway.model.errors import (
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    InternalError,
    NotImplementedByServer,
    QuotaExceeded,
)

if TYPE_CHECKING:
    from busway.broker.namespace.namespace import Namespace
    from busway.model.authorization import Grant, Segments
    from busway.streams.event_hubs import EventHubs

ACCEPTED: Final = 202
_SIGNATURE_PREFIX: Final = "sharedaccesssignature "
_log = logging.getLogger(__name__)


class CbsNode:
    """The node `$cbs`: clients put tokens there before they attach anything else (A-7)."""

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


#: What a segment of a path weighs in memory.
_SEGMENT_BYTES: Final = 72
_GRANT_BYTES: Final = 512
#: Replaced tokens whose end is still noted, beside those that are held.
_STALE_MAX: Final = 64


class TokenHolder:
    """The grants of one connection."""

    def __init__(self, tokens_max: int, changed: Callable[[Grant, Grant | None], None]) -> None:
        self._tokens_max = tokens_max
        #: Told after each change with the new grant and the one that it replaces, so that the connection looks at its
        #: links and deadlines again.
        self._changed = changed
        self._grants: dict[Segments, Grant] = {}
        #: Ends of tokens, the first one on top; those of replaced ones are passed over.
        self._ends: list[tuple[int, Segments]] = []
        #: What all of it weighs in memory, roughly.
        self.held_bytes = 0
        #: SASL PLAIN: a namespace rule's name and key.
        self._connection_grant: Grant | None = None

    def hold(self, grant: Grant) -> None:
        """A verified token. Raises QuotaExceeded when the connection holds too many (L-18)."""
        audience = grant.audience
        replaced = self._grants.get(audience)
        if replaced is None and len(self._grants) >= self._tokens_max:
            raise QuotaExceeded(f"A connection can hold {self._tokens_max} tokens; this would be one more.")
        self._grants[audience] = grant
        self.held_bytes += _weight(grant) - (0 if replaced is None else _weight(replaced))
        heappush(self._ends, (grant.expires_at_ms, audience))
        if len(self._ends) > 2 * len(self._grants) + _STALE_MAX:
            self._ends = [(held.expires_at_ms, key) for key, held in self._grants.items()]
            heapify(self._ends)
        self._changed(grant, replaced)

    def hold_for_connection(self, grant: Grant) -> None:
        """SASL PLAIN: good for the whole connection."""
        replaced, self._connection_grant = self._connection_grant, grant
        self._changed(grant, replaced)

    def grants(self) -> list[Grant]:
        """All that are held."""
        held = list(self._grants.values())
        return held if self._connection_grant is None else [self._connection_grant, *held]

    def grants_for(self, path: str) -> list[Grant]:
        """Those whose audience covers the path, to be asked through `Authorizer.authorise`."""
        segments = path_segments(path)
        if segments is None:
            return []
        found = [] if self._connection_grant is None else [self._connection_grant]
        for count in range(len(segments) + 1):
            grant = self._grants.get(segments[:count])
            if grant is not None:
                found.append(grant)
        return found

    def has_any(self) -> bool:
        return bool(self._grants) or self._connection_grant is not None

    def earliest_expiry_ms(self) -> int | None:
        """The first wall time at which rights may end."""
        ends = self._ends
        while ends and not self._is_end(*ends[0]):
            heappop(ends)
        first = ends[0][0] if ends else None
        connection = self._connection_grant
        if connection is not None and (first is None or connection.expires_at_ms < first):
            return connection.expires_at_ms
        return first

    def forget_expired(self, now_ms: int) -> list[Grant]:
        """Drops what has ended, so that dead tokens do not fill the connection's share (L-18)."""
        ended: list[Grant] = []
        ends = self._ends
        while ends and ends[0][0] <= now_ms:
            if self._is_end(*ends[0]):
                grant = self._grants.pop(ends[0][1])
                self.held_bytes -= _weight(grant)
                ended.append(grant)
            heappop(ends)
        return ended

    def _is_end(self, expires_at_ms: int, audience: Segments) -> bool:
        held = self._grants.get(audience)
        return held is not None and held.expires_at_ms == expires_at_ms


def _weight(grant: Grant) -> int:
    segments = (*grant.audience, *grant.scope)
    return _GRANT_BYTES + len(segments) * _SEGMENT_BYTES + sum(map(len, segments))


def may_lose(new: Grant, replaced: Grant) -> bool:
    """Whether a link could live by the replaced grant that cannot by the new one. A renewal takes nothing away."""
    return (
        new.expires_at_ms < replaced.expires_at_ms
        or new.rule_name != replaced.rule_name
        or new.level != replaced.level
        or new.key != replaced.key
    )
