"""What Spark says when something goes wrong, as one sentence: without codes, plans, hints and stack traces."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

from pyspark.errors import PySparkException

#: What Spark raises, and what comes out of Java as it is. Py4j tells no types.
SPARK_ERRORS: Final[tuple[type[Exception], ...]] = (
    PySparkException,
    import_module("py4j.protocol").Py4JJavaError,
)
_TRACEBACK: Final = "Traceback (most recent call last)"
#: The last line of a traceback: an exception's name and what it says.
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
#: Where a stream's plan or a stack begins.
_REST: Final = re.compile(r"^(?:=== Streaming Query|\tat )", re.MULTILINE)
#: What comes before a sentence: py4j's words, codes, which query it was, names of classes.
_BEFORE: Final = re.compile(
    r"^An error occurred while calling \S+\s*: |^\[[\w.]+\] ?|^Query .*?terminated with exception: "
    r"|\b(?:[a-z]\w*\.)+[A-Z][\w$]*: "
)
_NOT_SAID: Final = ("==", "^", "'", "+-", "JVM stacktrace", "\tat ")
_LETTERS_MAX: Final = 600


def sentence_of(error: Exception) -> str:
    """Of what a source or a sink of ours raised in a process of Spark, its own sentence."""
    text = _text(error)
    # Behind the last traceback Java goes on with lines of its own: the first that names an exception counts.
    raised = _RAISED.search(text.rpartition(_TRACEBACK)[2]) if _TRACEBACK in text else None
    if raised is not None:
        return raised[1][:_LETTERS_MAX]
    text = _REST.split(text, maxsplit=1)[0].strip()
    while (shorter := _BEFORE.sub("", text).strip()) != text:
        text = shorter
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NOT_SAID)]
    kept = [line for line in lines if not line.startswith(_NOT_SAID)]
    return " ".join(kept[:2]).partition(" SQLSTATE")[0][:_LETTERS_MAX]


def _text(error: Exception) -> str:
    """The message alone, unless it is empty or only the whole report has the traceback."""
    message = error.getMessage() if isinstance(error, PySparkException) else None
    whole = str(error)
    has_more = _TRACEBACK in whole and _TRACEBACK not in (message or "")
    return whole.strip() if not message or has_more else message.strip()
