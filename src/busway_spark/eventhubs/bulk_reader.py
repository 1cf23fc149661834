"""Reading a range of a partition by Busway's bulk route: stored chunks over HTTP, many thousand events an answer.

Theory of operation. One request fetches about `ANSWER_BYTES`; the next one begins behind the last number that came.
It is sent by a second thread while the first answer is turned into columns and taken by Spark. Reading changes
nothing, so each request may be made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS, WantedColumns
from busway_spark.eventhubs.columns import EventRun, batch_of_run, event_run
from busway_spark.eventhubs.offsets import EventRange
from busway_spark.wire.bus import Bus
from busway_spark.wire.http_client import HttpDoor
from busway_spark.wire.patience import OPERATION_S

CHUNKS_TYPE: Final = "application/vnd.busway.chunks"
ANSWER_BYTES: Final = 8 * 1024 * 1024


class BulkReader:
    def __init__(
        self,
        bus: Bus,
        hub: str,
        operation_s: float = OPERATION_S,
        answer_bytes: int = ANSWER_BYTES,
        wanted: WantedColumns = ALL_COLUMNS,
    ) -> None:
        self._door = HttpDoor(bus, hub, operation_s)
        self._hub = hub
        self._columns = wanted
        self._answer_bytes = answer_bytes

    def batches(self, wanted: EventRange) -> Iterator[pa.RecordBatch]:
        """Raises ClientError, ChunkDamaged."""
        for run in self.runs(wanted):
            if len(run):
                yield batch_of_run(run, wanted.partition, self._columns)

    def runs(self, wanted: EventRange) -> Iterator[EventRun]:
        """Ends where the hub has nothing more in the range."""
        with ThreadPoolExecutor(1, "busway-bulk") as fetching:
            coming: Future[bytes] | None = fetching.submit(self._fetch, wanted)
            while coming is not None:
                run = event_run(coming.result(), wanted.first, wanted.end)
                if run is None:
                    return
                rest = EventRange(wanted.partition, run.last_number + 1, wanted.end)
                coming = fetching.submit(self._fetch, rest) if rest.count else None
                yield run

    def event_bytes(self, wanted: EventRange) -> float:
        """About how large an event at the start of the range is as it is stored; 0 when there is none."""
        run = event_run(self._fetch(wanted, 1), wanted.first, wanted.end)
        return 0.0 if run is None or not len(run) else float(run.ends[-1] - run.starts[0]) / len(run)

    def _fetch(self, wanted: EventRange, bytes_max: int | None = None) -> bytes:
        size = self._answer_bytes if bytes_max is None else bytes_max
        hub = "/".join(quote(part, safe="") for part in self._hub.split("/"))
        path = f"/{hub}/partitions/{quote(wanted.partition, safe='')}/events"
        query = f"from={wanted.first}&to={wanted.end}&bytes={size}&format=chunks&parts={self._columns.parts}"
        return self._door.get(f"{path}?{query}", CHUNKS_TYPE)
