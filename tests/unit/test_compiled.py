"""Which of the two twins of a hot module runs."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from busway import compiled


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled modules are looked for, empty."""
    monkeypatch.setattr(compiled, "FOLDER", tmp_path)
    monkeypatch.delenv("BUSWAY_PURE", raising=False)
    return tmp_path


@pytest.mark.parametrize("module", compiled.HOT_MODULES)
def test_hot_modules_do_no_input_or_output(module: str) -> None:
    """House style: what is compiled imports neither asyncio nor apsw nor sockets, nowhere in the file."""
    nodes = list(ast.walk(ast.parse(compiled.source_of(module).read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {"asyncio", "apsw", "socket", "ssl", "sqlite3"}.isdisjoint(
        name.partition(".")[0] for name in names
    )


def test_without_compiled_modules_the_sources_run(folder: Path) -> None:
    """Outside contract: no compiler is needed."""
    assert not (folder / "source-hash").exists()
    assert compiled.status() == "pure Python (not compiled)"


def test_compiled_modules_run_when_they_fit_their_sources(folder: Path) -> None:
    """Outside contract: `busway --version` says so."""
    (folder / "source-hash").write_text(compiled.source_hash())
    assert compiled.status() == "compiled"


def test_a_stale_twin_never_runs(folder: Path) -> None:
    """House style: compiled code of other sources would silently win."""
    (folder / "source-hash").write_text("of another day")
    assert "stale" in compiled.status()
    before = list(sys.meta_path)
    compiled.install()
    assert sys.meta_path == before


def test_the_sources_can_be_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside contract: BUSWAY_PURE=1 wins over what was compiled."""
    (folder / "source-hash").write_text(compiled.source_hash())
    monkeypatch.setenv("BUSWAY_PURE", "1")
    assert compiled.status() == "pure Python (BUSWAY_PURE=1)"


def test_the_hash_follows_the_interpreter_and_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: an extension of another interpreter does not fit either."""
    present = compiled.source_hash()
    monkeypatch.setattr(sys, "version", "4.0")
    assert compiled.source_hash() != present
    monkeypatch.undo()
    monkeypatch.setattr(compiled, "HOT_MODULES", compiled.HOT_MODULES[1:])
    assert compiled.source_hash() != present


def test_the_finder_answers_for_hot_modules_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: everything else is found as ever."""
    (folder / "source-hash").write_text(compiled.source_hash())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    compiled.install()
    finder = sys.meta_path[0]
    spec = finder.find_spec("busway.message", None)
    assert spec is not None
    assert Path(str(spec.origin)).is_relative_to(folder)
    assert finder.find_spec("busway.server", None) is None
    assert importlib.util.find_spec("json") is not None
