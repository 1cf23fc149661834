"""The process that has imported everything and forks what Spark starts.

Theory of operation. It waits at a Unix socket in a folder of the user alone. Whoever comes (`entrance`) is a process
that Spark has started, and brings what makes a process: words of the command, environment, folder, path, standard
streams. The first one tells by its path which Spark and which code of ours are meant; they are imported then, and
those that come later must have the same path. Each gets a fork, which takes all that over and runs the module as its
main program. The connection stays: its end is the end of the process that Spark knows, and the fork is terminated;
the fork's own end is told through it.

This process has one thread, since a fork has no other, and ends when its standard input does: with the driver. It
runs as a file, not as a module: nothing of ours is imported before the path is known.

    python -P nursery.py SOCKET
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, Final

_STREAM_SOURCE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_SERVED: Final = ("pyspark.daemon", _STREAM_SOURCE)
_IMPORTED: Final = (
    "pyarrow.fs",
    "pyarrow.parquet",
    _STREAM_SOURCE,
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "busway_spark.eventhubs.source",
    "busway_spark.servicebus.source",
    "busway_spark.pipeline.capture.capture_sink",
)
#: Cannot be changed in a process that runs.
_SEED: Final = "PYTHONHASHSEED"
_YES, _NO = b"y", b"n"
_ANSWER_S: Final = 10.0


class Nursery:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        #: Those who wait for the end of a fork.
        self._callers: dict[int, socket.socket] = {}
        self._path: list[str] | None = None

    def serve(self) -> None:
        """Until standard input ends."""
        woken, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(0, selectors.EVENT_READ, None)
        self._selector.register(woken, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    if not os.read(0, 1024):
                        return
                elif key.fileobj == woken:
                    os.read(woken, 1024)
                    self._reap()
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._caller_ended(key.data)

    def _accept(self) -> None:
        caller, _ = self._listener.accept()
        caller.settimeout(_ANSWER_S)
        streams: list[int] = []
        try:
            asked = _request(caller, streams)
            if self._serves(asked):
                self._watch(caller, self._fork(caller, asked, streams))
            else:
                caller.sendall(_NO)
                caller.close()
        except (OSError, ValueError, LookupError):
            caller.close()
        finally:
            for stream in streams:
                os.close(stream)

    def _watch(self, caller: socket.socket, pid: int) -> None:
        """Before it is told: if it is gone already, its end is seen like any other."""
        self._callers[pid] = caller
        self._selector.register(caller, selectors.EVENT_READ, pid)
        with suppress(OSError):
            caller.sendall(_YES)

    def _serves(self, asked: dict[str, Any]) -> bool:
        if asked["words"][0] not in _SERVED or asked["python"] != [sys.executable, sys.version]:
            return False
        if asked["environment"].get(_SEED) != os.environ.get(_SEED):
            return False
        if self._path is None:
            self._path = asked["path"]
            sys.path[:] = _of_python(self._path)
            _import_all()
        return bool(self._path == asked["path"])

    def _fork(self, caller: socket.socket, asked: dict[str, Any], streams: list[int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (self._listener, caller, *self._callers.values()):
                other.close()
            self._selector.close()
            status = _run(asked, streams)
        except BaseException:
            traceback.print_exc()
            status = 1
        os._exit(status)

    def _reap(self) -> None:
        while True:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            caller = self._callers.pop(pid, None)
            if caller is not None:
                self._selector.unregister(caller)
                with suppress(OSError):
                    caller.sendall(b"%d\n" % (os.waitstatus_to_exitcode(ended) & 255))
                caller.close()

    def _caller_ended(self, pid: int) -> None:
        """Spark has ended the process that it knows."""
        caller = self._callers.pop(pid, None)
        if caller is not None:
            self._selector.unregister(caller)
            caller.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _request(caller: socket.socket, streams: list[int]) -> dict[str, Any]:
    """Raises OSError, ValueError."""
    size, received, _, _ = socket.recv_fds(caller, 4, 3)
    streams += received
    left, parts = int.from_bytes(size, "big"), []
    while left:
        part = caller.recv(left)
        if not part:
            raise ValueError("It ended before it had said all.")
        parts.append(part)
        left -= len(part)
    asked: dict[str, Any] = json.loads(b"".join(parts))
    return asked


def _of_python(path: list[str]) -> list[str]:
    """Spark puts a Java archive on it as well, with nothing for Python inside; a fork whose path Spark changes would
    list its six thousand entries for itself, which is 8 MB."""
    return [each for each in path if not each.endswith(".jar")]


def _import_all() -> None:
    for name in _IMPORTED:
        with suppress(ImportError):  # then whoever needs it says so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _run(asked: dict[str, Any], streams: list[int]) -> int:
    """In the fork, as if Spark had started it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    module, *words = asked["words"]
    sys.path[:] = [asked["folder"], *_of_python(asked["path"])]
    sys.argv = [module, *words]
    sys.orig_argv = [sys.executable, "-m", module, *words]
    _take_name((words or [module])[-1])
    sys.modules.pop(module, None)  # it is run under another name, as it would be without us
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for said in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            said.flush()
    return status & 255


def _take_name(module: str) -> None:
    """What `ps` and `top` show: the command that they have of a fork is that of the nursery."""
    with suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(module.rpartition(".")[2])


def main(address: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(128)
        os.rename(f"{address}.new", address)  # whoever finds it can connect
        Nursery(listener).serve()


if __name__ == "__main__":
    main(sys.argv[1])
