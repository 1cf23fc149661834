"""Rows as events of a hub, prepared (`written_columns`): which partition each is for, the encoded event."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from busway.amqp.encode import encode_value
from busway.amqp.types import Symbol
from busway.client.messages import PARTITION_KEY
from busway.streams.key_hash import partition_of_key
from busway_spark.amqp_arrays import arrow, encoding
from busway_spark.amqp_arrays.message_cut import Column, Flags, Longs
from busway_spark.eventhubs.written_columns import BODY, KEY, PARTITION_ID, SECTIONS
from busway_spark.eventhubs.written_sections import BadRows

#: Rows in turn that go to one partition before the next.
_TURN_ROWS: Final = 64
_KEY_ENTRY: Final = encode_value(Symbol(PARTITION_KEY))


def by_partition(batch: pa.RecordBatch, first_row: int) -> dict[str | None, Flags]:
    """Which rows name which partition; None for those that name none. Raises BadRows."""
    words, places = _named(batch, first_row)
    if (places < 0).all():
        return {None: np.ones(batch.num_rows, np.bool_)}
    found: dict[str | None, Flags] = {}
    for at, word in enumerate(words):
        name = str(int(word))
        found[name] = found[name] | (places == at) if name in found else places == at
    if (places < 0).any():
        found[None] = places < 0
    return found


def _named(batch: pa.RecordBatch, first_row: int) -> tuple[list[str], Longs]:
    """The partitions that rows name, and for each row which; -1 for none. Raises BadRows."""
    if PARTITION_ID not in batch.schema.names:
        return [], np.full(batch.num_rows, -1, np.int64)
    words, places = arrow.words(batch.column(PARTITION_ID).cast(pa.string()))
    if KEY in batch.schema.names:
        has_both: Flags = (places >= 0) & arrow.is_valid(batch.column(KEY))
        if has_both.any():
            at = first_row + int(np.argmax(has_both))
            raise BadRows(
                f"Row {at} of its task has both partitionId and partitionKey; only one of them can be given."
            )
    for place, word in enumerate(words):
        if not (word.isascii() and word.isdigit() and len(word) <= 9):
            at = first_row + int(np.argmax(places == place))
            raise BadRows(
                f"Row {at} of its task: partitionId {word[:40]!r} is not the number of a partition."
            )
    return words, places


class Router:
    """Which partition each row goes to, by nothing but the row and its place in the task."""

    def __init__(self, partition_count: int, place: int) -> None:
        self._partition_count = partition_count
        self._place = place
        self._rows = 0

    def routed(self, batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Rows by partition, in their order. Raises BadRows."""
        turns = np.arange(self._rows, self._rows + batch.num_rows) // _TURN_ROWS
        partitions: Longs = (self._place + turns) % self._partition_count
        names, named = _named(batch, self._rows)
        for place, name in enumerate(names):
            if int(name) >= self._partition_count:
                at = self._rows + int(np.argmax(named == place))
                raise BadRows(
                    f"Row {at} of its task: the hub has the partitions 0 to {self._partition_count - 1},"
                    f" not {name}."
                )
            partitions[named == place] = int(name)
        if KEY in batch.schema.names:
            keys, keyed = arrow.words(batch.column(KEY).cast(pa.string()))
            chosen = np.array([partition_of_key(key, self._partition_count) for key in keys], np.int64)
            partitions[keyed >= 0] = chosen[keyed[keyed >= 0]]
        self._rows += batch.num_rows
        found = np.unique(partitions).tolist()
        if len(found) == 1:
            return {str(found[0]): batch}
        return {str(each): arrow.rows_where(batch, partitions == each) for each in found}


def encode_events(rows: pa.RecordBatch, first_row: int) -> Column:
    """The rows as events, all at once. Raises BadRows."""
    body = encoding.as_binary(rows.column(BODY))
    if body.null_count:
        raise BadRows(f"Row {first_row + int(np.argmin(arrow.is_valid(body)))} of its task has no body.")
    parts: list[Column] = []
    if KEY in rows.schema.names and rows.column(KEY).null_count < rows.num_rows:
        parts.append(_annotations(rows.column(KEY)))
    if SECTIONS in rows.schema.names:
        parts.append(rows.column(SECTIONS))
    parts += encoding.data_section(body)
    return arrow.joined(*parts)


def _annotations(keys: Column) -> Column:
    entries = arrow.filled(arrow.joined(_KEY_ENTRY, encoding.variable(keys, encoding.TEXT_FORM)), b"")
    counts: Longs = 2 * arrow.is_valid(keys).astype(np.int64)
    body = encoding.compound(entries, counts, encoding.MAP_FORM)
    return encoding.only_where(counts > 0, encoding.section(encoding.MESSAGE_ANNOTATIONS, body))
