"""The first moments of a namespace: its identity, and the list of stores it lives on.

The list is written at the first start. Later the same stores must be given; more of them extend it, for new
entities only; fewer are refused, because a store that is left out would silently hide its queues.
"""

from collections.abc import Sequence
from dataclasses import replace

from busway.broker.descriptions import AuthorizationRule
from busway.broker.namespace.catalogue import Catalogue, Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, NamespaceRow, StoreRow
from busway.broker.sas_keys import ROOT_RULE_NAME, root_rule
from busway.broker.store_keeper import StoreKeeper
from busway.clock import Clock, Entropy
from busway.store.contract import StoreError


def first_rows(
    name: str, keepers: Sequence[StoreKeeper], clock: Clock, entropy: Entropy, root_key: str | None
) -> Changes:
    """What the catalogue of a new namespace says (A-3)."""
    now_ms = clock.wall_ms()
    row = NamespaceRow(entropy.bytes(16).hex(), name, (root_rule(entropy, now_ms, root_key),), now_ms)
    changes: dict[str, str | None] = {NAMESPACE_KEY: row.text(None)}
    for position, keeper in enumerate(keepers):
        store = StoreRow(keeper.name, public_url(keeper.url), position)
        changes[store.key] = store.text(None)
    return changes


def added_stores(catalogue: Catalogue, keepers: Sequence[StoreKeeper]) -> Changes:
    """Rows of stores that are new to the namespace. Raises StoreError when known ones were not given."""
    known = catalogue.store_rows()
    given = {keeper.name for keeper in keepers}
    missing = [row.name for row in known if row.name not in given]
    if missing:
        raise StoreError(
            f"This namespace lives on {len(known)} stores ({', '.join(row.name for row in known)}), but"
            f" {', '.join(missing)} {'was' if len(missing) == 1 else 'were'} not given. Start with at least"
            f" the same stores (for files in the data directory: --stores {len(known)} or more)."
        )
    names = {row.name for row in known}
    fresh = [keeper for keeper in keepers if keeper.name not in names]
    rows = [
        StoreRow(keeper.name, public_url(keeper.url), len(known) + index)
        for index, keeper in enumerate(fresh)
    ]
    return {row.key: row.text(None) for row in rows}


def with_root_key(
    rules: tuple[AuthorizationRule, ...], key: str, clock: Clock, entropy: Entropy
) -> tuple[AuthorizationRule, ...]:
    """The operator's own key is the primary key of the root rule, which is made again if it was deleted."""
    now_ms = clock.wall_ms()
    if not any(rule.name == ROOT_RULE_NAME for rule in rules):
        return (root_rule(entropy, now_ms, key), *rules)
    return tuple(_with_key(rule, key, now_ms) if rule.name == ROOT_RULE_NAME else rule for rule in rules)


def _with_key(rule: AuthorizationRule, key: str, now_ms: int) -> AuthorizationRule:
    changed = replace(rule, primary_key=key)
    return rule if changed == rule else replace(changed, modified_at_ms=now_ms)


def public_url(url: str) -> str:
    """A store's address as it is recorded, printed and logged: without user, password and query, where drivers
    keep secrets. One of unknown form (`host=… password=…`) is not shown at all."""
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.isalnum():
        return ""
    if not rest.startswith("//"):
        return url  # a path on this machine
    place = rest[2:].rpartition("@")[2]  # first of all: a password may hold any of the other marks
    return f"{scheme}://{place.partition('?')[0].partition('#')[0]}"
