"""Objects as files of Arrow, so that whoever reads or writes Parquet need not know where it lies."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from busway_spark.pipeline.places.object_store import ObjectStore

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
