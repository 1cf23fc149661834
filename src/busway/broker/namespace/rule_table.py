"""The rules of all subscriptions: their rows always, compiled from the moment their topic is first used."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from uuid import UUID

from busway.broker.namespace.rule_rows import RuleRow
from busway.clock import Entropy
from busway.model.entity_path import topic_key_of
from busway.rules.rule import DEFAULT_RULE_NAME, CorrelationFilter
from busway.rules.selection import Selection


class RuleTable:
    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        #: Subscription → folded name → row, in order of creation.
        self._rows: dict[str, dict[str, RuleRow]] = {}
        #: Subscription → folded names in order, of those whose rules somebody has enumerated: there may be a hundred
        #: thousand of them, and clients ask for a page at a time.
        self._names: dict[str, list[str]] = {}
        #: Topic → how many SQL filters and how many correlation filters it has (E-72, E-73).
        self._filters: dict[str, list[int]] = {}
        #: Loaded topic → its selection.
        self._selections: dict[str, Selection] = {}

    def of(self, subscription_key: str) -> list[RuleRow]:
        """`$Default` first, then in order of creation."""
        rows = self._rows.get(subscription_key, {}).values()
        return sorted(rows, key=lambda row: row.rule.name != DEFAULT_RULE_NAME)

    def by_name(self, subscription_key: str, skip: int, top: int) -> list[RuleRow]:
        """E-64: a page in the order of their names, in which `$Default` comes first by itself."""
        rows = self._rows.get(subscription_key)
        if rows is None:
            return []
        names = self._names.get(subscription_key)
        if names is None:
            names = self._names[subscription_key] = sorted(rows)
        return [rows[name] for name in names[skip : skip + top]]

    def get(self, subscription_key: str, key: str) -> RuleRow | None:
        return self._rows.get(subscription_key, {}).get(key)

    def next_order(self, subscription_key: str) -> int:
        rows = self._rows.get(subscription_key)
        return 1 if not rows else next(reversed(rows.values())).order + 1

    def filter_counts(self, topic_key: str) -> tuple[int, int]:
        """SQL filters and correlation filters (E-72, E-73)."""
        sql, correlation = self._filters.get(topic_key, (0, 0))
        return sql, correlation

    def _count(self, topic_key: str, row: RuleRow, change: int) -> None:
        counts = self._filters.setdefault(topic_key, [0, 0])
        counts[isinstance(row.rule.filter, CorrelationFilter)] += change

    # -- changes

    def put(self, topic_key: str, row: RuleRow) -> None:
        """A rule is new, or another one under its name."""
        rows = self._rows.setdefault(row.subscription_key, {})
        selection = self._selections.get(topic_key)
        present = rows.get(row.key)
        if present is not None:
            self._count(topic_key, present, -1)
        self._count(topic_key, row, 1)
        if selection is not None:
            if present is not None:
                selection.remove(row.subscription_key, present.rule.name)
            selection.add(row.subscription_key, row.rule)
        names = self._names.get(row.subscription_key)
        if names is not None and present is None:
            insort(names, row.key)
        rows[row.key] = row

    def remove(self, topic_key: str, row: RuleRow) -> None:
        if self._rows.get(row.subscription_key, {}).pop(row.key, None) is not None:
            self._count(topic_key, row, -1)
            names = self._names.get(row.subscription_key)
            if names is not None:
                del names[bisect_left(names, row.key)]
        selection = self._selections.get(topic_key)
        if selection is not None:
            selection.remove(row.subscription_key, row.rule.name)

    def put_back(self, topic_key: str, row: RuleRow) -> None:
        """One that was removed is there again, in its old place."""
        self.put(topic_key, row)
        rows = self._rows[row.subscription_key]
        self._rows[row.subscription_key] = dict(sorted(rows.items(), key=lambda entry: entry[1].order))

    def forget(self, topic_key: str, subscription_key: str) -> None:
        """The subscription is gone."""
        self._names.pop(subscription_key, None)
        for row in self._rows.pop(subscription_key, {}).values():
            self._count(topic_key, row, -1)
        selection = self._selections.get(topic_key)
        if selection is not None:
            selection.remove_owner(subscription_key)

    def replace_all(self, rows: Iterable[RuleRow]) -> None:
        """The catalogue was read anew; whoever holds a selection must `load` it again."""
        self._rows.clear()
        self._names.clear()
        self._filters.clear()
        # Also of topics that are not loaded: somebody may have asked for one while its store was away.
        self._selections.clear()
        for row in sorted(rows, key=lambda row: row.order):
            self._rows.setdefault(row.subscription_key, {})[row.key] = row
            self._count(topic_key_of(row.subscription_key), row, 1)

    # -- compiled

    def load(self, topic_key: str, subscription_keys: Iterable[str]) -> Selection:
        selection = self._selections[topic_key] = Selection(self._new_id)
        for key in subscription_keys:
            for row in self._rows.get(key, {}).values():
                selection.add(key, row.rule)
        return selection

    def selection(self, topic_key: str) -> Selection | None:
        """The one that was loaded."""
        return self._selections.get(topic_key)

    def unload(self, topic_key: str) -> None:
        self._selections.pop(topic_key, None)

    def _new_id(self) -> UUID:
        return UUID(bytes=self._entropy.bytes(16), version=4)
