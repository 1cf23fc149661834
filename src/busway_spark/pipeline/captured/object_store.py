"""Objects of a bucket: a client, a lock that is an object, and objects as files of Arrow.

The client is the package obstore, one for S3, Google's and Azure's stores. Objects are files of Arrow so that
whoever reads or writes Parquet need not know where it lies.

Arrow's own client knows no writing on a condition, and a lock and the note of a capture need it: "only if there is
nothing under that name", "only if it is still what I have read". Every method is one request, or one for a
thousand names. A request that fails in passing is tried again by obstore; so a conditional write whose first
answer was lost comes back as refused, and is looked at: what is there may be what we wrote.

Keys come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
and `AWS_ENDPOINT_URL` for stores that speak S3. What goes wrong is an OSError, as with files.

Whoever holds a lock says so again and again:

    {"owner": "7f2c…", "count": 42}

Theory of operation of the lock. The object is made, or changed, only by conditional writes, so there is one owner
at a time. The owner writes it anew several times in a lease, with the next count. Whoever wants it and finds an
owner watches it for a lease by its own clock: if count and owner stay as they are, the owner is dead and the lock
is taken over; if they change it lives. Times of different machines are never compared.

An owner that was asleep for longer than a lease may have lost the lock and not know it yet. So whoever holds it
must still fence: the note of a capture names its owner and is written on conditions only (`capture_commit`), and
`compaction` asks (`check`) before it changes anything. To release is to write an empty owner, on the same
condition: the object stays.
"""

from __future__ import annotations

import io
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from busway_spark.pipeline.job import JobFailed

#: Tries behind the first, of a request that fails in passing.
RETRIES: Final = 6
_RETRY_S: Final = 60
_LONGEST_PAUSE_S: Final = 8
#: Copies that are under way together: they are the store's work and cost us only waiting.
_TOGETHER: Final = 32
#: What a file may hold before it is sent in parts.
_PART_BYTES: Final = 16 * 1024 * 1024
_WORDS_MAX: Final = 400
_MARKS: Final = re.compile(r"\x1b\[[0-9;]*m|↳")


class StoreFailed(OSError):
    """The store does not answer, or says no."""


class Overtaken(Exception):
    """The condition of a write does not hold: somebody else has written."""


#: Of one content of an object: what a store wants to hear when it is to be replaced.
Tag = dict[str, str]


class ObjectContent(NamedTuple):
    data: bytes
    tag: Tag


class ObjectStore:
    """Keys are whole names inside of the bucket."""

    def __init__(self, scheme: str, authority: str) -> None:
        self._url = f"{scheme}://{authority}"

    @cached_property
    def _obstore(self) -> Any:
        try:
            return import_module("obstore")
        except ImportError as error:
            raise JobFailed(
                f"Files at {self._url} need the package obstore: install 'busway[spark]'."
            ) from error

    @cached_property
    def _store(self) -> Any:
        make = import_module("obstore.store").from_url
        endpoint = _endpoint()
        more: dict[str, Any] = {}
        if self._url.startswith("s3://"):
            more["client_options"] = {"allow_http": endpoint.startswith("http://")}
            if endpoint:
                more["endpoint"] = endpoint
        pauses = {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=_LONGEST_PAUSE_S),
            "base": 2,
        }
        retry = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S), "backoff": pauses}
        try:
            return make(self._url, retry_config=retry, **more)
        except Exception as error:
            raise JobFailed(f"Files cannot be kept at '{self._url}': {_words(error)}") from error

    def client_options(self) -> dict[str, str]:
        """For other clients of the same kind: as many tries, and the same place where it is not Amazon's own."""
        tries = {"max_retries": str(RETRIES), "retry_timeout": f"{_RETRY_S}s"}
        endpoint = _endpoint()
        if not endpoint or not self._url.startswith("s3://"):
            return tries
        is_plain = endpoint.startswith("http://")
        return {**tries, "aws_endpoint": endpoint, "allow_http": str(is_plain).lower()}

    # -- one object

    def get(self, key: str) -> ObjectContent | None:
        with self.telling():
            try:
                found = self._obstore.get(self._store, key)
                return ObjectContent(bytes(found.bytes()), _tag(found.meta))
            except FileNotFoundError:
                return None

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Raises FileNotFoundError too."""
        with self.telling():
            return bytes(self._obstore.get_range(self._store, key, start=start, end=end))

    def size(self, key: str) -> int | None:
        """None where there is nothing."""
        with self.telling():
            try:
                return int(self._obstore.head(self._store, key)["size"])
            except FileNotFoundError:
                return None

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data, "overwrite")

    def put_if(self, key: str, data: bytes, tag: Tag | None) -> Tag:
        """Only if it still has that tag, or, for None, is not there. No two contents that are put under a key may be
        equal. Raises Overtaken."""
        exceptions = import_module("obstore.exceptions")
        try:
            return self._put(key, data, tag or "create")
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError) as error:
            if tag is None and isinstance(error, FileNotFoundError):
                raise StoreFailed(f"{self._url} is not there. {_words(error)}") from error
            found = self.get(key)
            if found is not None and found.data == data:
                return found.tag  # the answer to an earlier try was lost
            raise Overtaken(key) from error

    def _put(self, key: str, data: bytes, mode: Any) -> Tag:
        with self.telling():
            return _tag(self._obstore.put(self._store, key, data, mode=mode, use_multipart=False))

    def writer(self, key: str) -> Any:
        """One request when it is closed, or several where it is large."""
        with self.telling():
            return self._obstore.open_writer(self._store, key, buffer_size=_PART_BYTES)

    # -- many

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        return self._together(self.size, keys)

    def copy(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Each from one key to another, whatever is there, inside of the store and many at a time. Raises
        FileNotFoundError where a source is gone."""
        self._together(self._copy, pairs)

    def _copy(self, pair: tuple[str, str]) -> None:
        with self.telling():
            self._obstore.copy(self._store, *pair)

    def _together(self, work: Any, items: Sequence[Any]) -> list[Any]:
        if len(items) < 2:
            return [work(each) for each in items]
        with ThreadPoolExecutor(min(_TOGETHER, len(items)), "objects") as pool:
            return list(pool.map(work, items))

    def delete(self, keys: Sequence[str]) -> None:
        """They may be gone already."""
        if keys:
            with self.telling():
                self._obstore.delete(self._store, list(keys))

    def below(self, prefix: str) -> list[tuple[str, int]]:
        """Every object of a folder and of those below it, with its size."""
        with self.telling():
            return [
                (str(each["path"]), int(each["size"]))
                for chunk in self._obstore.list(self._store, prefix or None, chunk_size=1000)
                for each in chunk
            ]

    def has_any(self, prefix: str) -> bool:
        """Whether there is a folder."""
        with self.telling():
            return any(self._obstore.list(self._store, prefix or None, chunk_size=1))

    def folders(self, prefix: str) -> list[str]:
        with self.telling():
            found = self._obstore.list_with_delimiter(self._store, prefix or None)
            return [str(each) for each in found["common_prefixes"]]

    @contextmanager
    def telling(self) -> Iterator[None]:
        exceptions = import_module("obstore.exceptions")
        self._obstore  # noqa: B018 - says what is missing
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise
        except (exceptions.BaseError, ConnectionError, TimeoutError) as error:
            raise StoreFailed(_words(error)) from error


