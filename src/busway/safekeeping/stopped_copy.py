"""Which files belong to a bus, and a backup of one that nobody serves: its files, copied while their locks are held.

A store that was not closed has its log beside it; both are copied, and whoever serves the copy goes on from them as
after a crash. Nothing is read into it: what is damaged is copied as it is, `busway check` tells of it.

Not copied, because a server makes them anew or they are no part of the bus: `root.key` (the key is in the catalogue),
`server.json`, locks and reserves, `busway.log`; captured files and the journal, which any tool may copy because they
never change once they are there. `tls/` belongs to it: clients that trust our authority go on trusting the copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from busway.broker.namespace.namespace import StoreRow, store_rows
from busway.data_directory import DataDirectory
from busway.safekeeping.draft import BackupRefused
from busway.store.contract import StoreError
from busway.store.sqlite.file_check import read_catalogue

_SLICE_BYTES: Final = 4 << 20


class DirectoryInUse(Exception):
    """A server works with it; the text is a sentence for people."""


@dataclass(frozen=True)
class StoreFile:
    name: str
    path: Path
    #: None of the catalogues that could be read knows it, or it is where it belongs.
    is_missing: bool = False

    def files(self) -> dict[str, Path]:
        """Those that are there, the log included: what each is called in a data directory."""
        beside = {
            f"{self.name}.db": self.path,
            f"{self.name}.db-wal": Path(f"{self.path}-wal"),
            f"{self.name}.high-water": self.path.with_suffix(".high-water"),
        }
        return {name: file for name, file in beside.items() if file.is_file()}

    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files().values())


def store_files(directory: DataDirectory, urls: Sequence[str] = ()) -> list[StoreFile]:
    """`urls`: as a server is given them; else those in the directory, and those elsewhere that a catalogue in it
    names."""
    if urls:
        paths = [Path(url.removeprefix("sqlite:").removeprefix("//")) for url in urls]
        return [StoreFile(f"store-{n}", path, not path.is_file()) for n, path in enumerate(paths)]
    found = {path.stem: StoreFile(path.stem, path) for path in directory.stores.glob("store-*.db")}
    for row in _newest_rows(list(found.values())):
        if row.name not in found:
            path = Path(row.url.removeprefix("sqlite:").removeprefix("//"))
            elsewhere = path if path.is_file() else directory.stores / f"{row.name}.db"
            found[row.name] = StoreFile(row.name, elsewhere, not path.is_file())
    return [found[name] for name in sorted(found, key=lambda name: (len(name), name))]


def _newest_rows(files: Sequence[StoreFile]) -> list[StoreRow]:
    newest, rows = -1, []
    for file in files:
        with contextlib.suppress(StoreError):
            version, texts = read_catalogue(file.path)
            if version > newest:
                newest, rows = version, store_rows(texts)
    return rows


@contextlib.contextmanager
def held(directory: DataDirectory, urls: Sequence[str] = ()) -> Iterator[list[StoreFile]]:
    """No server begins with the directory or one of its stores meanwhile. Nothing is written. Raises
    DirectoryInUse."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_held(directory.path / "lock", f"The data directory {directory.path}"))
        files = store_files(directory, urls)
        for file in files:
            stack.enter_context(held_file(file.path))
        yield files


def held_file(path: Path) -> contextlib.AbstractContextManager[None]:
    """No server begins with a store's file meanwhile. Raises DirectoryInUse."""
    file = path.resolve()
    return _held(file.with_name(f"{file.name}.lock"), f"The store's file {path}")


@contextlib.contextmanager
def _held(lock: Path, named: str) -> Iterator[None]:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy without its locks
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise DirectoryInUse(f"{named} is in use by process {holder}") from error
        yield
    finally:
        os.close(descriptor)


def copy_stopped(directory: DataDirectory, files: Sequence[StoreFile], folder: Path) -> Iterator[int]:
    """Everything that belongs to the bus into an empty folder, to be synced at the end: how many bytes more are
    copied. Whoever asks holds the directory. Raises BackupRefused."""
    try:
        (folder / "stores").mkdir(mode=0o700)
        for store in files:
            if store.is_missing:
                raise BackupRefused(
                    f"The store {store.name} is missing: {store.path} is not there. Nothing was kept."
                )
            for name, file in store.files().items():
                yield from _copied(file, folder / "stores" / name)
        copy_tls(directory, folder)
    except OSError as error:
        raise BackupRefused(
            f"{error.filename or folder}: {error.strerror or error}. Nothing was kept."
        ) from error


def copy_tls(directory: DataDirectory, folder: Path) -> None:
    """Raises OSError."""
    if not directory.tls.is_dir():
        return
    (folder / "tls").mkdir(mode=0o700)
    for file in sorted(directory.tls.iterdir()):
        if file.is_file():
            for _ in _copied(file, folder / "tls" / file.name):
                pass


def _copied(source: Path, target: Path) -> Iterator[int]:
    """Owner only; written to the disk as it grows."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with open(source, "rb") as reading, open(os.open(target, flags, 0o600), "wb") as writing:
        while data := reading.read(_SLICE_BYTES):
            writing.write(data)
            writing.flush()
            os.fdatasync(writing.fileno())
            yield len(data)
