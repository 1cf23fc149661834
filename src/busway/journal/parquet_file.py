"""One Parquet file of the journal while it is written. Needs the `arrow` extra."""

from __future__ import annotations

import base64
from typing import Any, Final

import pyarrow.parquet as pq

from busway.journal.columns import COLUMNS, TEXT, WORD
from busway.journal.files import OpenFile
from busway.journal.row_group import SCHEMA, WRITTEN_SCHEMA, RowGroup

#: Chosen by measurement: whatever repeats is left to the compression, which is cheaper than to encode it.
_OPTIONS: Final[dict[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": [name for name, kind in COLUMNS.items() if kind in (TEXT, WORD)],
    "column_encoding": {"sequenceNumber": "DELTA_BINARY_PACKED"},
    "write_statistics": ["time", "entity", "sequenceNumber"],
    "store_schema": False,
}


class ParquetFile:
    """`finish` or `abandon` is its end."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        try:
            self._writer = pq.ParquetWriter(file.stream, WRITTEN_SCHEMA, **_OPTIONS)
        except Exception:
            file.abandon()
            raise
        # Arrow's readers find here which of the texts they get as words.
        self._writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(SCHEMA.serialize()).decode()})

    def write(self, group: RowGroup) -> None:
        self._writer.write_table(group.table(), row_group_size=group.rows)

    def size_bytes(self) -> int:
        return self._file.stream.tell()

    def finish(self) -> None:
        self._writer.close()
        self._file.finish()

    def abandon(self) -> None:
        """Raises nothing."""
        try:
            self._writer.close()
        except Exception:  # what it has not written yet is refused, too
            self._writer.is_open = False
        self._file.abandon()
