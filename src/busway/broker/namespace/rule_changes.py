"""How rules come, change and go. A rule counts for messages published after it was added (T-8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.decided_rules import DECIDED_KEY, DecidedRules, Text
from busway.broker.namespace.rule_beginnings import beginnings_of_new, last_published, note_beginnings
from busway.broker.namespace.rule_checks import check_filter_counts, check_new_rules
from busway.broker.namespace.rule_rows import RuleRow
from busway.broker.transaction.rules import ChangedRules, RuleStep, RuleWork
from busway.model.description_checks import check_rule_text
from busway.model.descriptions import SubscriptionDescription
from busway.model.entity_path import not_found, path_key, topic_key_of
from busway.model.errors import BrokerError
from busway.rules.rule import CorrelationFilter, Rule


@dataclass(frozen=True)
class _Done:
    """One change of a rule, in memory so far. The texts are those of its row in the catalogue."""

    subscription: EntityRow
    row: RuleRow
    before: Text
    #: None: it was removed.
    after: Text


class RuleChanges:
    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        #: For those who change rules in a transaction (T-13).
        self.work = RuleWork(contents.changing, self._carry_out, self._take_over)

    async def add(self, subscription_path: str, rule: Rule) -> Rule:
        """Raises EntityAlreadyExists, BadArgument for a text that is not valid (T-11, T-36)."""
        contents = self._contents
        async with contents.changing:
            subscription = self.subscription(subscription_path)
            row = self._new_row(subscription, rule)
            await self._begin(row)
            contents.entities.counts.touch(subscription, row.rule.created_at_ms)
            self._record("Create", subscription, rule.name)
        return row.rule

    def _new_row(self, subscription: EntityRow, rule: Rule) -> RuleRow:
        contents = self._contents
        order = contents.entities.rules.next_order(subscription.key)
        stamped = replace(rule, created_at_ms=contents.clock.wall_ms())
        topic_key = topic_key_of(subscription.key)
        row = RuleRow(
            subscription.key,
            stamped,
            order,
            last_published(contents, topic_key),
            beginnings_of_new(contents, topic_key),
        )
        check_new_rules(contents.name, contents.entities, [row], contents.limits)
        return row

    async def _begin(self, row: RuleRow) -> None:
        contents = self._contents
        await contents.write({row.row_key: row.text(contents.catalogue.rows.get(row.row_key))})
        contents.entities.rules.put(topic_key_of(row.subscription_key), row)
        await note_beginnings(contents, [row])

    async def replace(self, subscription_path: str, rule: Rule) -> Rule:
        """Another filter or action under the same name; it keeps its place and its time."""
        contents = self._contents
        async with contents.changing:
            subscription = self.subscription(subscription_path)
            present = self._row_of(subscription, rule.name)
            topic_key = topic_key_of(subscription.key)
            check_rule_text(rule, contents.limits)
            if _is_correlation(rule) != _is_correlation(present.rule):
                check_filter_counts(contents.entities, topic_key, [rule], contents.limits)
            changed = replace(rule, name=present.rule.name, created_at_ms=present.rule.created_at_ms)
            row = replace(
                present,
                rule=changed,
                began_after=last_published(contents, topic_key),
                beginnings=beginnings_of_new(contents, topic_key),
            )
            await self._begin(row)
            contents.entities.counts.touch(subscription, contents.clock.wall_ms())
            self._record("Update", subscription, rule.name)
        return changed

    async def remove(self, subscription_path: str, name: str) -> None:
        """Raises EntityNotFound."""
        contents = self._contents
        async with contents.changing:
            subscription = self.subscription(subscription_path)
            row = self._row_of(subscription, name)
            await contents.write({row.row_key: None})
            contents.entities.rules.remove(topic_key_of(subscription.key), row)
            self._record("Delete", subscription, name)

    # -- in a transaction

    def _carry_out(self, steps: Sequence[RuleStep]) -> ChangedRules:
        """Raises as `add` and `remove` do, and ServerBusy without the catalogue's home; then nothing has changed."""
        done: list[_Done] = []
        try:
            for step in steps:
                done.append(self._carry_out_one(step))
        except BrokerError:
            self._take_back(done)
            raise
        texts: dict[str, tuple[Text, Text]] = {}
        for each in done:
            first = texts.get(each.row.row_key)
            texts[each.row.row_key] = (each.before if first is None else first[0], each.after)
        # Higher than the numbers of all that were taken over.
        text = DecidedRules(self._contents.catalogue.version + 1, texts).text()
        return ChangedRules(
            DECIDED_KEY,
            text,
            lambda: self._take_back(done),
            lambda store_name: self._note_decided(store_name, text, done),
        )

    def _carry_out_one(self, step: RuleStep) -> _Done:
        contents = self._contents
        contents.catalogue.check_changeable()
        subscription = self.subscription(step.subscription_path)
        topic_key = topic_key_of(subscription.key)
        if step.rule is None:
            row = self._row_of(subscription, step.name)
            contents.entities.rules.remove(topic_key, row)
            return _Done(subscription, row, contents.catalogue.rows.get(row.row_key), None)
        row = self._new_row(subscription, step.rule)
        contents.entities.rules.put(topic_key, row)
        return _Done(subscription, row, contents.catalogue.rows.get(row.row_key), row.text(None))

    def _take_back(self, done: list[_Done]) -> None:
        """The last one first."""
        rules = self._contents.entities.rules
        for each in reversed(done):
            topic_key = topic_key_of(each.subscription.key)
            if each.after is None:
                rules.put_back(topic_key, each.row)
            else:
                rules.remove(topic_key, each.row)

    def _note_decided(self, store_name: str, text: str, done: Sequence[_Done]) -> None:
        contents = self._contents
        contents.catalogue.decided_rules[store_name] = text
        for each in done:
            contents.entities.counts.touch(each.subscription, contents.clock.wall_ms())
            self._record("Delete" if each.after is None else "Create", each.subscription, each.row.rule.name)

    async def _take_over(self) -> None:
        """Raises ServerBusy, StoreOutcomeUnknown: it is tried again when the home is back."""
        changes = self._contents.decided_changes()
        if changes:
            await self._contents.write(changes)

    # -- both

    def subscription(self, path: str) -> EntityRow:
        """Raises EntityNotFound."""
        row = self._contents.entities.rows.get(path_key(path))
        if row is None or not isinstance(row.description, SubscriptionDescription):
            raise not_found(self._contents.name, path)
        return row

    def _row_of(self, subscription: EntityRow, name: str) -> RuleRow:
        row = self._contents.entities.rules.get(subscription.key, path_key(name))
        if row is None:
            raise not_found(self._contents.name, f"{subscription.description.path}/Rules/{name}")
        return row

    def _record(self, verb: str, subscription: EntityRow, name: str) -> None:
        self._contents.operations.record(
            f"{verb} Rule", f"{subscription.description.path}/Rules/{name}", status="Succeeded"
        )


def _is_correlation(rule: Rule) -> bool:
    return isinstance(rule.filter, CorrelationFilter)
