"""What happens when a client attaches a link: who may, to what, and which kind of link comes of it.

The order of the checks is the order of what they reveal: first the form of the address, then the right (A-6, A-7),
then whether the entity exists, then whether it allows this kind of link. A refusal is an attach without the
terminus, followed by a detach with the reason: that is what every client understands.

A link to `X/$management` stands on a `ManagementAddress`: which node answers, and what a request may, is found for
each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from busway.amqp.performatives import SENDER_SETTLED, Coordinator, Fields
from busway.amqp.sections import AmqpMessage
from busway.amqp.types import Symbol
from busway.event_loop import Steps, shown
from busway.gateway.amqp.attach.client_made_entities import (
    TemporaryNodes,
    TopicSubscriptions,
    is_dynamic,
    is_subscriber,
)
from busway.gateway.amqp.attach.event_attaching import EventAttaching
from busway.gateway.amqp.error_conditions import amqp_error
from busway.gateway.amqp.links.addresses import COORDINATOR_NODE, LinkNode, NodeKind, node_at, text_of, use_of
from busway.gateway.amqp.links.browse_link import (
    BrowseLink,
    EmptyReceiveLink,
    check_unselected,
    has_selector,
    is_browser,
    selector_of,
)
from busway.gateway.amqp.links.receive_link import (
    ReceiveLink,
    SessionReceiveLink,
    SessionWish,
    lock_properties,
    session_wish,
    wait_s,
)
from busway.gateway.amqp.links.send_link import SendLink
from busway.gateway.amqp.links.waiting_attaches import SelectingAttaches
from busway.gateway.amqp.nodes.management_node import EventManagementNode, ManagementNode
from busway.gateway.amqp.nodes.request_and_answer import refuse
from busway.gateway.amqp.nodes.request_link import (
    MAX_MESSAGE_SIZE,
    REQUEST_BYTES_MAX,
    TOKEN_REQUEST_BYTES_MAX,
    RequestLink,
    RequestNode,
    ResponseLink,
)
from busway.gateway.amqp.nodes.token_node import CbsNode
from busway.gateway.amqp.nodes.transaction_node import REQUEST_BYTES_MAX as CONTROL_BYTES_MAX
from busway.gateway.amqp.nodes.transaction_node import ControlLink
from busway.model.authorization import MALFORMED
from busway.model.descriptions import LISTEN, SEND
from busway.model.entity_path import not_found
from busway.model.errors import (
    AuthenticationFailed,
    BadArgument,
    BrokerError,
    InternalError,
    InvalidOperation,
    Unauthorized,
)

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.broker.fragment.outlet import MessageSession, Outlet
    from busway.broker.namespace.namespace import Queue, SendVia, Topic
    from busway.gateway.amqp.carrier import Carrier
    from busway.model.authorization import Grant

_log = logging.getLogger("busway.gateway.amqp")

#: A message that is too large by no more than this is refused alone (S-2, S-8) and its sender goes on at once. Only
#: what is larger still ends the link: a detach leaves some clients waiting for an outcome until they time out.
OVERSIZE_BYTES_MAX: Final = 1024 * 1024

_TRANSFER_DESTINATION: Final = Symbol("com.microsoft:transfer-destination-address")
_NEEDS_SESSION: Final = (
    "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
)
_HAS_NO_SESSIONS: Final = (
    "A sessionful message receiver cannot be created on an entity that does not require sessions. "
    "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
)


class Attaching:
    """Answers the attaches of one connection."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._namespace = carrier.namespace
        hubs = carrier.shared.hubs
        self._hubs = hubs
        self._events = None if hubs is None else EventAttaching(carrier, hubs)
        self._cbs = CbsNode(carrier.tokens, carrier.namespace, carrier.tracking, hubs)
        #: Those of this connection that wait for changes of the namespace.
        self.waiting = carrier.shared.waiting_attaches.of_one_client()
        #: The one sender that a connection may have on it.
        self._cbs_sender: Link | None = None
        #: Browsers of the connection read one after the other.
        self._browsing = asyncio.Lock()
        self._temporary = TemporaryNodes(carrier, self)
        self._subscriptions = TopicSubscriptions(carrier, self)
        self._selecting = SelectingAttaches(carrier, _selects, self.attach)

    def attach(self, link: Link) -> None:
        if self._selecting.must_wait(link):
            return
        path = ""
        try:
            if is_dynamic(link):
                self._temporary.attach(link)
                return
            if link.is_sender and link.source is None:
                self._subscriptions.end(link)
                return
            node = _node_of(link)
            path = node.path
            if node.kind is not NodeKind.CBS:  # tokens say nothing of what a session is for
                use_of(link.session, node)
            self._check_right(node, _right_for(link, node))
            events = self._events
            if events is not None and node.kind is NodeKind.ENTITY and events.knows(path):
                events.attach(link, node)  # it counts by itself, when it has answered
                return
            self._attach_to(link, node)
            if not isinstance(link.owner, SessionReceiveLink):  # that one is answered later
                self._namespace.flows.known(node.address.path).answered(1, [])
        except BrokerError as error:
            self.refuse(link, path, error)

    def refuse(self, link: Link, path: str, error: BrokerError) -> None:
        events = self._events
        # Who has no right must not see by the form of the refusal what is there.
        if events is not None and not isinstance(error, Unauthorized) and events.knows(path):
            events.refuse(link, path, error)
            return
        self._namespace.flows.known(path).refused(error)
        names_terminus = not isinstance(error, Unauthorized)
        link.refuse(amqp_error(error, self._carrier.tracking, path), names_terminus=names_terminus)

    def check_again(self, node: LinkNode, right: str | None) -> None:
        """Raises Unauthorized when a link that stands has lost its right (A-8, A-10)."""
        self._check_right(node, right)

    def _check_right(self, node: LinkNode, right: str | None) -> None:
        if right is None:
            return
        owner_key: str | None = None
        if node.destination is not None:
            self.check_grants(node.destination, right, None)
        elif self._events is not None and node.kind is NodeKind.ENTITY:
            owner_key = self._events.owner_key(node.path)
        self.check_grants(node, right, owner_key)

    def check_grants(self, node: LinkNode, right: str, owner_key: str | None) -> None:
        """`owner_key`: of the event hub that the link is for."""
        tokens = self._carrier.tokens
        if not tokens.has_any():
            raise Unauthorized("Unauthorized access. Put a token for the entity on '$cbs' first.")
        self._namespace.authorizer.authorise(tokens.grants_for(node.path), node.path, right, owner_key)

    def _attach_to(self, link: Link, node: LinkNode) -> None:
        if node.kind is NodeKind.CBS:
            self._check_cbs(link)
            self._attach_requests(link, node, self._cbs)
        elif node.kind is NodeKind.COORDINATOR:
            self._attach_control(link, node)
        elif node.kind is NodeKind.MANAGEMENT:
            self._attach_requests(link, node, self._management(node))
        elif link.is_sender:
            self._attach_receiver(link, node)
        else:
            self._attach_sender(link, node)

    def _queue(self, node: LinkNode) -> Queue:
        self._check_path(node)
        return self._namespace.queue(node.address.path)

    def _sender(self, node: LinkNode) -> Queue | Topic:
        self._check_path(node)
        return self._namespace.sender(node.address.path)

    def _check_path(self, node: LinkNode) -> None:
        if not node.address.path:
            raise not_found(self._namespace.name, node.path)

    # -- request nodes

    def _management(self, node: LinkNode) -> RequestNode:
        """A-7: each request is authorised by itself. H-27: the namespace's own node is for event hubs."""
        carrier, hubs = self._carrier, self._hubs
        if hubs is not None and not node.address.path:
            rights = RequestRights(carrier)
            return EventManagementNode(self._namespace, hubs, rights.grants_for, carrier.tracking)
        self._check_managed(node)
        return ManagementAddress(carrier, node)

    def _check_managed(self, node: LinkNode) -> None:
        """Raises EntityNotFound, for who may know."""
        try:
            grants = self._carrier.tokens.grants_for(node.path)
            self._namespace.authorizer.authorise_any(grants, node.path)
        except Unauthorized:
            return
        if self._hubs is None or not self._hubs.exists(node.address.path):
            self._sender(node)

    def _check_cbs(self, link: Link) -> None:
        """A-7: a second sender is refused as long as the first one stands. Go and Rust reckon with it."""
        if link.is_sender:
            return
        if self._cbs_sender is not None and self._cbs_sender.is_live():
            raise InvalidOperation(
                "This connection has a sender on '$cbs' already; it cannot have a second one."
            )
        self._cbs_sender = link

    def _attach_requests(self, link: Link, node: LinkNode, request_node: RequestNode) -> None:
        carrier = self._carrier
        right = _right_for(link, node)
        now = carrier.now()
        if link.is_sender:
            response = ResponseLink(carrier, link, node, right, carrier.requests, now)
            carrier.requests.add_response_link(response)
            carrier.add_link(response)
            link.accept(source=link.source, target=link.target, max_message_size=MAX_MESSAGE_SIZE)
            return
        request = RequestLink(carrier, link, node, right, carrier.requests, request_node, now)
        carrier.add_link(request)
        link.accept(
            source=link.source,
            target=link.target,
            max_message_size=MAX_MESSAGE_SIZE,
            delivery_bytes_max=TOKEN_REQUEST_BYTES_MAX if node.kind is NodeKind.CBS else REQUEST_BYTES_MAX,
        )
        request.start()

    def _attach_control(self, link: Link, node: LinkNode) -> None:
        """A link that declares and discharges transactions (TX-5), which Basic does not have (TX-21)."""
        carrier = self._carrier
        carrier.transactions.check_offered()
        control = ControlLink(carrier, link, node, self._namespace.flows.namespace, carrier.now())
        carrier.add_link(control)
        link.accept(
            source=link.source,
            target=link.target,
            max_message_size=CONTROL_BYTES_MAX,
            delivery_bytes_max=CONTROL_BYTES_MAX,
        )
        control.start()

    # -- senders

    def _attach_sender(self, link: Link, node: LinkNode) -> None:
        address = node.address
        if address.dead_letter or address.transfer_dead_letter:
            raise InvalidOperation(
                f"Nobody can send to '{node.path}': messages enter it by dead-lettering only."
            )
        destination = _transfer_destination(link.properties)
        if destination is None:
            self.accept_sender(link, node, self._sender(node))
        else:
            self._attach_via(link, replace(node, destination=destination), destination)

    def _attach_via(self, link: Link, node: LinkNode, destination: LinkNode) -> None:
        """TX-3: the client needs the right to send on both. The first link ever to do so waits a moment."""
        self._check_right(node, SEND)
        self._check_path(node)
        self._check_path(destination)
        via = self._carrier.send_via(node.address.path, destination.address.path)
        if via is not None:
            self.accept_sender(link, node, via)
        else:
            self._carrier.spawn(self._prepare_via(link, node, destination))

    async def _prepare_via(self, link: Link, node: LinkNode, destination: LinkNode) -> None:
        try:
            await self._carrier.prepare_to_send_via(node.address.path)
            via = self._carrier.send_via(node.address.path, destination.address.path)
            if via is None:
                raise not_found(self._namespace.name, node.path)
            if link.is_live():  # else it went meanwhile
                self._check_right(node, SEND)
                self.accept_sender(link, node, via)
        except BrokerError as error:
            link.refuse(amqp_error(error, self._carrier.tracking, node.path))
        self._carrier.output_waits()

    def accept_sender(self, link: Link, node: LinkNode, entity: Queue | Topic | SendVia) -> None:
        sender = SendLink(self._carrier, link, node, entity, self._carrier.now())
        entity.attach(sender, sends=True)
        self._carrier.add_link(sender)
        use = use_of(link.session, node)
        if use.is_free:
            sender.session_use = use
        message_bytes_max = entity.settings.message_bytes_max
        link.accept(
            source=link.source,
            target=link.target,
            max_message_size=message_bytes_max,
            delivery_bytes_max=message_bytes_max + OVERSIZE_BYTES_MAX,
        )
        sender.start()

    # -- receivers

    def _attach_receiver(self, link: Link, node: LinkNode) -> None:
        wish = session_wish(link.source, self._carrier.limits.key_characters_max)
        use_of(link.session, node).check_receiver(node)
        if is_subscriber(link.source) and self._subscriptions.attach(link, node):
            return
        if node.address.transfer_dead_letter:
            if wish is not None:
                raise InvalidOperation(_HAS_NO_SESSIONS)
            self._attach_to_transfer_dead_letters(link, node)
            return
        queue = self._queue(node)
        outlet = queue.outlet(node.address.dead_letter)
        if wish is None and outlet.requires_session and not is_browser(link.source):
            raise InvalidOperation(_NEEDS_SESSION)
        if wish is not None and not outlet.requires_session:
            raise InvalidOperation(_HAS_NO_SESSIONS)
        if wish is None:
            self._attach_plain(link, node, queue, outlet)
        else:
            check_unselected(link.source, node.path)
            self._accept_session(link, node, queue, outlet, wish)

    def _attach_to_transfer_dead_letters(self, link: Link, node: LinkNode) -> None:
        """D-22: empty as long as nothing was ever sent via the entity."""
        self._check_path(node)
        transfers = self._namespace.transfer_queues.of(node.address.path)
        if transfers is None:
            self._attach_to_nothing(link, node, self._queue(node))
        else:
            self._attach_plain(link, node, transfers, transfers.outlet(True))

    def _attach_to_nothing(self, link: Link, node: LinkNode, queue: Queue) -> None:
        receiver = EmptyReceiveLink(self._carrier, link, node, LISTEN, [queue], self._carrier.now())
        queue.attach(receiver, sends=False)
        self._carrier.add_link(receiver)
        self._accept_receiver(link, node)

    def _accept_receiver(self, link: Link, node: LinkNode) -> None:
        use_of(link.session, node).receiver_accepted(node)
        link.accept(source=link.source, target=link.target)

    def _attach_browser(self, link: Link, node: LinkNode, queue: Queue, outlet: Outlet) -> None:
        """R-60: a queue browser of JMS."""
        carrier = self._carrier
        selector = selector_of(link.source)
        browser = BrowseLink(carrier, link, node, queue, outlet, selector, self._browsing, carrier.now())
        queue.attach(browser, sends=False)
        carrier.add_link(browser)
        self._accept_receiver(link, node)

    def _attach_plain(self, link: Link, node: LinkNode, queue: Queue, outlet: Outlet) -> None:
        if is_browser(link.source):
            self._attach_browser(link, node, queue, outlet)
            return
        check_unselected(link.source, node.path)
        self.receive(link, node, queue, outlet)

    def receive(self, link: Link, node: LinkNode, queue: Queue, outlet: Outlet) -> None:
        carrier = self._carrier
        deletes = link.snd_settle_mode == SENDER_SETTLED
        receiver = ReceiveLink(
            carrier, link, node, queue, outlet, deletes, carrier.entropy.bytes(8), carrier.now()
        )
        queue.attach(receiver, sends=False)
        try:
            outlet.add_receiver(receiver)
        except BrokerError:
            queue.detach(receiver)
            raise
        carrier.add_link(receiver)
        self._accept_receiver(link, node)

    def _accept_session(
        self, link: Link, node: LinkNode, queue: Queue, outlet: Outlet, wish: SessionWish
    ) -> None:
        """The attach is answered when the session is held or refused (X-3…X-7)."""
        carrier = self._carrier
        deletes = link.snd_settle_mode == SENDER_SETTLED
        receiver = SessionReceiveLink(
            carrier, link, node, queue, outlet, deletes, carrier.entropy.bytes(8), carrier.now()
        )
        queue.attach(receiver, sends=False)
        carrier.add_link(receiver)
        accepting = _accepted(outlet, receiver, wish.session_id, wait_s(link.properties))
        named = Steps(accepting, lambda: f"a wait for a session at {shown(node.path)}, from {carrier.peer}")
        waiting = asyncio.get_running_loop().create_task(named)
        receiver.wait_for(waiting)
        waiting.add_done_callback(lambda task: self._session_settled(receiver, wish, task))

    def _session_settled(
        self, receiver: SessionReceiveLink, wish: SessionWish, task: asyncio.Task[MessageSession]
    ) -> None:
        if task.cancelled():
            return
        problem = task.exception()
        if problem is None:
            self._session_held(receiver, wish, task.result())
            return
        if not isinstance(problem, BrokerError):
            _log.error("accepting a session failed: path=%s", receiver.node.path, exc_info=problem)
            problem = InternalError()
        self._namespace.flows.known(receiver.node.path).refused(problem)
        receiver.evict(problem)

    def _session_held(self, receiver: SessionReceiveLink, wish: SessionWish, session: MessageSession) -> None:
        if not receiver.hold(session):
            return
        link, use = receiver.link, use_of(receiver.link.session, receiver.node)
        try:
            use.check_receiver(receiver.node)
        except InvalidOperation as error:  # another receiver came first while this one waited
            self._namespace.flows.known(receiver.node.path).refused(error)
            receiver.evict(error)
            return
        self._namespace.flows.known(receiver.node.path).answered(1, [])
        source = link.source
        assert source is not None
        use.receiver_accepted(receiver.node)
        link.accept(
            source=wish.answer(source, session.session_id),
            target=link.target,
            properties=lock_properties(session.locked_until_ms),
        )
        receiver.credit_arrived()
        self._carrier.output_waits()


