"""The rules of a topic that are found by look-up instead of being evaluated for every message.

Correlation filters (T-44): one look for each shape, however many filters have it. SQL filters that have an anchor, by
property and value: only those that a message may match are evaluated at all.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from busway.rules.anchors import Anchor
from busway.rules.compiled_rule import CompiledRule
from busway.rules.correlation import CorrelationKey, Shape, keys_under, lookup_key
from busway.rules.subject import Subject

#: Whoever goes step by step is told of so many looks at once.
_STEPS: Final = 64


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
            if steps == _STEPS:
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
            if steps == _STEPS:
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
