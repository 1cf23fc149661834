"""Authorization rules: those of the namespace, and whose count at an address. The rules of an entity are part of its
description and change with it."""

from collections.abc import Callable
from dataclasses import replace

from busway.broker.namespace.catalogue_rows import NAMESPACE_KEY
from busway.broker.namespace.contents import NamespaceContents
from busway.model.description_checks import check_rules
from busway.model.descriptions import AuthorizationRule, SubscriptionDescription
from busway.model.entity_path import topic_key_of
from busway.model.errors import BadArgument
from busway.model.sas_keys import ROOT_RULE_NAME, completed_rules


class AccessRules:
    """What `Authorizer` asks (`RuleBook`), and how the namespace's own rules change."""

    def __init__(self, contents: NamespaceContents) -> None:
        self._contents = contents

    def rules(self) -> tuple[AuthorizationRule, ...]:
        """Of the namespace."""
        return self._contents.row.rules

    @property
    def root_key(self) -> str:
        """The key in the connection string; treat it as what it is."""
        return next(rule.primary_key for rule in self.rules() if rule.name == ROOT_RULE_NAME)

    def entity_rules(self, key: str) -> tuple[int, tuple[AuthorizationRule, ...]] | None:
        rows = self._contents.entities.rows
        row = rows.get(key)
        if row is not None and isinstance(row.description, SubscriptionDescription):
            row = rows.get(topic_key_of(key))  # E-61, A-2
        if row is None or isinstance(row.description, SubscriptionDescription):
            return self._contents.hubs.entity_rules(key)
        return row.incarnation, row.description.authorization_rules

    def owner_key(self, key: str) -> str:
        """Of the entity whose rules count at an address."""
        owner = None if key in self._contents.entities.rows else self._contents.hubs.owner_key(key)
        return topic_key_of(key) if owner is None else owner

    def other_owner_key(self, key: str) -> str | None:
        """Earlier versions let queues have addresses of a hub: which of the two is meant, who opens it must say."""
        return self._contents.hubs.owner_key(key) if key in self._contents.entities.rows else None

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Calls back after every change that may end or give rights. Returns the un-watch."""
        return self._contents.watch_rights(changed)

    async def set(self, rules: tuple[AuthorizationRule, ...]) -> None:
        """Those of the namespace, all of them. To its end even when whoever asked has gone away."""
        await self._contents.background.finish(self._set(rules))

    async def _set(self, rules: tuple[AuthorizationRule, ...]) -> None:
        if not any(rule.name == ROOT_RULE_NAME for rule in rules):
            raise BadArgument(
                f"The rule {ROOT_RULE_NAME} cannot be deleted: the server's own connection string uses it."
                " Rotate its keys instead."
            )
        contents = self._contents
        async with contents.changing:
            present = contents.row
            completed = completed_rules(rules, present.rules, contents.entropy, contents.clock.wall_ms())
            check_rules(completed, contents.limits)
            changed = replace(present, rules=completed)
            await contents.write({NAMESPACE_KEY: changed.text(contents.catalogue.rows.get(NAMESPACE_KEY))})
            contents.row = changed
        contents.rights_changed()
