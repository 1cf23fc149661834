"""Which entities may come beside those that are there: names, numbers, topics and targets of forwards."""

from collections.abc import Sequence
from dataclasses import replace

from busway.broker.forward.send_via import is_transfer_key
from busway.broker.namespace.catalogue_rows import EntityRow
from busway.broker.namespace.contents import NamespaceContents
from busway.model.description_checks import PREMIUM, check_creation
from busway.model.descriptions import Description, NewEntity, SubscriptionDescription, TopicDescription
from busway.model.entity_path import already_exists, not_found, path_key, shown
from busway.model.errors import (
    EntityAlreadyExists,
    ForwardTargetNotFound,
    QuotaExceeded,
    TooManySubscriptions,
)


def check_new_entities(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    """Raises when not all of them can come together."""
    keys: set[str] = set()
    rows = contents.entities.rows
    topics = {path_key(new.description.path) for new in wanted if is_topic(new.description)}
    count = contents.entities.index.entity_count() + contents.hubs.entity_count()
    for new in wanted:
        description = new.description
        # Rules may still lack their keys; they are checked when they are complete.
        check_creation(_without_rules(description), contents.limits)
        key = path_key(description.path)
        if key in keys or key in rows or contents.hubs.kind_of(key) is not None:
            raise already_exists(contents.name, description.path)
        keys.add(key)
        if isinstance(description, SubscriptionDescription):
            _check_topic(contents, description, topics)
        else:
            _check_above(contents, description.path)
            count += 1
    _check_subscription_counts(contents, wanted)
    _check_partitioned_count(contents, wanted)
    if count > contents.limits.entities_max:
        raise QuotaExceeded(
            f"The namespace may have {contents.limits.entities_max} entities; no more can be created."
        )


def check_forward_targets(contents: NamespaceContents, rows: Sequence[EntityRow]) -> None:
    """F-2: the target must be a queue or a topic that exists, or comes into being with it. A queue may
    forward to itself and a subscription to its own topic: the limit of hops ends that (E-33, F-6)."""
    fresh = {row.key: row for row in rows}
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
            found = fresh.get(path_key(target)) or contents.entities.rows.get(path_key(target))
            if found is None or isinstance(found.description, SubscriptionDescription):
                raise ForwardTargetNotFound(
                    f"{name}: the entity {shown(target)} could not be found; create it first."
                )


def is_topic(description: Description) -> bool:
    return isinstance(description, TopicDescription)


def _check_above(contents: NamespaceContents, path: str) -> None:
    """Whatever lies below a hub's name may be an address of the hub: the key of the one would open the other."""
    top = path.partition("/")[0]
    kind = contents.hubs.kind_of(path_key(top))
    if kind is not None:
        raise EntityAlreadyExists(
            f"The name {shown(path)} cannot be used: it lies below {kind.removeprefix('an ')} {shown(top)}."
        )


def _check_partitioned_count(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    """L-2; a partitioned namespace, as Premium ones are, knows no such limit."""
    limits = contents.limits
    if limits.namespace_partitions or limits.sku == PREMIUM:
        return
    added = sum(_is_partitioned(new.description) for new in wanted)
    if not added:
        return
    rows = contents.entities.rows.items()
    present = sum(_is_partitioned(row.description) for key, row in rows if not is_transfer_key(key))
    if present + added > limits.partitioned_entities_max:
        raise QuotaExceeded(
            f"The namespace has {present} of at most {limits.partitioned_entities_max} entities with"
            " EnablePartitioning == true; no more can be created."
        )


def _check_topic(
    contents: NamespaceContents, description: SubscriptionDescription, new_topics: set[str]
) -> None:
    key = path_key(description.topic_path)
    row = contents.entities.rows.get(key)
    if key not in new_topics and (row is None or not is_topic(row.description)):
        raise not_found(contents.name, description.topic_path)


def _check_subscription_counts(contents: NamespaceContents, wanted: Sequence[NewEntity]) -> None:
    most = contents.limits.subscriptions_per_topic_max
    added: dict[str, int] = {}
    for new in wanted:
        if isinstance(new.description, SubscriptionDescription):
            key = path_key(new.description.topic_path)
            added[key] = added.get(key, 0) + 1
    for key, count in added.items():
        present = len(contents.entities.subscriptions(key))
        if present + count > most:
            raise TooManySubscriptions(
                f"The topic {shown(key)} has {present} of at most {most} subscriptions; no more can be created."
            )


def _is_partitioned(description: Description) -> bool:
    return not isinstance(description, SubscriptionDescription) and description.enable_partitioning


def _without_rules(description: Description) -> Description:
    if isinstance(description, SubscriptionDescription):
        return description
    return replace(description, authorization_rules=())
