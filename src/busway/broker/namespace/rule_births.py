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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from busway.broker.descriptions import SubscriptionDescription
from busway.broker.entity_path import topic_key_of
from busway.broker.errors import BrokerError, ServerBusy
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.store.contract import StoreError

if TYPE_CHECKING:
    from busway.broker.namespace.entity_changes import ChangeRoom
    from busway.broker.namespace.rule_rows import RuleRow

_log = logging.getLogger("busway.namespace")

#: Subscription, as `birth_key` names it → its last number in each fragment.
Births = tuple[tuple[str, tuple[int, ...]], ...]


def birth_key(row: EntityRow) -> str:
    """A name that is created again is another subscription (E-86)."""
    return f"{row.key}@{row.incarnation}"


def is_captured_through(row: EntityRow) -> bool:
    description = row.description
    return isinstance(description, SubscriptionDescription) and description.captures_history


def births(room: ChangeRoom, topic_key: str) -> Births:
    """Of a rule that begins now. Without a captured subscription there is nothing to remember."""
    return tuple(
        (birth_key(row), last_numbers(room, row))
        for row in room.entities.subscriptions(topic_key)
        if is_captured_through(row)
    )


def births_of_new(room: ChangeRoom, topic_key: str) -> Births | None:
    """Of a rule that will begin when it is written: not known yet, unless there is nothing to remember."""
    return None if births(room, topic_key) else ()


async def note_births(room: ChangeRoom, begun: Sequence[RuleRow]) -> None:
    """They have entered the selection in this very step. What cannot be noted stays unknown."""
    noted = [
        replace(rule, births=births(room, topic_key_of(rule.subscription_key)))
        for rule in begun
        if rule.births is None
    ]
    if not noted:
        return
    try:
        for rule in noted:
            await make_durable(room, topic_key_of(rule.subscription_key), rule.births or ())
        await room.write({rule.row_key: rule.text(room.catalogue.rows[rule.row_key]) for rule in noted})
    except BrokerError as error:
        _log.warning("When new rules began could not be noted: %s", error.sentence)
        return
    for rule in noted:
        room.entities.rules.put(topic_key_of(rule.subscription_key), rule)


def last_numbers(room: ChangeRoom, row: EntityRow) -> tuple[int, ...]:
    """By fragment; 0 where the store is away."""
    found: list[int] = []
    for share in row.shares:
        counters = room.keepers[share.store_name].counters.get(share.main)
        found.append(0 if counters is None else counters.last_counter)
    return tuple(found)


def beginnings(room: ChangeRoom, subscription: EntityRow) -> dict[str, object]:
    """When the rules of a subscription began, for people and programs. Where a captured subscription is missing the
    rule is older than it; null: nobody knows."""
    captured = [
        row for row in room.entities.subscriptions(topic_key_of(subscription.key)) if is_captured_through(row)
    ]
    return {
        "fragments": len(subscription.shares),
        "captured": {
            _name(row): {"createdAtMs": row.description.created_at_ms, "lastNumbers": last_numbers(room, row)}
            for row in captured
        },
        "rules": [
            {"name": rule.rule.name, "began": _began(rule.births, captured)}
            for rule in room.entities.rules.of(subscription.key)
        ],
    }


def _began(remembered: Births | None, captured: list[EntityRow]) -> dict[str, list[int]] | None:
    if remembered is None:
        return None
    known = dict(remembered)
    return {_name(row): list(known[birth_key(row)]) for row in captured if birth_key(row) in known}


def _name(row: EntityRow) -> str:
    return row.description.path.rpartition("/")[2]


async def make_durable(room: ChangeRoom, topic_key: str, remembered: Births) -> None:
    """Everything that bears a number up to those. Raises ServerBusy. The home's own commit does it for the home."""
    row = room.entities.rows.get(topic_key)
    if row is None or not remembered:
        return
    for name in row.store_names:
        if name == room.catalogue.home.name:
            continue
        try:
            await room.keepers[name].store.flush()
        except StoreError as error:
            raise ServerBusy(
                f"The store {name} failed: nothing was changed. Please try again later."
            ) from error


def births_json(remembered: Births | None) -> object:
    """For a rule's row; null where it is not known."""
    return None if remembered is None else {key: list(numbers) for key, numbers in remembered}


def births_of_json(data: Mapping[str, object]) -> Births | None:
    """None: not known. A row without them is of a time when nothing was captured."""
    found = data.get("births", {})
    if not isinstance(found, dict):
        return None
    return tuple((str(key), _numbers(numbers)) for key, numbers in found.items())


def _numbers(entry: object) -> tuple[int, ...]:
    listed = entry if isinstance(entry, list) else []
    return tuple(number for number in listed if isinstance(number, int))
