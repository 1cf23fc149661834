"""The rules of subscriptions, for whoever manages them: read, added, replaced, removed. A change runs to its end even
when whoever asked has gone away."""

from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.rule_beginnings import shown_beginnings
from busway.broker.namespace.rule_changes import RuleChanges
from busway.model.entity_path import path_key
from busway.rules.rule import Rule


class SubscriptionRules:
    """Each verb raises EntityNotFound when there is no such subscription."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        self._table = contents.entities.rules
        self._changes = RuleChanges(contents)
        #: For those who change rules in a transaction (T-13).
        self.work = self._changes.work

    def of(self, subscription_path: str) -> list[Rule]:
        """`$Default` first, then in order of creation, as a file has them."""
        row = self._changes.subscription(subscription_path)
        return [entry.rule for entry in self._table.of(row.key)]

    def by_name(self, subscription_path: str, skip: int, top: int) -> list[Rule]:
        """E-64: a page of them, as clients see them."""
        row = self._changes.subscription(subscription_path)
        return [entry.rule for entry in self._table.by_name(row.key, skip, top)]

    def get(self, subscription_path: str, name: str) -> Rule | None:
        row = self._changes.subscription(subscription_path)
        found = self._table.get(row.key, path_key(name))
        return None if found is None else found.rule

    def beginnings(self, subscription_path: str) -> dict[str, object]:
        """When each rule of the subscription began to apply."""
        return shown_beginnings(self._contents, self._changes.subscription(subscription_path))

    def filter_counts(self, topic_path: str) -> tuple[int, int]:
        """How many SQL and how many correlation filters the topic has (E-72)."""
        return self._table.filter_counts(path_key(topic_path))

    async def add(self, subscription_path: str, rule: Rule) -> Rule:
        """Raises EntityAlreadyExists, BadArgument for a text that is not valid (T-11, T-36)."""
        return await self._contents.background.finish(self._changes.add(subscription_path, rule))

    async def replace(self, subscription_path: str, rule: Rule) -> Rule:
        """Another filter or action under the same name; it keeps its place and its time."""
        return await self._contents.background.finish(self._changes.replace(subscription_path, rule))

    async def remove(self, subscription_path: str, name: str) -> None:
        await self._contents.background.finish(self._changes.remove(subscription_path, name))
