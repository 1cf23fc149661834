"""The place where captured files lie: a directory, or a URI that Arrow knows (file://, s3://, gs://, hdfs://).

In a directory a file is moved in one step and is on the disk before anybody is told so. An object store knows no
moving: there it is a copy and a deletion, and a text is written in one step by itself.

Beside the data lie our own notes, in folders that no reader of Parquet looks into: `_capture` and `_checkpoints`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from busway_spark.pipeline.job import JobFailed

TOP: Final = PurePosixPath()
NOTES: Final = PurePosixPath("_capture")
CHECKPOINTS: Final = PurePosixPath("_checkpoints")
_SCHEME_MARK: Final = "://"


class CaptureRoot:
    """Travels to executors by its location. Paths are below it."""

    def __init__(self, location: str) -> None:
        if not location.strip():
            raise JobFailed("The place of captured files has no name.")
        is_uri = _SCHEME_MARK in location
        self.location = location.rstrip("/") if is_uri else str(Path(location).expanduser().resolve())

    def __getstate__(self) -> dict[str, object]:
        return {"location": self.location}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _place(self) -> tuple[pafs.FileSystem, str]:
        try:
            if _SCHEME_MARK in self.location:
                return pafs.FileSystem.from_uri(self.location)
            return pafs.LocalFileSystem(), self.location
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise JobFailed(f"Files cannot be kept at '{self.location}': {error}") from error

    @property
    def filesystem(self) -> pafs.FileSystem:
        return self._place[0]

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def full(self, path: PurePosixPath) -> str:
        return self._place[1] if path == TOP else f"{self._place[1]}/{path}"

    # -- files

    def exists(self, path: PurePosixPath) -> bool:
        return self._info(path).type != pafs.FileType.NotFound

    def size(self, path: PurePosixPath) -> int:
        return int(self._info(path).size or 0)

    def file_size(self, path: PurePosixPath) -> int | None:
        """None where there is no file."""
        info = self._info(path)
        return int(info.size) if info.type == pafs.FileType.File else None

    def _info(self, path: PurePosixPath) -> pafs.FileInfo:
        found: Any = self.filesystem.get_file_info(self.full(path))
        info: pafs.FileInfo = found
        return info

    def files(self, folder: PurePosixPath) -> list[tuple[PurePosixPath, int]]:
        """Every file below the folder with its size, sorted; nothing where there is no such folder."""
        selector = pafs.FileSelector(self.full(folder), allow_not_found=True, recursive=True)
        start = len(self._place[1]) + 1
        return sorted(
            (PurePosixPath(info.path[start:]), int(info.size))
            for info in self.filesystem.get_file_info(selector)
            if info.type == pafs.FileType.File
        )

    def folders(self, folder: PurePosixPath) -> list[PurePosixPath]:
        """The folders right below it."""
        selector = pafs.FileSelector(self.full(folder), allow_not_found=True)
        start = len(self._place[1]) + 1
        found = self.filesystem.get_file_info(selector)
        return sorted(PurePosixPath(each.path[start:]) for each in found if not each.is_file)

    def make_folder(self, path: PurePosixPath) -> None:
        self.filesystem.create_dir(self.full(path), recursive=True)

    def move(self, source: PurePosixPath, target: PurePosixPath) -> None:
        """Replaces what is there."""
        self.filesystem.move(self.full(source), self.full(target))

    def delete(self, path: PurePosixPath) -> None:
        """It may be gone already."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.full(path))

    def delete_files(self, paths: Sequence[PurePosixPath]) -> None:
        """They may be gone already."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: PurePosixPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.full(path))

    def remove_empty_folder(self, path: PurePosixPath) -> None:
        """It may have been filled, or be gone: then nothing is done. An object store has no empty folders."""
        if self.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self.full(path))
        elif not self.files(path):
            self.delete_folder(path)

    # -- durability

    def sync_file(self, path: PurePosixPath) -> None:
        if self.is_local:
            _sync(self.full(path))

    sync_folder = sync_file

    # -- small files

    def read_text(self, path: PurePosixPath) -> str | None:
        data = self.read_bytes(path)
        return None if data is None else data.decode()

    def read_bytes(self, path: PurePosixPath) -> bytes | None:
        """None where there is no file."""
        try:
            with self.filesystem.open_input_stream(self.full(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """In one step: a reader sees the text before or this one."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: PurePosixPath, data: bytes) -> None:
        """In one step, as a text."""
        self.make_folder(path.parent)
        written = path.with_name(f".{path.name}.{uuid4().hex}") if self.is_local else path
        with self.filesystem.open_output_stream(self.full(written)) as stream:
            stream.write(data)
        if written != path:
            self.sync_file(written)
            self.move(written, path)
            self.sync_folder(path.parent)

    def forget_halves(self, folder: PurePosixPath) -> None:
        """Texts of this folder that were written but never put in place. Only while nobody writes there."""
        for path, _ in self.files(folder):
            if path.parent == folder and path.name.startswith("."):
                self.delete(path)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What goes wrong with files, as a sentence."""
        try:
            yield
        except OSError as error:
            raise JobFailed(f"Files at {self.location} cannot be used: {error.strerror or error}") from error

    # -- one process at a time

    @contextlib.contextmanager
    def locked(self, path: PurePosixPath, sentence: str) -> Iterator[None]:
        """In a directory. Raises JobFailed with the sentence when another process has it."""
        if not self.is_local:
            yield
            return
        self.make_folder(path.parent)
        handle = os.open(self.full(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, sentence)
            yield
        finally:
            os.close(handle)


def _lock(handle: int, sentence: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JobFailed(sentence) from None


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
