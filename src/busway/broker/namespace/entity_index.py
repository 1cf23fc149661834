"""The rows of all entities, what is looked up in them without reading them all, and how much entities hold.

The index tells who has a fragment, which subscriptions a topic has, what lies below a name. The counts are sums
over the counters of fragments, which their stores' keepers have in memory.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from typing import Final

from busway.broker.entity.entity import runtime_counts, total
from busway.broker.forward.send_via import is_transfer_key, transfer_key
from busway.broker.namespace.catalogue_rows import EntityRow, Share
from busway.broker.store_keeper import StoreKeeper
from busway.model.descriptions import (
    FragmentCounts,
    RuntimeCounts,
    SubscriptionDescription,
    TopicDescription,
    routes,
)
from busway.model.durations import FOREVER_MS
from busway.model.entity_path import path_key
from busway.store.contract import Counters, FragmentKey


class EntityIndex:
    """The rows of all entities, and what is looked up in them without reading them all: who has a fragment, which
    subscriptions a topic has, what lies below a name."""

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


_NOTHING: Final = Counters()


class EntityCounts:
    """How much entities hold: sums over the counters of their fragments, which their stores' keepers have in
    memory."""

    def __init__(self, index: EntityIndex, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._index = index
        self._keeper_of = keeper_of

    def of(self, row: EntityRow) -> RuntimeCounts:
        """E-100…E-103: sums over the fragments whose stores are there; without any, numbers are unknown (E-91,
        E-104)."""
        shares = [share for share in row.shares if self._keeper_of(share.store_name).is_open]
        if not shares:
            return RuntimeCounts(availability="Unknown")
        availability = "Available" if len(shares) == len(row.shares) else "Limited"
        main = total(self._share_counters(share, share.main) for share in shares)
        if isinstance(row.description, TopicDescription):
            return replace(self._of_topic(row, main), availability=availability)
        dead_letter = total(self._share_counters(share, share.dead_letter) for share in shares)
        counts = replace(runtime_counts(main, dead_letter), availability=availability)
        if isinstance(row.description, SubscriptionDescription):
            # E-41: it was used by whoever made it, and so was its topic.
            used_ms = max(counts.accessed_at_ms, row.description.created_at_ms)
            counts = replace(counts, accessed_at_ms=used_ms)
        transfers = self._index.rows.get(transfer_key(row.key))
        if transfers is not None:
            waiting = self.of(transfers)
            counts = replace(counts, transfer=waiting.active, transfer_dead_letter=waiting.dead_letter)
        if row.description.forward_to is None:
            return counts
        return replace(counts, active=0, transfer=counts.active + counts.transfer)  # F-13

    def _of_topic(self, row: EntityRow, own: Counters) -> RuntimeCounts:
        """E-56: the copies' bytes count here, their messages do not. E-111: any use of a subscription is a use
        of its topic."""
        copies = [self.of(subscription) for subscription in self._index.subscriptions(row.key)]
        return RuntimeCounts(
            scheduled=own.scheduled,
            size_bytes=own.bytes + sum(counts.size_bytes for counts in copies),
            accessed_at_ms=max([own.accessed_at_ms, *(counts.accessed_at_ms for counts in copies)]),
        )

    def by_fragment(self, row: EntityRow) -> list[FragmentCounts]:
        """O-8: each fragment by itself."""
        return [self._of_fragment(row, index) for index in range(len(row.shares))]

    def _of_fragment(self, row: EntityRow, index: int) -> FragmentCounts:
        share = row.shares[index]
        keeper = self._keeper_of(share.store_name)
        if not keeper.is_open:
            return FragmentCounts(
                index, share.store_name, keeper.state, RuntimeCounts(availability="Unknown")
            )
        main = self._share_counters(share, share.main)
        if isinstance(row.description, TopicDescription):
            size_bytes = self.topic_share_bytes(row, index)
            counts = RuntimeCounts(
                scheduled=main.scheduled, size_bytes=size_bytes, accessed_at_ms=main.accessed_at_ms
            )
        else:
            counts = runtime_counts(main, self._share_counters(share, share.dead_letter))
        return FragmentCounts(index, share.store_name, keeper.state, counts)

    def topic_share_bytes(self, row: EntityRow, index: int) -> int:
        """What counts against the size of one fragment of a topic: its own bytes, and the copies beside it."""
        rows = [row, *self._index.subscriptions(row.key)]
        shares = [each.shares[index] for each in rows]
        return sum(self._share_counters(share, key).bytes for share in shares for key in share.fragments)

    def _share_counters(self, share: Share, key: FragmentKey) -> Counters:
        return self._keeper_of(share.store_name).counters.get(key, _NOTHING)

    def touch(self, row: EntityRow, now_ms: int) -> None:
        """A use that is no message: a rule was added (E-111)."""
        for counters in self._present(row, [share.main for share in row.shares])[:1]:
            counters.accessed_at_ms = max(counters.accessed_at_ms, now_ms)

    def needing_care(self) -> list[str]:
        """Entities whose messages expire in order at the head, or move on: only loaded fragments see to it."""
        rows = self._index.rows.values()
        return [row.key for row in rows if self._head_may_expire(row) or self._has_to_forward(row)]

    def _head_may_expire(self, row: EntityRow) -> bool:
        counters = self._present(row, [share.main for share in row.shares])
        return any(each.active > 0 and each.expiry_high_ms > 0 for each in counters)

    def _has_to_forward(self, row: EntityRow) -> bool:
        if routes(row.description) == (None, None) and not is_transfer_key(row.key):
            return False
        keys = [key for share in row.shares for key in share.fragments]
        return any(each.active > 0 for each in self._present(row, keys))

    def _present(self, row: EntityRow, keys: Iterable[FragmentKey]) -> list[Counters]:
        """Of those of its fragments whose store was ever seen."""
        wanted = set(keys)
        found = [
            self._keeper_of(share.store_name).counters.get(key)
            for share in row.shares
            for key in share.fragments
            if key in wanted
        ]
        return [counters for counters in found if counters is not None]
