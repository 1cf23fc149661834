"""`make run` and scripts/install.sh on fresh clones, and where something is missing, broken off or in the way."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: pip asks no index: what a machine without a network gets, at once.
OFFLINE = {"PIP_NO_INDEX": "1"}

pytestmark = pytest.mark.timeout(300)


def fresh_clone(folder: Path) -> Path:
    """What git would bring, as it is in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def start(clone: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    """In a process group of its own, as in a terminal."""
    return subprocess.Popen(
        command,
        cwd=clone,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def install(clone: Path, *parts: str, **environment: str) -> tuple[int, str]:
    process = start(clone, "scripts/install.sh", *(parts or ("serve",)), **environment)
    said, _ = process.communicate()
    return process.returncode, said


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A clone whose set-up met no network, and what it said."""
    clone = fresh_clone(tmp_path_factory.mktemp("no network"))
    return clone, *install(clone, **OFFLINE)


def test_without_a_network_it_is_said_what_to_do(offline: tuple[Path, int, str]) -> None:
    """Bad input: no index, no packages; the next try does not take this one for done."""
    clone, status, said = offline
    assert status == 1
    assert "pip could not install what serving needs" in said
    assert "PIP_FIND_LINKS" in said
    assert not (clone / ".venv/.serve-installed").exists()


def test_an_installation_waits_for_another_one(offline: tuple[Path, int, str]) -> None:
    """Set-up: two terminals; pip does not bear it."""
    clone = offline[0]
    with (clone / "build/install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(clone, "scripts/install.sh", "serve", **OFFLINE)
        assert process.stdout is not None
        assert process.stdout.readline() == "another installation is under way: waiting for it\n"
    assert "pip could not install" in process.communicate()[0]


def test_a_clone_that_was_moved_gets_a_new_environment(offline: tuple[Path, int, str]) -> None:
    """Bad input: the programs of a virtual environment know its path."""
    clone = offline[0]
    moved = clone.rename(clone.with_name("moved"))
    assert "making .venv" in install(moved, **OFFLINE)[1]
    assert "making .venv" not in install(moved, **OFFLINE)[1]


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    """Bad input: the version that is needed and the one that is there."""
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    status, said = install(fresh_clone(tmp_path / "clone"), PYTHON=str(old))
    assert status == 1
    assert "Busway needs Python 3.11 or later" in said
    assert "Python 3.9.2" in said
    assert "make setup PYTHON=" in said


def test_a_missing_python_is_told(tmp_path: Path) -> None:
    """Bad input: not the shell's words."""
    status, said = install(fresh_clone(tmp_path), PYTHON="python9")
    assert (status, said.count("\n")) == (1, 1)
    assert "there is no 'python9' here" in said


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_checkout_that_cannot_be_written_is_told(open_folder: Path) -> None:
    """Bad input: read-only, somebody else's, or the disk is full."""
    clone = fresh_clone(open_folder / "clone")
    clone.chmod(0o555)
    drop = ["setpriv", "--reuid=65534", "--clear-groups"] if os.getuid() == 0 else []
    process = start(clone, *drop, "scripts/install.sh", "serve")
    said, _ = process.communicate()
    clone.chmod(0o755)
    assert process.returncode == 1
    assert "nothing can be written there" in said
    assert "Traceback" not in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk on which the environment fits and the packages do not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.getuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=36m", "tmpfs", str(disk)]).returncode
    ):
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def wait_for(what: str, lines: Iterator[str]) -> str:
    said = ""
    for line in lines:
        said += line
        if what in line:
            return said
    raise AssertionError(said)


@pytest.mark.long
def test_make_run_mends_what_was_broken_off_and_serves_while_it_compiles(small_disk: Path) -> None:
    """Outside contract: two words on a fresh clone, in a path with spaces, also after a full disk and after Ctrl-C at
    a bad moment; nothing that was begun is taken for done."""
    clone = fresh_clone(small_disk / "a fresh clone")
    status, said = install(clone)
    assert (status, "The disk is full" in said) == (1, True), said
    assert not (clone / ".venv/.serve-installed").exists()
    subprocess.run(["mount", "-o", "remount,size=400m", str(small_disk)], check=True)

    begun = start(clone, "make", "run")
    packages = clone / ".venv/lib"
    while not list(packages.glob("*/site-packages/cryptography*")):
        assert begun.poll() is None
        time.sleep(0.005)
    os.killpg(begun.pid, signal.SIGINT)
    begun.communicate()
    assert not (clone / ".venv/.serve-installed").exists()

    running = start(clone, "make", "run", BUSWAY_PORT="0")
    assert running.stdout is not None
    said = wait_for("Endpoint=sb://", running.stdout)
    assert "serving from the Python sources" in said or shutil.which(os.environ.get("CC", "cc")) is None
    if "serving from the Python sources" in said:
        done = "the hot modules are compiled: the next start is faster"
        if done not in said:  # out of the cache it takes less time than the start
            wait_for(done, running.stdout)
        version = subprocess.run(
            [clone / ".venv/bin/busway", "--version"], capture_output=True, text=True, check=True
        )
        assert version.stdout.endswith(", compiled\n")
    os.killpg(running.pid, signal.SIGINT)
    running.communicate()
    for tool in ("ruff", "pytest", "import-linter", "azure-servicebus", "pyarrow"):
        assert not list(packages.glob(f"*/site-packages/{tool.replace('-', '*')}")), "not needed for serving"
