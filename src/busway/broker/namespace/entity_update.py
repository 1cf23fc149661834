"""How entities change.

Theory of operation. An update needs only the catalogue's home, because descriptions lie nowhere else; when the home
has it, memory follows. Where messages go by themselves is built in when an entity is loaded: an update that turns
them elsewhere parks the entity and loads it anew, and nothing departs from it while that is written down
(`transfers`).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from busway.broker.forward.transfers import Doubt
from busway.broker.fragment.runtime import FragmentId
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.entity_creation import check_forward_targets
from busway.model.description_checks import check_update
from busway.model.descriptions import (
    KIND_NAMES,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    authorization_rules_of,
    completed_rules,
    never_idle,
    routes,
)
from busway.model.entity_path import not_found, path_key, shown
from busway.model.errors import BadArgument, BrokerError, EntityUpdated, StoreOutcomeUnknown
from busway.store.contract import StoreError

_log = logging.getLogger("busway.namespace")


class EntityUpdate:
    """Each verb is awaited to its end; `BackgroundWork.finish` sees to that."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        contents.entities.transfers.on_certain = self._certain

    async def update(self, wanted: Description) -> Description:
        contents = self._contents
        async with contents.changing:
            row = contents.entities.rows.get(path_key(wanted.path))
            if row is None:
                raise not_found(contents.name, wanted.path)
            present = row.description
            now_ms = contents.clock.wall_ms()
            checked = self._checked(present, wanted, now_ms)
            changed = replace(row, description=replace(checked, updated_at_ms=now_ms))
            check_forward_targets(contents, [changed])
            if routes(row.description) == routes(changed.description):
                await self._write(changed)
                contents.entities.put(changed)
            else:
                await self._turn(row, changed)
            contents.record("Update", present)
        contents.auto_delete.watch(row.key)
        if authorization_rules_of(checked) != authorization_rules_of(present):
            contents.rights_changed()
        return changed.description

    def _checked(self, present: Description, wanted: Description, now_ms: int) -> Description:
        limits, entropy = self._contents.limits, self._contents.entropy
        if isinstance(present, SubscriptionDescription) and isinstance(wanted, SubscriptionDescription):
            return check_update(present, never_idle(wanted), limits)
        if isinstance(present, QueueDescription) and isinstance(wanted, QueueDescription):
            rules = completed_rules(wanted.authorization_rules, present.authorization_rules, entropy, now_ms)
            return check_update(present, replace(wanted, authorization_rules=rules), limits)
        if isinstance(present, TopicDescription) and isinstance(wanted, TopicDescription):
            rules = completed_rules(wanted.authorization_rules, present.authorization_rules, entropy, now_ms)
            return check_update(present, replace(wanted, authorization_rules=rules), limits)
        raise BadArgument(
            f"{shown(present.path)} is a {KIND_NAMES[type(present)].lower()}, not a"
            f" {KIND_NAMES[type(wanted)].lower()}."
        )

    async def _write(self, changed: EntityRow) -> None:
        rows = self._contents.catalogue.rows
        await self._contents.write({changed.row_key: changed.text(rows.get(changed.row_key))})

    # -- messages that go elsewhere than before

    async def _turn(self, row: EntityRow, changed: EntityRow) -> None:
        """The entity is loaded anew, from what is durable; whoever holds it attaches again (ERR-27)."""
        entities = self._contents.entities
        changed = self._closed_for(row, changed)
        try:
            await self._write(changed)
        except StoreOutcomeUnknown:  # it stays closed until the home is back and tells
            raise
        except BaseException:
            entities.transfers.open_departures()
            raise
        entities.park(row.key, EntityUpdated())
        entities.transfers.open_departures()
        await self._load_anew(changed)

    def _closed_for(self, row: EntityRow, changed: EntityRow) -> EntityRow:
        """None of its messages, or of its dead letters, departs until `Transfers.open_departures`, and the changed
        row says what cannot be known about those that did."""
        contents, transfers = self._contents, self._contents.entities.transfers
        doubts = {
            (doubt.store_name, doubt.fragment, doubt.gone_to): doubt for doubt in self._doubts_left(row)
        }
        for part, (before, after) in enumerate(
            zip(routes(row.description), routes(changed.description), strict=True)
        ):
            if before is None or before == after:
                continue
            fragment_ids = [(share.store_name, share.fragments[part]) for share in row.shares]
            transfers.close_departures(fragment_ids)
            for store_name, key in fragment_ids:
                counters = contents.keepers[store_name].counters.get(key)
                number = None if counters is None else counters.last_counter
                stores = contents.entities.index.stores_of(before)
                for doubt in transfers.doubts((store_name, key), number, stores):
                    doubts[store_name, key, doubt.gone_to] = doubt
        return replace(changed, doubts=tuple(doubts.values()))

    def _doubts_left(self, row: EntityRow) -> tuple[Doubt, ...]:
        transfers = self._contents.entities.transfers
        return tuple(doubt for doubt in row.doubts if transfers.still_in_doubt(doubt))

    async def _load_anew(self, changed: EntityRow) -> None:
        """One that is parked."""
        entities = self._contents.entities
        try:
            for name in changed.store_names:
                if self._contents.keepers[name].is_open:
                    await self._contents.keepers[name].store.flush()
        except StoreError:  # then its keeper loads everything anew
            return
        finally:
            entities.unpark(changed.key)
            entities.put(changed)
        entities.load(changed)

    async def load_turned(self, turned: Sequence[EntityRow]) -> None:
        """The catalogue's home is back and tells of updates whose outcome was unknown: these entities are parked. The
        home does not wait for their stores, but the next change does."""
        async with self._contents.changing:
            for row in turned:
                present = self._contents.entities.rows.get(row.key)
                if present is None:  # deleted meanwhile: another of its name is not parked
                    self._contents.entities.unpark(row.key)
                else:
                    await self._load_anew(present)

    def _certain(self, fragment_id: FragmentId) -> None:
        """Less is in doubt about a fragment than its entity's row says."""
        self._contents.background.spawn(self._forget_doubts(fragment_id))

    async def _forget_doubts(self, fragment_id: FragmentId) -> None:
        contents = self._contents
        async with contents.changing:
            owner = contents.entities.index.owner(*fragment_id)
            if owner is None or not contents.catalogue.home.is_open:
                return  # what is left in the row is looked at again when the store is opened next
            row = owner[0]
            changed = replace(row, doubts=self._doubts_left(row))
            if changed == row:
                return
            try:
                await self._write(changed)
            except BrokerError as error:
                _log.warning(
                    "What is known of %s is written down later: %s", row.description.path, error.sentence
                )
            else:
                contents.entities.put(changed)
