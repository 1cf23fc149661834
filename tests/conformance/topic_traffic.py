"""A topic as the conformance tests use it: made with the administration client, used with the messaging client."""

from __future__ import annotations

from typing import Any, NamedTuple

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.management import (
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
)

DEFAULT_RULE = "$Default"
#: How long a test waits to be sure that nothing more comes.
QUIET_S = 0.5


class NamedRule(NamedTuple):
    """A rule to be: filter text or filter, perhaps with an action."""

    name: str
    filter: str | SqlRuleFilter | CorrelationRuleFilter
    action: str | SqlRuleAction | None = None


class Topic:
    """Topic and clients together. Subscriptions are named by their own name only."""

    def __init__(
        self, name: str, client: ServiceBusClient, admin: ServiceBusAdministrationClient, **properties: Any
    ) -> None:
        self.name = name
        self._client = client
        self._admin = admin
        admin.create_topic(name, **properties)

    # -- subscriptions and rules

    def subscribe(self, name: str, *rules: NamedRule, **properties: Any) -> str:
        """With rules: these alone; without: everything."""
        self._admin.create_subscription(self.name, name, **properties)
        for rule in rules:
            self.add_rule(name, rule)
        if rules:
            self._admin.delete_rule(self.name, name, DEFAULT_RULE)
        return name

    def add_rule(self, subscription: str, rule: NamedRule) -> None:
        chosen = SqlRuleFilter(rule.filter) if isinstance(rule.filter, str) else rule.filter
        action = SqlRuleAction(rule.action) if isinstance(rule.action, str) else rule.action
        self._admin.create_rule(self.name, subscription, rule.name, filter=chosen, action=action)

    def path_of(self, subscription: str) -> str:
        return f"{self.name}/Subscriptions/{subscription}"

    # -- sending

    def send(self, *bodies: str, **properties: Any) -> None:
        """One send for each body."""
        self.send_messages(*(ServiceBusMessage(body, **properties) for body in bodies))

    def send_messages(self, *messages: ServiceBusMessage) -> None:
        with self._client.get_topic_sender(self.name) as sender:
            for message in messages:
                sender.send_messages(message)

    # -- receiving

    def receiver(self, subscription: str, **options: Any) -> ServiceBusReceiver:
        options.setdefault("max_wait_time", 5)
        return self._client.get_subscription_receiver(self.name, subscription, **options)

    def dead_letters(self, subscription: str) -> ServiceBusReceiver:
        return self.receiver(subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    def take(self, subscription: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        """So many, completed; more than these must not be there."""
        with self.receiver(subscription, **options) as receiver:
            return taken(receiver, count)

    def take_dead(self, subscription: str, count: int) -> list[ServiceBusReceivedMessage]:
        return self.take(subscription, count, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    def peek(self, subscription: str, **options: Any) -> list[ServiceBusReceivedMessage]:
        with self.receiver(subscription, **options) as receiver:
            return receiver.peek_messages(max_message_count=100)


def taken(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages, completed: fewer fail, and so does one more."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = receiver.receive_messages(max_message_count=count - len(found), max_wait_time=5)
        assert batch, f"only {len(found)} of {count} messages came"
        for message in batch:
            receiver.complete_message(message)
        found += batch
    assert receiver.peek_messages(max_message_count=1) == []
    return found
