"""Names of properties that are equal to a rule's one: without case, as the broker folds them (T-22).

Spark's `lower` is not Python's `casefold` (the long s, sharp s, ligatures), so a name becomes a regular expression:
every place of the folded name allows all characters that fold to it, and a run of places also those that fold to
the whole run.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Final

from busway.rules.subject import folded
from busway_spark.rules.unsupported import Unsupported

_PATTERN_CHARACTERS_MAX: Final = 4_000
_FOLD_CHARACTERS_MAX: Final = 3


def name_pattern(name: str) -> str:
    """Of Java, for the whole of a name. Raises Unsupported where it would be very long."""
    wanted = folded(name)
    tails = [""] * (len(wanted) + 1)
    for at in range(len(wanted) - 1, -1, -1):
        ways = [_class_of(wanted[at], wanted[at : at + 1]) + tails[at + 1]]
        for length in range(2, min(_FOLD_CHARACTERS_MAX, len(wanted) - at) + 1):
            characters = _folding_to().get(wanted[at : at + length])
            if characters:
                ways.append(_class_of("", wanted[at : at + length]) + tails[at + length])
        tails[at] = ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
        if len(tails[at]) > _PATTERN_CHARACTERS_MAX:
            raise Unsupported("a name with very many spellings")
    return rf"\A{tails[0]}\z"


def _class_of(itself: str, run: str) -> str:
    characters = itself + "".join(_folding_to().get(run, ()))
    return "[" + "".join(f"\\x{{{ord(character):x}}}" for character in characters) + "]"


@cache
def _folding_to() -> dict[str, list[str]]:
    """By folded form the characters that are not in it already."""
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        form = character.casefold()
        if form != character:
            found.setdefault(form, []).append(character)
    return found
