"""Forks what Spark starts anew for each query: the Python process of a stream's source.

Theory of operation. Spark starts that process by `python -m MODULE`, and most of its CPU time goes into importing
Spark, Arrow and pandas, for a few rows. Here one process has imported all that and waits at a Unix socket. The
process that Spark started (`sitecustomize`) hands over its environment, folder and standard streams, and gets a
fork that runs the module as if it had been started by Spark. It stays as long as its fork: when Spark kills it the
fork ends at once, and when the fork ends it ends, with the same status. Who cannot be served, because another
Python or another path was meant, or nobody listens, goes on as it would have gone.

    python -P -m warm_forks SOCKET        until its standard input ends
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

#: What Spark starts without a daemon.
MODULES = ("pyspark.sql.streaming.python_streaming_source_runner",)
_WARM = ("pyarrow", "pandas", *MODULES, "busway_spark.eventhubs", "busway_spark.servicebus")
_YES, _NO = b"y", b"n"


def serve(address: str) -> None:
    for name in _WARM:
        with suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    path = list(sys.path)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if listener not in ready:
                return
            caller, _ = listener.accept()
            with caller:
                _answer(listener, caller, path)


def _answer(listener: socket.socket, caller: socket.socket, path: list[str]) -> None:
    asked, streams = _request(caller)
    # Spark puts itself before everything else, at a place of its own.
    if asked["path"][-len(path) :] != path or asked["module"] not in MODULES:
        caller.sendall(_NO)
    elif os.fork() == 0:
        listener.close()
        _run(caller, asked, streams)
    for stream in streams:
        os.close(stream)


def _request(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size, streams, _, _ = socket.recv_fds(caller, 4, 3)
    asked = caller.recv(int.from_bytes(size), socket.MSG_WAITALL)
    return marshal.loads(asked), streams


def _run(caller: socket.socket, asked: dict[str, Any], streams: list[int]) -> None:
    """In the fork, and to its end."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    module = asked["module"]
    sys.path[:] = [os.getcwd(), *asked["path"]]
    sys.argv = [module]
    sys.orig_argv = [sys.executable, "-m", module]
    del sys.modules[module]  # it is run under another name, as it would be without us
    caller.sendall(_YES)
    threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
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
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    with suppress(OSError):
        caller.sendall(bytes([status & 255]))
    os._exit(status)


def _end_with(caller: socket.socket) -> None:
    """Whoever Spark knows has been killed."""
    with suppress(OSError):
        caller.recv(1)
    os._exit(1)


if __name__ == "__main__":
    serve(sys.argv[1])
