"""The place where captured files lie: a directory, a store of objects, or another URI that Arrow knows.

Busway's own readers and Spark spell such a place each in their way. Stores of objects (s3://, gs://, abfs://) are
spoken to by `object_store`, others (hdfs://, file://) by Arrow. Hadoop calls Amazon's store s3a, everybody else
s3: both are taken, and mean the same place.

In a directory a file is moved in one step and is on the disk before anybody is told so. A store of objects knows
no moving: there it is a copy and a deletion, and a text is written in one step by itself; it knows no folders
either.

Beside the data lie our own notes, in folders that no reader of Parquet looks into: `_capture` and `_checkpoints`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from busway_spark.pipeline.captured.object_store import ObjectFiles, ObjectLock, ObjectStore
from busway_spark.pipeline.job import JobFailed

SCHEME_MARK: Final = "://"
#: As we spell it → as Hadoop does.
_HADOOP: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_WITHOUT_USERS: Final = ("s3", "gs")
_OURS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def our_location(location: str) -> str:
    """One spelling for each place. Raises JobFailed where there is none."""
    if not location.strip():
        raise JobFailed("The place of captured files has no name.")
    if SCHEME_MARK not in location:
        return str(Path(location).expanduser().resolve())
    scheme, rest = location.split(SCHEME_MARK, 1)
    return f"{_OURS.get(scheme.lower(), scheme.lower())}{SCHEME_MARK}{rest.rstrip('/')}"


def spark_location(location: str) -> str:
    """The same place as Spark wants to hear it."""
    if SCHEME_MARK not in location:
        return location.rstrip("/")
    scheme, rest = our_location(location).split(SCHEME_MARK, 1)
    return f"{_HADOOP.get(scheme, scheme)}{SCHEME_MARK}{rest}"


def object_place(location: str) -> tuple[str, str, str] | None:
    """Scheme, bucket (or what stands for it) and the path in it; None for what is no store of objects."""
    if SCHEME_MARK not in location:
        return None
    parts = urlsplit(location, allow_fragments=False)
    if parts.scheme not in _HADOOP:
        return None
    if not parts.netloc:
        raise JobFailed(f"'{location}' names no bucket: {parts.scheme}://BUCKET/PATH.")
    if parts.query or (parts.scheme in _WITHOUT_USERS and "@" in parts.netloc):
        raise JobFailed(
            f"'{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}' is enough: keys, regions and endpoints"
            " come from the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL …)."
        )
    return parts.scheme, parts.netloc, parts.path.strip("/")


TOP: Final = PurePosixPath()
NOTES: Final = PurePosixPath("_capture")
CHECKPOINTS: Final = PurePosixPath("_checkpoints")


#: Raises JobFailed when a lock was lost.
Held = Callable[[], None]


class CaptureRoot:
    """Travels to executors by its location. Paths are below it."""

    def __init__(self, location: str, owner: str | None = None) -> None:
        self.location = our_location(location)
        #: Who has the locks that were taken here, in a store of objects; None: nobody asks.
        self.owner = owner
        self._locks: list[ObjectLock] = []

    def __getstate__(self) -> dict[str, object]:
        return {"location": self.location, "owner": self.owner}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _locks=[])

    @cached_property
    def _place(self) -> tuple[pafs.FileSystem, str]:
        place = object_place(self.location)
        if place is not None:
            _, authority, folder = place
            handler = ObjectFiles(self._objects_at(place), authority)
            return pafs.PyFileSystem(handler), f"{authority}/{folder}".rstrip("/")
        try:
            if SCHEME_MARK in self.location:
                return pafs.FileSystem.from_uri(self.location)
            return pafs.LocalFileSystem(), self.location
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise JobFailed(f"Files cannot be kept at '{self.location}': {error}") from error

    def _objects_at(self, place: tuple[str, str, str]) -> ObjectStore:
        return ObjectStore(place[0], place[1])

    @cached_property
    def objects(self) -> ObjectStore | None:
        """None where there are files."""
        place = object_place(self.location)
        return None if place is None else self._objects_at(place)

    def key(self, path: PurePosixPath) -> str:
        """In a store of objects."""
        return self.full(path).split("/", 1)[1] if "/" in self.full(path) else ""

    @property
    def spark_location(self) -> str:
        """As Spark spells it."""
        return spark_location(self.location)

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
        if self.objects is not None:
            return self.objects.size(self.key(path))
        info = self._info(path)
        return int(info.size) if info.type == pafs.FileType.File else None

    def written_size(self, path: PurePosixPath, told: int) -> int:
        """Of a file that was just closed, after that many bytes. An object is there whole or not at all."""
        return told if self.objects is not None else self.size(path)

    def _info(self, path: PurePosixPath) -> pafs.FileInfo:
        found: Any = self.filesystem.get_file_info(self.full(path))
        info: pafs.FileInfo = found
        return info

    def files(self, folder: PurePosixPath) -> list[tuple[PurePosixPath, int]]:
        """Every file below the folder with its size, sorted; nothing where there is no such folder."""
        if self.objects is not None:
            start = len(self.key(TOP)) + 1 if self.key(TOP) else 0
            found = self.objects.below(self.key(folder))
            return sorted((PurePosixPath(key[start:]), size) for key, size in found)
        selector = pafs.FileSelector(self.full(folder), allow_not_found=True, recursive=True)
        start = len(self._place[1]) + 1
        return sorted(
            (PurePosixPath(info.path[start:]), int(info.size))
            for info in self.filesystem.get_file_info(selector)
            if info.type == pafs.FileType.File
        )

    def folders(self, folder: PurePosixPath) -> list[PurePosixPath]:
        """The folders right below it."""
        if self.objects is not None:
            start = len(self.key(TOP)) + 1 if self.key(TOP) else 0
            return sorted(PurePosixPath(key[start:]) for key in self.objects.folders(self.key(folder)))
        selector = pafs.FileSelector(self.full(folder), allow_not_found=True)
        start = len(self._place[1]) + 1
        found = self.filesystem.get_file_info(selector)
        return sorted(PurePosixPath(each.path[start:]) for each in found if not each.is_file)

    def make_folder(self, path: PurePosixPath) -> None:
        if self.objects is None:
            self.filesystem.create_dir(self.full(path), recursive=True)

    def move(self, source: PurePosixPath, target: PurePosixPath) -> None:
        """Replaces what is there."""
        self.filesystem.move(self.full(source), self.full(target))

    def move_all(self, moves: Sequence[tuple[PurePosixPath, PurePosixPath]]) -> None:
        """Objects many at a time."""
        if self.objects is None:
            for source, target in moves:
                self.make_folder(target.parent)
                self.move(source, target)
            return
        self.objects.copy([(self.key(source), self.key(target)) for source, target in moves])
        self.objects.delete([self.key(source) for source, _ in moves])

    def delete(self, path: PurePosixPath) -> None:
        """It may be gone already."""
        if self.objects is not None:
            self.objects.delete([self.key(path)])
            return
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.full(path))

    def delete_files(self, paths: Sequence[PurePosixPath]) -> None:
        """They may be gone already."""
        if self.objects is not None:
            self.objects.delete([self.key(path) for path in paths])
            return
        for path in paths:
            self.delete(path)

    def delete_folder(self, path: PurePosixPath) -> None:
        if self.objects is not None:
            self.objects.delete([key for key, _ in self.objects.below(self.key(path))])
            return
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
        if self.objects is not None:
            found = self.objects.get(self.key(path))
            return None if found is None else found.data
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
        if self.objects is not None:
            self.objects.put(self.key(path), data)
            return
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

    def check_locks(self) -> None:
        """Raises JobFailed when one that this process has taken here was lost. Asks the store."""
        for lock in self._locks:
            lock.check()

    @contextlib.contextmanager
    def locked(self, path: PurePosixPath, sentence: str) -> Iterator[Held]:
        """Raises JobFailed with the sentence when another process has it. Where there are neither files of a
        directory nor objects, nobody is kept out."""
        if self.objects is not None:
            self.owner = self.owner or uuid4().hex
            lock = ObjectLock(self.objects, self.key(path), sentence)
            with lock.held():
                self._locks.append(lock)
                try:
                    yield lock.check
                finally:
                    self._locks.remove(lock)
            return
        if not self.is_local:
            yield _is_held
            return
        self.make_folder(path.parent)
        handle = os.open(self.full(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, sentence)
            yield _is_held
        finally:
            os.close(handle)


def _is_held() -> None:
    """The lock of a file is held as long as its process lives."""


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
