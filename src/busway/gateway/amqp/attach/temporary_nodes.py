"""Queues and topics that a client makes by attaching: the temporary ones of JMS, and the dynamic nodes of AMQP.

A link whose terminus is `dynamic` gets a queue or topic of its own, under a name that nobody can guess, which the
answering attach tells. It is an entity like any other: it counts among those of the namespace, whoever has a right on
the namespace may use it, and making it needs Manage there. It goes when its link goes, however that happens. Where
that fails, and when the server goes first or turns the link away, nobody holds it any more and its AutoDeleteOnIdle
ends it. A connection has no more of them than links.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from busway.amqp.performatives import Source, Target
from busway.amqp.types import Described, Symbol
from busway.broker.namespace.namespace import Queue
from busway.gateway.amqp.links.addresses import LinkNode, NodeKind
from busway.gateway.amqp.links.cross_entity import use_of
from busway.gateway.amqp.links.selector import check_unselected
from busway.gateway.amqp.links.waiting_attaches import accepted_late
from busway.model.descriptions import MADE_FOR_A_LINK, MANAGE, NewEntity, QueueDescription, TopicDescription
from busway.model.entity_path import EntityAddress
from busway.model.errors import BrokerError, NotImplementedByServer, Unauthorized

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.broker.fragment.outlet import Attachment
    from busway.gateway.amqp.attach.attaching import Attaching
    from busway.gateway.amqp.carrier import Carrier

#: E-30: the shortest that there is.
IDLE_MS: Final = 300_000
_PREFIX: Final = "temporary-"
_NAME_BYTES: Final = 16
_TOPICS: Final = frozenset({"temporary-topic", "topic"})
_LIFETIME: Final = Symbol("lifetime-policy")
_DELETE_ON_CLOSE: Final = (0x2B, "amqp:delete-on-close:list")


def is_dynamic(link: Link) -> bool:
    terminus = _terminus(link)
    return terminus is not None and terminus.dynamic is True


class TemporaryNodes:
    """Of one connection."""

    def __init__(self, carrier: Carrier, attaching: Attaching) -> None:
        self._carrier = carrier
        self._attaching = attaching
        self._namespace = carrier.namespace

    def attach(self, link: Link) -> None:
        """Answered when the entity is durable. Raises Unauthorized, NotImplementedByServer."""
        path = _PREFIX + self._carrier.entropy.bytes(_NAME_BYTES).hex()
        node = LinkNode(NodeKind.ENTITY, EntityAddress(path))
        use_of(link.session, node)
        self._check_right(node)
        if link.is_sender:
            check_unselected(link.source, "a temporary queue")
        description = _description(link, path)
        self._attaching.waiting.check()
        self._attaching.waiting.spawn(self._make(link, node, description))

    def _check_right(self, node: LinkNode) -> None:
        try:
            self._attaching.check_grants(node, MANAGE, None)
        except Unauthorized:
            raise Unauthorized(
                "Unauthorized access. 'Manage' claim(s) on the namespace are required to make a temporary queue or"
                " topic."
            ) from None

    async def _make(
        self, link: Link, node: LinkNode, description: QueueDescription | TopicDescription
    ) -> None:
        path = description.path
        if not link.is_live():  # detached in the same breath
            return
        try:
            await self._namespace.create([NewEntity(description)])
            if link.is_live():  # else it went meanwhile
                self._check_right(node)
                self._stand(link, node)
        except BrokerError as error:
            self._attaching.refuse(link, path, error)
        if link.owner is None:
            self._namespace.release(path)
        self._carrier.output_waits()

    def _stand(self, link: Link, node: LinkNode) -> None:
        entity = self._namespace.sender(node.path)
        if link.is_sender:
            assert isinstance(entity, Queue)
            assert link.source is not None
            link.source = replace(link.source, address=node.path)
            self._attaching.receive(link, node, entity, entity.outlet(False))
        else:
            assert isinstance(link.target, Target)
            link.target = replace(link.target, address=node.path)
            self._attaching.accept_sender(link, node, entity)
        entity.hold(cast("Attachment", link.owner), lambda: self._namespace.release(node.path))
        accepted_late(link)


def _terminus(link: Link) -> Source | Target | None:
    """The one whose node the client means: its end of the link is its own affair."""
    if link.is_sender:
        return link.source
    return link.target if isinstance(link.target, Target) else None


def _description(link: Link, path: str) -> QueueDescription | TopicDescription:
    terminus = _terminus(link)
    assert terminus is not None
    lifetime = (terminus.dynamic_node_properties or {}).get(_LIFETIME)
    if isinstance(lifetime, Described) and lifetime.descriptor not in _DELETE_ON_CLOSE:
        raise NotImplementedByServer(
            "A temporary queue or topic goes with the link that made it: no other lifetime-policy than"
            " delete-on-close is supported."
        )
    if _TOPICS.isdisjoint(terminus.capabilities or ()):
        return QueueDescription(path, auto_delete_on_idle_ms=IDLE_MS, user_metadata=MADE_FOR_A_LINK)
    if link.is_sender:
        raise NotImplementedByServer(
            "A temporary topic is made by attaching a sender; a receiver then names it by its address."
        )
    return TopicDescription(path, auto_delete_on_idle_ms=IDLE_MS, user_metadata=MADE_FOR_A_LINK)