def _tag(facts: Any) -> Tag:
    """Some stores go by the one, some by the other."""
    return {name: str(facts[name]) for name in ("e_tag", "version") if facts.get(name) is not None}


def _words(error: Exception) -> str:
    """Without what only a programmer of the client can read."""
    return plain_words(error).split("Debug source:")[0].strip()[:_WORDS_MAX]


def plain_words(error: Exception) -> str:
    """On one line. deltalake says each cause on a line of its own, with an arrow and in colours."""
    return " ".join(_MARKS.sub(" ", str(error)).split())


def _endpoint() -> str:
    """Of stores that speak S3; empty where it is Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


#: An owner that is silent for so long is dead.
LEASE_S: Final = 30.0
#: How often an owner speaks.
RENEWAL_S: Final = 10.0
_NOBODY: Final = ""


class ObjectLock:
    """A lock that is an object: whoever holds it says so again and again."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        sentence: str,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._key = key
        self._owner = uuid4().hex
        self._sentence = sentence
        self._now = now
        self._sleep = sleep
        self._tag: Tag | None = None
        self._count = 0
        self._ends = threading.Event()
        self.is_lost = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises JobFailed with the sentence while another one has it."""
        self.take()
        renewal = threading.Thread(target=self._renew_until_the_end, name="lock", daemon=True)
        renewal.start()
        try:
            yield
        finally:
            self._ends.set()
            renewal.join()
            self.release()

    def take(self) -> None:
        seen, since = self._store.get(self._key), self._now()
        while True:
            if seen is None or _owner_of(seen) == _NOBODY or self._now() - since >= LEASE_S:
                try:
                    self._write(None if seen is None else seen.tag)
                    return
                except Overtaken:
                    raise JobFailed(self._sentence) from None
            self._sleep(LEASE_S / 6)
            before, seen = seen, self._store.get(self._key)
            if seen is not None and seen.tag != before.tag and _owner_of(seen) != _NOBODY:
                raise JobFailed(self._sentence)

    def renew(self) -> None:
        """Raises OSError when the store does not answer; then it is tried again later."""
        try:
            self._write(self._tag)
        except Overtaken:
            found = self._store.get(self._key)
            self.is_lost = found is None or _owner_of(found) != self._owner
            self._tag = None if found is None else found.tag  # of ours, where an answer was lost

    def check(self) -> None:
        """Raises JobFailed when somebody else has taken it. Asks the store."""
        found = None if self.is_lost else self._store.get(self._key)
        if found is None or _owner_of(found) != self._owner:
            self.is_lost = True
            raise JobFailed(f"{self._sentence} This one was silent for too long and has lost its lock.")

    def release(self) -> None:
        """As far as it is still ours and the store answers: else it is taken over after a lease."""
        if not self.is_lost:
            try:
                self._store.put_if(self._key, _text(_NOBODY, self._count), self._tag)
            except (Overtaken, OSError):
                self.is_lost = True

    def _write(self, tag: Tag | None) -> None:
        self._count += 1
        self._tag = self._store.put_if(self._key, _text(self._owner, self._count), tag)

    def _renew_until_the_end(self) -> None:
        while not self._ends.wait(RENEWAL_S) and not self.is_lost:
            try:
                self.renew()
            except OSError:
                continue


def _text(owner: str, count: int) -> bytes:
    """No two are alike, so that whoever wrote one knows it again."""
    return json.dumps({"owner": owner, "count": count, "id": uuid4().hex}).encode()


def _owner_of(found: ObjectContent) -> str:
    try:
        return str(json.loads(found.data)["owner"])
    except (ValueError, KeyError, TypeError):
        return _NOBODY


#: Smaller objects are fetched whole.
_WHOLE_BYTES: Final = 8 * 1024 * 1024
#: What is fetched at least of a larger one.
_READ_BYTES: Final = 1024 * 1024


class ObjectFiles(pafs.FileSystemHandler):
    """Paths are AUTHORITY/KEY."""

    def __init__(self, store: ObjectStore, authority: str) -> None:
        self._store = store
        self._authority = authority

    def key(self, path: str) -> str:
        return path.removeprefix(self._authority).strip("/")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles) and other._authority == self._authority

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "objects"

    def normalize_path(self, path: str) -> str:
        return path.rstrip("/")

    # -- what is there

    def get_file_info(self, paths: str | list[str]) -> list[pafs.FileInfo]:
        return [self._info(path) for path in ([paths] if isinstance(paths, str) else paths)]

    def _info(self, path: str) -> pafs.FileInfo:
        size = self._store.size(self.key(path))
        if size is not None:
            return pafs.FileInfo(path, pafs.FileType.File, size=size)
        is_folder = self._store.has_any(self.key(path))
        return pafs.FileInfo(path, pafs.FileType.Directory if is_folder else pafs.FileType.NotFound)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        folder = self.key(selector.base_dir)
        files = [
            pafs.FileInfo(f"{self._authority}/{key}", pafs.FileType.File, size=size)
            for key, size in self._store.below(folder)
            if selector.recursive or "/" not in key[len(folder) + 1 :]
        ]
        if selector.recursive:
            return files
        folders = self._store.folders(folder)
        return files + [pafs.FileInfo(f"{self._authority}/{key}", pafs.FileType.Directory) for key in folders]

    # -- changes

    def create_dir(self, path: str, recursive: bool) -> None:
        """There are none."""
        del path, recursive

    def delete_dir(self, path: str) -> None:
        self._store.delete([key for key, _ in self._store.below(self.key(path))])

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        del missing_dir_ok
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("a whole bucket is not emptied")

    def delete_file(self, path: str) -> None:
        self._store.delete([self.key(path)])

    def move(self, src: str, dest: str) -> None:
        self.copy_file(src, dest)
        self.delete_file(src)

    def copy_file(self, src: str, dest: str) -> None:
        self._store.copy([(self.key(src), self.key(dest))])

    # -- contents

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        key = self.key(path)
        size = self._store.size(key)
        if size is None:
            raise FileNotFoundError(f"{path} is not there")
        return pa.PythonFile(_Reader(self._store, key, size), "r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        del metadata
        return pa.PythonFile(_Writer(self._store, self.key(path)), "w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        del path, metadata
        raise NotImplementedError("objects cannot be added to")


class _Reader(io.RawIOBase):
    """Reads what is asked for and a little more, and keeps that."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size = store, key, size
        self._at = 0
        self._kept = b""
        self._kept_at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        if not self._kept_at <= self._at <= end <= self._kept_at + len(self._kept):
            self._fetch(end)
        start = self._at - self._kept_at
        self._at = end
        return self._kept[start : end - self._kept_at]

    def _fetch(self, end: int) -> None:
        if self._size <= _WHOLE_BYTES:
            start, end = 0, self._size
        else:
            # A reader of Parquet begins at the end; there what lies before is wanted next.
            start = max(0, min(self._at, self._size - _READ_BYTES))
            end = max(end, min(self._size, self._at + _READ_BYTES))
        self._kept, self._kept_at = self._store.get_range(self._key, start, end), start


class _Writer(io.RawIOBase):
    """The object is there when it is closed."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._inner: Any = store.writer(key)
        self._store = store
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._store.telling():
            self._inner.write(data)
        self._at += len(data)
        return len(data)

    def flush(self) -> None:
        """Half an object is of use to nobody."""

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._store.telling():
                self._inner.close()
