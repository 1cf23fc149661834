"""All correlation filters of a topic, found by look-up (T-44): one for each shape, however many filters have it."""

from __future__ import annotations

from busway.rules.compiled_rule import CompiledRule
from busway.rules.correlation import CorrelationKey, Shape, keys_under, lookup_key
from busway.rules.subject import Subject


class ShapeTable:
    """The filters of one shape by their keys. A shape of one condition is looked up without making a tuple."""

    __slots__ = ("_is_system", "_name", "_shape", "rules")

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._is_system, self._name = shape[0]
        self.rules: dict[object, list[CompiledRule]] = {}

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
    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[Shape, ShapeTable] = {}

    def add(self, key: CorrelationKey, rule: CompiledRule) -> None:
        if not key.is_satisfiable:
            return
        table = self._tables.get(key.shape)
        if table is None:
            table = self._tables[key.shape] = ShapeTable(key.shape)
        table.rules.setdefault(table.key_of(key), []).append(rule)

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
            del self._tables[key.shape]

    def gather(self, subject: Subject, hits: list[CompiledRule]) -> None:
        """Adds the rules that match."""
        for table in self._tables.values():
            found = table.found(subject)
            if found is not None:
                hits.extend(found)
