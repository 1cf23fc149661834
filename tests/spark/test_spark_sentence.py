"""Errors of Spark as sentences, without Spark running."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from busway_spark.pipeline.job import JobFailed
from busway_spark.pipeline.spark_sentence import failing, sentence_of

_OURS = """Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "browse.py", line 45, in partitions
busway.client.errors.EntityMissing: not there

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 1, in main
busway_spark.bus_failure.BusFailure: Could not browse 'x': there is no such entity.

\tat org.apache.spark.Something: it goes on
Caused by: java.io.IOException: and on"""


#: PySpark puts a code in brackets before each.
_COLUMN = "A column `x` cannot be resolved. SQLSTATE: 42703; line 1"
_SYNTAX = "Syntax error at or near end of input. SQLSTATE: 42601\n== SQL ==\na +\n---^^^"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (_OURS, "Could not browse 'x': there is no such entity."),
        (_COLUMN, "A column `x` cannot be resolved."),
        (_SYNTAX, "Syntax error at or near end of input."),
        ("x" * 1_000, "x" * 400),
    ],
    ids=["ours", "column", "syntax", "long"],
)
def test_what_spark_says_becomes_one_sentence(said: str, sentence: str) -> None:
    """Errors help: no code, no plan, no stack trace."""
    assert sentence_of(PySparkException(said)) == sentence
    with pytest.raises(JobFailed, match=r"^Before: "), failing("Before: "):
        raise PySparkException(said)
