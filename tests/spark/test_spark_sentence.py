"""Errors of Spark as sentences, without Spark running."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from busway_spark.pipeline.job import JobFailed, failing
from busway_spark.watching.watched import sentence_of

_OURS = """Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "browse.py", line 45, in partitions
busway.client.errors.EntityMissing: not there

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 1, in main
busway_spark.wire.bus.BusFailure: Could not browse 'x': there is no such entity.

\tat org.apache.spark.Something: it goes on
Caused by: java.io.IOException: and on"""


#: PySpark puts a code in brackets before each.
_COLUMN = "A column `x` cannot be resolved. SQLSTATE: 42703; line 1"
_SYNTAX = "Syntax error at or near end of input. SQLSTATE: 42601\n== SQL ==\na +\n---^^^"
#: As it comes out of Java, and of a stream.
_JAVA = "An error occurred while calling o57.start.\n: java.io.IOException: No space left on device\n\tat a.b(C.java)"
_STREAM = "[STREAM_FAILED] Query capture x [id = 1, runId = 2] terminated with exception: [IO] a.b.DataLoss: Gone.\n"
_STREAM += "=== Streaming Query ===\nIdentifier: capture x"
_WORKER = "[STREAM_FAILED] x\nTraceback (most recent call last):\n  File\na.b.DataLoss: Events are gone.\nJVM"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (_OURS, "Could not browse 'x': there is no such entity."),
        (_COLUMN, "A column `x` cannot be resolved."),
        (_SYNTAX, "Syntax error at or near end of input."),
        ("x" * 1_000, "x" * 600),
    ],
    ids=["ours", "column", "syntax", "long"],
)
def test_what_spark_says_becomes_one_sentence(said: str, sentence: str) -> None:
    """Errors help: no code, no plan, no stack trace."""
    assert sentence_of(PySparkException(said)) == sentence
    with pytest.raises(JobFailed, match=r"^Before: "), failing("Before: "):
        raise PySparkException(said)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (_JAVA, "No space left on device"),
        (_STREAM, "Gone."),
        (_WORKER, "Events are gone."),
        ("something else", "something else"),
    ],
    ids=["java", "stream", "worker", "other"],
)
def test_what_a_stream_ended_with_becomes_one_sentence(said: str, sentence: str) -> None:
    """Errors help: also where it is no exception of PySpark, as with streams that failed and what Java raises."""
    assert sentence_of(RuntimeError(said)) == sentence
