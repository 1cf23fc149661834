"""A rule of one owner (a subscription), compiled, with its place among the others."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from busway.rules.actions import CompiledAction, compiled_action
from busway.rules.filters import CompiledFilter, compiled_filter
from busway.rules.rule import Rule


class ActingRule:
    """A rule with an action, as the one who makes copies needs it (T-4)."""

    __slots__ = ("action", "name")

    def __init__(self, name: str, action: CompiledAction) -> None:
        self.name = name
        self.action = action


class CompiledRule:
    """`number` counts all rules ever added to a selection; it orders them and tells them apart."""

    __slots__ = ("acting", "filter", "number", "owner", "rule")

    def __init__(self, owner: str, number: int, rule: Rule, new_id: Callable[[], UUID]) -> None:
        self.owner = owner
        self.number = number
        self.rule = rule
        self.filter: CompiledFilter = compiled_filter(rule.filter, new_id)
        #: None for a plain rule.
        self.acting: ActingRule | None = None
        if rule.action is not None:
            self.acting = ActingRule(rule.name, compiled_action(rule.action, new_id))
