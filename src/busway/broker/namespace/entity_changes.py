"""How entities come, change and go: queues, topics, subscriptions.

Theory of operation. Changes wait for one another (`changing`) and run to their end even when whoever asked has
gone away. A change is made when the catalogue's home has it; only then memory follows. Fragments of a new entity
are committed in their store before its row names them, and dropped after the row is gone; what a crash leaves
between the two belongs to nobody and is dropped when its store is opened next. The fragments of a topic's
subscriptions lie beside its own, and a topic goes with everything it has in one step (E-65).

A partitioned entity has fragments in several stores, all under one row (P-60): it is created when all of these are in
service, or not at all; an update needs only the home, because descriptions lie nowhere else; and what a deletion
cannot reach just now belongs to nobody and goes when its store is back.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from busway.broker.description_checks import PREMIUM, check_creation, check_update, with_fragments
from busway.broker.descriptions import (
    FOREVER_MS,
    KIND_NAMES,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from busway.broker.entity_path import (
    DEAD_LETTER_KEYWORD,
    already_exists,
    not_found,
    path_key,
    shown,
    topic_key_of,
)
from busway.broker.errors import (
    BadArgument,
    BrokerError,
    EntityAlreadyExists,
    EntityUpdated,
    ForwardTargetNotFound,
    QuotaExceeded,
    ServerBusy,
    StoreOutcomeUnknown,
    TooManySubscriptions,
)
from busway.broker.forward.send_via import is_transfer_key, transfer_description, transfer_key
from busway.broker.forward.transfers import Place
from busway.broker.fragment.receiver import Attachment
from busway.broker.namespace.catalogue_rows import NO_FRAGMENT, EntityRow, Share
from busway.broker.namespace.contents import Join, NamespaceContents, dropping
from busway.broker.namespace.entity_table import routes
from busway.broker.namespace.placement import choose_store, spread_over
from busway.broker.namespace.rule_beginnings import beginnings_of_new, last_published, note_beginnings
from busway.broker.namespace.rule_checks import check_new_rules
from busway.broker.namespace.rule_rows import RuleRow
from busway.broker.sas_keys import completed_rules
from busway.broker.store_keeper import StoreKeeper
from busway.rules.rule import DEFAULT_RULE_NAME, Rule, TrueFilter
from busway.store.contract import (
    CommitBatch,
    Counters,
    FragmentKey,
    FragmentRow,
    StoreError,
    first_number_base,
)

_log = logging.getLogger("busway.namespace")


@dataclass(frozen=True)
class NewEntity:
    """What somebody wants to exist. `rules` are those of a subscription; with none it gets `$Default` (E-64)."""

    description: Description
    rules: tuple[Rule, ...] = ()


class EntityChanges:
    """Each verb is awaited to its end; `BackgroundWork.finish` sees to that."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        contents.entities.transfers.on_certain = self.certain

    # -- creation

    async def create(self, wanted: Sequence[NewEntity]) -> list[Description]:
        """All of them or none. Topics may come together with their subscriptions."""
        contents = self._contents
        async with contents.changing:
            self._check_creations(wanted)
            completed = [
                replace(new, description=self._completed(new.description)) for new in _topics_first(wanted)
            ]
            rows = self._placed([new.description for new in completed])
            self._check_forwarding(rows)
            rules = self._first_rules(completed, rows)
            await self._create_fragments(rows)
            texts = {row.row_key: row.text(None) for row in rows}
            texts.update({rule.row_key: rule.text(None) for rule in rules})
            await contents.write(texts, _creating(rows, contents.catalogue.home.name))
            for row in rows:
                self._put_new(row)
                self._record("Create", row.description)
            for rule in rules:
                contents.entities.rules.put(topic_key_of(rule.subscription_key), rule)
            await note_beginnings(contents, rules)
        for row in rows:
            contents.auto_delete.watch(row.key)
        return [row.description for row in rows]

    async def create_transfer_queue(self, via: EntityRow) -> None:
        """TX-3: beside the entity that messages are sent via; it is deleted with it."""
        contents = self._contents
        async with contents.changing:
            key = transfer_key(via.key)
            present = contents.entities.rows.get(via.key)
            if present is None or present.incarnation != via.incarnation or key in contents.entities.rows:
                return
            via = present  # perhaps updated meanwhile
            planned = {name: _Planned(keeper) for name, keeper in contents.keepers.items()}
            away = next((name for name in via.store_names if not planned[name].is_open), None)
            if away is not None:
                raise ServerBusy(
                    f"The store {away} of {shown(via.description.path)} is not available just now."
                )
            shares = tuple(planned[share.store_name].share(has_dead_letters=True) for share in via.shares)
            description = transfer_description(via.description)
            row = EntityRow(key, description, shares, via.is_partitioned, contents.catalogue.version + 1)
            await self._create_fragments([row])
            await contents.write(
                {row.row_key: row.text(None)}, _creating([row], contents.catalogue.home.name)
            )
            self._put_new(row)

    def _put_new(self, row: EntityRow) -> None:
        for index, share in enumerate(row.shares):
            for key in share.fragments:
                self._contents.keepers[share.store_name].counters[key] = _first_counters(index)
        self._contents.entities.put(row)

    def _drop_created(self, rows: list[EntityRow], store_names: set[str]) -> None:
        """No row names them, certainly. Where that fails now they go when their store is opened next."""
        shares = [share for row in rows for share in row.shares]
        for name in store_names:
            keys = [key for share in shares if share.store_name == name for key in share.fragments]
            if keys:
                self._contents.keepers[name].join(dropping(keys))

    def _check_creations(self, wanted: Sequence[NewEntity]) -> None:
        contents = self._contents
        keys: set[str] = set()
        entities = contents.entities.entity_count() + contents.hubs.entity_count()
        topics = {path_key(new.description.path) for new in wanted if _is_topic(new.description)}
        for new in wanted:
            description = new.description
            # Rules may still lack their keys; they are checked when they are complete.
            check_creation(_without_rules(description), contents.limits)
            key = path_key(description.path)
            if key in keys or key in contents.entities.rows or contents.hubs.kind_of(key) is not None:
                raise already_exists(contents.name, description.path)
            keys.add(key)
            if isinstance(description, SubscriptionDescription):
                self._check_topic(description, topics)
            else:
                self._check_above(description.path)
                entities += 1
        self._check_subscription_counts(wanted)
        self._check_partitioned_count(wanted)
        if entities > contents.limits.entities_max:
            raise QuotaExceeded(
                f"The namespace may have {contents.limits.entities_max} entities; no more can be created."
            )

    def _check_above(self, path: str) -> None:
        """Whatever lies below a hub's name may be an address of the hub: the key of the one would open the other."""
        top = path.partition("/")[0]
        kind = self._contents.hubs.kind_of(path_key(top))
        if kind is not None:
            raise EntityAlreadyExists(
                f"The name {shown(path)} cannot be used: it lies below {kind.removeprefix('an ')} {shown(top)}."
            )

    def _check_partitioned_count(self, wanted: Sequence[NewEntity]) -> None:
        """L-2; a partitioned namespace, as Premium ones are, knows no such limit."""
        limits = self._contents.limits
        if limits.namespace_partitions or limits.sku == PREMIUM:
            return
        added = sum(_is_partitioned(new.description) for new in wanted)
        if not added:
            return
        rows = self._contents.entities.rows.items()
        present = sum(_is_partitioned(row.description) for key, row in rows if not is_transfer_key(key))
        if present + added > limits.partitioned_entities_max:
            raise QuotaExceeded(
                f"The namespace has {present} of at most {limits.partitioned_entities_max} entities with"
                " EnablePartitioning == true; no more can be created."
            )

    def _check_topic(self, description: SubscriptionDescription, new_topics: set[str]) -> None:
        key = path_key(description.topic_path)
        row = self._contents.entities.rows.get(key)
        if key not in new_topics and (row is None or not _is_topic(row.description)):
            raise not_found(self._contents.name, description.topic_path)

    def _check_subscription_counts(self, wanted: Sequence[NewEntity]) -> None:
        most = self._contents.limits.subscriptions_per_topic_max
        added: dict[str, int] = {}
        for new in wanted:
            if isinstance(new.description, SubscriptionDescription):
                key = path_key(new.description.topic_path)
                added[key] = added.get(key, 0) + 1
        for key, count in added.items():
            if len(self._contents.entities.subscriptions(key)) + count > most:
                raise TooManySubscriptions(
                    f"The topic {shown(key)} has {len(self._contents.entities.subscriptions(key))} of at most"
                    f" {most} subscriptions; no more can be created."
                )

    def _completed(self, wanted: Description) -> Description:
        now_ms = self._contents.clock.wall_ms()
        stamped = replace(wanted, created_at_ms=now_ms, updated_at_ms=now_ms)
        if isinstance(stamped, SubscriptionDescription):
            completed: Description = _kept_alive(stamped)
        else:
            rules = completed_rules(stamped.authorization_rules, (), self._contents.entropy, now_ms)
            completed = with_fragments(replace(stamped, authorization_rules=rules), self._contents.limits)
        check_creation(completed, self._contents.limits)
        return completed

    def _placed(self, descriptions: list[Description]) -> list[EntityRow]:
        contents = self._contents
        rows: dict[str, EntityRow] = {}
        planned = {name: _Planned(keeper) for name, keeper in contents.keepers.items()}
        for description in descriptions:
            key = path_key(description.path)
            if isinstance(description, SubscriptionDescription):
                topic_key = path_key(description.topic_path)
                topic = rows[topic_key] if topic_key in rows else contents.entities.rows[topic_key]
                stores = [planned[share.store_name] for share in topic.shares]
                is_partitioned = topic.is_partitioned
                away = next((store.name for store in stores if not store.is_open), None)
                if away is not None:
                    raise ServerBusy(f"The store {away} of the topic is not available just now.")
            elif description.enable_partitioning:
                stores = spread_over(list(planned.values()), description.fragment_count)
                is_partitioned = True
            else:
                stores = [choose_store(planned.values())]
                is_partitioned = False
            shares = tuple(store.share(has_dead_letters=not _is_topic(description)) for store in stores)
            rows[key] = EntityRow(key, description, shares, is_partitioned, contents.catalogue.version + 1)
        return list(rows.values())

    def _first_rules(self, completed: Sequence[NewEntity], rows: Sequence[EntityRow]) -> list[RuleRow]:
        made: list[RuleRow] = []
        now_ms = self._contents.clock.wall_ms()
        for new, row in zip(completed, rows, strict=True):
            if isinstance(row.description, SubscriptionDescription):
                rules = new.rules or (Rule(DEFAULT_RULE_NAME, TrueFilter()),)
                topic_key = topic_key_of(row.key)
                began = last_published(self._contents, topic_key)
                beginnings = beginnings_of_new(self._contents, topic_key)
                for order, rule in enumerate(rules, 1):
                    made.append(
                        RuleRow(row.key, replace(rule, created_at_ms=now_ms), order, began, beginnings)
                    )
        check_new_rules(self._contents.name, self._contents.entities, made, self._contents.limits)
        return made

    async def _create_fragments(self, rows: list[EntityRow]) -> None:
        """In the stores other than the home; there they join the row's own batch."""
        home = self._contents.catalogue.home.name
        made: set[str] = set()
        for name in sorted({share.store_name for row in rows for share in row.shares} - {home}):
            try:
                await self._contents.keepers[name].commit(_creating(rows, name))
                made.add(name)
            except StoreError as error:
                self._drop_created(rows, made)
                raise ServerBusy(
                    f"The store {name} failed: nothing was created. Please try again."
                ) from error

    # -- update

    async def update(self, wanted: Description) -> Description:
        contents = self._contents
        async with contents.changing:
            row = self._found(wanted.path)
            present = row.description
            now_ms = self._contents.clock.wall_ms()
            kept = self._checked_update(present, wanted, now_ms)
            changed = replace(row, description=replace(kept, updated_at_ms=now_ms))
            self._check_forwarding([changed])
            if routes(row.description) == routes(changed.description):
                await self._write(changed)
                contents.entities.put(changed)
            else:
                await self._turn(row, changed)
            self._record("Update", present)
        contents.auto_delete.watch(row.key)
        if _rules_of(kept) != _rules_of(present):
            contents.rights_changed()
        return changed.description

    async def _write(self, changed: EntityRow) -> None:
        rows = self._contents.catalogue.rows
        await self._contents.write({changed.row_key: changed.text(rows.get(changed.row_key))})

    async def _turn(self, row: EntityRow, changed: EntityRow) -> None:
        """Messages go elsewhere than before. That is built in when an entity is loaded, so it is loaded anew, from
        what is durable; whoever holds it attaches again (ERR-27)."""
        entities = self._contents.entities
        changed = entities.closed_for(row, changed)
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

    def certain(self, place: Place) -> None:
        """Less is in doubt about a fragment than its entity's row says."""
        self._contents.background.spawn(self._forget_doubts(place))

    async def _forget_doubts(self, place: Place) -> None:
        contents = self._contents
        async with contents.changing:
            found = contents.entities.without_doubts(*place)
            if found is None or not contents.catalogue.home.is_open:
                return  # what is left in the row is looked at again when the store is opened next
            row, changed = found
            try:
                await self._write(changed)
            except BrokerError as error:
                _log.warning(
                    "What is known of %s is written down later: %s", row.description.path, error.sentence
                )
            else:
                contents.entities.put(changed)

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

    def _checked_update(self, present: Description, wanted: Description, now_ms: int) -> Description:
        limits = self._contents.limits
        if isinstance(present, SubscriptionDescription) and isinstance(wanted, SubscriptionDescription):
            return check_update(present, _kept_alive(wanted), limits)
        if isinstance(present, QueueDescription) and isinstance(wanted, QueueDescription):
            rules = completed_rules(
                wanted.authorization_rules, present.authorization_rules, self._contents.entropy, now_ms
            )
            return check_update(present, replace(wanted, authorization_rules=rules), limits)
        if isinstance(present, TopicDescription) and isinstance(wanted, TopicDescription):
            rules = completed_rules(
                wanted.authorization_rules, present.authorization_rules, self._contents.entropy, now_ms
            )
            return check_update(present, replace(wanted, authorization_rules=rules), limits)
        raise BadArgument(
            f"{shown(present.path)} is a {KIND_NAMES[type(present)].lower()}, not a"
            f" {KIND_NAMES[type(wanted)].lower()}."
        )

    def _check_forwarding(self, rows: Sequence[EntityRow]) -> None:
        """F-2: the target must be a queue or a topic that exists, or comes into being with it. A queue may
        forward to itself and a subscription to its own topic: the limit of hops ends that (E-33, F-6)."""
        fresh = {row.key: row for row in rows}
        known = self._contents.entities.rows
        for row in rows:
            description = row.description
            if isinstance(description, TopicDescription):
                continue
            for name, target in (
                ("ForwardTo", description.forward_to),
                ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
            ):
                if target is None:
                    continue
                found = fresh.get(path_key(target)) or known.get(path_key(target))
                if found is None or isinstance(found.description, SubscriptionDescription):
                    raise ForwardTargetNotFound(
                        f"{name}: the entity {shown(target)} could not be found; create it first."
                    )

    # -- deletion

    async def delete(self, path: str) -> None:
        contents = self._contents
        async with contents.changing:
            row = self._found(path)
            await self._delete_row(row)
            self._record("Delete", row.description)
        contents.rights_changed()

    async def _delete_row(self, row: EntityRow) -> None:
        contents = self._contents
        rows = [*contents.entities.subscriptions(row.key), row] if _is_topic(row.description) else [row]
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
                self._contents.background.spawn(keeper.sweep_dropped(contents.limits.sweep_rows_max))

    async def delete_idle(self, row: EntityRow) -> None:
        """E-110. Looks again when its turn has come: the entity may have been used, or be another one."""
        contents = self._contents
        async with contents.changing:
            present = contents.entities.rows.get(row.key)
            if present is not row or not contents.auto_delete.is_due(row.key):
                return
            try:
                await self._delete_row(row)
            except BrokerError as error:
                self._record("AutoDelete Delete", row.description, status=error.sentence)
                return
            self._record("AutoDelete Delete", row.description)
        contents.rights_changed()

    async def delete_released(self, row: EntityRow) -> None:
        """It was made for links that have gone. Looks again when its turn has come: another one may hold it now."""
        contents = self._contents
        async with contents.changing:
            present = contents.entities.rows.get(row.key)
            if (
                present is None
                or present.incarnation != row.incarnation
                or contents.entities.is_held(present)
            ):
                return
            by = Release()
            contents.entities.end_by(present, by)
            try:
                await self._delete_row(present)
            except BrokerError as error:  # it has an AutoDeleteOnIdle
                self._record("Delete", present.description, status=error.sentence)
                return
            finally:
                contents.entities.spare(present, by)
            self._record("Delete", present.description)
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
            self._record("Delete", row.description)
        contents.rights_changed()

    # -- both

    def _found(self, path: str) -> EntityRow:
        row = self._contents.entities.rows.get(path_key(path))
        if row is None:
            raise not_found(self._contents.name, path)
        return row

    def _record(self, verb: str, description: Description, status: str = "Succeeded") -> None:
        """O-7: a line of the operations log."""
        event = f"{verb} {KIND_NAMES[type(description)]}"
        self._contents.operations.record(event, description.path, status=status)


