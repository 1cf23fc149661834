"""What was compiled before, by the hash of everything that went into it.

It lies where caches of a user lie (`$XDG_CACHE_HOME/busway`, else `~/.cache/busway`), so that a second clone and an
older commit find it too. An entry appears whole or not at all, and nobody else can write there. What was not used for
a month, and the longest unused above a gigabyte, is removed. Where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

KEPT_DAYS: Final = 30
KEPT_BYTES: Final = 1 << 30


def default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "busway"


def key_of(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class CompileCache:
    def __init__(self, folder: Path) -> None:
        self._folder: Path | None = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            self._folder = None

    def take(self, key: str, into: Path) -> bool:
        """Copies the file of this key to `into`; no when there is none."""
        if self._folder is None:
            return False
        try:
            shutil.copyfile(self._folder / key, into)
            os.utime(self._folder / key)
        except OSError:
            return False
        return True

    def keep(self, key: str, file: Path) -> None:
        """A cache that is full or cannot be written costs time, nothing else."""
        if self._folder is None:
            return
        half = self._folder / f"{key}.{os.getpid()}.half"
        try:
            shutil.copyfile(file, half)
            half.replace(self._folder / key)
        except OSError:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)

    def prune(self) -> None:
        if self._folder is None:
            return
        found: list[tuple[float, int, Path]] = []
        for file in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another compilation may be removing it
                status = file.stat()
                found.append((status.st_mtime, status.st_size, file))
        size = 0
        for used_at, file_bytes, file in sorted(found, reverse=True):
            size += file_bytes
            if size > KEPT_BYTES or used_at < time.time() - KEPT_DAYS * 86_400:
                with contextlib.suppress(OSError):
                    file.unlink()
