"""A namespace with topics, subscriptions and forwarding, under a manual clock."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, AmqpMessage, decode_message, encode_message
from busway.gateway.amqp.message_mapping import message_of, peeked_payload
from busway.message.message import Message
from busway.model.descriptions import (
    NewEntity,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    with_values,
)
from busway.model.entity_path import subscription_path
from busway.model.errors import BrokerError
from busway.model.limits import Limits
from busway.rules.rule import Filter, Rule, SqlAction, SqlFilter
from tests.harness.scene import play
from tests.unit.broker.namespace_bench import NamespaceBench, settle


def encoded(body: str = "", **fields: object) -> bytes:
    """A message with a data body; `properties` are application properties, other names are AMQP properties."""
    properties = fields.pop("properties", None)
    assert properties is None or isinstance(properties, dict)
    annotations = fields.pop("annotations", None)
    assert annotations is None or isinstance(annotations, dict)
    message = AmqpMessage(
        [body.encode()], DATA, application_properties=properties, message_annotations=annotations
    )
    if fields:
        message.properties = replace_fields(Properties(), fields)
    return encode_message(message)


def replace_fields(properties: Properties, fields: dict[str, object]) -> Properties:
    for name, value in fields.items():
        setattr(properties, name, value)
    return properties


class Seen:
    """What a client would see of a message."""

    def __init__(self, message: Message) -> None:
        decoded = decode_message(peeked_payload(message))
        self.body = b"".join(decoded.body).decode()
        self.properties = dict(decoded.application_properties or {})
        self.fields = decoded.properties or Properties()
        self.annotations = {str(key): value for key, value in (decoded.message_annotations or {}).items()}
        self.message = message


class TopicBench(NamespaceBench):
    async def topic(self, path: str, **values: object) -> TopicDescription:
        made = await self.namespace.create([NewEntity(with_values(TopicDescription(path), values))])
        assert isinstance(made[0], TopicDescription)
        return made[0]

    async def queue(self, path: str, **values: object) -> QueueDescription:
        return await self.create(path, **values)

    async def subscription(
        self, topic: str, name: str, *rules: Rule, **values: object
    ) -> SubscriptionDescription:
        wanted = with_values(SubscriptionDescription(subscription_path(topic, name)), values)
        made = await self.namespace.create([NewEntity(wanted, rules)])
        assert isinstance(made[0], SubscriptionDescription)
        return made[0]

    async def change(self, path: str, **values: object) -> None:
        present = self.namespace.description(path)
        await self.namespace.update(type(present)(**{**vars(present), **values}))

    async def publish(self, path: str, *payloads: bytes, atomically: bool = False) -> None:
        """Sends to a queue or topic and waits; raises the first refusal."""
        refused = await self.try_publish(path, *payloads, atomically=atomically)
        if refused:
            raise refused[0][1]

    async def try_publish(
        self, path: str, *payloads: bytes, atomically: bool = False
    ) -> list[tuple[int, BrokerError]]:
        ended: asyncio.Future[list[tuple[int, BrokerError]]] = asyncio.get_running_loop().create_future()
        target = self.namespace.sender(path)
        detects = target.settings.detects_duplicates
        messages = [message_of(payload, detects) for payload in payloads]
        send = target.send_atomically if atomically else target.send
        send(messages, ended.set_result)
        refused = await ended
        await settle()
        return refused

    async def peek(self, path: str, *, dead_letter: bool = False) -> list[Seen]:
        outlet = self.namespace.queue(path).outlet(dead_letter)
        return [Seen(message) for message in await outlet.peek(0, 250)]

    async def bodies(self, path: str, *, dead_letter: bool = False) -> list[str]:
        return [seen.body for seen in await self.peek(path, dead_letter=dead_letter)]


def sql(text: str, action: str | None = None, name: str = "rule") -> Rule:
    return Rule(name, SqlFilter(text), None if action is None else SqlAction(action))


def rule(filter_: Filter, name: str = "rule", action: str | None = None) -> Rule:
    return replace(sql("1=1", action, name), filter=filter_)


def on_a_topic_bench(
    test: Callable[[TopicBench], Awaitable[None]], store_count: int = 1, limits: Limits | None = None
) -> None:
    play(lambda: TopicBench(store_count, limits), test)
