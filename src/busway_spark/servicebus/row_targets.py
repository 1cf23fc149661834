"""Rows as messages, by the entity that each is for: the option's, or the one that the row names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.message_cut import Column, Longs
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.row_messages import RowRefused, encode_rows
from busway_spark.writing.two_phase import RowsRefused


def by_entity(
    piece: pa.RecordBatch, first_row: int, place: str, options: ServiceBusOptions
) -> dict[str, tuple[Longs, Column]]:
    """The rows' places in their task and their messages, in the order of the rows. Rows without a message id get
    `place` and their own place as one. Raises RowsRefused."""
    try:
        messages = encode_rows(piece, place, first_row)
    except RowRefused as error:
        raise RowsRefused(f"Row {first_row + error.at} of its task cannot be sent: {error}.") from error
    rows = np.arange(first_row, first_row + piece.num_rows)
    if options.address is not None:
        return {options.address: (rows, messages)}
    names, places = arrow.words(piece.column("entity"))
    nameless = np.isin(places, [-1, *(at for at, name in enumerate(names) if not name)])
    if nameless.any():
        at = first_row + int(np.argmax(nameless))
        raise RowsRefused(f"Row {at} of its task has no 'entity', and no option names one for all rows.")
    found: dict[str, tuple[Longs, Column]] = {}
    for at, name in enumerate(names):
        wanted = places == at
        found[str(name)] = (rows[wanted], arrow.filtered(messages, wanted))
    return found
