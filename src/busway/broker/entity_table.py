"""Every queue of the namespace: its row always, its fragments from the moment it is first used."""

from collections.abc import Callable, Iterable, Iterator

from busway.broker.auto_delete import Candidate
from busway.broker.catalogue_rows import QueueRow
from busway.broker.descriptions import FOREVER_MS, RuntimeCounts
from busway.broker.errors import BrokerError, ServerBusy
from busway.broker.fragment import Fragment
from busway.broker.fragment_settings import FragmentSettings
from busway.broker.queue import Queue, runtime_counts
from busway.broker.runtime import BrokerRuntime
from busway.broker.store_keeper import StoreKeeper
from busway.store.contract import Counters, FragmentKey


class QueueTable:
    def __init__(self, runtime: BrokerRuntime, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._runtime = runtime
        self._keeper_of = keeper_of
        self.rows: dict[str, QueueRow] = {}
        self._loaded: dict[str, Queue] = {}
        #: Store → fragment → key of the queue it belongs to.
        self._owners: dict[str, dict[FragmentKey, str]] = {}
        #: Queues with a finite AutoDeleteOnIdle.
        self._mortal: set[str] = set()
        #: The namespace was opened then: before, nobody could use anything.
        self.opened_at_ms = 0

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, row: QueueRow) -> None:
        """A queue is new or has changed."""
        self.rows[row.key] = row
        owners = self._owners.setdefault(row.store_name, {})
        owners[row.main] = owners[row.dead_letter] = row.key
        if row.description.auto_delete_on_idle_ms < FOREVER_MS:
            self._mortal.add(row.key)
        else:
            self._mortal.discard(row.key)
        queue = self._loaded.get(row.key)
        if queue is not None:
            queue.replace_description(row.description)

    def remove(self, row: QueueRow, error: BrokerError) -> None:
        """The queue is gone: whoever holds it is evicted with `error` (E-86)."""
        self.rows.pop(row.key, None)
        self._mortal.discard(row.key)
        owners = self._owners.get(row.store_name, {})
        for key in (row.main, row.dead_letter):
            owners.pop(key, None)
            self._keeper_of(row.store_name).counters.pop(key, None)
        self._unload(row.key, error)

    def replace_all(self, rows: Iterable[QueueRow], gone: Callable[[QueueRow], BrokerError]) -> None:
        """The catalogue was read anew: only what differs is touched."""
        wanted = {row.key: row for row in rows}
        for row in list(self.rows.values()):
            fresh = wanted.get(row.key)
            if fresh is None or fresh.incarnation != row.incarnation:
                self.remove(row, gone(row))
        for row in wanted.values():
            if self.rows.get(row.key) != row:
                self.put(row)

    def queue(self, row: QueueRow) -> Queue:
        """Makes its fragments when they are not there yet. Raises ServerBusy without its store."""
        queue = self._loaded.get(row.key)
        if queue is None:
            queue = self._loaded[row.key] = self._load(row)
        return queue

    def _load(self, row: QueueRow) -> Queue:
        keeper = self._keeper_of(row.store_name)
        if not keeper.is_open:
            raise ServerBusy(
                f"The store of '{row.description.path}' is not available at the moment. Please try again later."
            )
        dead_letter = self._fragment(row, keeper, None)
        main = self._fragment(row, keeper, dead_letter)
        dead_letter.start()
        main.start()
        return Queue(row.description.path, row.description, main, dead_letter)

    def _fragment(self, row: QueueRow, keeper: StoreKeeper, dead_letter: Fragment | None) -> Fragment:
        is_dead_letter = dead_letter is None
        key = row.dead_letter if is_dead_letter else row.main
        settings = FragmentSettings.of_queue(
            row.description, self._runtime.limits, dead_letter=is_dead_letter
        )
        counters = keeper.counters[key]
        return Fragment(key, 0, counters, keeper.store, settings, self._runtime, dead_letter)

    def fragment(self, store_name: str, key: FragmentKey) -> Fragment | None:
        """For the sweeps of a store: the fragment, loaded when need be; None when nobody owns it."""
        owner = self._owners.get(store_name, {}).get(key)
        if owner is None:
            return None
        row = self.rows[owner]
        try:
            queue = self.queue(row)
        except ServerBusy:
            return None
        return queue.dead_letter if key == row.dead_letter else queue.main

    def keys_in(self, store_name: str) -> set[FragmentKey]:
        """Fragments that queues have in the store."""
        return set(self._owners.get(store_name, {}))

    def lose_store(self, store_name: str, error: BrokerError) -> None:
        """The store failed: what memory holds of its queues is worth nothing any more."""
        for key in [key for key in self._loaded if self.rows[key].store_name == store_name]:
            self._unload(key, error)

    def _unload(self, key: str, error: BrokerError) -> None:
        queue = self._loaded.pop(key, None)
        if queue is not None:
            queue.failed(error)

    def loaded(self) -> Iterator[tuple[QueueRow, Queue]]:
        for key, queue in list(self._loaded.items()):
            yield self.rows[key], queue

    def with_expiring_head(self) -> list[str]:
        """Queues whose messages expire in order at the head: only a loaded fragment watches that."""
        return [row.key for row in self.rows.values() if self._head_may_expire(row)]

    def _head_may_expire(self, row: QueueRow) -> bool:
        counters = self._keeper_of(row.store_name).counters.get(row.main)
        return counters is not None and counters.active > 0 and counters.expiry_high_ms > 0

    def counts(self, row: QueueRow) -> RuntimeCounts:
        """E-100…E-102. Without its store a queue's numbers are unknown (E-91, E-104)."""
        keeper = self._keeper_of(row.store_name)
        if not keeper.is_open:
            return RuntimeCounts(availability="Unknown")
        return runtime_counts(
            keeper.counters.get(row.main, _NOTHING), keeper.counters.get(row.dead_letter, _NOTHING)
        )

    def auto_delete_candidates(self) -> Iterator[Candidate]:
        """Those whose store is there: without it nobody knows when a queue was used."""
        for key in self._mortal:
            row = self.rows[key]
            if self._keeper_of(row.store_name).is_open:
                yield self._candidate(row)

    def _candidate(self, row: QueueRow) -> Candidate:
        counts = self.counts(row)
        description = row.description
        used_ms = max(
            counts.accessed_at_ms, description.updated_at_ms, description.created_at_ms, self.opened_at_ms
        )
        queue = self._loaded.get(row.key)
        waits = queue is not None and bool(queue.main.receivers() or queue.dead_letter.receivers())
        return Candidate(row.key, description.auto_delete_on_idle_ms, used_ms, waits or counts.scheduled > 0)


_NOTHING = Counters()
