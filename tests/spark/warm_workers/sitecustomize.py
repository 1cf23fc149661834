"""Python runs this at its start where this folder is on its path. In Spark's daemons of Python workers it imports
what each worker would import after its fork: most workers of a test live for a few rows, and would spend nearly all
of their CPU time on Arrow, pandas and Spark itself. What Spark starts without a daemon is handed over to a process
that forks it warm (`warm_forks`). Any other process goes on at once."""

import sys

_DAEMON = "pyspark.daemon"
_STREAM_SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
#: What sources and sinks of the tests are made of, where our code is installed.
_SOURCES = ("busway_spark.eventhubs", "busway_spark.servicebus")


def _warm(worker: str) -> None:
    import gc
    import importlib
    from contextlib import suppress

    for name in ("pyarrow", "pandas", worker, *_SOURCES):
        with suppress(ImportError):  # then the worker itself says so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _hand_over(module: str) -> None:
    """Comes back when this process has to do the work itself."""
    import marshal
    import os
    import socket

    address = os.environ.get("BUSWAY_TESTS_WARM_FORKS")
    if address is None:
        return
    asked = {"module": module, "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path}
    request = marshal.dumps(asked)
    with socket.socket(socket.AF_UNIX) as fork:
        try:
            fork.connect(address)
            socket.send_fds(fork, [len(request).to_bytes(4)], [0, 1, 2])
            fork.sendall(request)
            if fork.recv(1) != b"y":
                return
        except OSError:
            return
        status = fork.recv(1)
        os._exit(status[0] if status else 1)


if sys.orig_argv[1:3] == ["-m", _DAEMON] and len(sys.orig_argv) == 4:
    _warm(sys.orig_argv[3])
elif sys.orig_argv[1:] == ["-m", _STREAM_SOURCE]:
    _hand_over(_STREAM_SOURCE)
