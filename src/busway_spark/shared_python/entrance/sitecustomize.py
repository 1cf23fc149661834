"""Hands a process that Spark has started on the driver over to the nursery, if it may (`busway_spark.shared_python`).

Any other process goes on at once, with the `sitecustomize` that it would have had."""

import os
import sys

#: The process whose children are served, and the socket of the nursery.
_NURSERY = "BUSWAY_PYTHON_NURSERY"
_DAEMON = "pyspark.daemon"
_STREAM_SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
#: What stays of this process: it waits for the status of its fork.
_SHELL = "/bin/sh"
_WAIT = 'read -r status; exit "${status:-1}"'


def _hand_over(address: str) -> None:
    """Comes back when this process has to do the work itself."""
    import json
    import socket

    asked = {
        "words": sys.orig_argv[2:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "python": [sys.executable, sys.version],
    }
    request = json.dumps(asked).encode()
    fork = socket.socket(socket.AF_UNIX)
    try:
        fork.connect(address)
        socket.send_fds(fork, [len(request).to_bytes(4, "big")], [0, 1, 2])
        fork.sendall(request)
        if fork.recv(1) != b"y":
            fork.close()
            return
    except OSError:
        fork.close()
        return
    os.dup2(fork.fileno(), 0)
    try:
        os.execv(_SHELL, [_SHELL, "-c", _WAIT])
    except OSError:
        status = fork.recv(16).strip()
        os._exit(int(status or b"1"))


def _go_on() -> None:
    """There may be another one of this name behind us."""
    import importlib

    folder = os.path.dirname(__file__)
    sys.path[:] = [path for path in sys.path if path != folder]
    sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise


_parent, _, _address = os.environ.get(_NURSERY, "").partition(":")
_words = sys.orig_argv[1:]
if (
    _parent == str(os.getppid())
    and _words[:1] == ["-m"]
    and (_words[1:] == [_STREAM_SOURCE] or (_words[1:2] == [_DAEMON] and len(_words) == 3))
):
    _hand_over(_address)
_go_on()
