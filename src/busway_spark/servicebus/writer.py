"""Writing rows as messages, in batches and in streams.

Theory of operation. Each task encodes its rows and sends them in as large batches as the server takes, some of them
under way together. A row without a `messageId` gets one that is made of where the row stands: of the query and the
batch (or of the write), the Spark partition and the row's place in it. Spark gives a task that it repeats the same
rows in the same places, so a repetition sends the same ids, and an entity that detects duplicates keeps each
message once. Without duplicate detection a repetition sends again: at least once.

A refused batch is all or nothing (S-20), so its messages are sent once more, one by one: either the server does not
take them together (S-23: a partitioned entity, different keys) or one of them is at fault, and its row is named.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway.client.sender import ServiceBusSender, batches
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.servicebus.bridge import bridge
from busway_spark.servicebus.columns import check_writable
from busway_spark.servicebus.failure import BusFailure, failing
from busway_spark.servicebus.message_columns import WrongRow, message_of
from busway_spark.servicebus.options import ServiceBusOptions

#: Encoded bytes, and rows, that are sent before the next are encoded.
_FLIGHT_BYTES: Final = 2 * 1024 * 1024
_FLIGHT_ROWS: Final = 4_000
_FAULTS_NAMED: Final = 3


class RowsRefused(BusFailure):
    """Some rows could not be sent; those before and beside them were."""


@dataclass
class RowsSent(WriterCommitMessage):
    rows: int


class ServiceBusWriter(DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self._options = options
        #: The same in all tasks: the writer is made once, by the driver.
        self._write_id = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return send_rows(iterator, self._options, self._write_id)


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query_id = self._options.write_id or context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if query_id is None or batch_id is None:
            raise BusFailure("Spark did not tell which query and batch the rows belong to.")
        return send_rows(iterator, self._options, f"{query_id}/{batch_id}")


def send_rows(
    record_batches: Iterator[pa.RecordBatch], options: ServiceBusOptions, write_id: str
) -> RowsSent:
    """In a task: sends all rows or raises RowsRefused or BusFailure."""
    context = TaskContext.get()
    place = f"{write_id}/{0 if context is None else context.partitionId()}"
    work = bridge()
    outgoing = _Outgoing(work.client(options))
    rows = 0
    try:
        for record_batch in record_batches:
            for row in record_batch.to_pylist():
                outgoing.add(rows, _target(row, rows, options), _encoded(row, rows, f"{place}/{rows}"))
                rows += 1
                if outgoing.is_full:
                    work.run(outgoing.flush())
        work.run(outgoing.flush())
    finally:
        work.run(outgoing.close())
    return RowsSent(rows)


def _target(row: dict[str, object], at: int, options: ServiceBusOptions) -> str:
    """The option names one for all rows; else each row does."""
    target = row.get("entity") if options.address is None else options.address
    if not isinstance(target, str) or not target:
        raise RowsRefused(f"Row {at} of its task has no 'entity', and no option names one for all rows.")
    return target


def _encoded(row: dict[str, object], at: int, message_id: str) -> bytes:
    try:
        return message_of(row, message_id)
    except WrongRow as error:
        raise RowsRefused(f"Row {at} of its task cannot be sent: {error}.") from error


class _Outgoing:
    """Encoded rows that wait for their sending, by entity, and the senders that a task has opened."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._waiting: dict[str, list[tuple[int, bytes]]] = {}
        self._senders: dict[str, ServiceBusSender] = {}
        #: Entities that do not take messages together.
        self._apart: set[str] = set()
        self._rows = 0
        self._bytes = 0

    def add(self, at: int, entity: str, payload: bytes) -> None:
        self._waiting.setdefault(entity, []).append((at, payload))
        self._rows += 1
        self._bytes += len(payload)

    @property
    def is_full(self) -> bool:
        return self._bytes >= _FLIGHT_BYTES or self._rows >= _FLIGHT_ROWS

    async def flush(self) -> None:
        """Returns when the server has stored what waited."""
        waiting, self._waiting = self._waiting, {}
        self._rows = self._bytes = 0
        for entity, rows in waiting.items():
            with failing(f"send to '{entity}'"):
                faults = await self._send(entity, rows)
            if faults:
                raise RowsRefused(_sentence(entity, faults))

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.close()
        self._senders.clear()

    async def _send(self, entity: str, rows: list[tuple[int, bytes]]) -> list[tuple[int, ClientError]]:
        sender = await self._sender(entity)
        if entity in self._apart:
            return await _send_apart(sender, rows)
        cut = _cut(rows, sender.batch_bytes_max)
        sends = [sender.send_encoded([payload for _, payload in part]) for part in cut]
        results = await asyncio.gather(*sends, return_exceptions=True)
        faults: list[tuple[int, ClientError]] = []
        for part, result in zip(cut, results, strict=True):
            if result is None:
                continue
            if not isinstance(result, ClientError):
                raise result
            faults += await self._once_more(entity, sender, part, result)
        return faults

    async def _once_more(
        self, entity: str, sender: ServiceBusSender, part: list[tuple[int, bytes]], refusal: ClientError
    ) -> list[tuple[int, ClientError]]:
        if len(part) == 1:
            return [(part[0][0], refusal)]
        faults = await _send_apart(sender, part)
        if not faults:
            self._apart.add(entity)
        return faults

    async def _sender(self, entity: str) -> ServiceBusSender:
        sender = self._senders.get(entity)
        if sender is None:
            sender = self._client.get_queue_sender(entity)
            await sender.open()
            self._senders[entity] = sender
        return sender


def _cut(rows: list[tuple[int, bytes]], bytes_max: int) -> list[list[tuple[int, bytes]]]:
    cut: list[list[tuple[int, bytes]]] = []
    at = 0
    for payloads in batches([payload for _, payload in rows], bytes_max):
        cut.append(rows[at : at + len(payloads)])
        at += len(payloads)
    return cut


async def _send_apart(
    sender: ServiceBusSender, rows: list[tuple[int, bytes]]
) -> list[tuple[int, ClientError]]:
    """One message a transfer, all under way together. Raises what is not the fault of a message."""
    sends = [sender.send_encoded([payload]) for _, payload in rows]
    faults: list[tuple[int, ClientError]] = []
    for (at, _), result in zip(rows, await asyncio.gather(*sends, return_exceptions=True), strict=True):
        if isinstance(result, ClientError):
            faults.append((at, result))
        elif result is not None:
            raise result
    if len(faults) == len(rows) > 1:
        raise faults[0][1]
    return faults


def _sentence(entity: str, faults: list[tuple[int, ClientError]]) -> str:
    named = "; ".join(f"row {at} of its task: {error}" for at, error in faults[:_FAULTS_NAMED])
    more = f"; and {len(faults) - _FAULTS_NAMED} more" if len(faults) > _FAULTS_NAMED else ""
    return f"Could not send {len(faults)} row(s) to '{entity}'. {named}{more}"
