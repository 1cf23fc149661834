"""LIKE with a constant pattern in SQL (T-27). As `busway.rules.like`.

Patterns without `_` and with `%` at their ends only are Spark's own look for a part of a text. The others become a
regular expression of Java in which each segment takes its first place for good (an atomic group), as the broker's
does: so no pattern makes it try again and again.

`Walks` is what the LIKEs of a rule may cost the broker. It stops short of some of them where others decide, so that a
message is beyond the rule's budget only if all of them together are; then the evaluator says whether it is.
"""

from __future__ import annotations

from typing import Final

from busway.rules.budget import CHARACTERS_MAX, QUARTERS
from busway.rules.like import LikePattern
from busway_spark.rules import sql_text
from busway_spark.rules.unsupported import Unsupported

#: Stands for `_` in a segment.
_ANY: Final = ""


def like(value: str, pattern: str, escape: str | None) -> str:
    """`value` is a text or null; then so is the answer. The pattern is one that the broker took."""
    segments = _segments(pattern, escape)
    if not any(_ANY in segment for segment in segments):
        literal = ["".join(segment) for segment in segments]
        if len(literal) == 1:
            return f"({value} = {sql_text.text(literal[0])})"
        if len(literal) == 2:
            return _ends(value, literal[0], literal[1])
        if len(literal) == 3 and literal[0] == literal[2] == "":
            return f"contains({value}, {sql_text.text(literal[1])})"
    return f"({value} RLIKE {sql_text.text(_regex(segments))})"


def _ends(value: str, first: str, last: str) -> str:
    starts, ends = f"startswith({value}, {sql_text.text(first)})", f"endswith({value}, {sql_text.text(last)})"
    if not last:
        return starts
    if not first:
        return ends
    return f"(length({value}) >= {len(first) + len(last)} AND {starts} AND {ends})"


def _segments(pattern: str, escape: str | None) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    is_escaped = False
    for character in pattern:
        if not is_escaped and character == escape:
            is_escaped = True
        elif not is_escaped and character == "%":
            segments.append([])
        else:
            segments[-1].append(_ANY if character == "_" and not is_escaped else character)
            is_escaped = False
    return segments


def _regex(segments: list[list[str]]) -> str:
    if len(segments) == 1:
        return rf"(?s)\A{_piece(segments[0])}\z"
    middle = "".join(f"(?>.*?{_piece(segment)})" for segment in segments[1:-1] if segment)
    return rf"(?s)\A{_piece(segments[0])}{middle}.*{_piece(segments[-1])}\z"


def _piece(segment: list[str]) -> str:
    return "".join("." if character == _ANY else f"\\x{{{ord(character):x}}}" for character in segment)


class Walks:
    """As `busway.rules.budget`. Texts are given by their SQL, or by how long they can be."""

    def __init__(self) -> None:
        #: By text the quarters of a step for each of its characters.
        self._by_text: dict[str, int] = {}
        self._most = 0

    def add(self, text: str | int, pattern: str, escape: str | None) -> None:
        """Raises Unsupported when every message would have to be asked about."""
        quarters = LikePattern(pattern, escape).quarters
        if isinstance(text, str):
            self._by_text[text] = self._by_text.get(text, 0) + quarters
            return
        self._most += text * quarters
        if self._most > CHARACTERS_MAX * QUARTERS:
            raise Unsupported("LIKE with very long texts")

    def ask(self) -> str | None:
        """True where the budget may be spent; None where there is nothing to spend it on."""
        parts = [
            f"coalesce(length({text}), 0) * {quarters}L"
            for text, quarters in self._by_text.items()
            if quarters > 0
        ]
        if not parts:
            return None
        return f"({' + '.join(parts)} > {CHARACTERS_MAX * QUARTERS - self._most}L)"
