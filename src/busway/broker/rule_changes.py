"""How rules come, change and go. A rule counts for messages published after it was added (T-8)."""

from dataclasses import replace

from busway.broker.catalogue_rows import EntityRow
from busway.broker.descriptions import SubscriptionDescription
from busway.broker.entity_changes import ChangeRoom, published
from busway.broker.entity_path import not_found, path_key, topic_key_of
from busway.broker.rule_checks import check_filter_counts, check_new_rules, check_rule_text
from busway.broker.rule_rows import RuleRow
from busway.clock import Clock
from busway.rules.rule import CorrelationFilter, Rule


class RuleChanges:
    def __init__(self, room: ChangeRoom, clock: Clock) -> None:
        self._room = room
        self._clock = clock

    async def add(self, subscription_path: str, rule: Rule) -> Rule:
        """Raises EntityAlreadyExists, BadArgument for a text that is not valid (T-11, T-36)."""
        room = self._room
        async with room.changing:
            subscription = self.subscription(subscription_path)
            topic_key = topic_key_of(subscription.key)
            now_ms = self._clock.wall_ms()
            order = room.entities.rules.next_order(subscription.key)
            stamped = replace(rule, created_at_ms=now_ms)
            row = RuleRow(subscription.key, stamped, order, published(room, topic_key))
            check_new_rules(room.entities, [row], room.limits)
            await room.write({row.row_key: row.text(None)})
            room.entities.rules.put(topic_key, row)
            room.entities.touch(subscription, now_ms)
            self._record("Create", subscription, rule.name)
        return stamped

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
            row = replace(present, rule=kept, began_after=published(room, topic_key))
            await room.write({row.row_key: row.text(room.catalogue.rows.get(row.row_key))})
            room.entities.rules.put(topic_key, row)
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
