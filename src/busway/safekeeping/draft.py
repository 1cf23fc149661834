"""The folder that a backup is written into: whole under its own name, or not there at all.

Theory of operation. Everything is written into a folder beside the one that was asked for, `NAME.unfinished`. Each
file is synced when it is complete; then the folders are; only then does the folder get its name, in one step that
takes the place of nothing but an empty folder, and the name is synced too. So whatever is called NAME is whole,
whenever a process or the machine died. A folder that is left unfinished is nobody's: whoever writes into one holds a
lock on it, and the next backup of that name removes one without a lock.

Keys of the bus lie in its stores, so a backup is as secret as the data directory: only the owner may read it.

Who may have a server write. A folder of the server's machine is no part of the bus, and the right to Manage it must
not be one to write files there. So whoever asks for a backup makes the unfinished folder and puts a note into it that
nobody can guess, and tells the server both: who can do that may write there anyway. The server writes into no other
folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hmac
import os
import shutil
from pathlib import Path
from typing import Final

from busway.store.sqlite.companion_files import sync_directory
from busway.store.sqlite.snapshot import sync_file

_ENDING: Final = ".unfinished"
_NOTE: Final = "asked-for"
_NOTE_BYTES: Final = 32


class BackupRefused(Exception):
    """There will be no backup; the text is a sentence for people."""


class Draft:
    """A backup that has no name yet. Methods block: call them off the loop."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + _ENDING)
        self._lock: int | None = None

    # -- whoever asks

    def make(self) -> str:
        """The folder, with a note in it that this returns. Raises BackupRefused."""
        _check_target(self.target)
        try:
            if self.path.is_symlink() or self.path.exists():
                self._remove_leftover()
            self.path.mkdir(mode=0o700)
            note = os.urandom(_NOTE_BYTES).hex()
            descriptor = os.open(
                self.path / _NOTE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600
            )
            with open(descriptor, "w") as file:
                file.write(note)
        except OSError as error:
            raise _refusal(self.path, error) from error
        return note

    def _remove_leftover(self) -> None:
        """Of a backup that was cut short. One that is being written has a lock."""
        self._take_lock()
        try:
            if not (self.path / _NOTE).is_file():
                raise BackupRefused(
                    f"{self.path} is in the way, and is nothing that a backup has left: move it elsewhere."
                )
            shutil.rmtree(self.path)
        finally:
            self.release()

    # -- whoever writes

    def take(self, note: str) -> None:
        """From here on it is ours, if the note is the one that lies in it. Raises BackupRefused."""
        self._take_lock()
        try:
            with open(self.path / _NOTE, opener=_without_links) as file:
                found = file.read(2 * _NOTE_BYTES)
            is_right = hmac.compare_digest(found.encode(), note.encode())
        except (OSError, UnicodeDecodeError):
            is_right = False
        if not is_right:
            self.release()
            raise BackupRefused(
                f"The server finds no folder {self.path} that was made for it: ask for a backup on the machine, and"
                " as the user, that the server runs as (busway backup)."
            )

    def finish(self) -> None:
        """Every file in it is synced. It gets its name. Raises BackupRefused, and keeps nothing then."""
        assert self._lock is not None, "it was taken"
        try:
            for folder, _, files in os.walk(self.path):
                for name in files:
                    if name != _NOTE:
                        sync_file(Path(folder, name))
                sync_directory(Path(folder))
            if os.stat(self.path, follow_symlinks=False).st_ino != os.fstat(self._lock).st_ino:
                raise BackupRefused(f"{self.path} was replaced by another folder meanwhile.")
            (self.path / _NOTE).unlink()
            sync_directory(self.path)
            self.path.rename(self.target)
            sync_directory(self.target.parent)
        except OSError as error:
            raise _refusal(self.target, error) from error
        finally:
            self.release()

    def discard(self) -> None:
        """Nothing of it stays. Idempotent; one that somebody else writes into stays."""
        with contextlib.suppress(OSError, BackupRefused):
            if self._lock is None:
                self._take_lock()
            if (self.path / _NOTE).is_file():
                shutil.rmtree(self.path)
        self.release()

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _take_lock(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _refusal(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise BackupRefused(f"A backup to {self.target} is under way.") from error
        self._lock = descriptor


def _without_links(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _check_target(target: Path) -> None:
    try:
        if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
            raise BackupRefused(f"{target} is there already: a backup takes the place of nothing.")
    except OSError as error:
        raise _refusal(target, error) from error
    if not target.parent.is_dir():
        raise BackupRefused(f"There is no folder {target.parent}: make it first.")


def _refusal(path: Path, error: OSError) -> BackupRefused:
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
        return BackupRefused(f"{path} is there already: a backup takes the place of nothing.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BackupRefused(f"The disk of {path} is full: nothing was kept.")
    return BackupRefused(f"{path} cannot be written: {error.strerror or error}.")
