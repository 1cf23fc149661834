"""How rules come, change and go. A rule counts for messages published after it was added (T-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from busway.broker.descriptions import SubscriptionDescription
from busway.broker.entity_path import not_found, path_key, topic_key_of
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.entity_changes import ChangeRoom, published
from busway.broker.namespace.rule_births import births_of_new, note_births
from busway.broker.namespace.rule_checks import check_filter_counts, check_new_rules, check_rule_text
from busway.broker.namespace.rule_rows import RuleRow
from busway.clock import Clock
from busway.rules.rule import CorrelationFilter, Rule

if TYPE_CHECKING:
    from busway.broker.transaction.rules import RuleStep


class CarriedOut:
    """One change of a rule, in memory so far. The texts are those of its row in the catalogue."""

    __slots__ = ("after", "before", "row", "subscription")

    def __init__(self, subscription: EntityRow, row: RuleRow, before: str | None, after: str | None) -> None:
        self.subscription = subscription
        self.row = row
        self.before = before
        #: None: it was removed.
        self.after = after


class RuleChanges:
    def __init__(self, room: ChangeRoom, clock: Clock) -> None:
        self._room = room
        self._clock = clock

    async def add(self, subscription_path: str, rule: Rule) -> Rule:
        """Raises EntityAlreadyExists, BadArgument for a text that is not valid (T-11, T-36)."""
        room = self._room
        async with room.changing:
            subscription = self.subscription(subscription_path)
            row = self._new_row(subscription, rule)
            await self._begin(row)
            room.entities.touch(subscription, row.rule.created_at_ms)
            self._record("Create", subscription, rule.name)
        return row.rule

    def _new_row(self, subscription: EntityRow, rule: Rule) -> RuleRow:
        room = self._room
        order = room.entities.rules.next_order(subscription.key)
        stamped = replace(rule, created_at_ms=self._clock.wall_ms())
        topic_key = topic_key_of(subscription.key)
        row = RuleRow(
            subscription.key, stamped, order, published(room, topic_key), births_of_new(room, topic_key)
        )
        check_new_rules(room.name, room.entities, [row], room.limits)
        return row

    async def _begin(self, row: RuleRow) -> None:
        room = self._room
        await room.write({row.row_key: row.text(room.catalogue.rows.get(row.row_key))})
        room.entities.rules.put(topic_key_of(row.subscription_key), row)
        await note_births(room, [row])

    async def replace(self, subscription_path: str, rule: Rule) -> Rule:
        """Another filter or action under the same name; it keeps its place and its time."""
        room = self._room
        async with room.changing:
            subscription = self.subscription(subscription_path)
            present = self._found(subscription, rule.name)
            topic_key = topic_key_of(subscription.key)
            check_rule_text(rule, room.limits)
            if _is_correlation(rule) != _is_correlation(present.rule):
                check_filter_counts(room.entities, topic_key, [rule], room.limits)
            kept = replace(rule, name=present.rule.name, created_at_ms=present.rule.created_at_ms)
            row = replace(
                present,
                rule=kept,
                began_after=published(room, topic_key),
                births=births_of_new(room, topic_key),
            )
            await self._begin(row)
            room.entities.touch(subscription, self._clock.wall_ms())
            self._record("Update", subscription, rule.name)
        return kept

    async def remove(self, subscription_path: str, name: str) -> None:
        """Raises EntityNotFound."""
        room = self._room
        async with room.changing:
            subscription = self.subscription(subscription_path)
            row = self._found(subscription, name)
            await room.write({row.row_key: None})
            room.entities.rules.remove(topic_key_of(subscription.key), row)
            self._record("Delete", subscription, name)

    # -- in a transaction (T-13)

    @property
    def changing(self) -> asyncio.Lock:
        """Held from before the first `carry_out` until the changes are taken over or taken back."""
        return self._room.changing

    def check(self, rule: Rule) -> None:
        """Raises BadArgument for one that could never be added."""
        check_rule_text(rule, self._room.limits)

    def carry_out(self, step: RuleStep) -> CarriedOut:
        """In memory only. Raises as `add` and `remove` do, and ServerBusy without the catalogue's home."""
        room = self._room
        room.catalogue.check_changeable()
        subscription = self.subscription(step.subscription_path)
        topic_key = topic_key_of(subscription.key)
        if step.rule is None:
            row = self._found(subscription, step.name)
            room.entities.rules.remove(topic_key, row)
            return CarriedOut(subscription, row, room.catalogue.rows.get(row.row_key), None)
        row = self._new_row(subscription, step.rule)
        room.entities.rules.put(topic_key, row)
        return CarriedOut(subscription, row, room.catalogue.rows.get(row.row_key), row.text(None))

    def take_back(self, done: CarriedOut) -> None:
        """The last one first."""
        rules, topic_key = self._room.entities.rules, topic_key_of(done.subscription.key)
        if done.after is None:
            rules.put_back(topic_key, done.row)
        else:
            rules.remove(topic_key, done.row)

    def next_number(self) -> int:
        """For a decision: higher than those of all that were taken over."""
        return self._room.catalogue.version + 1

    def decided(self, store_name: str, text: str, carried_out: Sequence[CarriedOut]) -> None:
        """They are durable in that store."""
        room = self._room
        room.catalogue.decided_rules[store_name] = text
        for done in carried_out:
            room.entities.touch(done.subscription, self._clock.wall_ms())
            self._record("Delete" if done.after is None else "Create", done.subscription, done.row.rule.name)

    async def take_over(self) -> None:
        """What was decided becomes part of the catalogue. Raises ServerBusy, StoreOutcomeUnknown: it is tried again
        when the home is back."""
        room = self._room
        changes = room.decided_changes()
        if changes:
            await room.write(changes)

    def subscription(self, path: str) -> EntityRow:
        row = self._room.entities.rows.get(path_key(path))
        if row is None or not isinstance(row.description, SubscriptionDescription):
            raise not_found(self._room.name, path)
        return row

    def _found(self, subscription: EntityRow, name: str) -> RuleRow:
        row = self._room.entities.rules.get(subscription.key, path_key(name))
        if row is None:
            raise not_found(self._room.name, f"{subscription.description.path}/Rules/{name}")
        return row

    def _record(self, verb: str, subscription: EntityRow, name: str) -> None:
        self._room.operations.record(
            f"{verb} Rule", f"{subscription.description.path}/Rules/{name}", status="Succeeded"
        )


def _is_correlation(rule: Rule) -> bool:
    return isinstance(rule.filter, CorrelationFilter)
