"""Which subscriptions of a topic get a message, and by which of their rules (T-1, T-4, T-5, E-72, E-73).

Theory of operation. Rules fall into four kinds by what they cost:

  fixed       true for every message (`1=1`): they are in a list that is made when rules change; false ones nowhere
  correlated  found by look-up of the message's values (T-44, `CorrelationIndex`): one look for each shape, however
              many filters have it
  anchored    SQL filters that have an anchor, by property and value: only those that a message may match are
              evaluated at all (`AnchorIndex`)
  scanned     all other SQL filters, evaluated one after the other

What the fixed rules give is shared between answers, and so is what one rule gives when it is the only one of its
owner that hits; a `Match` is made only for owners with more to tell.

`matching` answers at once. With many rules that may take long, so there is `matching_in_steps` for whoever must
let others go on in between: the same answer, given that no rule has changed since it began (`version`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Final
from uuid import UUID

from busway.rules.anchors import Anchor
from busway.rules.compiled_rule import (
    CompiledCorrelationFilter,
    CompiledRule,
    CompiledSqlFilter,
    CorrelationKey,
    FixedFilter,
    Match,
    Shape,
    keys_under,
    lookup_key,
)
from busway.rules.rule import FilterError, Rule, shown
from busway.rules.subject import Subject

#: Whoever goes step by step is told of so many looks at once.
_LOOKS: Final = 64


class ShapeTable:
    """The filters of one shape by their keys. A shape of one condition is looked up without making a tuple."""

    __slots__ = ("_is_system", "_name", "_shape", "hits_max", "rules")

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._is_system, self._name = shape[0]
        self.rules: dict[object, list[CompiledRule]] = {}
        #: A look found no more than so many ever.
        self.hits_max = 0

    def key_of(self, key: CorrelationKey) -> object:
        return key.keys[0] if len(self._shape) == 1 else key.keys

    def found(self, subject: Subject) -> list[CompiledRule] | None:
        if len(self._shape) > 1:
            keys = keys_under(self._shape, subject)
            return None if keys is None else self.rules.get(keys)
        value = subject.system(self._name) if self._is_system else subject.user(self._name)
        key = lookup_key(value)
        return None if key is None else self.rules.get(key)


class CorrelationIndex:
    __slots__ = ("_tables", "hits_max")

    def __init__(self) -> None:
        self._tables: dict[Shape, ShapeTable] = {}
        #: A message hits no more than so many.
        self.hits_max = 0

    def add(self, key: CorrelationKey, rule: CompiledRule) -> None:
        if not key.is_satisfiable:
            return
        table = self._tables.get(key.shape)
        if table is None:
            table = self._tables[key.shape] = ShapeTable(key.shape)
        rules = table.rules.setdefault(table.key_of(key), [])
        rules.append(rule)
        if len(rules) > table.hits_max:
            table.hits_max += 1
            self.hits_max += 1

    def remove(self, key: CorrelationKey, rule: CompiledRule) -> None:
        if not key.is_satisfiable:
            return
        table = self._tables[key.shape]
        place = table.key_of(key)
        rules = table.rules[place]
        rules.remove(rule)
        if not rules:
            del table.rules[place]
        if not table.rules:
            self.hits_max -= table.hits_max
            del self._tables[key.shape]

    def shape_count(self) -> int:
        return len(self._tables)

    def gather(self, subject: Subject, hits: list[CompiledRule]) -> None:
        """Adds the rules that match."""
        for table in self._tables.values():
            found = table.found(subject)
            if found is not None:
                hits.extend(found)

    def gather_in_steps(self, subject: Subject, hits: list[CompiledRule]) -> Generator[int, None, None]:
        """`gather`, told of the looks that it takes. No rule may be added or removed meanwhile."""
        steps = 0
        for table in self._tables.values():
            found = table.found(subject)
            if found is not None:
                hits.extend(found)
            steps += 1
            if steps == _LOOKS:
                yield steps
                steps = 0
        if steps:
            yield steps


class AnchorIndex:
    __slots__ = ("_system", "_user", "_widest", "hits_max")

    def __init__(self) -> None:
        #: By property, and together: a message finds no more candidates than so many.
        self._widest: dict[tuple[bool, str], int] = {}
        self.hits_max = 0
        self._system: dict[str, dict[object, list[CompiledRule]]] = {}
        self._user: dict[str, dict[object, list[CompiledRule]]] = {}

    def add(self, anchor: Anchor, rule: CompiledRule) -> None:
        tables = self._system if anchor.is_system else self._user
        table = tables.setdefault(anchor.name, {})
        widest = self._widest.get((anchor.is_system, anchor.name), 0)
        for key in anchor.keys:
            rules = table.setdefault(key, [])
            rules.append(rule)
            if len(rules) > widest:
                widest += 1
                self.hits_max += 1
        self._widest[anchor.is_system, anchor.name] = widest

    def remove(self, anchor: Anchor, rule: CompiledRule) -> None:
        tables = self._system if anchor.is_system else self._user
        table = tables[anchor.name]
        for key in anchor.keys:
            table[key].remove(rule)
            if not table[key]:
                del table[key]
        if not table:
            self.hits_max -= self._widest.pop((anchor.is_system, anchor.name))
            del tables[anchor.name]

    def property_count(self) -> int:
        return len(self._user) + len(self._system)

    def candidates(self, subject: Subject) -> list[CompiledRule]:
        """The rules whose anchor is true for the message."""
        found: list[CompiledRule] = []
        for name, table in self._user.items():
            _look_up(subject.user(name), table, found)
        for name, table in self._system.items():
            _look_up(subject.system(name), table, found)
        return found

    def candidates_in_steps(self, subject: Subject, found: list[CompiledRule]) -> Generator[int, None, None]:
        """`candidates`, told of the looks that it takes. No rule may be added or removed meanwhile."""
        steps = 0
        for name, table in self._user.items():
            _look_up(subject.user(name), table, found)
            steps += 1
            if steps == _LOOKS:
                yield steps
                steps = 0
        for name, table in self._system.items():  # there are few
            _look_up(subject.system(name), table, found)
            steps += 1
        if steps:
            yield steps


def _look_up(value: object, table: dict[object, list[CompiledRule]], found: list[CompiledRule]) -> None:
    """A double finds the integer that it equals. A boolean is no key: Python would take TRUE for 1."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        rules = table.get(value)
        if rules is not None:
            found.extend(rules)


