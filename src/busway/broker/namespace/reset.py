"""A namespace made as new while clients use it: an empty bus for each test of a suite.

Theory of operation. A reset is one change of the catalogue, like the deletion of an entity, and waits for other
changes as they do: one commit at the home takes away the rows of all entities, rules, event hubs and keys, and drops
their fragments there; then memory follows, and whoever holds an entity is told that it is gone (E-86). Fragments in
other stores are dropped without waiting: no row names them any more, and what a crash leaves there belongs to nobody.
Their rows are swept in the background. Before the commit nothing has happened, after it nothing of them can be seen.

What is the namespace's own stays: its name and id, its stores, the root rule with its keys, and the marks that say
which rules of transactions were taken over already.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from busway.broker.namespace.catalogue import Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, STORE_PREFIX, NamespaceRow
from busway.broker.namespace.contents import NamespaceContents, dropping
from busway.broker.namespace.decided_rules import TAKEN_OVER_PREFIX
from busway.broker.namespace.stores import NamespaceStores
from busway.model.sas_keys import ROOT_RULE_NAME
from busway.store.contract import FragmentKey

#: Rows that stay.
_LASTING_PREFIXES: Final = (NAMESPACE_KEY, STORE_PREFIX, TAKEN_OVER_PREFIX)


async def make_new(contents: NamespaceContents, stores: NamespaceStores, adopt: Callable[[], None]) -> None:
    """`adopt`: memory follows the catalogue. Raises ServerBusy when it could not be done whole."""
    for keeper in list(contents.keepers.values()):
        if keeper.is_disabled:
            await stores.enable(keeper.name)
    async with contents.changing:
        changes = _without_entities(contents)
        if changes:
            await _take_away(contents, changes, adopt)
        contents.operations.record("Reset Namespace", contents.name)
    await contents.staged.forget_all()


def _without_entities(contents: NamespaceContents) -> Changes:
    rows = contents.catalogue.rows
    changes: dict[str, str | None] = {key: None for key in rows if not key.startswith(_LASTING_PREFIXES)}
    present = NamespaceRow.parse(rows[NAMESPACE_KEY])
    root = tuple(rule for rule in present.rules if rule.name == ROOT_RULE_NAME)
    if root != present.rules:
        changes[NAMESPACE_KEY] = replace(present, rules=root).text(rows[NAMESPACE_KEY])
    return changes


async def _take_away(contents: NamespaceContents, changes: Changes, adopt: Callable[[], None]) -> None:
    keys = list(contents.entities.rows)
    dropped = {name: sorted(contents.keys_in(name)) for name in contents.keepers}
    await contents.write(changes, dropping(dropped[contents.catalogue.home.name]))
    adopt()
    for key in keys:
        contents.auto_delete.forget(key)
    for name, fragments in dropped.items():
        _drop_there(contents, name, fragments)
    contents.runtime.namespace_size.recount()


def _drop_there(contents: NamespaceContents, store_name: str, fragments: list[FragmentKey]) -> None:
    keeper = contents.keepers[store_name]
    if not fragments:
        return
    is_home = keeper is contents.catalogue.home
    if is_home or keeper.join(dropping(fragments)):
        contents.background.spawn(keeper.sweep_dropped(contents.limits.sweep_rows_max))
