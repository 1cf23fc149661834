"""The first moments of a namespace: its stores are opened, and what they say becomes its contents.

Theory of operation. All stores are opened and their catalogues compared before the first goes into service, and the
marks of messages that were on their way are read. A store that cannot be opened keeps the others from nothing,
unless this is the first start: it comes into service later, by its keeper.

The list of stores is written at the first start. Later the same stores must be given; more of them extend it, for new
entities only; fewer are refused, because a store that is left out would silently hide its queues.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from busway.broker.namespace.catalogue import Catalogue, Changes
from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY, NamespaceRow, StoreRow, store_rows
from busway.broker.namespace.contents import NamespaceContents
from busway.broker.store_keeper import StoreKeeper
from busway.clock import Clock, Entropy
from busway.model.descriptions import AuthorizationRule
from busway.model.errors import BrokerError
from busway.model.sas_keys import ROOT_RULE_NAME, root_rule
from busway.store.contract import StoreError, StoreInUse, StoreTooNew, StoreUnavailable

_log = logging.getLogger("busway.namespace")


class NamespaceOpening:
    """`root_key`: the operator's own key for the root rule. `adopt`: memory follows the catalogue."""

    def __init__(self, contents: NamespaceContents, root_key: str | None, adopt: Callable[[], None]) -> None:
        self._contents = contents
        self._given_root_key = root_key
        self._adopt = adopt

    async def open(self) -> None:
        """Raises StoreError with a sentence for people."""
        contents = self._contents
        keepers = self._ordered()
        errors = await self._connect_all()
        connected = [keeper for keeper in keepers if errors[keeper.name] is None]
        failures = [error for error in errors.values() if error is not None]
        if not connected:
            raise failures[0]
        await contents.catalogue.load(keepers, connected)
        is_new = contents.catalogue.version == 0
        if is_new and failures:
            raise failures[0]
        if not is_new:
            self._check_stores()
        self._adopt()
        await self._read_marks(errors)
        await self._enter_service(errors)
        await self._complete_catalogue(is_new)

    def with_given_key(self, row: NamespaceRow) -> NamespaceRow:
        """The operator's own key counts at once, also while it cannot be written."""
        key = self._given_root_key
        if key is None:
            return row
        return replace(row, rules=with_root_key(row.rules, key, self._contents.clock, self._contents.entropy))

    def _ordered(self) -> list[StoreKeeper]:
        """Stores in the order they were given."""
        return list(self._contents.keepers.values())

    async def _connect_all(self) -> dict[str, StoreError | None]:
        """By store the error that kept it from being opened. Stores out of service are not even tried."""
        errors: dict[str, StoreError | None] = {}
        disabled: set[str] = set()
        for keeper in self._ordered():
            if keeper.name in disabled:
                errors[keeper.name] = StoreUnavailable(f"The store {keeper.name} is out of service.")
                continue
            errors[keeper.name] = await _connect(keeper)
            if errors[keeper.name] is None and len(errors) == 1:
                rows = await self._contents.catalogue.read(keeper)
                disabled = {row.name for row in store_rows(rows) if row.is_disabled}
        return errors

    def _check_stores(self) -> None:
        contents = self._contents
        added_stores(contents.catalogue, self._ordered())
        for row in contents.catalogue.store_rows():
            contents.keepers[row.name].is_disabled = row.is_disabled

    async def _read_marks(self, errors: dict[str, StoreError | None]) -> None:
        """Of all stores before the first goes into service: what has arrived anywhere is not sent a second time, also
        when it would go elsewhere by now."""
        for keeper in self._ordered():
            if errors[keeper.name] is None and not keeper.is_disabled:
                try:
                    await self._contents.entities.transfers.store_opened(keeper)
                except StoreError as error:
                    errors[keeper.name] = error

    async def _enter_service(self, errors: dict[str, StoreError | None]) -> None:
        """The home first: it tells which fragments nobody owns."""
        home = self._contents.catalogue.home
        for keeper in [home, *(keeper for keeper in self._ordered() if keeper is not home)]:
            if keeper.is_disabled:
                await keeper.store.close()
                continue
            error = errors[keeper.name]
            try:
                if error is not None:
                    raise error
                await keeper.enter_service()
            except StoreError as failure:
                keeper.fail(failure)

    async def _complete_catalogue(self, is_new: bool) -> None:
        """The rows of a first start, of new stores, and of the operator's own key."""
        contents = self._contents
        async with contents.changing:
            changes = self._first_rows() if is_new else {**self._later_rows(), **contents.decided_changes()}
            if not changes:
                return
            try:
                await contents.write(changes)
            except BrokerError as error:
                if is_new:
                    raise StoreError(error.sentence) from error
                _log.warning("The catalogue could not be brought up to date: %s", error.sentence)
                return
            self._adopt()

    def _first_rows(self) -> Changes:
        contents = self._contents
        return first_rows(
            contents.name, self._ordered(), contents.clock, contents.entropy, self._given_root_key
        )

    def _later_rows(self) -> Changes:
        contents = self._contents
        changes = dict(added_stores(contents.catalogue, self._ordered()))
        text = contents.catalogue.rows[NAMESPACE_KEY]
        if NamespaceRow.parse(text) != contents.row:
            changes[NAMESPACE_KEY] = contents.row.text(text)
        return changes


async def _connect(keeper: StoreKeeper) -> StoreError | None:
    try:
        await keeper.connect()
    except (StoreTooNew, StoreInUse):  # no start without them: one would be damaged, the other served twice
        raise
    except StoreError as error:
        return error
    return None


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
