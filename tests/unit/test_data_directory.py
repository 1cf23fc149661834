"""Who may use a data directory, and its small files."""

import os
import stat
from pathlib import Path

import pytest

from busway.data_directory import DataDirectory, DataDirectoryError, write_private


def test_one_server_at_a_time(tmp_path: Path) -> None:
    """Outside contract: a data directory is locked by one server; the second gets a clear sentence."""
    first, second = DataDirectory(tmp_path / "data"), DataDirectory(tmp_path / "data")
    first.acquire()
    with pytest.raises(DataDirectoryError, match=f"in use by process {os.getpid()}: stop that server"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """Command-line contract: the sentence names the directory and the reason."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataDirectoryError, match=r"file/data cannot be used: Not a directory\."):
        DataDirectory(tmp_path / "file" / "data").acquire()


def test_everything_in_it_is_for_its_owner_only(tmp_path: Path) -> None:
    """A-3: keys and messages lie here."""
    directory = DataDirectory(tmp_path / "data")
    before = os.umask(0)
    try:
        directory.acquire()
        directory.write_root_key("key")
        directory.write_server({"port": 1})
    finally:
        os.umask(before)
    for path in (directory.path, directory.stores):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for name in ("lock", "root.key", "server.json"):
        assert stat.S_IMODE((directory.path / name).stat().st_mode) == 0o600, name
    directory.release()


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    """A-3: a draft that somebody left, or a link that somebody laid, is not written through."""
    target = tmp_path / "elsewhere"
    target.write_text("untouched")
    (tmp_path / "root.key.new").symlink_to(target)
    write_private(tmp_path / "root.key", "key\n")
    assert (tmp_path / "root.key").read_text() == "key\n"
    assert target.read_text() == "untouched"
    assert not (tmp_path / "root.key").is_symlink()


def test_a_directory_without_a_server_says_what_to_do(tmp_path: Path) -> None:
    """Command-line contract."""
    with pytest.raises(DataDirectoryError, match="start one with busway serve --data"):
        DataDirectory(tmp_path).read_server()
    assert DataDirectory(tmp_path).read_root_key() is None
