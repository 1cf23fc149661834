"""LIKE against a regular expression that says the same, and against patterns made to hurt."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.rules import operators, rule
from busway.rules.operators import PATTERN_CHARACTERS_MAX, LikePattern
from busway.rules.rule import FilterError

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_letters = st.text(alphabet="ab%_!\n", max_size=12)


def oracle(pattern: str, escape: str | None, text: str) -> bool:
    written = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            written += re.escape(next(characters))
        else:
            written += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return re.fullmatch(written, text, re.DOTALL) is not None


@given(_letters, _letters)
def test_like_agrees_with_a_regular_expression(pattern: str, text: str) -> None:
    """T-27: like agrees with a regular expression."""
    assert LikePattern(pattern).matches(text) == oracle(pattern, None, text)


@given(st.text(alphabet="ab%_", max_size=10), st.text(alphabet="ab", max_size=16))
def test_like_agrees_on_texts_that_nearly_match(pattern: str, text: str) -> None:
    """T-27: few letters, so that places are found, and found again further on."""
    assert LikePattern(pattern).matches(text) == oracle(pattern, None, text)


@given(_letters, st.sampled_from("!%_a"), _letters)
def test_like_agrees_with_an_escape_character(pattern: str, escape: str, text: str) -> None:
    """T-27: the escape character makes the next one stand for itself, also when it is a wildcard itself."""
    try:
        compiled = LikePattern(pattern, escape)
    except FilterError:
        return
    assert compiled.matches(text) == oracle(pattern, escape, text)


def test_a_pattern_cannot_end_with_its_escape_character() -> None:
    """T-27: a pattern cannot end with its escape character."""
    with pytest.raises(FilterError, match="ends with its escape character"):
        LikePattern("ab!", "!")
    assert LikePattern("ab!!", "!").matches("ab!")


def test_a_pattern_is_bounded() -> None:
    """T-27: a pattern may come from a message."""
    assert LikePattern("a" * PATTERN_CHARACTERS_MAX).matches("a" * PATTERN_CHARACTERS_MAX)
    with pytest.raises(FilterError, match="more than 1024 characters"):
        LikePattern("%" * (PATTERN_CHARACTERS_MAX + 1))


BOMBS = {
    "all wildcards": "%_" * 512,
    "nearly everywhere": "%" + "a" * 500 + "_" + "a" * 500 + "b",
    "many segments": "%a_a" * 250 + "%b",
    "gaps": "%" + "a_" * 500 + "b%",
    "late failure": "a%" * 500 + "_b",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_no_more_than_the_length_of_the_text(name: str) -> None:
    """T-27, E-71: steps are counted line by line, in the Python source even when a compiled twin is there."""
    text = "a" * 65_536
    pattern = _source_of_like().LikePattern(BOMBS[name])
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal steps
        del frame, argument
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        pattern.matches(text)
    finally:
        sys.settrace(before)
    assert 0 < steps <= 4 * len(text) + 4 * len(BOMBS[name]) + 50


def _source_of_like() -> ModuleType:
    path = str(rule.__file__).replace("rule.py", "operators.py")
    spec = importlib.util.spec_from_file_location("like_from_source", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PATTERN_CHARACTERS_MAX == operators.PATTERN_CHARACTERS_MAX
    return module