class Release(Attachment):
    """Stands for the deletion of what nobody holds any more."""

    def evict(self, error: BrokerError) -> None:
        """It is gone, or its store is: whoever deletes it hears of that."""


class _Planned:
    """A store while several entities are being placed at once."""

    def __init__(self, keeper: StoreKeeper) -> None:
        self.keeper = keeper
        self.name = keeper.name
        self.is_open = keeper.is_open
        self.fragment_count = keeper.fragment_count

    def share(self, *, has_dead_letters: bool) -> Share:
        next_key = self.keeper.store.next_fragment_key
        self.fragment_count += 2 if has_dead_letters else 1
        return Share(self.name, next_key(), next_key() if has_dead_letters else NO_FRAGMENT)


def _is_topic(description: Description) -> bool:
    return isinstance(description, TopicDescription)


def _is_partitioned(description: Description) -> bool:
    return not isinstance(description, SubscriptionDescription) and description.enable_partitioning


def _topics_first(wanted: Sequence[NewEntity]) -> list[NewEntity]:
    """The others keep their order."""
    return sorted(wanted, key=lambda new: isinstance(new.description, SubscriptionDescription))


def _kept_alive(wanted: SubscriptionDescription) -> SubscriptionDescription:
    """E-112: forwarding is a receiver that never goes."""
    return wanted if wanted.forward_to is None else replace(wanted, auto_delete_on_idle_ms=FOREVER_MS)


def _without_rules(description: Description) -> Description:
    if isinstance(description, SubscriptionDescription):
        return description
    return replace(description, authorization_rules=())


def _rules_of(description: Description) -> object:
    return () if isinstance(description, SubscriptionDescription) else description.authorization_rules


def _creating(rows: Sequence[EntityRow], store_name: str) -> Join:
    """Their fragments in one store."""

    def join(batch: CommitBatch) -> None:
        for row in rows:
            path = row.description.path
            for index, share in enumerate(row.shares):
                if share.store_name == store_name:
                    owners = (path, f"{path}/{DEAD_LETTER_KEYWORD}")
                    for key, owner in zip(share.fragments, owners, strict=False):
                        batch.fragments_created.append(FragmentRow(key, owner, index, _first_counters(index)))

    return join


def _first_counters(fragment_index: int) -> Counters:
    counters = Counters()
    counters.last_counter = first_number_base(fragment_index)
    return counters
