"""How rules of subscriptions come, change and go: which may be added, when they began, and who manages them.

A rule counts for messages published after it was added (T-8). What may be added is told by the checks (E-3,
E-70…E-74, T-36, T-42). `SubscriptionRules` is for whoever manages rules: read, added, replaced, removed. A change
runs to its end even when whoever asked has gone away.

Theory of operation of beginnings: when a rule began, in the numbers of the subscriptions that a topic's history is
captured through (E-70). A subscription numbers its copies without gaps, and all copies of a publish join one
batch. So the last number that such a subscription has given out, at the moment a rule begins to select, parts its
history: what bears this number or a lower one was published before the rule, everything behind it the rule has
seen. The topic's own numbers do not tell: a scheduled message bears one long before it is published.

A rule is written down before it selects, so that no copy is ever made by a rule that does not exist. The numbers
are taken in the same step in which it enters the selection, their stores are flushed, and then its row is written
once more with them: no number in a row is ever given out again. Between the two its beginning is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from busway.broker.namespace.catalogue import DECIDED_KEY, DecidedRules, Text
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.entity_table import EntityTable
from busway.broker.namespace.rule_table import Beginnings, RuleRow
from busway.broker.transaction.rules import ChangedRules, RuleStep, RuleWork
from busway.model.description_checks import check_rule_text
from busway.model.descriptions import SubscriptionDescription
from busway.model.entity_path import already_exists, not_found, path_key, shown, topic_key_of
from busway.model.errors import BrokerError, ServerBusy, TooManyCorrelationFilters, TooManySqlFilters
from busway.model.limits import Limits
from busway.rules.rule import CorrelationFilter, Rule
from busway.store.contract import StoreError


def check_new_rules(
    namespace_name: str, entities: EntityTable, rows: Sequence[RuleRow], limits: Limits
) -> None:
    """Raises when one of these cannot be added."""
    seen: set[str] = set()
    for row in rows:
        if row.row_key in seen or entities.rules.get(row.subscription_key, row.key) is not None:
            found = entities.rows.get(row.subscription_key)
            path = row.subscription_key if found is None else found.description.path
            raise already_exists(namespace_name, f"{path}/Rules/{row.rule.name}")
        seen.add(row.row_key)
        check_rule_text(row.rule, limits)
    by_topic: dict[str, list[RuleRow]] = {}
    for row in rows:
        by_topic.setdefault(topic_key_of(row.subscription_key), []).append(row)
    for topic_key, added in by_topic.items():
        check_filter_counts(entities, topic_key, [row.rule for row in added], limits)


def check_filter_counts(entities: EntityTable, topic_key: str, added: Sequence[Rule], limits: Limits) -> None:
    """E-72: a topic has a bounded number of filters of each kind."""
    correlation = sum(isinstance(rule.filter, CorrelationFilter) for rule in added)
    sql = len(added) - correlation
    present_sql, present_correlation = entities.rules.filter_counts(topic_key)
    if sql and present_sql + sql > limits.sql_filters_per_topic_max:
        raise TooManySqlFilters(
            f"The topic {shown(topic_key)} has {present_sql} of at most {limits.sql_filters_per_topic_max} SQL"
            " filters; no more can be added."
        )
    if correlation and present_correlation + correlation > limits.correlation_filters_per_topic_max:
        raise TooManyCorrelationFilters(
            f"The topic {shown(topic_key)} has {present_correlation} of at most"
            f" {limits.correlation_filters_per_topic_max} correlation filters; no more can be added."
        )


_log = logging.getLogger("busway.namespace")


def last_published(contents: NamespaceContents, topic_key: str) -> int:
    """The topic's last number: what comes behind it is seen by a new rule (E-70)."""
    row = contents.entities.rows.get(topic_key)
    return 0 if row is None else _last_numbers(contents, row)[0]


def beginnings_of_new(contents: NamespaceContents, topic_key: str) -> Beginnings | None:
    """Of a rule that will begin when it is written: not known yet, unless there is nothing to note."""
    return None if _beginnings_now(contents, topic_key) else ()


async def note_beginnings(contents: NamespaceContents, begun: Sequence[RuleRow]) -> None:
    """They have entered the selection in this very step. What cannot be noted stays unknown."""
    noted = [
        replace(rule, beginnings=_beginnings_now(contents, topic_key_of(rule.subscription_key)))
        for rule in begun
        if rule.beginnings is None
    ]
    if not noted:
        return
    try:
        for rule in noted:
            await _make_durable(contents, topic_key_of(rule.subscription_key), rule.beginnings or ())
        rows = contents.catalogue.rows
        await contents.write({rule.row_key: rule.text(rows[rule.row_key]) for rule in noted})
    except BrokerError as error:
        _log.warning("When new rules began could not be noted: %s", error.sentence)
        return
    for rule in noted:
        contents.entities.rules.put(topic_key_of(rule.subscription_key), rule)


