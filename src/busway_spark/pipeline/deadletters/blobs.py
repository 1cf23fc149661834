"""What driver and tasks hand each other of many dead letters: bytes in a column, not a row for each.

Spark turns a row into an object of Java, of the pickler and of Python one after the other, which costs more than all
the rest; bytes pass as they are. The column is built from memory: Arrow's usual way from a list of Python asks pandas
whether it is one of its own, and loads it for that, which takes a fresh worker longer than a thousand letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

_Batches = Iterator[pa.RecordBatch]
_PACKED: Final = "letters binary"
_NUMBER_WORDS: Final = 2


def blobs(values: Sequence[bytes]) -> pa.Array[Any]:
    """Of type binary."""
    offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int32, len(values) + 1)
    memory = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), memory)


def column_of_blobs(name: str, values: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([blobs(values)], names=[name])


# -- numbers of dead letters


def packed_numbers(letters: DataFrame) -> Iterator[Iterable[tuple[int, int, bool]]]:
    """(source, number, is it deferred) of all rows, which have the columns `source`, `sequenceNumber` and
    `isDeferred`: some thousands at a time, in the order of the rows."""
    for row in letters.mapInArrow(_pack, _PACKED).toLocalIterator(prefetchPartitions=True):
        words: NDArray[np.int64] = np.frombuffer(row[0], np.int64).reshape(-1, _NUMBER_WORDS)
        places, numbers = words[:, 0], words[:, 1]
        yield zip((places >> 1).tolist(), numbers.tolist(), (places & 1).tolist(), strict=True)


def _pack(batches: _Batches) -> _Batches:
    for batch in batches:
        if batch.num_rows:
            words = np.empty((batch.num_rows, _NUMBER_WORDS), np.int64)
            sources = batch.column("source").to_numpy()
            words[:, 0] = sources * 2 + batch.column("isDeferred").to_numpy(zero_copy_only=False)
            words[:, 1] = batch.column("sequenceNumber").to_numpy()
            yield column_of_blobs("letters", [words.tobytes()])
