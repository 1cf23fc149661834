"""Requests and connections over AMQP, as the figures show them."""

from busway.amqp.errors import AmqpError
from busway.amqp.performatives import ACCEPTED, Modified, Properties, Rejected
from busway.amqp.sections import AmqpMessage
from busway.model.descriptions import QueueDescription
from busway.model.flow import FlowCounts
from tests.unit.gateway.amqp_peer import Room, in_room, payload
from tests.unit.gateway.test_amqp_send_link import BATCH_FORMAT, batch
from tests.unit.gateway.test_amqp_session_receive_link import accept

Results = tuple[int, int, int, int]


def results(flow: FlowCounts) -> Results:
    """(successes, user errors, server errors, throttled) since the last look."""
    now = (flow.successes, flow.user_errors, flow.server_errors, flow.throttled)
    flow.successes = flow.user_errors = flow.server_errors = flow.throttled = 0
    return now


def flow_of(room: Room) -> FlowCounts:
    return room.namespace.queue("q").main.flow


def test_each_sent_message_is_a_request_and_a_batch_is_one() -> None:
    """O-1, O-6: SuccessfulRequests counts outcomes, IncomingMessages messages."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        flow = flow_of(room)
        assert results(flow) == (1, 0, 0, 0)  # the attach
        await peer.sent(link, payload(b"a"), payload(b"b"))
        assert results(flow) == (2, 0, 0, 0)
        await peer.sent(link, batch(payload(b"c"), payload(b"d"), payload(b"e")), message_format=BATCH_FORMAT)
        assert results(flow) == (1, 0, 0, 0)
        assert flow.messages_in == 5

    in_room(scenario, QueueDescription("q"))


def test_refused_sends_are_user_errors() -> None:
    """O-3: too large, not a message, an empty batch, a disabled queue."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        flow = flow_of(room)
        results(flow)
        await peer.sent(link, payload(b"x" * 300_000), b"\xff\xff", payload(b"fine"))
        assert results(flow) == (1, 2, 0, 0)
        await peer.sent(link, batch(), message_format=BATCH_FORMAT)
        assert results(flow) == (0, 1, 0, 0)

    in_room(scenario, QueueDescription("q"))


def test_a_busy_store_throttles() -> None:
    """O-1, O-3: server-busy is neither the client's fault nor an error of ours."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        link = await peer.sender("q")
        flow = flow_of(room)
        results(flow)
        room.store.accepts_payload = lambda: False
        room.store.is_congested = lambda: True
        peer.send(link, payload(b"a"))
        await room.turns()
        assert results(flow) == (0, 0, 0, 1)

    in_room(scenario, QueueDescription("q"))


def test_settlements_are_requests() -> None:
    """O-1, O-3: CompleteMessage, AbandonMessage; a lock that is lost is a user error."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender, receiver = await peer.sender("q"), await peer.receiver("q")
        receiver.grant_credit(10)
        await peer.sent(sender, payload(b"a"), payload(b"b"), payload(b"c"))
        flow = flow_of(room)
        results(flow)
        first, second, third = await peer.received(receiver, 3)
        await peer.settle(receiver, [first], ACCEPTED)
        await peer.settle(receiver, [second], Modified(True, False, None))
        assert results(flow) == (2, 0, 0, 0)
        assert (flow.completed, flow.abandoned) == (1, 1)
        await room.pass_time(61)
        await peer.settle(receiver, [third], ACCEPTED)
        assert results(flow) == (0, 1, 0, 0)
        assert flow.completed == 1

    in_room(scenario, QueueDescription("q"))


def test_a_settlement_that_makes_no_sense_is_a_user_error() -> None:
    """O-3: R-15 with a list for a property."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        sender, receiver = await peer.sender("q"), await peer.receiver("q")
        receiver.grant_credit(10)
        await peer.sent(sender, payload(b"a"))
        flow = flow_of(room)
        results(flow)
        found = await peer.received(receiver, 1)
        wrong = Rejected(AmqpError("com.microsoft:dead-letter", None, {"DeadLetterReason": 1}))
        await peer.settle(receiver, found, wrong)
        assert results(flow) == (0, 1, 0, 0)

    in_room(scenario, QueueDescription("q"))


def test_management_operations_are_requests_of_their_entity() -> None:
    """O-1, O-2: one each, whatever it does, and the caller is known."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        links = await peer.request_links("q/$management")
        flow = flow_of(room)
        room.namespace.flows.namespace.successes = 0
        results(flow)
        assert results(room.namespace.flows.namespace) == (0, 0, 0, 0)
        await peer.request(links, operation("peek-message", {"from-sequence-number": 0, "message-count": 1}))
        await peer.request(links, operation("peek-message", {}))
        await peer.request(links, operation("dance", {}))
        assert results(flow) == (1, 2, 0, 0)
        assert results(room.namespace.flows.namespace) == (0, 0, 0, 0)

    in_room(scenario, QueueDescription("q"))


def test_tokens_and_unknown_names_are_requests_of_the_namespace() -> None:
    """O-2, O-3: -NamespaceOnlyMetric-."""

    async def scenario(room: Room) -> None:
        peer = await room.stranger()
        flow = room.namespace.flows.namespace
        assert await peer.put_token("sb://ns.local/q") == 202
        assert results(flow) == (3, 0, 0, 0)  # two links and the token
        assert await peer.put_token("sb://ns.local/q", key="wrong") == 401
        assert results(flow) == (2, 1, 0, 0)
        link = await peer.sender("nosuch")
        assert peer.refusal(link) is not None
        assert results(flow) == (0, 1, 0, 0)
        assert [one.path for one in room.namespace.flows.all()] == ["-NamespaceOnlyMetric-"]

    in_room(scenario, QueueDescription("q"))


def test_connections_count_once_they_are_known() -> None:
    """O-1, L-11: ActiveConnections, ConnectionsOpened, ConnectionsClosed."""

    async def scenario(room: Room) -> None:
        connections = room.namespace.flows.connections
        await room.stranger()
        assert (connections.active, connections.opened) == (0, 0)
        peer = await room.client()
        await room.client()
        assert (connections.active, connections.opened, connections.closed) == (2, 2, 0)
        peer.transport.lose()
        await room.turns()
        assert (connections.active, connections.opened, connections.closed) == (1, 2, 1)

    in_room(scenario, QueueDescription("q"))


def test_a_session_that_is_not_to_be_had_is_one_request() -> None:
    """O-3, X-6: counted when it is answered."""

    async def scenario(room: Room) -> None:
        peer = await room.client()
        flow = flow_of(room)
        await accept(peer, "one")
        assert results(flow) == (1, 0, 0, 0)
        await accept(peer, "one")
        await room.turns()
        assert results(flow) == (0, 1, 0, 0)

    in_room(scenario, QueueDescription("q", requires_session=True))


def operation(name: str, body: dict[str, object]) -> AmqpMessage:
    return AmqpMessage(
        body,
        properties=Properties(message_id=name, reply_to="answers"),
        application_properties={"operation": f"com.microsoft:{name}"},
    )
