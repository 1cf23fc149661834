"""Which subscriptions of a topic get a message, and by which of their rules (T-1, T-4, T-5, E-72, E-73).

Theory of operation. Rules fall into four kinds by what they cost:

  fixed       true for every message (`1=1`): they are in a list that is made when rules change; false ones nowhere
  correlated  found by look-up of the message's values, once for each shape (`correlation_index`)
  anchored    SQL filters found by look-up of one property's value, then evaluated (`anchor_index`)
  scanned     all other SQL filters, evaluated one after the other

What the fixed rules give is shared between answers, and so is what one rule gives when it is the only one of its
owner that hits; a `Match` is made only for owners with more to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final
from uuid import UUID

from busway.rules.anchor_index import AnchorIndex
from busway.rules.compiled_rule import CompiledRule
from busway.rules.correlation_index import CorrelationIndex
from busway.rules.errors import FilterError, shown
from busway.rules.filters import CompiledCorrelationFilter, CompiledSqlFilter, FixedFilter
from busway.rules.match import Match
from busway.rules.rule import CorrelationFilter, Rule
from busway.rules.subject import Subject


class OwnerRules:
    __slots__ = ("fixed", "ordinal", "rules")

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.rules: dict[str, CompiledRule] = {}
        #: Those of them that are true for every message.
        self.fixed: list[CompiledRule] = []


class Selection:
    """The rules of all subscriptions of one topic. An owner is a subscription's key; opaque here.

    `new_id` is what `newid()` calls.
    """

    def __init__(self, new_id: Callable[[], UUID]) -> None:
        self._new_id = new_id
        self._last_number = 0
        #: In the order in which owners got their first rule.
        self._owners: dict[str, OwnerRules] = {}
        self._correlated = CorrelationIndex()
        self._anchored = AnchorIndex()
        #: By number.
        self._scanned: dict[int, CompiledRule] = {}
        #: The answer for a message that only fixed rules select; None after a change.
        self._fixed: list[Match] | None = None
        #: E-72, E-73: true and false filters count as SQL filters.
        self.sql_filter_count = 0
        self.correlation_filter_count = 0

    # -- changes

    def add(self, owner: str, rule: Rule) -> None:
        """Raises RuleSyntaxError, and then nothing has changed. The owner has no rule of this name."""
        compiled = CompiledRule(owner, self._last_number + 1, rule, self._new_id)
        self._last_number += 1
        mine = self._owners.get(owner)
        if mine is None:
            mine = self._owners[owner] = OwnerRules(compiled.number)
        assert rule.name not in mine.rules, "the rule was not removed first"
        mine.rules[rule.name] = compiled
        compiled.ordinal = mine.ordinal
        self._count(rule, 1)
        self._place(mine, compiled)

    def remove(self, owner: str, rule_name: str) -> None:
        """Raises KeyError if there is none."""
        mine = self._owners[owner]
        compiled = mine.rules.pop(rule_name)
        self._count(compiled.rule, -1)
        self._displace(mine, compiled)
        if not mine.rules:
            del self._owners[owner]

    def remove_owner(self, owner: str) -> None:
        """An owner without rules is no error."""
        mine = self._owners.get(owner)
        if mine is not None:
            for rule_name in list(mine.rules):
                self.remove(owner, rule_name)

    def _count(self, rule: Rule, change: int) -> None:
        if isinstance(rule.filter, CorrelationFilter):
            self.correlation_filter_count += change
        else:
            self.sql_filter_count += change

    def _place(self, mine: OwnerRules, compiled: CompiledRule) -> None:
        filter_ = compiled.filter
        if isinstance(filter_, CompiledCorrelationFilter):
            self._correlated.add(filter_.key, compiled)
        elif isinstance(filter_, CompiledSqlFilter):
            if filter_.anchor is None:
                self._scanned[compiled.number] = compiled
            else:
                self._anchored.add(filter_.anchor, compiled)
        elif isinstance(filter_, FixedFilter) and filter_.is_true:
            mine.fixed.append(compiled)
            self._fixed = None

    def _displace(self, mine: OwnerRules, compiled: CompiledRule) -> None:
        filter_ = compiled.filter
        if isinstance(filter_, CompiledCorrelationFilter):
            self._correlated.remove(filter_.key, compiled)
        elif isinstance(filter_, CompiledSqlFilter):
            if filter_.anchor is None:
                del self._scanned[compiled.number]
            else:
                self._anchored.remove(filter_.anchor, compiled)
        elif isinstance(filter_, FixedFilter) and filter_.is_true:
            mine.fixed.remove(compiled)
            self._fixed = None

    # -- messages

    def matching(self, subject: Subject) -> list[Match]:
        """One for each owner that gets something, be it only an error; in the order of owners. Raises nothing."""
        hits: list[CompiledRule] = []
        failures: list[tuple[CompiledRule, FilterError]] = []
        self._correlated.gather(subject, hits)
        for rule in self._anchored.candidates(subject):
            try:
                if rule.filter.matches_beside_anchor(subject):
                    hits.append(rule)
            except FilterError as error:
                failures.append((rule, error))
        for rule in self._scanned.values():
            try:
                if rule.filter.matches(subject):
                    hits.append(rule)
            except FilterError as error:
                failures.append((rule, error))
        fixed = self._fixed
        if fixed is None:
            fixed = self._fixed = self._fixed_matches()
        if not hits and not failures:
            return fixed
        alone = None if fixed or failures else _alone(hits)
        return self._merged(fixed, hits, failures) if alone is None else alone

    def _fixed_matches(self) -> list[Match]:
        return [_match(owner, mine.ordinal, mine.fixed) for owner, mine in self._owners.items() if mine.fixed]

    def _merged(
        self, fixed: list[Match], hits: list[CompiledRule], failures: list[tuple[CompiledRule, FilterError]]
    ) -> list[Match]:
        by_owner: dict[str, list[CompiledRule]] = {}
        for rule in hits:
            by_owner.setdefault(rule.owner, []).append(rule)
        for rule, _ in failures:
            by_owner.setdefault(rule.owner, [])
        found: dict[str, Match] = {}
        for owner, rules in by_owner.items():
            mine = self._owners[owner]
            found[owner] = _match(owner, mine.ordinal, mine.fixed + rules if mine.fixed else rules)
        for rule, error in failures:
            found[rule.owner].errors.append(FilterError(f"Rule {shown(rule.rule.name)}: {error}"))
        merged = [match for match in fixed if match.owner not in found]
        merged.extend(found.values())
        if len(merged) > 1:
            merged.sort(key=_BY_ORDINAL)
        return merged


_BY_ORDINAL: Final = attrgetter("ordinal")
_BY_NUMBER: Final = attrgetter("number")


def _match(owner: str, ordinal: int, rules: list[CompiledRule]) -> Match:
    """`rules` match, in any order."""
    match = Match(owner, ordinal)
    if len(rules) > 1:
        rules = sorted(rules, key=_BY_NUMBER)
    for rule in rules:
        match.add(rule.acting)
    return match


def _alone(hits: list[CompiledRule]) -> list[Match] | None:
    """The commonest case: one rule for each owner, in order. None when it is not so."""
    matches: list[Match] = []
    last = 0
    for rule in hits:
        if rule.ordinal <= last:
            return None
        last = rule.ordinal
        matches.append(rule.alone())
    return matches
