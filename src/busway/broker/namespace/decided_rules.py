"""Rule changes that a transaction has decided, on their way into the catalogue (T-13).

Theory of operation. Rules are rows of the catalogue, whose home may be another store than the one that the
transaction's messages lie in, and two stores do not commit together. So the transaction's own batch carries its rule
changes as one text, beside that store's copy of the catalogue: they are decided when it is durable, together with
everything else in it. Then they are taken over into the catalogue like any other change, with a mark that says how
far the decisions of that store are taken over. After a crash in between the text still has a higher number than the
mark, and is taken over when the store is opened.

A text that was taken over stays where it is until the next takes its place. There is never more than one that waits
in a store, because all changes of the catalogue wait for one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from busway.broker.namespace.catalogue_rows import damaged_row, read_row, written_row
from busway.broker.namespace.rule_rows import subscription_key_of
from busway.model.descriptions import integer_at
from busway.model.errors import BadArgument

#: Where the text lies in a store. It is no row of the catalogue.
DECIDED_KEY: Final = "decided-rules"
TAKEN_OVER_PREFIX: Final = "rules-taken-over:"

#: The text of a rule's row; None when there is no such rule.
Text = str | None


@dataclass(frozen=True)
class DecidedRules:
    number: int
    #: Row → its text before and after.
    changes: Mapping[str, tuple[Text, Text]]

    def text(self) -> str:
        return written_row(
            {"number": self.number, "rules": {key: [*both] for key, both in self.changes.items()}}, None
        )

    @classmethod
    def parse(cls, text: str) -> DecidedRules:
        data = read_row(DECIDED_KEY, text)
        rules = data.get("rules")
        try:
            if not isinstance(rules, dict):
                raise BadArgument("rules: an object is expected.")
            return cls(integer_at(data, "number"), {key: _both(texts) for key, texts in rules.items()})
        except BadArgument as error:
            raise damaged_row(DECIDED_KEY) from error


def to_take_over(
    decided: Mapping[str, str], rows: Mapping[str, str], exists: Callable[[str], bool]
) -> dict[str, Text]:
    """The changes of the catalogue that are decided and not yet in it. `decided`: the texts, by store; `exists`:
    whether there is a subscription with this key. What somebody else has changed since is left alone."""
    changes: dict[str, Text] = {}
    for store_name, text in decided.items():
        found = DecidedRules.parse(text)
        mark = TAKEN_OVER_PREFIX + store_name
        if found.number <= _number_in(mark, rows.get(mark)):
            continue
        changes[mark] = written_row({"number": found.number}, None)
        for key, (before, after) in found.changes.items():
            if rows.get(key) == before and exists(subscription_key_of(key)):
                changes[key] = after
    return changes


def _number_in(mark: str, text: Text) -> int:
    if text is None:
        return 0
    try:
        return integer_at(read_row(mark, text), "number")
    except BadArgument as error:
        raise damaged_row(mark) from error


def _both(texts: object) -> tuple[Text, Text]:
    if not isinstance(texts, list) or len(texts) != 2:
        raise BadArgument("a text before and a text after are expected.")
    before, after = texts
    if not all(text is None or isinstance(text, str) for text in texts):
        raise BadArgument("a text before and a text after are expected.")
    return before, after
