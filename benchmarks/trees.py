"""Source trees to compare: a commit, or the working tree as it is at this moment.

A tree is a copy of what a server is made of (`PARTS`), in a folder that is named after its contents, below
build/compare. So nobody who edits files during a run disturbs it, equal trees are one folder, and what was compiled
once is found again. The server runs on the interpreter that runs this program, with the copy's `src` on PYTHONPATH,
which goes before an editable install; its dependencies are therefore those that are installed now.

A tree is compiled by its own script, as its own `make setup` would do it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "compare"
#: What a server is made of, and what compiles it.
PARTS = ("src", "scripts", "pyproject.toml")
#: Folders that stay for a later comparison; each has some ten megabytes.
KEPT_MAX = 8
_NAME_CHARACTERS = 16
_COMPILE = Path("scripts") / "compile_hot_modules.py"
_WHERE = "import busway.server; print(busway.__file__)"


class TreeFault(Exception):
    """A tree cannot be had, compiled or run; the text is a sentence for the user."""


@dataclass(frozen=True)
class Tree:
    title: str
    folder: Path

    @property
    def compiled(self) -> Path:
        return self.folder / "src" / "busway" / "_compiled"

    def environment(self, is_pure: bool = False) -> dict[str, str]:
        """For every program that is to run this tree. Equal hashes of texts: one chance less that differs."""
        pure = {"BUSWAY_PURE": "1" if is_pure else ""}
        return {"PYTHONPATH": str(self.folder / "src"), "PYTHONHASHSEED": "0", **pure}


# -- where trees come from


def of_commit(name: str) -> Tree:
    """`name`: whatever git takes for a commit."""
    commit = _commit_id(name)
    with _scratch() as scratch:
        there = _git("ls-tree", "--name-only", "-z", commit, "--", *PARTS).split("\0")
        archive = Path(scratch) / "tree.zip"
        _git("archive", "--output", str(archive), commit, "--", *(part for part in there if part))
        folder = Path(scratch) / "tree"
        folder.mkdir()
        shutil.unpack_archive(archive, folder)
        return Tree(f"commit {commit[:10]}", _kept(folder))


def of_working_tree() -> Tree:
    """Tracked files and new ones that are not ignored; what is deleted is missing."""
    names = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PARTS).split("\0")
    with _scratch() as scratch:
        folder = Path(scratch) / "tree"
        for name in sorted({name for name in names if name and (ROOT / name).is_file()}):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
        return Tree("the working tree", _kept(folder))


def changed_copy(tree: Tree, title: str, file: str, text: str) -> Tree:
    """A tree in which one file has another text. Compiled modules come along; their hash says whether they fit."""
    with _scratch() as scratch:
        folder = Path(scratch) / "tree"
        shutil.copytree(tree.folder, folder, ignore=shutil.ignore_patterns("__pycache__", "build"))
        (folder / file).write_text(text)
        return Tree(title, _kept(folder))


def identity(folder: Path) -> str:
    """Changes with any name and any byte, except of what was compiled."""
    digest = hashlib.sha256()
    paths = (path for part in PARTS for path in (folder / part, *(folder / part).rglob("*")))
    for path in sorted(path for path in paths if path.is_file()):
        if not {"_compiled", "__pycache__"} & set(path.parts):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_NAME_CHARACTERS]


def _kept(folder: Path) -> Path:
    if not (folder / "src" / "busway" / "__init__.py").is_file():
        raise TreeFault("That tree has no src/busway: there is nothing in it to compare.")
    place = KEPT / identity(folder)
    if not place.exists():
        folder.rename(place)
    os.utime(place)
    for old in sorted(_folders(), key=lambda each: each.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def _folders() -> list[Path]:
    return [each for each in KEPT.iterdir() if each.is_dir() and len(each.name) == _NAME_CHARACTERS]


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """On the same disk, so that it can be renamed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="being-made-", dir=KEPT)


def _commit_id(name: str) -> str:
    if not name.strip():
        raise TreeFault("Name the commit to compare with: make bench-compare BASE=commit.")
    if not (ROOT / ".git").exists():
        raise TreeFault(f"{ROOT.name} is not a git checkout: there are no commits to compare with.")
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
    except TreeFault:
        raise TreeFault(f"git knows no commit '{name}' here (a shallow clone may need git fetch).") from None


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise TreeFault("git is not installed: there are no trees to compare.") from None
    if done.returncode != 0:
        raise TreeFault(f"git {words[0]} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


# -- compiling and checking


def compile_trees(trees: Sequence[Tree]) -> None:
    """Side by side, since old trees keep one processor busy only; nothing is measured meanwhile."""
    running: dict[Path, tuple[Tree, subprocess.Popen[bytes]]] = {}
    try:
        for tree in trees:
            if tree.folder not in running:
                running[tree.folder] = tree, _compiling(tree)
        for tree, process in running.values():
            if process.wait() != 0:
                raise TreeFault(f"{tree.title} does not compile:\n{_log(tree).read_text()[-2000:].strip()}")
    finally:
        for _, process in running.values():
            process.terminate()
            process.wait()


def _compiling(tree: Tree) -> subprocess.Popen[bytes]:
    if not (tree.folder / _COMPILE).is_file():
        raise TreeFault(f"{tree.title} has no {_COMPILE}: compare the Python sources with --pure.")
    command = ["nice", "-n", "5", sys.executable, str(_COMPILE)]
    with _log(tree).open("wb") as log:
        environment = {**os.environ, **tree.environment()}
        return subprocess.Popen(command, cwd=tree.folder, env=environment, stdout=log, stderr=log)


def _log(tree: Tree) -> Path:
    return tree.folder / "compile.log"


def check(tree: Tree) -> None:
    """That this tree's modules are the ones that run, and that they find everything they import."""
    done = subprocess.run(
        [sys.executable, "-c", _WHERE],
        env={**os.environ, **tree.environment(is_pure=True)},
        cwd=tree.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise TreeFault(f"{tree.title} cannot be imported with what is installed here: {last}")
    if not Path(done.stdout.strip()).is_relative_to(tree.folder):
        raise TreeFault(f"{tree.title} is not what runs: busway was imported from {done.stdout.strip()}.")
