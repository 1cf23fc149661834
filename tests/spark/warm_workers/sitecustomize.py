"""Python runs this at its start where this folder is on its path. In Spark's daemons of Python workers it imports
what each worker would import after its fork: most workers of a test live for a few rows, and would spend nearly all
of their CPU time on Arrow, pandas and Spark itself. Any other process goes on at once."""

import sys

_DAEMON = "pyspark.daemon"
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


if sys.orig_argv[1:3] == ["-m", _DAEMON] and len(sys.orig_argv) == 4:
    _warm(sys.orig_argv[3])
