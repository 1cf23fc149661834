"""The rows of all entities, and what is looked up in them without reading them all: who has a fragment, which
subscriptions a topic has, what lies below a name."""

from collections.abc import Set

from busway.broker.forward.send_via import is_transfer_key
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.model.descriptions import FOREVER_MS, SubscriptionDescription, TopicDescription
from busway.model.entity_path import path_key
from busway.store.contract import FragmentKey


class EntityIndex:
    def __init__(self) -> None:
        self.rows: dict[str, EntityRow] = {}
        #: Topic → its subscriptions, in order of creation.
        self._subscriptions: dict[str, dict[str, None]] = {}
        #: Store → fragment → key of the entity it belongs to, and its index there.
        self._owners: dict[str, dict[FragmentKey, tuple[str, int]]] = {}
        #: First segment → how many entities lie below it.
        self._below: dict[str, int] = {}
        #: Entities with a finite AutoDeleteOnIdle.
        self._mortal: set[str] = set()
        #: Transfer queues, which nobody counts.
        self._transfer_keys: set[str] = set()

    def put(self, row: EntityRow) -> None:
        """An entity is new or has changed."""
        if row.key not in self.rows:
            self._count_below(row.key, 1)
        self.rows[row.key] = row
        for index, share in enumerate(row.shares):
            owners = self._owners.setdefault(share.store_name, {})
            owners.update({key: (row.key, index) for key in share.fragments})
        if row.description.auto_delete_on_idle_ms < FOREVER_MS:
            self._mortal.add(row.key)
        else:
            self._mortal.discard(row.key)
        if is_transfer_key(row.key):
            self._transfer_keys.add(row.key)
        if isinstance(row.description, SubscriptionDescription):
            topic_key = path_key(row.description.topic_path)
            self._subscriptions.setdefault(topic_key, {})[row.key] = None

    def remove(self, row: EntityRow) -> None:
        if self.rows.pop(row.key, None) is not None:
            self._count_below(row.key, -1)
        self._mortal.discard(row.key)
        self._transfer_keys.discard(row.key)
        if isinstance(row.description, SubscriptionDescription):
            self._subscriptions.get(path_key(row.description.topic_path), {}).pop(row.key, None)
        elif isinstance(row.description, TopicDescription):
            self._subscriptions.pop(row.key, None)
        for share in row.shares:
            owners = self._owners.get(share.store_name, {})
            for key in share.fragments:
                owners.pop(key, None)

    def _count_below(self, key: str, change: int) -> None:
        top, _, rest = key.partition("/")
        if not rest:
            return
        count = self._below.get(top, 0) + change
        if count:
            self._below[top] = count
        else:
            del self._below[top]

    # -- names

    def subscriptions(self, topic_key: str) -> list[EntityRow]:
        return [self.rows[key] for key in self._subscriptions.get(topic_key, ())]

    def paths_below(self, key: str) -> list[str]:
        """Of queues and topics; without looking when there are none."""
        if key not in self._below:
            return []
        rows = [row for name, row in self.rows.items() if name.startswith(f"{key}/")]
        return [
            row.description.path
            for row in rows
            if not isinstance(row.description, SubscriptionDescription) and not is_transfer_key(row.key)
        ]

    def entity_count(self) -> int:
        """Queues and topics (L-1)."""
        subscriptions = sum(map(len, self._subscriptions.values()))
        return len(self.rows) - subscriptions - len(self._transfer_keys)

    def mortal_keys(self) -> Set[str]:
        """Of entities that go when nobody uses them."""
        return self._mortal

    # -- places

    def owner(self, store_name: str, key: FragmentKey) -> tuple[EntityRow, int] | None:
        """The entity that a fragment belongs to, and its index there."""
        found = self._owners.get(store_name, {}).get(key)
        return None if found is None else (self.rows[found[0]], found[1])

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        """Fragments that entities have in the store."""
        return set(self._owners.get(store_name, {}))

    def stores_of(self, path: str) -> tuple[str, ...]:
        """Of the entity's fragments; none when there is no such entity."""
        row = self.rows.get(path_key(path))
        return () if row is None else tuple(row.store_names)
