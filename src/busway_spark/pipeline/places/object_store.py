"""Objects of a bucket, by the package obstore: one client for S3, Google's and Azure's stores.

Arrow's own client knows no writing on a condition, and a lock and the note of a capture need it: "only if there is
nothing under that name", "only if it is still what I have read". Every method is one request, or one for a thousand
names. A request that fails in passing is tried again by obstore; so a conditional write whose first answer was lost
comes back as refused, and is looked at: what is there may be what we wrote.

Keys come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, and
`AWS_ENDPOINT_URL` for stores that speak S3. What goes wrong is an OSError, as with files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple

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
