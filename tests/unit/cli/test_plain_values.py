"""Values that are read without typer's converters mean what typer would make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer import _adapters
from typer.models import OptionInfo

from busway.cli.app import UNCERTAIN, plain_value

CALLS: list[tuple[Any, Any, dict[str, Any]]] = [
    *((str, text, {}) for text in ("", "a", "ünï 🚌", " a ", "1", "a\nb")),
    *((int, text, {}) for text in ("0", "-0", "007", "-12", "999999999999999")),
    *((int, 5, bounds) for bounds in ({}, {"min": 5}, {"max": 5}, {"min": 1, "max": 9})),
    *((float, text, {"min": 0}) for text in ("0", "1.5", "10", "0.25", 2.5)),
    *((Path, text, {}) for text in ("a", "/nowhere/at/all", ".", "-", "a/../b", "")),
    (bool, True, {}),
    (bool, False, {}),
    (list[str], ("a", "b"), {}),
    (list[str], [], {}),
]


@pytest.mark.parametrize(("kind", "given", "settings"), CALLS)
def test_a_plain_value_is_what_typer_makes_of_it(kind: Any, given: Any, settings: dict[str, Any]) -> None:
    """Command-line contract: the short way ends where the long one does."""
    info = OptionInfo(**settings)
    thorough = _adapters.build_adapter(kind, info).validate_python(given, context={})
    plain = plain_value(given, kind, info)
    assert plain == thorough
    assert type(plain) is type(thorough)


@pytest.mark.parametrize(
    ("kind", "given", "settings"),
    [
        *((int, text, {}) for text in ("", "x", "1.5", " 7", "1_0", "+5", "٣", "9" * 30, True, 1.0)),
        *((float, text, {}) for text in ("", "nan", "1e3", ".5", "inf")),
        (int, "0", {"min": 1}),
        (int, 10, {"max": 9}),
        (str, "a\udcff", {}),
        (str, b"a", {}),
        (Path, "a\udcff", {}),
        (Path, "a", {"exists": True}),
        (Path, "a", {"resolve_path": True}),
        (Path, ".", {"dir_okay": False}),
        (list[str], ("a", "\udcff"), {}),
        (list[int], ("1",), {}),
        (bool, "yes", {}),
        (complex, "1", {}),
        (str, "a", {"parser": str.upper}),
    ],
)
def test_whatever_is_not_certain_is_left_to_typer(kind: Any, given: Any, settings: dict[str, Any]) -> None:
    """Command-line contract: mistakes are told in typer's words."""
    assert plain_value(given, kind, OptionInfo(**settings)) is UNCERTAIN
