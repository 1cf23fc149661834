"""The SQL filters of a topic that have an anchor, by property and value: only those that a message may match are
evaluated at all."""

from __future__ import annotations

from busway.rules.anchors import Anchor
from busway.rules.compiled_rule import CompiledRule
from busway.rules.subject import Subject


class AnchorIndex:
    __slots__ = ("_system", "_user")

    def __init__(self) -> None:
        self._system: dict[str, dict[object, list[CompiledRule]]] = {}
        self._user: dict[str, dict[object, list[CompiledRule]]] = {}

    def add(self, anchor: Anchor, rule: CompiledRule) -> None:
        tables = self._system if anchor.is_system else self._user
        table = tables.setdefault(anchor.name, {})
        for key in anchor.keys:
            table.setdefault(key, []).append(rule)

    def remove(self, anchor: Anchor, rule: CompiledRule) -> None:
        tables = self._system if anchor.is_system else self._user
        table = tables[anchor.name]
        for key in anchor.keys:
            table[key].remove(rule)
            if not table[key]:
                del table[key]
        if not table:
            del tables[anchor.name]

    def candidates(self, subject: Subject) -> list[CompiledRule]:
        """The rules whose anchor is true for the message."""
        found: list[CompiledRule] = []
        for name, table in self._user.items():
            _look_up(subject.user(name), table, found)
        for name, table in self._system.items():
            _look_up(subject.system(name), table, found)
        return found


def _look_up(value: object, table: dict[object, list[CompiledRule]], found: list[CompiledRule]) -> None:
    """A double finds the integer that it equals. A boolean is no key: Python would take TRUE for 1."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        rules = table.get(value)
        if rules is not None:
            found.extend(rules)