async def _accepted(
    outlet: Outlet, receiver: SessionReceiveLink, session_id: str | None, timeout_s: float
) -> MessageSession:
    return await outlet.accept_session(receiver, session_id, timeout_s)


def _selects(link: Link) -> bool:
    source = link.source
    return link.is_sender and has_selector(source) and (is_browser(source) or is_subscriber(source))


def _node_of(link: Link) -> LinkNode:
    """The node a link's address means. `is_sender` is our role: the client names its end of the link."""
    if isinstance(link.target, Coordinator) and not link.is_sender:
        return COORDINATOR_NODE
    text = text_of(link.source if link.is_sender else link.target)
    if text is None or text == "":
        raise BadArgument("The link does not say which entity it is for: its address is missing.")
    return node_at(text)


def _transfer_destination(properties: Fields | None) -> LinkNode | None:
    """The entity that a sender means when it sends by way of the one it attaches to."""
    given = None if properties is None else properties.get(_TRANSFER_DESTINATION)
    if given is None:
        return None
    if not isinstance(given, str):
        raise BadArgument(f"The link property '{_TRANSFER_DESTINATION}' must be a string.")
    node = node_at(given)
    if node.kind is not NodeKind.ENTITY or node.address.dead_letter or node.address.transfer_dead_letter:
        raise InvalidOperation(f"Nobody can send to '{node.path}'.")
    return node


def _right_for(link: Link, node: LinkNode) -> str | None:
    """A-9: who receives needs Listen, who sends needs Send."""
    if node.kind is not NodeKind.ENTITY:
        return None
    return "Listen" if link.is_sender else "Send"


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
