"""Reading a range of a partition by Busway's bulk route: stored chunks over HTTP, many thousand events an answer.

Theory of operation. One request fetches about `ANSWER_BYTES`; the next one begins behind the last number that came.
It is sent by a second thread while the first answer is turned into columns and taken by Spark. Connections are kept
for the life of a worker process, which Spark uses for many tasks. A request that fails on a kept connection is made
once more on a new one: reading changes nothing.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from busway.client.errors import ClientError, EntityMissing, NotAuthorised, Refused, Unreachable
from busway_spark.bus import Bus
from busway_spark.eventhubs.chosen_columns import ALL_COLUMNS, WantedColumns
from busway_spark.eventhubs.columns import EventRun, batch_of_run, event_run
from busway_spark.eventhubs.offsets import EventRange

CHUNKS_TYPE: Final = "application/vnd.busway.chunks"
ANSWER_BYTES: Final = 8 * 1024 * 1024
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_DETAIL: Final = re.compile(r"<Detail>(.*?)(?: TrackingId:.*)?</Detail>", re.DOTALL)

#: Connections at rest, by address; each is used by one thread at a time.
_resting: dict[tuple[str, int, str | None], list[http.client.HTTPConnection]] = {}


class BulkReader:
    def __init__(
        self,
        bus: Bus,
        hub: str,
        answer_bytes: int = ANSWER_BYTES,
        wanted: WantedColumns = ALL_COLUMNS,
    ) -> None:
        self._bus = bus
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
        target = self._bus.target
        place = (target.host, target.http_port, self._bus.ca_file)
        kept = _resting.setdefault(place, [])
        while kept:
            connection = kept.pop()
            try:
                return self._exchange(connection, f"{path}?{query}", kept)
            except (OSError, http.client.HTTPException):
                connection.close()
        connection = self._bus.http_connection()
        try:
            return self._exchange(connection, f"{path}?{query}", kept)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable.at(target.host, target.http_port, error) from error

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, kept: list[http.client.HTTPConnection]
    ) -> bytes:
        headers = {"Authorization": self._bus.authorization(self._hub), "Accept": CHUNKS_TYPE}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200 or answer.headers.get_content_type() != CHUNKS_TYPE:
            refusal = answer.read(_REFUSAL_BYTES_MAX)
            connection.close()
            raise _error(answer.status, refusal)
        body = answer.read()
        if answer.will_close:
            connection.close()
        else:
            kept.append(connection)
        return body


def _error(status: int, answer: bytes) -> ClientError:
    match = _DETAIL.search(answer.decode(errors="replace"))
    sentence = f"The server answered with status {status}." if match is None else match.group(1)
    if status == 401:
        return NotAuthorised(sentence)
    return EntityMissing(sentence) if status == 404 else Refused(sentence)
