"""Benchmarks: trees that are compared are what they are said to be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import planted_slowness, trees
from benchmarks.trees import Tree, TreeFault

SOURCE = "src/busway/__init__.py"


@pytest.fixture(scope="module")
def one_commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit; nobody changes it."""
    root = tmp_path_factory.mktemp("repository")
    (root / SOURCE).parent.mkdir(parents=True)
    (root / SOURCE).write_text("first = 1\n")
    (root / ".gitignore").write_text("build/\n_compiled/\n")
    (root / "README.md").write_text("not a part of a server\n")
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    for words in (("init", "-q", "--template="), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.fixture
def checkout(one_commit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which trees are looked for."""
    root = tmp_path / "checkout"
    shutil.copytree(one_commit, root)
    monkeypatch.setattr(trees, "ROOT", root)
    monkeypatch.setattr(trees, "KEPT", root / "build" / "compare")
    return root


def test_an_unchanged_working_tree_is_its_commit(checkout: Path) -> None:
    """Benchmarks: equal contents are one folder, so nothing is compiled twice."""
    commit, working = trees.of_commit("HEAD"), trees.of_working_tree()
    assert commit.folder == working.folder
    assert (commit.folder / SOURCE).read_text() == "first = 1\n"
    assert not (commit.folder / "README.md").exists()
    assert [each.name for each in (checkout / "build" / "compare").iterdir()] == [commit.folder.name]


def test_the_working_tree_is_what_lies_there_now(checkout: Path) -> None:
    """Benchmarks: changes and new files count, ignored files and later changes do not."""
    (checkout / SOURCE).write_text("second = 2\n")
    (checkout / "src/busway/new.py").write_text("")
    (checkout / "src/busway/_compiled").mkdir()
    (checkout / "src/busway/_compiled/old.so").write_text("")
    tree = trees.of_working_tree()
    (checkout / SOURCE).write_text("third = 3\n")
    assert (tree.folder / SOURCE).read_text() == "second = 2\n"
    assert (tree.folder / "src/busway/new.py").exists()
    assert not tree.compiled.exists()
    assert trees.of_commit("HEAD").folder != tree.folder


def test_a_deleted_file_is_missing(checkout: Path) -> None:
    """Benchmarks: git still lists a file that was deleted and not committed."""
    (checkout / "src/busway/other.py").write_text("")
    subprocess.run(["git", "add", "."], cwd=checkout, check=True)
    (checkout / "src/busway/other.py").unlink()
    assert trees.of_working_tree().folder == trees.of_commit("HEAD").folder


@pytest.mark.usefixtures("checkout")
def test_what_was_compiled_does_not_change_a_tree() -> None:
    """Benchmarks: a tree keeps its name when it is compiled and run."""
    tree = trees.of_commit("HEAD")
    for name in ("src/busway/_compiled/x.so", "src/busway/__pycache__/x.pyc", "build/x.c", "compile.log"):
        (tree.folder / name).parent.mkdir(exist_ok=True)
        (tree.folder / name).write_text("made later")
    assert trees.identity(tree.folder) == tree.folder.name
    (tree.folder / SOURCE).write_text("changed")
    assert trees.identity(tree.folder) != tree.folder.name


def test_few_folders_are_kept(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks: those that were used last stay."""
    monkeypatch.setattr(trees, "KEPT_MAX", 2)
    for number in range(4):
        (checkout / SOURCE).write_text(f"number = {number}\n")
        last = trees.of_working_tree()
    assert len(list((checkout / "build" / "compare").iterdir())) == trees.KEPT_MAX
    assert last.folder.exists()


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("name", ["nosuch", "--all", "HEAD:src", "a b"])
def test_an_unknown_commit_is_refused(name: str) -> None:
    """Benchmarks: a sentence, not what git says."""
    with pytest.raises(TreeFault, match="git knows no commit"):
        trees.of_commit(name)


def test_a_folder_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks: an unpacked archive has no commits."""
    monkeypatch.setattr(trees, "ROOT", tmp_path)
    with pytest.raises(TreeFault, match="not a git checkout"):
        trees.of_commit("HEAD")


def test_a_tree_that_cannot_be_imported_is_refused(checkout: Path) -> None:
    """Benchmarks: a dependency that is missing here is named."""
    (checkout / "src/busway/server.py").write_text("import a_module_that_nobody_has\n")
    with pytest.raises(TreeFault, match=r"cannot be imported.*a_module_that_nobody_has"):
        trees.check(trees.of_working_tree())


def test_the_modules_of_a_tree_are_the_ones_that_run(checkout: Path) -> None:
    """Benchmarks: an editable install of another tree does not win."""
    (checkout / "src/busway/server.py").write_text("")
    trees.check(trees.of_working_tree())


def test_a_tree_that_does_not_compile_says_why(checkout: Path) -> None:
    """Benchmarks: the compiler's own words are shown."""
    with pytest.raises(TreeFault, match="--pure"):
        trees.compile_trees([trees.of_commit("HEAD")])
    (checkout / "scripts").mkdir()
    (checkout / "scripts/compile_hot_modules.py").write_text("raise SystemExit('no such type')\n")
    with pytest.raises(TreeFault, match="does not compile:\nno such type"):
        trees.compile_trees([trees.of_working_tree()])


def test_slowness_is_planted_into_a_copy(checkout: Path) -> None:
    """Benchmarks: the tree itself stays as it is, and compiled modules come along."""
    protocol = checkout / planted_slowness._FILE
    with pytest.raises(TreeFault, match="nothing can be planted"):
        planted_slowness.planted(trees.of_commit("HEAD"))
    protocol.parent.mkdir(parents=True)
    protocol.write_text((Path(__file__).parents[3] / planted_slowness._FILE).read_text())
    tree = trees.of_working_tree()
    tree.compiled.mkdir()
    slow: Tree = planted_slowness.planted(tree)
    assert slow.folder != tree.folder
    assert slow.compiled.exists()
    assert "process_time" not in (tree.folder / planted_slowness._FILE).read_text()
    compile((slow.folder / planted_slowness._FILE).read_text(), "protocol.py", "exec")
