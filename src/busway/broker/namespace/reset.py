"""A namespace made as new while clients use it: an empty bus for each test of a suite.

Theory of operation. A reset is one change of the catalogue, like the deletion of an entity, and waits for other
changes as they do: one commit at the home takes away the rows of all entities, rules, event hubs and keys, and drops
their fragments there; then memory follows, and whoever holds an entity is told that it is gone (E-86). Fragments in
other stores are dropped without waiting: no row names them any more, and what a crash leaves there belongs to nobody.
Their rows are swept in the background. Before the commit nothing has happened, after it nothing of them can be seen.

What is the namespace's own stays: its name and id, its stores, the root rule with its keys, and the marks that say
which rules of transactions were taken over already.
"""

from dataclasses import replace
from typing import Final

from busway.broker.namespace.catalogue import Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, STORE_PREFIX, NamespaceRow
from busway.broker.namespace.decided_rules import TAKEN_OVER_PREFIX
from busway.broker.namespace.namespace import Namespace
from busway.broker.sas_keys import ROOT_RULE_NAME
from busway.store.contract import CommitBatch, FragmentKey

_KEPT_PREFIXES: Final = (NAMESPACE_KEY, STORE_PREFIX, TAKEN_OVER_PREFIX)


async def make_new(namespace: Namespace) -> None:
    """To its end, even when whoever asked has gone. Raises ServerBusy when it could not be done whole."""
    await namespace.background.finish(_make_new(namespace))


async def _make_new(namespace: Namespace) -> None:
    for keeper in list(namespace.keepers.values()):
        if keeper.is_disabled:
            await namespace.enable_store(keeper.name)
    async with namespace.changing:
        changes = _without_entities(namespace)
        if changes:
            await _take_away(namespace, changes)
        namespace.operations.record("Reset Namespace", namespace.name)
    await namespace.contents.staged.forget_all()


def _without_entities(namespace: Namespace) -> Changes:
    rows = namespace.catalogue.rows
    changes: dict[str, str | None] = {key: None for key in rows if not key.startswith(_KEPT_PREFIXES)}
    present = NamespaceRow.parse(rows[NAMESPACE_KEY])
    root = tuple(rule for rule in present.rules if rule.name == ROOT_RULE_NAME)
    if root != present.rules:
        changes[NAMESPACE_KEY] = replace(present, rules=root).text(rows[NAMESPACE_KEY])
    return changes


async def _take_away(namespace: Namespace, changes: Changes) -> None:
    entities, home = namespace.entities, namespace.catalogue.home
    keys = list(entities.rows)
    dropped = {name: namespace.contents.keys_in(name) for name in namespace.keepers}
    await namespace.write(changes, lambda batch: _drop(batch, dropped[home.name]))
    namespace.adopt()
    for key in keys:
        namespace.auto_delete.forget(key)
    for name, fragments in dropped.items():
        _drop_there(namespace, name, fragments)
    namespace.runtime.namespace_size.recount()


def _drop_there(namespace: Namespace, store_name: str, fragments: set[FragmentKey]) -> None:
    keeper = namespace.keepers[store_name]
    if not fragments:
        return
    is_home = keeper is namespace.catalogue.home
    if is_home or keeper.join(lambda batch: _drop(batch, fragments)):
        namespace.background.spawn(keeper.sweep_dropped(namespace.limits.sweep_rows_max))


def _drop(batch: CommitBatch, fragments: set[FragmentKey]) -> None:
    batch.fragments_dropped.extend(fragments)
