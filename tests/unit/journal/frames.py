"""Recorded rows and their way into Arrow, for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from busway.journal.frame import Frame
from busway.journal.parquet_file import RowGroup
from busway.journal.recorder import Recorder
from busway.message.message import Message
from tests.harness.manual_clock import ManualClock


class Recorded:
    """A recorder whose frames are kept."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.frames: list[bytes] = []
        self.recorder = Recorder(self.clock, self._keep)

    def _keep(self, frame: bytes, rows: int) -> None:
        assert Frame(frame).rows == rows
        self.frames.append(frame)

    def group(self) -> RowGroup:
        self.recorder.seal()
        group = RowGroup()
        for frame in self.frames:
            group.add(Frame(frame))
        return group

    def table(self) -> pa.Table:
        return self.group().table()

    def rows(self) -> list[dict[str, Any]]:
        return self.table().to_pylist()


def stored(number: int, body: bytes = b"x", **fields: Any) -> Message:
    message = Message(b"", body, **{k: v for k, v in fields.items() if k in ("session_id", "partition_key")})
    message.sequence_number = number
    message.enqueued_at_ms = fields.get("enqueued_at_ms", 1_700_000_000_000)
    message.delivery_count = fields.get("delivery_count", 0)
    return message
