"""Which of the two twins of a hot module runs."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from busway import compiled
from busway.compiled import HOT_MODULES, Manifest

FITTING = Manifest(
    interpreter=sys.version,
    sources=compiled.digests(["message.py", "amqp/types.py"]),
    twin="twin",
    entries=dict.fromkeys(HOT_MODULES, "entries"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled modules are looked for: there is a twin, but no manifest."""
    (tmp_path / FITTING.twin).mkdir()
    monkeypatch.setattr(compiled, "FOLDER", tmp_path)
    monkeypatch.delenv("BUSWAY_PURE", raising=False)
    return tmp_path


@pytest.mark.parametrize("module", HOT_MODULES)
def test_hot_modules_do_no_input_or_output(module: str) -> None:
    """House style: what is compiled imports neither asyncio nor apsw nor sockets, nowhere in the file."""
    nodes = list(
        ast.walk(ast.parse((compiled.PACKAGE.parent / (module.replace(".", "/") + ".py")).read_text()))
    )
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {"asyncio", "apsw", "socket", "ssl", "sqlite3"}.isdisjoint(
        name.partition(".")[0] for name in names
    )


def test_without_compiled_modules_the_sources_run(folder: Path) -> None:
    """Outside contract: no compiler is needed."""
    assert [file.name for file in folder.iterdir()] == [FITTING.twin]
    assert compiled.status() == "pure Python (not compiled)"


def test_compiled_modules_run_when_they_fit_their_sources(folder: Path) -> None:
    """Outside contract: `busway --version` says so."""
    FITTING.write(folder)
    assert compiled.status() == "compiled"
    assert {file.name for file in folder.iterdir()} == {compiled.MANIFEST, FITTING.twin}


def test_a_shipped_twin_runs_on_the_kind_of_interpreter_it_was_made_for(folder: Path) -> None:
    """Shipping: the next patch of the same Python; never beside other sources, never on another kind."""
    shipped = replace(FITTING, interpreter=compiled.SUFFIX)
    shipped.write(folder)
    assert compiled.status() == "compiled"
    replace(shipped, sources={**shipped.sources, "message.py": "of another day"}).write(folder)
    assert compiled.status().startswith("pure Python (the compiled modules are stale")
    replace(shipped, interpreter=".cpython-399-x86_64-linux-gnu.so").write(folder)
    assert compiled.status().startswith("pure Python (the compiled modules are stale")


@pytest.mark.parametrize("name", ["librt_that_is_not_there.strings", "email.strings"])
def test_without_the_runtime_library_of_compiled_modules_the_sources_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Outside contract: whoever installs without dependencies still has a bus, and is told why it is slow."""
    FITTING.write(folder)
    monkeypatch.setattr(compiled, "LIBRT", name)
    assert compiled.status().startswith("pure Python (the compiled modules need the package librt")


def test_a_manifest_whose_twin_is_gone_counts_as_none(folder: Path) -> None:
    """Bad input: somebody cleaned up by hand."""
    FITTING.write(folder)
    (folder / FITTING.twin).rmdir()
    assert compiled.status() == "pure Python (not compiled)"


@pytest.mark.parametrize(
    "manifest",
    [
        replace(FITTING, sources={**FITTING.sources, "message.py": "of another day"}),
        replace(FITTING, sources={**FITTING.sources, "amqp/types.py": "of another day"}),
        replace(FITTING, sources={**FITTING.sources, "amqp/gone.py": "of a file that was there"}),
        replace(FITTING, interpreter="4.0"),
        replace(FITTING, entries={module: "entries" for module in HOT_MODULES[1:]}),
        replace(FITTING, entries={**FITTING.entries, "busway.no_longer_hot": "entries"}),
    ],
    ids=[
        "hot source",
        "imported source",
        "lost source",
        "interpreter",
        "new hot module",
        "former hot module",
    ],
)
def test_a_stale_twin_never_runs(folder: Path, manifest: Manifest) -> None:
    """House style: compiled code of other sources, also of those that hot modules import, would silently win."""
    manifest.write(folder)
    assert "stale" in compiled.status()
    before = list(sys.meta_path)
    compiled.install()
    assert sys.meta_path == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"interpreter": "3"}'])
def test_a_manifest_that_cannot_be_read_counts_as_none(folder: Path, text: str) -> None:
    """Bad input: half a file, or one of another version of Busway."""
    (folder / compiled.MANIFEST).write_text(text)
    assert compiled.status() == "pure Python (not compiled)"


def test_the_sources_can_be_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside contract: BUSWAY_PURE=1 wins over what was compiled."""
    FITTING.write(folder)
    monkeypatch.setenv("BUSWAY_PURE", "1")
    assert compiled.status() == "pure Python (BUSWAY_PURE=1)"


def test_the_finder_answers_for_hot_modules_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """House style: everything else is found as ever."""
    FITTING.write(folder)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    compiled.install()
    finder = sys.meta_path[0]
    spec = finder.find_spec("busway.message.message", None)
    assert spec is not None
    assert Path(str(spec.origin)).is_relative_to(folder / "twin")
    assert finder.find_spec("busway.server", None) is None
    assert importlib.util.find_spec("json") is not None