#: With more to look at, or more that a message may hit, an answer is not had at once.
_LIGHT_LOOKS_MAX: Final = 64
_LIGHT_HITS_MAX: Final = 512
#: Steps that a copy takes which an action changes; any other takes one.
CHANGED_STEPS: Final = 8
ENDLESS: Final = 1 << 40
#: Whoever goes step by step is told of no more than so many at once.
_STEPS: Final = 64
#: Walking over so many characters takes as long as a step.
CHARACTERS_PER_STEP: Final = 64


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
        #: Changes with the rules.
        self.version = 0
        #: `matching` takes few steps, whatever the message (but see `text_walks`).
        self.is_light = True
        #: How often evaluating all rules may walk over a text of the message.
        self.text_walks = 0
        #: Characters that the last `matching` has walked over.
        self.walked = 0
        #: How many rules, or tables of rules, are asked for each message.
        self.looks = 0
        self._acting_count = 0
        self._fixed_count = 0
        #: What it and making the copies take together, at most; `ENDLESS` when it is not light.
        self.steps_max = 0

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
        self._count(compiled, 1)
        self._place(mine, compiled)
        self._changed()

    def remove(self, owner: str, rule_name: str) -> None:
        """Raises KeyError if there is none."""
        mine = self._owners[owner]
        compiled = mine.rules.pop(rule_name)
        self._count(compiled, -1)
        self._displace(mine, compiled)
        if not mine.rules:
            del self._owners[owner]
        self._changed()

    def remove_owner(self, owner: str) -> None:
        """An owner without rules is no error."""
        mine = self._owners.get(owner)
        if mine is not None:
            for rule_name in list(mine.rules):
                self.remove(owner, rule_name)

    def _count(self, compiled: CompiledRule, change: int) -> None:
        self.text_walks += change * compiled.filter.text_walks()
        if compiled.acting is not None:
            self._acting_count += change

    def _changed(self) -> None:
        self.version += 1
        looks = len(self._scanned) + self._correlated.shape_count() + self._anchored.property_count()
        self.looks = looks
        hits = self._fixed_count + len(self._scanned) + self._correlated.hits_max + self._anchored.hits_max
        self.is_light = looks <= _LIGHT_LOOKS_MAX and hits <= _LIGHT_HITS_MAX
        self.steps_max = ENDLESS
        if self.is_light and self.text_walks == 0:
            self.steps_max = hits + CHANGED_STEPS * min(hits, self._acting_count)

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
            self._fixed_count += 1
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
            self._fixed_count -= 1
            self._fixed = None

    # -- messages

    def matching(self, subject: Subject) -> list[Match]:
        """One for each owner that gets something, be it only an error; in the order of owners. Raises nothing."""
        hits: list[CompiledRule] = []
        failures: list[tuple[CompiledRule, FilterError]] = []
        walked = 0
        self._correlated.gather(subject, hits)
        for rule in self._anchored.candidates(subject):
            try:
                if rule.filter.matches_beside_anchor(subject):
                    hits.append(rule)
            except FilterError as error:
                failures.append((rule, error))
            walked += rule.filter.walked()
        for rule in self._scanned.values():
            try:
                if rule.filter.matches(subject):
                    hits.append(rule)
            except FilterError as error:
                failures.append((rule, error))
            walked += rule.filter.walked()
        self.walked = walked
        fixed = self._fixed
        if fixed is None:
            fixed = self._fixed = self._fixed_matches()
        if not hits and not failures:
            return fixed
        alone = None if fixed or failures else _alone(hits)
        return self._merged(fixed, hits, failures) if alone is None else alone

    def matching_in_steps(self, subject: Subject) -> Generator[int, None, list[Match]]:
        """`matching`, told of so many steps each time. To be dropped when `version` is another one."""
        hits: list[CompiledRule] = []
        failures: list[tuple[CompiledRule, FilterError]] = []
        candidates: list[CompiledRule] = []
        yield from self._correlated.gather_in_steps(subject, hits)
        yield from self._anchored.candidates_in_steps(subject, candidates)
        yield from _evaluated(subject, candidates, True, hits, failures)
        yield from _evaluated(subject, list(self._scanned.values()), False, hits, failures)
        fixed = self._fixed
        if fixed is None:
            yield len(self._owners)
            fixed = self._fixed = self._fixed_matches()
        if not hits and not failures:
            return fixed
        if len(hits) + len(failures) <= _STEPS:
            alone = None if fixed or failures else _alone(hits)
            return self._merged(fixed, hits, failures) if alone is None else alone
        return (yield from self._merged_in_steps(fixed, hits, failures))

    def copies_at_least(self) -> int:
        """How many copies every message makes."""
        fixed = self._fixed
        if fixed is None:
            fixed = self._fixed = self._fixed_matches()
        return sum([match.is_plain + len(match.acting) for match in fixed])

    def owner_count(self) -> int:
        return len(self._owners)

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
        return _in_order(fixed, found)

    def _merged_in_steps(
        self, fixed: list[Match], hits: list[CompiledRule], failures: list[tuple[CompiledRule, FilterError]]
    ) -> Generator[int, None, list[Match]]:
        by_owner: dict[str, list[CompiledRule]] = {}
        for start in range(0, len(hits), _STEPS):
            for rule in hits[start : start + _STEPS]:
                by_owner.setdefault(rule.owner, []).append(rule)
            yield _STEPS // 4
        for rule, _ in failures:
            by_owner.setdefault(rule.owner, [])
        found: dict[str, Match] = {}
        for owner, rules in by_owner.items():
            mine = self._owners[owner]
            found[owner] = _match(owner, mine.ordinal, mine.fixed + rules if mine.fixed else rules)
            yield 1 + len(rules) // 4
        for start in range(0, len(failures), _STEPS):
            for rule, error in failures[start : start + _STEPS]:
                found[rule.owner].errors.append(FilterError(f"Rule {shown(rule.rule.name)}: {error}"))
            yield _STEPS
        return _in_order(fixed, found)


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


def _in_order(fixed: list[Match], found: dict[str, Match]) -> list[Match]:
    """Of owners, those that only fixed rules select among them."""
    merged = [match for match in fixed if match.owner not in found]
    merged.extend(found.values())
    if len(merged) > 1:
        merged.sort(key=_BY_ORDINAL)
    return merged


def _evaluated(
    subject: Subject,
    rules: list[CompiledRule],
    beside_anchor: bool,
    hits: list[CompiledRule],
    failures: list[tuple[CompiledRule, FilterError]],
) -> Generator[int, None, None]:
    """Adds those that match, and those that fail. What walks over long texts is told of by itself."""
    steps = 0
    for rule in rules:
        filter_ = rule.filter
        try:
            if filter_.matches_beside_anchor(subject) if beside_anchor else filter_.matches(subject):
                hits.append(rule)
        except FilterError as error:
            failures.append((rule, error))
        steps += 1 + filter_.walked() // CHARACTERS_PER_STEP
        if steps >= _STEPS:
            yield steps
            steps = 0
    if steps:
        yield steps


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
