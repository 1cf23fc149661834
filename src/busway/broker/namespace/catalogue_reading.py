"""What a row of the catalogue says, for whoever reads one without serving it: checks and copies of a stopped bus."""

from __future__ import annotations

from collections.abc import Sequence

from busway.broker.namespace.catalogue import DECIDED_KEY, TAKEN_OVER_PREFIX, DecidedRules
from busway.broker.namespace.catalogue_rows import (
    ENTITY_PREFIXES,
    NAMESPACE_KEY,
    STORE_PREFIX,
    EntityRow,
    NamespaceRow,
    StoreRow,
    read_row,
)
from busway.broker.namespace.rule_table import RULE_PREFIX, RuleRow
from busway.model.descriptions import integer_at
from busway.store.contract import FragmentKey


def namespace_id(text: str) -> str:
    """By the namespace's own row. Raises StoreError when it cannot be read."""
    return NamespaceRow.parse(text).id


def fragments_named(key: str, text: str) -> list[tuple[str, Sequence[FragmentKey]]] | None:
    """The fragments that a row names, by store; None when the row is none of the namespace's own. Raises StoreError,
    and whatever a row may cause that nobody could have written."""
    prefix = key[: key.find(":") + 1]
    if key == NAMESPACE_KEY:
        NamespaceRow.parse(text)
    elif prefix == STORE_PREFIX:
        StoreRow.parse(key, text)
    elif prefix in ENTITY_PREFIXES:
        return [(share.store_name, share.fragments) for share in EntityRow.parse(key, text).shares]
    elif prefix == RULE_PREFIX:
        RuleRow.parse(key, text)
    elif prefix == TAKEN_OVER_PREFIX:
        with read_row(key, text) as data:
            integer_at(data, "number")
    elif key == DECIDED_KEY:
        DecidedRules.parse(text)
    else:
        return None
    return []
