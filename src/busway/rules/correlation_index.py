"""All correlation filters of a topic, found by look-up (T-44): one for each shape, however many filters have it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

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
