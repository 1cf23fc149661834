"""Which entities may go because nobody uses them, and since when: what `auto_delete` asks for (E-110…E-113)."""

from collections.abc import Callable, Iterable

from busway.broker.namespace.auto_delete import Candidate
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.store_keeper import StoreKeeper
from busway.model.descriptions import MADE_FOR_A_LINK


class IdleEntities:
    def __init__(self, entities: EntityTable, keeper_of: Callable[[str], StoreKeeper]) -> None:
        self._entities = entities
        self._keeper_of = keeper_of
        #: The namespace was opened then: before, nobody could use anything. 0: it is not open yet.
        self.opened_at_ms = 0

    def mortal_keys(self) -> Iterable[str]:
        return self._entities.index.mortal_keys()

    def earliest_due_ms(self, key: str) -> int | None:
        row = self._mortal_row(key)
        return None if row is None else self._unused_since_ms(row) + row.description.auto_delete_on_idle_ms

    def auto_delete_candidate(self, key: str) -> Candidate | None:
        """None without its stores: nobody knows when it was used."""
        row = self._mortal_row(key)
        if row is None or not all(self._keeper_of(name).is_open for name in row.store_names):
            return None
        counts = self._entities.counts.of(row)
        used_ms = max(counts.accessed_at_ms, self._unused_since_ms(row))
        is_awaited = counts.scheduled > 0 and row.description.user_metadata != MADE_FOR_A_LINK
        in_use = is_awaited or self._entities.is_received_from(row)
        return Candidate(key, row.description.auto_delete_on_idle_ms, used_ms, in_use)

    def _mortal_row(self, key: str) -> EntityRow | None:
        return self._entities.rows[key] if key in self._entities.index.mortal_keys() else None

    def _unused_since_ms(self, row: EntityRow) -> int:
        """If it was not used since it was made, changed, or could be."""
        description = row.description
        return max(description.updated_at_ms, description.created_at_ms, self.opened_at_ms)
