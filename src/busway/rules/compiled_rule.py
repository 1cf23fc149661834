"""A rule of one owner (a subscription), compiled, with its place among the others."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from busway.rules.actions import compiled_action
from busway.rules.filters import CompiledFilter, compiled_filter
from busway.rules.match import ActingRule, Match
from busway.rules.rule import Rule


class CompiledRule:
    """`number` counts all rules ever added to a selection; it orders them and tells them apart."""

    __slots__ = ("_alone", "acting", "filter", "number", "ordinal", "owner", "rule")

    def __init__(self, owner: str, number: int, rule: Rule, new_id: Callable[[], UUID]) -> None:
        self.owner = owner
        self.number = number
        self.rule = rule
        self.filter: CompiledFilter = compiled_filter(rule.filter, new_id)
        #: None for a plain rule.
        self.acting: ActingRule | None = None
        if rule.action is not None:
            self.acting = ActingRule(rule.name, compiled_action(rule.action, new_id))
        #: The owner's place among owners.
        self.ordinal = number
        self._alone: Match | None = None

    def alone(self) -> Match:
        """What the owner gets when no other of its rules matches. Made once: most rules of many never match."""
        match = self._alone
        if match is None:
            match = self._alone = Match(self.owner, self.ordinal)
            match.add(self.acting)
        return match
