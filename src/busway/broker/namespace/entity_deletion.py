"""How entities go: deleted by somebody, unused for too long, or made for a link that has gone.

Theory of operation. An entity is gone when the catalogue's home has its row no more, and a topic goes with all that
it has in one step (E-65). Fragments are dropped after that; what a deletion cannot reach just now belongs to
nobody, and goes when its store is back. Whoever waited for its turn looks again: by then the entity may be used, or
another one.
"""

from busway.broker.forward.send_via import transfer_key
from busway.broker.fragment.receiver import Attachment
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents, dropping
from busway.broker.namespace.entity_checks import is_topic
from busway.model.entity_path import not_found, path_key, shown
from busway.model.errors import BrokerError, ServerBusy
from busway.store.contract import FragmentKey


class EntityDeletion:
    """Each verb is awaited to its end; `BackgroundWork.finish` sees to that."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        #: Entities whose deletion for want of use is under way.
        self._leaving: set[str] = set()

    async def delete(self, path: str) -> None:
        contents = self._contents
        async with contents.changing:
            row = contents.entities.rows.get(path_key(path))
            if row is None:
                raise not_found(contents.name, path)
            await self._delete_row(row)
            contents.record("Delete", row.description)
        contents.rights_changed()

    async def _delete_row(self, row: EntityRow) -> None:
        contents = self._contents
        rows = [*contents.entities.subscriptions(row.key), row] if is_topic(row.description) else [row]
        transfers = contents.entities.rows.get(transfer_key(row.key))
        if transfers is not None:
            rows.append(transfers)
        keys: dict[str, list[FragmentKey]] = {name: [] for name in row.store_names}
        for share in [share for gone in rows for share in gone.shares]:
            keys[share.store_name].extend(share.fragments)
        texts: dict[str, str | None] = {gone.row_key: None for gone in rows}
        for gone in rows:
            texts.update({rule.row_key: None for rule in contents.entities.rules.of(gone.key)})
        home = contents.catalogue.home
        await contents.write(texts, dropping(keys[home.name]) if home.name in keys else None)
        for gone in rows:
            contents.entities.remove(gone, not_found(contents.name, gone.description.path))
            contents.auto_delete.forget(gone.key)
        # Elsewhere it is enough to try: what is left there belongs to nobody and goes at the next opening.
        for name, dropped in keys.items():
            keeper = contents.keepers[name]
            if keeper is home or keeper.join(dropping(dropped)):
                contents.background.spawn(keeper.sweep_dropped(contents.limits.sweep_rows_max))

    # -- for want of use

    def delete_idle(self, key: str) -> None:
        """Once, however long it waits for other changes."""
        row = self._contents.entities.rows.get(key)
        if row is not None and key not in self._leaving:
            self._leaving.add(key)
            self._contents.background.spawn(self._leave(row))

    async def _leave(self, row: EntityRow) -> None:
        try:
            await self._delete_if_due(row)
        finally:
            self._leaving.discard(row.key)

    async def _delete_if_due(self, row: EntityRow) -> None:
        """E-110. Looks again when its turn has come: the entity may have been used, or be another one."""
        contents = self._contents
        async with contents.changing:
            present = contents.entities.rows.get(row.key)
            if present is not row or not contents.auto_delete.is_due(row.key):
                return
            try:
                await self._delete_row(row)
            except BrokerError as error:
                contents.record("AutoDelete Delete", row.description, status=error.sentence)
                return
            contents.record("AutoDelete Delete", row.description)
        contents.rights_changed()

    # -- made for a link

    async def delete_released(self, row: EntityRow) -> None:
        """It was made for links that have gone. Looks again when its turn has come: another one may hold it now."""
        contents = self._contents
        async with contents.changing:
            present = contents.entities.rows.get(row.key)
            if present is None or present.incarnation != row.incarnation:
                return
            if contents.entities.is_held(present):
                return
            by = Release()
            contents.entities.end_by(present, by)
            try:
                await self._delete_row(present)
            except BrokerError as error:  # it has an AutoDeleteOnIdle
                contents.record("Delete", present.description, status=error.sentence)
                return
            finally:
                contents.entities.spare(present, by)
            contents.record("Delete", present.description)
        contents.rights_changed()

    async def delete_ended(self, path: str, by: Attachment) -> None:
        """For a link that stands for its end. Raises ServerBusy when that was turned away meanwhile, so that somebody
        may have come since; nothing when there is nothing any more."""
        contents = self._contents
        async with contents.changing:
            row = contents.entities.rows.get(path_key(path))
            if row is None:
                return
            if not contents.entities.is_ended_by(row, by):
                raise ServerBusy(f"{shown(path)} was not available for a moment, and was not deleted.")
            await self._delete_row(row)
            contents.record("Delete", row.description)
        contents.rights_changed()


class Release(Attachment):
    """Stands for the deletion of what nobody holds any more."""

    def evict(self, error: BrokerError) -> None:
        """It is gone, or its store is: whoever deletes it hears of that."""
