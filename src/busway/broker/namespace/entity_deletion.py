"""How entities go: deleted, unused for too long, made for a link that has gone, or all of them by a reset.

Theory of operation. An entity is gone when the catalogue's home has its row no more, and a topic goes with all
that it has in one step (E-65). Fragments are dropped after that; what a deletion cannot reach just now belongs to
nobody, and goes when its store is back. Whoever waited for its turn looks again: by then the entity may be used,
or another one.

A reset makes the namespace as new while clients use it: an empty bus for each test of a suite. It is one change of
the catalogue, like the deletion of an entity, and waits for other changes as they do: one commit at the home takes
away the rows of all entities, rules, event hubs and keys, and drops their fragments there; then memory follows,
and whoever holds an entity is told that it is gone (E-86). Fragments in other stores are dropped without waiting:
no row names them any more, and what a crash leaves there belongs to nobody. Their rows are swept in the
background. Before the commit nothing has happened, after it nothing of them can be seen. What is the namespace's
own stays: its name and id, its stores, the root rule with its keys, and the marks that say which rules of
transactions were taken over already.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from busway.broker.forward.send_via import transfer_key
from busway.broker.fragment.locks import Attachment
from busway.broker.namespace.catalogue import TAKEN_OVER_PREFIX, Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, STORE_PREFIX, EntityRow, NamespaceRow
from busway.broker.namespace.contents import NamespaceContents, dropping
from busway.broker.namespace.entity_creation import is_topic
from busway.broker.namespace.stores import NamespaceStores
from busway.model.descriptions import ROOT_RULE_NAME
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
            by = DeletionMark()
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


class DeletionMark(Attachment):
    """Stands on an entity that goes because nobody holds it any more, so that nobody else takes it up."""

    def evict(self, error: BrokerError) -> None:
        """It is gone, or its store is: whoever deletes it hears of that."""


#: Rows that stay.
_LASTING_PREFIXES: Final = (NAMESPACE_KEY, STORE_PREFIX, TAKEN_OVER_PREFIX)


async def make_new(contents: NamespaceContents, stores: NamespaceStores, adopt: Callable[[], None]) -> None:
    """`adopt`: memory follows the catalogue. Raises ServerBusy when it could not be done whole."""
    for keeper in list(contents.keepers.values()):
        if keeper.is_disabled:
            await stores.enable(keeper.name)
    async with contents.changing:
        changes = _without_entities(contents)
        if changes:
            await _take_away(contents, changes, adopt)
        contents.operations.record("Reset Namespace", contents.name)
    await contents.staged.forget_all()


def _without_entities(contents: NamespaceContents) -> Changes:
    rows = contents.catalogue.rows
    changes: dict[str, str | None] = {key: None for key in rows if not key.startswith(_LASTING_PREFIXES)}
    present = NamespaceRow.parse(rows[NAMESPACE_KEY])
    root = tuple(rule for rule in present.rules if rule.name == ROOT_RULE_NAME)
    if root != present.rules:
        changes[NAMESPACE_KEY] = replace(present, rules=root).text(rows[NAMESPACE_KEY])
    return changes


async def _take_away(contents: NamespaceContents, changes: Changes, adopt: Callable[[], None]) -> None:
    keys = list(contents.entities.rows)
    dropped = {name: sorted(contents.keys_in(name)) for name in contents.keepers}
    await contents.write(changes, dropping(dropped[contents.catalogue.home.name]))
    adopt()
    for key in keys:
        contents.auto_delete.forget(key)
    for name, fragments in dropped.items():
        _drop_there(contents, name, fragments)
    contents.runtime.namespace_size.recount()


def _drop_there(contents: NamespaceContents, store_name: str, fragments: list[FragmentKey]) -> None:
    keeper = contents.keepers[store_name]
    if not fragments:
        return
    is_home = keeper is contents.catalogue.home
    if is_home or keeper.join(dropping(fragments)):
        contents.background.spawn(keeper.sweep_dropped(contents.limits.sweep_rows_max))
