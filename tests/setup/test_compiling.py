"""Compiling hot modules, tried on three small ones: what is broken off, doubled, changed or impossible."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CC = shutil.which(os.environ.get("CC", "cc"))

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


class Tree:
    """A checkout in small: the package has two hot modules, one of which imports a constant from a third."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.package = folder / "src" / "busway"
        self._cache = cache

    def write(self) -> Tree:
        self.package.mkdir(parents=True)
        shutil.copytree(
            ROOT / "scripts", self.folder / "scripts", ignore=shutil.ignore_patterns("__pycache__")
        )
        text = (ROOT / "src/busway/compiled.py").read_text()
        hot = 'HOT_MODULES: Final = ("busway.alpha", "busway.beta")\n'
        text = re.sub(r"HOT_MODULES: Final = \(.*?\n\)\n", hot, text, count=1, flags=re.DOTALL)
        (self.package / "compiled.py").write_text(text)
        (self.package / "__init__.py").write_text("from busway import compiled\n\ncompiled.install()\n")
        (self.package / "limits.py").write_text("from typing import Final\n\nMOST: Final = 7\n")
        self.edit("alpha", "from busway.limits import MOST\n\n\ndef most() -> int:\n    return MOST\n")
        self.edit(
            "beta", "from busway.alpha import most\n\n\ndef text() -> str:\n    return f'at most {most()}'\n"
        )
        return self

    def edit(self, module: str, text: str) -> None:
        (self.package / f"{module}.py").write_text(text)

    def copy(self, folder: Path) -> Tree:
        shutil.copytree(self.folder, folder)
        return Tree(folder, self._cache)

    def start(self, cc: str | None = CC, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.folder / "scripts/compile_hot_modules.py")],
            env={**self._environment(), "CC": cc or "", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def compile(self, cc: str | None = CC, **environment: str) -> tuple[int, str]:
        process = self.start(cc, **environment)
        said, _ = process.communicate()
        return process.returncode, said

    def runs(self) -> tuple[str, str]:
        """What a program of this tree says of itself: its text, and whether that was compiled."""
        program = (
            "from busway import compiled, beta; print(beta.text(), beta.__file__, compiled.status(), sep='|')"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        text, file, status = done.stdout.strip().split("|")
        assert (status == "compiled") == ("_compiled" in file), done.stdout
        return text, status

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "BUSWAY_PURE"}
        return {**kept, "PYTHONPATH": str(self.folder / "src"), "XDG_CACHE_HOME": str(self._cache)}


class SlowCompiler:
    """A compiler that waits at its first file until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self._is_waiting, self._may_go = folder / "is-waiting", folder / "may-go"
        self.path = folder / "slow cc"
        self.path.write_text(
            "#!/bin/sh\n"
            f'case "$*" in *--version*) ;; *) touch {self._is_waiting}; '
            f"while [ ! -e {self._may_go} ]; do sleep 0.02; done;; esac\n"
            f'exec {CC} "$@"\n'
        )
        self.path.chmod(0o755)

    @property
    def command(self) -> str:
        return f"'{self.path}'"

    def wait(self) -> None:
        deadline = time.monotonic() + 90
        while not self._is_waiting.exists():
            assert time.monotonic() < deadline, "nothing was compiled"
            time.sleep(0.01)

    def go_on(self) -> None:
        self._may_go.touch()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Compiled once for all; a path with spaces is the usual case."""
    folder = tmp_path_factory.mktemp("a path with spaces")
    tree = Tree(folder / "checkout", folder / "cache").write()
    status, said = tree.compile()
    assert (status, said) == (0, "compiled 2 modules\n")
    return tree


def test_what_was_compiled_runs_and_a_second_call_does_nothing(made: Tree) -> None:
    """Set-up: `make setup` is idempotent."""
    assert made.runs() == ("at most 7", "compiled")
    assert made.compile() == (0, "compiled modules are up to date\n")


def test_a_constant_that_a_hot_module_imports_makes_the_twin_stale(made: Tree, tmp_path: Path) -> None:
    """Set-up: the compiler copies constants of other modules into its code, so these are sources too."""
    tree = made.copy(tmp_path / "checkout")
    tree.edit("limits", "from typing import Final\n\nMOST: Final = 8\n")
    assert tree.runs() == ("at most 8", "pure Python (the compiled modules are stale: run make setup)")
    assert tree.compile() == (0, "compiled 2 modules\n")
    assert tree.runs() == ("at most 8", "compiled")


def test_another_list_of_hot_modules_makes_another_twin(made: Tree, tmp_path: Path) -> None:
    """Found in use: what the compiler reads is the same, since one module imports the other."""
    tree = made.copy(tmp_path / "checkout")
    text = (tree.package / "compiled.py").read_text()
    tree.edit("compiled", text.replace('("busway.alpha", "busway.beta")', '("busway.beta",)'))
    assert tree.compile() == (0, "compiled 1 modules\n")
    assert tree.runs() == ("at most 7", "compiled")


def test_a_source_that_changes_while_it_is_compiled_leaves_a_stale_twin(made: Tree, tmp_path: Path) -> None:
    """Set-up: never a wrong one; what is compiled is a copy, and the manifest tells of the copy."""
    tree, compiler = made.copy(tmp_path / "checkout"), SlowCompiler(tmp_path)
    tree.edit("beta", "def text() -> str:\n    return 'compiled meanwhile'\n")
    process = tree.start(compiler.command)
    compiler.wait()
    tree.edit("beta", "def text() -> str:\n    return 'edited'\n")
    compiler.go_on()
    assert process.communicate()[0] == "compiled 2 modules\n"
    assert tree.runs() == ("edited", "pure Python (the compiled modules are stale: run make setup)")


def test_of_two_compilations_at_once_one_waits_for_the_other(made: Tree, tmp_path: Path) -> None:
    """Set-up: two terminals, or `make run` while it compiles beside a server."""
    tree, compiler = made.copy(tmp_path / "checkout"), SlowCompiler(tmp_path)
    tree.edit("beta", "def text() -> str:\n    return 'twice'\n")
    first = tree.start(compiler.command)
    compiler.wait()
    second = tree.start(compiler.command)
    assert second.stdout is not None
    assert second.stdout.readline() == "another compilation is under way: waiting for it\n"
    compiler.go_on()
    assert first.communicate()[0] == "compiled 2 modules\n"
    assert second.communicate()[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert tree.runs() == ("twice", "compiled")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_compilation_that_is_broken_off_leaves_what_was_there(
    made: Tree, tmp_path: Path, number: int
) -> None:
    """Set-up: Ctrl-C, a stop of the machine; the next `make setup` goes on."""
    tree, compiler = made.copy(tmp_path / "checkout"), SlowCompiler(tmp_path)
    before = (tree.package / "beta.py").read_text()
    tree.edit("beta", f"def text() -> str:\n    return 'after signal {number:d}'\n")
    process = tree.start(compiler.command)
    compiler.wait()
    process.send_signal(number)
    compiler.go_on()
    said, _ = process.communicate()
    if number != signal.SIGKILL:
        assert (process.returncode, said) == (
            130,
            "Compiling was broken off; make setup goes on from here.\n",
        )
    edited = (tree.package / "beta.py").read_text()
    tree.edit("beta", before)
    assert tree.runs() == ("at most 7", "compiled")
    tree.edit("beta", edited)
    assert tree.compile()[0] == 0
    assert tree.runs() == (f"after signal {number:d}", "compiled")
    assert not list((tree.package / "_compiled").glob("*.half"))


def test_without_a_compiler_the_sources_run(tmp_path: Path) -> None:
    """Bad input: no C compiler is a sentence, not a failure."""
    tree = Tree(tmp_path / "checkout", tmp_path / "cache").write()
    status, said = tree.compile("/nowhere/cc")
    assert (status, said) == (0, "no C compiler found: Busway runs as pure Python, which is slower\n")
    assert tree.runs() == ("at most 7", "pure Python (not compiled)")


def test_a_full_disk_is_told_and_leaves_what_was_there(made: Tree, tmp_path: Path) -> None:
    """Bad input: the compiler's own words, and what it means."""
    tree = made.copy(tmp_path / "checkout")
    compiler = tmp_path / "cc"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) exec {CC} "$@";; esac\n'
        "echo 'fatal error: error writing to x.s: No space left on device' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    before = (tree.package / "alpha.py").read_text()
    tree.edit("alpha", "def most() -> int:\n    return 70\n")
    status, said = tree.compile(str(compiler))
    assert status == 1
    assert said.startswith("The hot modules could not be compiled; Busway runs as pure Python.\n")
    assert "No space left on device" in said
    assert "Traceback" not in said
    tree.edit("alpha", before)
    assert tree.runs() == ("at most 7", "compiled")


def test_what_hot_modules_import_may_want_a_package_that_is_not_there(made: Tree, tmp_path: Path) -> None:
    """`make setup` compiles while the packages of development are still being installed."""
    tree = made.copy(tmp_path / "checkout")
    absent = "    import no_such_package\n\n    no_such_package.write()\n"
    tree.edit("limits", f"from typing import Final\n\nMOST: Final = 7\n\n\ndef write() -> None:\n{absent}")
    assert tree.compile() == (0, "compiled 2 modules\n")
    assert tree.runs() == ("at most 7", "compiled")


def test_sources_that_mypyc_refuses_are_told(made: Tree, tmp_path: Path) -> None:
    """Bad input: a type that is wrong is shown with its place."""
    tree = made.copy(tmp_path / "checkout")
    tree.edit("alpha", "def most() -> int:\n    return 'many'\n")
    status, said = tree.compile()
    assert status == 1
    assert "busway/alpha.py:2" in said
    assert "Traceback" not in said


def test_the_same_sources_in_another_clone_come_out_of_the_cache(made: Tree) -> None:
    """Set-up: a fresh clone of a known commit does not wait for the compiler."""
    twin = Tree(made.folder.parent / "another clone", made.folder.parent / "cache").write()
    compiler = made.folder.parent / "cc"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec {CC} "$@";; esac\nexit 1\n')
    compiler.chmod(0o755)
    assert twin.compile(f"'{compiler}'") == (0, "compiled 2 modules\n")
    assert twin.runs() == ("at most 7", "compiled")
