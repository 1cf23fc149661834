"""A file store that fails or dies with the call that a test chooses, and counts its calls.

Every call counts: of Arrow's file systems (reads too), of the streams they give, of the disk (fsync), of deltalake.
So a good run tells how many there are, and a call that is new in the code is tried without anybody naming it.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from busway_spark.pipeline.capture import delta
from busway_spark.pipeline.captured import capture_root, delta_table
from busway_spark.pipeline.captured.capture_root import CaptureRoot


class Killed(BaseException):
    """The process is dead: nothing of it runs any more."""


@dataclass(frozen=True)
class Fault:
    """What happens with the call of that number, counted from 1."""

    call: int
    #: Of `ERRORS`, or `KILL`, or `OVERTAKEN`.
    what: str
    #: The call is carried out first: what it did is there, and its caller hears of a failure.
    comes_after: bool = False
    #: All later calls fail too, until the next start.
    stays: bool = False


KILL = "kill"
OVERTAKEN = "overtaken"
BUSY = "503"
ERRORS: dict[str, Callable[[], Exception]] = {
    "ENOSPC": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "EDQUOT": lambda: OSError(errno.EDQUOT, "Disk quota exceeded"),
    "EIO": lambda: OSError(errno.EIO, "Input/output error"),
    BUSY: lambda: OSError("AWS Error SLOW_DOWN during PutObject operation: HTTP status 503"),
}
NEVER = Fault(1 << 30, KILL)


class Calls:
    """Of all stores together; a test has one thread."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fault = NEVER
        self.is_dead = False
        #: Called before the call of the fault `OVERTAKEN`: others act meanwhile.
        self.meanwhile: Callable[[], None] = lambda: None

    def arm(self, fault: Fault = NEVER) -> None:
        """As a new process does: what was dead lives, and counting begins anew."""
        self.names, self.fault, self.is_dead = [], fault, False

    def make(self, name: str, call: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise Killed
        self.names.append(name)
        count = len(self.names)
        strikes = count == self.fault.call or (self.fault.stays and count > self.fault.call)
        if strikes and not self.fault.comes_after:
            self._strike(name)
        found = call()
        if strikes and self.fault.comes_after:
            self._strike(name)
        return found

    def _strike(self, name: str) -> None:
        if self.fault.what == OVERTAKEN:
            self.arm()
            self.meanwhile()
            return
        if self.fault.what == KILL:
            self.is_dead = True
            raise Killed
        if self.fault.what == BUSY and name.startswith("delta."):
            raise DeltaError("Generic S3 error: Server returned non-2xx status code: 503 Service Unavailable")
        raise ERRORS[self.fault.what]()


CALLS = Calls()


class FaultyRoot(CaptureRoot):
    """Travels as any other."""

    @property
    def filesystem(self) -> Any:
        return _Counted(self._place[0], "fs.")

    @property
    def is_local(self) -> bool:
        return True


class FaultyObjects(FaultyRoot):
    """As an object store: nothing is moved but copied and deleted, and a file is there whole when it is closed."""

    @property
    def filesystem(self) -> Any:
        return _Objects(self._place[0], "objects.")

    @property
    def is_local(self) -> bool:
        return False


class _Counted:
    """Calls of whatever it is are counted."""

    def __init__(self, inner: Any, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **more: Any) -> Any:
        found = CALLS.make(self._prefix + name, partial(method, *args, **more))
        return pa.PythonFile(_Stream(found), "w") if name == "open_output_stream" else found


class _Objects(_Counted):
    def move(self, source: str, target: str) -> None:
        self.copy_file(source, target)
        self.delete_file(source)

    def open_output_stream(self, path: str) -> Any:
        return pa.PythonFile(_Object(path), "w")


class _Object(io.BytesIO):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            CALLS.make("objects.put", partial(self._put, data))

    def _put(self, data: bytes) -> None:
        half = f"{self._path}.half"
        with open(half, "wb") as file:
            file.write(data)
        os.replace(half, self._path)


class _Stream:
    """Its first write and its end are calls."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._is_written = False
        self.closed = False

    def write(self, data: Any) -> int:
        if self._is_written:
            return int(self._inner.write(data))
        self._is_written = True
        return int(CALLS.make("stream.write", partial(self._inner.write, data)))

    def flush(self) -> None:
        self._inner.flush()

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            CALLS.make("stream.close", self._inner.close)


class _Deltalake:
    """The package, with a DeltaTable whose calls are counted."""

    def __getattr__(self, name: str) -> Any:
        return getattr(deltalake, name)

    class DeltaTable:
        def __new__(cls, *args: Any, **more: Any) -> Any:
            load = partial(deltalake.DeltaTable, *args, **more)
            return _Counted(CALLS.make("delta.load", load), "delta.")

        @staticmethod
        def is_deltatable(*args: Any) -> bool:
            return bool(CALLS.make("delta.is_table", partial(deltalake.DeltaTable.is_deltatable, *args)))

        @staticmethod
        def create(*args: Any, **more: Any) -> Any:
            made = CALLS.make("delta.create", partial(deltalake.DeltaTable.create, *args, **more))
            return _Counted(made, "delta.")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """For the length of a test every root of `FaultyRoot` and every Delta table counts."""
    monkeypatch.setattr(capture_root, "_sync", lambda path: CALLS.make("sync", partial(os.stat, path)))
    for module in (delta, delta_table):
        monkeypatch.setattr(module, "require_delta", _Deltalake)
    CALLS.arm()
    return CALLS
