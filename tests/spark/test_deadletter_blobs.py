"""What driver and tasks hand each other of many dead letters."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from busway_spark.pipeline.deadletters.tasks import LettersOutcome, Parcel, blobs, packed_numbers, paired

_LOADED = """
import sys
from busway_spark.pipeline.deadletters.tasks import blobs
assert blobs([b"a"]).to_pylist() == [b"a"]
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"", bytes(300), "ü".encode()]])
def test_bytes_become_a_column_as_they_are(values: list[bytes]) -> None:
    """Dead letters: none, empty ones, and others."""
    column = blobs(values)
    column.validate(full=True)
    assert column.to_pylist() == values


def test_a_column_is_built_without_pandas() -> None:
    """Dead letters: a fresh worker does not spend its first second on a library that nobody uses."""
    told = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_numbers_come_back_from_tasks_as_they_were(spark: SparkSession) -> None:
    """Dead letters: of several sources, deferred ones, the largest numbers, in the rows' order; nothing of none."""
    rows = [(at % 3, (at << 48) + 2**47 - at, at % 5 == 0) for at in range(1_000)]
    frame = spark.createDataFrame(rows, "source int, sequenceNumber bigint, isDeferred boolean").coalesce(2)
    assert [row for some in packed_numbers(frame) for row in some] == rows
    assert [row for some in packed_numbers(frame.where("source > 9")) for row in some] == []


def test_answers_are_told_apart_by_name_in_whatever_order_they_come() -> None:
    """Dead letters: an answer belongs to the parcel whose first letter it names, and none may be missing."""
    parcels = [Parcel.of([(number, b""), (number + 1, b"x")]) for number in (10, 20, 30)]
    locked = LettersOutcome("locked", [21])
    answers = [b"[30, []]", b'[20, [["locked", [21], null]]]', b"[10, []]"]
    assert sorted(paired(parcels, answers), key=lambda pair: pair[0].first) == [
        (parcels[0], []),
        (parcels[1], [locked]),
        (parcels[2], []),
    ]
    with pytest.raises(AssertionError):
        paired(parcels, answers[:2])
