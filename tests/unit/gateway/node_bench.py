"""A namespace in memory with what the nodes need around them, and requests as clients write them."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

from busway.amqp.performatives import Properties
from busway.amqp.sections import VALUE, AmqpMessage, decode_message, encode_message
from busway.broker.fragment.locks import Delivery, Receiver
from busway.broker.namespace.namespace import Namespace
from busway.client.connection_string import sas_token
from busway.client.messages import ServiceBusMessage
from busway.gateway.amqp.message_mapping import message_of
from busway.gateway.amqp.nodes.management_node import ManagementNode
from busway.gateway.amqp.nodes.token_node import CbsNode, TokenHolder
from busway.gateway.tracking import Tracking
from busway.model.authorization import Grant
from busway.model.descriptions import NewEntity, QueueDescription
from busway.model.entity_path import EntityAddress
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from tests.harness.manual_clock import ManualClock, SeededEntropy
from tests.harness.memory_store import MemoryStore
from tests.harness.scene import NamespaceWorld, play

ROOT = "RootManageSharedAccessKey"
ROOT_KEY = "root key of the tests, long enough"


class KnownLinks:
    """The links of a connection, as far as management asks for them."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        #: Link name → (path, session it holds).
        self.sessions: dict[str, tuple[str, str]] = {}

    def touch_link(self, link_name: str) -> None:
        self.touched.append(link_name)

    def session_of_link(self, link_name: str) -> str | None:
        held = self.sessions.get(link_name)
        return None if held is None else held[1]

    def holds_session(self, path: str, session_id: str) -> bool:
        return (path, session_id) in self.sessions.values()


class Taker(Receiver):
    """Takes as many messages as it is told to."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.taken: list[Delivery] = []

    def room(self) -> int:
        return self.wanted - len(self.taken)

    def deliver(self, deliveries: list[Delivery]) -> list[Delivery]:
        self.taken.extend(deliveries)
        return []

    def evict(self, error: BrokerError) -> None:
        raise AssertionError(error)

    async def filled(self) -> None:
        """Returns when it has what it wants; gives up after more turns of the loop than any read takes."""
        for _ in range(100):
            if len(self.taken) == self.wanted:
                return
            await asyncio.sleep(0)


class NodeBench(NamespaceWorld):
    """Inside `on_a_bench` only."""

    def __init__(self, limits: Limits) -> None:
        self.clock = ManualClock()
        entropy = SeededEntropy()
        self.namespace = Namespace(
            "bus", [MemoryStore("store-0")], self.clock, entropy, limits, root_key=ROOT_KEY
        )
        self.tracking = Tracking("bus", self.clock, entropy)
        self.tokens = TokenHolder(limits.tokens_per_connection_max, lambda *_: None)
        self.links = KnownLinks()
        self.cbs = CbsNode(self.tokens, self.namespace, self.tracking)

    async def queue(self, description: str | QueueDescription) -> None:
        wanted = QueueDescription(description) if isinstance(description, str) else description
        await self.namespace.create([NewEntity(wanted)])

    def token(self, uri: str, rule: str = ROOT, key: str = ROOT_KEY, lives_s: int = 600) -> str:
        return sas_token(uri, rule, key, self.clock.wall_ms() // 1000 + lives_s)

    async def put_token(self, name: str, token: str | None = None) -> AmqpMessage:
        given = self.token(name) if token is None else token
        return await self.cbs.handle(request({"operation": "put-token", "type": "jwt", "name": name}, given))

    def node(self, path: str, grants: Callable[[str], list[Grant]] | None = None) -> ManagementNode:
        address = EntityAddress.parse(path + "/$management")
        return ManagementNode(
            self.namespace,
            address,
            grants or self.tokens.grants_for,
            self.links,
            self.tracking,
            SeededEntropy(),
        )

    async def ask(self, path: str, operation: str, body: object, link_name: str | None = None) -> AmqpMessage:
        properties: dict[str, object] = {"operation": f"com.microsoft:{operation}"}
        if link_name is not None:
            properties["associated-link-name"] = link_name
        return await self.node(path).handle(request(properties, body))

    async def send(self, path: str, *messages: ServiceBusMessage) -> None:
        await self.send_encoded(path, *[message.encode() for message in messages])

    async def send_encoded(self, path: str, *payloads: bytes) -> None:
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(refused: list[tuple[int, BrokerError]]) -> None:
            assert refused == []
            sent.set_result(None)

        queue = self.namespace.queue(path)
        queue.send([message_of(payload, False, self.namespace.limits) for payload in payloads], done)
        await sent

    async def lock(self, path: str, count: int, dead_letter: bool = False) -> list[Delivery]:
        """Receives under peek-lock and leaves: the locks stay (R-19)."""
        taker = Taker(count)
        outlet = self.namespace.queue(path).outlet(dead_letter)
        outlet.add_receiver(taker)
        outlet.wake(taker)
        await taker.filled()
        outlet.remove_receiver(taker)
        return taker.taken


def on_a_bench(test: Callable[[NodeBench], Awaitable[None]], limits: Limits | None = None) -> None:
    """Runs the test with an open namespace; a token for everything is put already."""

    async def scenario(bench: NodeBench) -> None:
        assert status(await bench.put_token("sb://bus/")) == 202
        await test(bench)

    play(lambda: NodeBench(limits or Limits()), scenario)


def request(properties: dict[str, object], body: object, message_id: object = None) -> AmqpMessage:
    """As it arrives: encoded and decoded again."""
    message = AmqpMessage(
        body,
        VALUE,
        properties=Properties(message_id=uuid4() if message_id is None else message_id),
        application_properties=properties,
    )
    return decode_message(encode_message(message))


def status(answer: AmqpMessage) -> int:
    """The status, after a check that the answer has the shape every client needs."""
    properties = decode_message(encode_message(answer)).application_properties or {}
    code = properties["statusCode"]
    assert type(code).__name__ == "Int"
    assert properties["status-code"] == code
    assert properties["statusDescription"] == properties["status-description"]
    assert ("errorCondition" in properties) == ("error-condition" in properties)
    if code >= 300:
        assert type(properties["errorCondition"]).__name__ == "Symbol"
        assert "TrackingId:" in properties["statusDescription"]
    return int(code)


def condition(answer: AmqpMessage) -> str | None:
    found = (answer.application_properties or {}).get("errorCondition")
    return None if found is None else str(found)


def sentence(answer: AmqpMessage) -> str:
    return str((answer.application_properties or {})["statusDescription"])


def uuid_of(delivery: Delivery) -> UUID:
    return UUID(bytes_le=delivery.token)
