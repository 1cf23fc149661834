"""A lock that is an object: whoever holds it says so again and again.

    {"owner": "7f2c…", "count": 42}

Theory of operation. The object is made, or changed, only by conditional writes, so there is one owner at a time. The
owner writes it anew several times in a lease, with the next count. Whoever wants it and finds an owner watches it
for a lease by its own clock: if count and owner stay as they are, the owner is dead and the lock is taken over; if
they change it lives. Times of different machines are never compared.

An owner that was asleep for longer than a lease may have lost the lock and not know it yet. So whoever holds it must
still fence: the note of a capture names its owner and is written on conditions only (`object_commit`), and
`compact` asks (`check`) before it changes anything. To release is to write an empty owner, on the same condition: the
object stays.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.places.object_store import ObjectContent, ObjectStore, Overtaken, Tag

#: An owner that is silent for so long is dead.
LEASE_S: Final = 30.0
#: How often an owner speaks.
RENEWAL_S: Final = 10.0
_NOBODY: Final = ""


class ObjectLock:
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
