"""When a rule began, in the numbers of the subscriptions that a topic's history is captured through (E-70).

Theory of operation. A subscription numbers its copies without gaps, and all copies of a publish join one batch. So
the last number that such a subscription has given out, at the moment a rule begins to select, parts its history: what
bears this number or a lower one was published before the rule, everything behind it the rule has seen. The topic's
own numbers do not tell: a scheduled message bears one long before it is published.

A rule is written down before it selects, so that no copy is ever made by a rule that does not exist. The numbers are
taken in the same step in which it enters the selection, their stores are flushed, and then its row is written once
more with them: no number in a row is ever given out again. Between the two its beginning is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.namespace.rule_rows import Beginnings, RuleRow
from busway.model.descriptions import SubscriptionDescription
from busway.model.entity_path import topic_key_of
from busway.model.errors import BrokerError, ServerBusy
from busway.store.contract import StoreError

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