def shown_beginnings(contents: NamespaceContents, subscription: EntityRow) -> dict[str, object]:
    """When the rules of a subscription began, for people and programs. Where a captured subscription is missing the
    rule is older than it; null: nobody knows."""
    captured = _captured(contents, topic_key_of(subscription.key))
    return {
        "fragments": len(subscription.shares),
        "captured": {
            _name(row): {
                "createdAtMs": row.description.created_at_ms,
                "lastNumbers": _last_numbers(contents, row),
            }
            for row in captured
        },
        "rules": [
            {"name": rule.rule.name, "began": _began(rule.beginnings, captured)}
            for rule in contents.entities.rules.of(subscription.key)
        ],
    }


def _captured(contents: NamespaceContents, topic_key: str) -> list[EntityRow]:
    """The topic's subscriptions that its history is captured through."""
    return [row for row in contents.entities.subscriptions(topic_key) if _captures_history(row)]


def _captures_history(row: EntityRow) -> bool:
    description = row.description
    return isinstance(description, SubscriptionDescription) and description.captures_history


def _key(row: EntityRow) -> str:
    """A name that is created again is another subscription (E-86)."""
    return f"{row.key}@{row.incarnation}"


def _beginnings_now(contents: NamespaceContents, topic_key: str) -> Beginnings:
    """Of a rule that begins now. Without a captured subscription there is nothing to note."""
    return tuple((_key(row), _last_numbers(contents, row)) for row in _captured(contents, topic_key))


def _last_numbers(contents: NamespaceContents, row: EntityRow) -> tuple[int, ...]:
    """By fragment; 0 where the store is away."""
    counters = [contents.keepers[share.store_name].counters.get(share.main) for share in row.shares]
    return tuple(0 if each is None else each.last_counter for each in counters)


def _began(noted: Beginnings | None, captured: list[EntityRow]) -> dict[str, list[int]] | None:
    if noted is None:
        return None
    known = dict(noted)
    return {_name(row): list(known[_key(row)]) for row in captured if _key(row) in known}


def _name(row: EntityRow) -> str:
    return row.description.path.rpartition("/")[2]


async def _make_durable(contents: NamespaceContents, topic_key: str, noted: Beginnings) -> None:
    """Everything that bears a number up to those. Raises ServerBusy. The home's own commit does it for the home."""
    row = contents.entities.rows.get(topic_key)
    if row is None or not noted:
        return
    for name in row.store_names:
        if name == contents.catalogue.home.name:
            continue
        try:
            await contents.keepers[name].store.flush()
        except StoreError as error:
            raise ServerBusy(
                f"The store {name} failed: nothing was changed. Please try again later."
            ) from error


@dataclass(frozen=True)
class _Done:
    """One change of a rule, in memory so far. The texts are those of its row in the catalogue."""

    subscription: EntityRow
    row: RuleRow
    before: Text
    #: None: it was removed.
    after: Text


class RuleChanges:
    """How rules come, change and go. A rule counts for messages published after it was added (T-8)."""

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


class SubscriptionRules:
    """Each verb raises EntityNotFound when there is no such subscription."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents
        self._table = contents.entities.rules
        self._changes = RuleChanges(contents)
        #: For those who change rules in a transaction (T-13).
        self.work = self._changes.work

    def of(self, subscription_path: str) -> list[Rule]:
        """`$Default` first, then in order of creation, as a file has them."""
        row = self._changes.subscription(subscription_path)
        return [entry.rule for entry in self._table.of(row.key)]

    def by_name(self, subscription_path: str, skip: int, top: int) -> list[Rule]:
        """E-64: a page of them, as clients see them."""
        row = self._changes.subscription(subscription_path)
        return [entry.rule for entry in self._table.by_name(row.key, skip, top)]

    def get(self, subscription_path: str, name: str) -> Rule | None:
        row = self._changes.subscription(subscription_path)
        found = self._table.get(row.key, path_key(name))
        return None if found is None else found.rule

    def beginnings(self, subscription_path: str) -> dict[str, object]:
        """When each rule of the subscription began to apply."""
        return shown_beginnings(self._contents, self._changes.subscription(subscription_path))

    def filter_counts(self, topic_path: str) -> tuple[int, int]:
        """How many SQL and how many correlation filters the topic has (E-72)."""
        return self._table.filter_counts(path_key(topic_path))

    async def add(self, subscription_path: str, rule: Rule) -> Rule:
        """Raises EntityAlreadyExists, BadArgument for a text that is not valid (T-11, T-36)."""
        return await self._contents.background.finish(self._changes.add(subscription_path, rule))

    async def replace(self, subscription_path: str, rule: Rule) -> Rule:
        """Another filter or action under the same name; it keeps its place and its time."""
        return await self._contents.background.finish(self._changes.replace(subscription_path, rule))

    async def remove(self, subscription_path: str, name: str) -> None:
        await self._contents.background.finish(self._changes.remove(subscription_path, name))
