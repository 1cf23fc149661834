"""What Spark says when something goes wrong, as one sentence: without codes, plans, hints and stack traces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from pyspark.errors import PySparkException

from busway_spark.pipeline.job import JobFailed

#: What comes out of Java as it is. Py4j tells no types.
_JAVA_ERROR: Final[type[Exception]] = import_module("py4j.protocol").Py4JJavaError
_TRACEBACK: Final = "Traceback (most recent call last)"
#: The last line of a traceback: an exception's name and what it says.
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
_NOT_SAID: Final = ("==", "^", "'", "+-", "JVM stacktrace", "\tat ")
_LETTERS_MAX: Final = 400


@contextmanager
def failing(before: str = "") -> Iterator[None]:
    """Turns what Spark raises into JobFailed, with these words before it."""
    try:
        yield
    except (PySparkException, _JAVA_ERROR) as error:
        raise JobFailed(before + sentence_of(error)) from error


def sentence_of(error: Exception) -> str:
    """Of what a source of ours raised in a process of Spark, its own sentence."""
    message = error.getMessage() if isinstance(error, PySparkException) else None
    text = (message or str(error)).strip()
    # Behind the last traceback Java goes on with lines of its own: the first that names an exception counts.
    raised = _RAISED.search(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else None
    if raised is not None:
        return raised[1][:_LETTERS_MAX]
    if text.startswith("[") and "]" in text:
        text = text.partition("]")[2].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NOT_SAID)]
    kept = [line for line in lines if not line.startswith(_NOT_SAID)]
    return " ".join(kept[:2]).partition(" SQLSTATE")[0][:_LETTERS_MAX]
