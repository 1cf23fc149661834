"""Entities that a client makes by attaching: temporary queues and topics, and the subscriptions of JMS.

Temporary ones (`TemporaryNodes`) are those of JMS, and the dynamic nodes of AMQP. A link whose terminus is
`dynamic` gets a queue or topic of its own, under a name that nobody can guess, which the answering attach tells.
It is an entity like any other: it counts among those of the namespace, whoever has a right on the namespace may
use it, and making it needs Manage there. It goes when its link goes, however that happens. Where that fails, and
when the server goes first or turns the link away, nobody holds it any more and its AutoDeleteOnIdle ends it. A
connection has no more of them than links.

Subscriptions (`TopicSubscriptions`): a receiver names a topic, and the link says which subscription of it. A
receiver that attaches to a topic and calls it one (capability `topic`) gets a subscription of that topic. Which
one is in the link: a durable one and a shared one bear the link's name up to its first `|`, behind which Qpid JMS
counts its consumers; unless it is for everybody (capability `global`) the client's id is part of the name. Any
other is nobody else's and has a name that nobody can guess. So the subscription `news` of the client `till` is
`news~till`, a shared one of everybody is `news`, and what is not durable ends with `~nd`.

A subscription that is there is received from with the right Listen. One that is not there is made, which needs
Manage, with the selector as its rule: rules decide once, when a message comes. A subscription that is not durable
goes with the last link that holds it. A durable one goes when JMS unsubscribes: by attaching a link of its name
without any source, and closing that (`EndingLink`). Only what was made here goes so (`made_for_a_link`, which no
client can write); what an administrator has made stays. Who comes while one goes waits for its end, and
gets a new one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from busway.amqp.performatives import Source, Target
from busway.amqp.types import Described, Symbol
from busway.broker.fragment.outlet import Attachment
from busway.broker.namespace.namespace import Queue
from busway.gateway.amqp.links.addresses import LinkNode, NodeKind, use_of
from busway.gateway.amqp.links.browse_link import EmptyReceiveLink, Selector, check_unselected, selector_of
from busway.gateway.amqp.links.waiting_attaches import accepted_late
from busway.model.descriptions import (
    LINK_WORDS,
    MANAGE,
    AnyDescription,
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.model.durations import FOREVER_MS
from busway.model.entity_path import EntityAddress, check_name, path_key, shown, subscription_path
from busway.model.errors import (
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidOperation,
    NotImplementedByServer,
    Unauthorized,
)
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, SqlFilter, TrueFilter

if TYPE_CHECKING:
    from busway.amqp.errors import AmqpError
    from busway.amqp.link import Link
    from busway.broker.namespace.namespace import Namespace
    from busway.gateway.amqp.attach.attaching import Attaching
    from busway.gateway.amqp.carrier import Carrier
    from busway.gateway.amqp.links.link_host import LinkHost

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
        return _made(QueueDescription(path, auto_delete_on_idle_ms=IDLE_MS))
    if link.is_sender:
        raise NotImplementedByServer(
            "A temporary topic is made by attaching a sender; a receiver then names it by its address."
        )
    return _made(TopicDescription(path, auto_delete_on_idle_ms=IDLE_MS))


def _made(description: AnyDescription) -> AnyDescription:
    return replace(description, made_for_a_link=True, user_metadata=LINK_WORDS[type(description)])


_SHARED: Final = "shared"
_GLOBAL: Final = "global"
#: Entities that are looked at in one turn of the loop.
_KEYS_PER_TURN: Final = 5_000
_NEVER: Final = Symbol("never")


class _Wish(NamedTuple):
    """What a subscriber asks for."""

    path: str
    is_durable: bool
    selector: Selector | None


def is_subscriber(source: Source | None) -> bool:
    """A client that calls what it receives from a topic."""
    return source is not None and not _TOPICS.isdisjoint(source.capabilities or ())


class TopicSubscriptions:
    """Of one connection."""

    def __init__(self, carrier: Carrier, attaching: Attaching) -> None:
        self._carrier = carrier
        self._attaching = attaching
        self._namespace = carrier.namespace

    # -- subscribing

    def attach(self, link: Link, node: LinkNode) -> bool:
        """False when `node` is no topic. Answered at once, or when the subscription is durable."""
        if not self._namespace.exists(node.address.path):
            return False
        topic = self._namespace.description(node.address.path)
        if not isinstance(topic, TopicDescription):
            return False
        wish = self._wish(link, topic.path)
        if self._namespace.exists(wish.path) and not self._namespace.queue(wish.path).is_ending():
            self._receive(link, wish)
        else:
            self._check_may_make(wish)
            self._attaching.waiting.check()
            self._attaching.waiting.spawn(self._make(link, wish))
        return True

    def _wish(self, link: Link, topic_path: str) -> _Wish:
        source = link.source
        assert source is not None
        capabilities = source.capabilities or ()
        is_durable, is_shared = bool(source.durable), _SHARED in capabilities
        if is_durable or is_shared:
            base = link.name.partition("|")[0]
            name = _name(base, _client_of(link), is_global=_GLOBAL in capabilities, is_durable=is_durable)
        else:
            name = f"jms-{self._carrier.entropy.bytes(_NAME_BYTES).hex()}~nd"
        check_name("subscription", name)
        return _Wish(subscription_path(topic_path, name), is_durable, selector_of(source))

    def _check_may_make(self, wish: _Wish) -> None:
        try:
            self._attaching.check_grants(_node(wish.path), MANAGE, None)
        except Unauthorized:
            raise Unauthorized(
                f"Unauthorized access. There is no subscription {shown(wish.path)}, and 'Manage' claim(s) are"
                " required to make it. Create it first, or connect with a key that has Manage."
            ) from None

    async def _make(self, link: Link, wish: _Wish) -> None:
        rule = Rule(DEFAULT_RULE_NAME, _filter(wish.selector))
        if not link.is_live():  # detached in the same breath
            return
        idle_ms = FOREVER_MS if wish.is_durable else IDLE_MS
        description = _made(SubscriptionDescription(wish.path, auto_delete_on_idle_ms=idle_ms))
        try:
            with suppress(EntityAlreadyExists):  # another subscriber came first
                await self._namespace.create([NewEntity(description, (rule,))])
            if link.is_live():  # else it went meanwhile
                self._check_may_make(wish)
                self._receive(link, wish)
                accepted_late(link)
        except BrokerError as error:
            self._attaching.refuse(link, wish.path, error)
        if link.owner is None and not wish.is_durable:
            self._namespace.release(wish.path)
        self._carrier.output_waits()

    def _receive(self, link: Link, wish: _Wish) -> None:
        self._check_rules(wish)
        queue = self._namespace.queue(wish.path)
        outlet = queue.outlet(False)
        if outlet.requires_session:
            raise InvalidOperation(
                f"The subscription {shown(wish.path)} requires sessions, which JMS does not know."
            )
        self._attaching.receive(link, _node(wish.path), queue, outlet)
        if not wish.is_durable and self._is_made_here(wish.path):
            path = wish.path
            queue.hold(cast("Attachment", link.owner), lambda: self._namespace.release(path))

    def _check_rules(self, wish: _Wish) -> None:
        """A subscriber gets what its selector selects, or nothing. What an administrator has made has its rules."""
        if wish.selector is None and not self._is_made_here(wish.path):
            return
        rules = self._namespace.rules.of(wish.path)
        wanted = _filter(wish.selector)
        if [(rule.filter, rule.action) for rule in rules] != [(wanted, None)]:
            raise InvalidOperation(
                f"The subscription {shown(wish.path)} exists with another selector or other rules. Unsubscribe first,"
                " or subscribe under another name."
            )

    def _is_made_here(self, path: str) -> bool:
        return self._namespace.description(path).made_for_a_link

    # -- unsubscribing

    def end(self, link: Link) -> None:
        """A link without a source, by whose name a durable subscription of the client is found. Raises
        Unauthorized."""
        base, _, suffix = link.name.partition("|")
        name = _name(base, _client_of(link), is_global=suffix.startswith(_GLOBAL), is_durable=True)
        if not self._carrier.tokens.has_any():
            raise Unauthorized("Unauthorized access. Put a token for the entity on '$cbs' first.")
        self._attaching.waiting.check()
        self._attaching.waiting.spawn(self._end(link, name))

    async def _end(self, link: Link, name: str) -> None:
        try:
            async with self._attaching.waiting.looking:
                if not link.is_live():
                    return
                paths = await self._found(name)
            if link.is_live():
                queues = [self._may_end(path) for path in paths]
                self._stand(link, queues)
        except BrokerError as error:
            self._attaching.refuse(link, "", error)
        self._carrier.output_waits()

    async def _found(self, name: str) -> list[str]:
        """On whatever topics; usually one. Raises EntityNotFound."""
        await asyncio.sleep(0)  # one look in each turn of the loop
        found: list[str] = []
        ending = path_key(subscription_path("", name))
        for index, key in enumerate(self._namespace.keys()):
            if index % _KEYS_PER_TURN == _KEYS_PER_TURN - 1:
                await asyncio.sleep(0)  # others have their turn
            if key.endswith(ending) and self._namespace.exists(key):
                found.append(self._namespace.description(key).path)
        if not found:
            raise EntityNotFound(
                f"The link has no source, and there is no durable subscription {shown(name)} on any topic."
            )
        return found

    def _may_end(self, path: str) -> Queue:
        self._attaching.check_grants(_node(path), MANAGE, None)
        if not self._is_made_here(path):
            raise InvalidOperation(
                f"The subscription {shown(path)} was not made by a subscriber of JMS: delete it as it was created."
            )
        queue = self._namespace.queue(path)
        if queue.is_received_from():
            raise InvalidOperation(f"The subscription {shown(path)} is being received from.")
        return queue

    def _stand(self, link: Link, queues: list[Queue]) -> None:
        carrier, first = self._carrier, queues[0].description
        assert isinstance(first, SubscriptionDescription)
        carrier.add_link(EndingLink(carrier, self._namespace, link, _node(first.path), queues, carrier.now()))
        source = Source(first.topic_path, durable=2, expiry_policy=_NEVER, capabilities=[Symbol("topic")])
        link.accept(source=source, target=link.target)
        accepted_late(link)


def _name(base: str, client: str, *, is_global: bool, is_durable: bool) -> str:
    return "~".join((base, *(() if is_global else (client,)), *(() if is_durable else ("nd",))))


def _client_of(link: Link) -> str:
    peer = link.session.connection.peer
    return "" if peer is None else peer.container_id


def _node(path: str) -> LinkNode:
    return LinkNode(NodeKind.ENTITY, EntityAddress(path))


def _filter(selector: Selector | None) -> TrueFilter | SqlFilter:
    return TrueFilter() if selector is None else SqlFilter(selector.sql)


class EndingLink(EmptyReceiveLink):
    """Closed by its client, it ends the subscriptions that it stands on."""

    def __init__(
        self,
        host: LinkHost,
        namespace: Namespace,
        link: Link,
        node: LinkNode,
        queues: list[Queue],
        now: float,
    ) -> None:
        super().__init__(host, link, node, MANAGE, queues, now)
        self._namespace = namespace
        for queue in queues:
            queue.end_by(self)
        link.closes_late = True

    def is_idle(self) -> bool:
        return True

    def gone(self) -> None:
        if self.link.peer_closed:
            self._is_gone = True  # the deletion tells
            # Not work of the connection: what was asked for is done, also when nobody hears of it.
            self._namespace.background.spawn(self._end())
        else:
            super().gone()

    async def _end(self) -> None:
        error: AmqpError | None = None
        try:
            for queue in self._queues:
                await self._namespace.end(queue.path, self)
        except BrokerError as problem:
            error = self._error_of(problem)
        finally:
            super().gone()
        self.link.detach(error)
        self.host.output_waits()
