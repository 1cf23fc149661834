"""Writing rows as messages, in batches and in streams.

Theory of operation. Each task encodes its rows, piece by piece (`row_messages`), and sends them in as large batches
as the server takes, those of one piece under way together while the next piece is encoded. Pieces follow each other,
so that rows reach an entity in their order. A row without a `messageId` gets one that is made of where the row
stands: of the query and the batch (or of the write), the Spark partition and the row's place in it. Spark gives a
task that it repeats the same rows in the same places, so a repetition sends the same ids, and an entity that detects
duplicates keeps each message once. Without duplicate detection a repetition sends again: at least once.

A refused batch is all or nothing (S-20), so its messages are sent once more, one by one: either the server does not
take them together (S-23: a partitioned entity, different keys) or one of them is at fault, and its row is named.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.encoded_rows import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.bridge import bridge
from busway_spark.bus_failure import BusFailure, failing
from busway_spark.servicebus.columns import check_writable
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.row_messages import RowRefused, encode_rows

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
    outgoing = _Outgoing(work.client(options.bus))
    under_way: Future[None] | None = None
    rows = 0
    try:
        for record_batch in record_batches:
            for piece in pieces(record_batch):
                parts = _parts(piece, rows, place, options)
                if under_way is not None:
                    under_way.result()
                under_way = work.submit(outgoing.send(parts))
                rows += piece.num_rows
        if under_way is not None:
            under_way.result()
    finally:
        if under_way is not None:
            under_way.cancel()
        work.run(outgoing.close())
    return RowsSent(rows)


def _parts(
    piece: pa.RecordBatch, first_row: int, place: str, options: ServiceBusOptions
) -> dict[str, EncodedRows]:
    """Encoded messages by their entity, in the order of the rows."""
    try:
        messages = encode_rows(piece, place, first_row)
    except RowRefused as error:
        raise RowsRefused(f"Row {first_row + error.at} of its task cannot be sent: {error}.") from error
    rows = np.arange(first_row, first_row + piece.num_rows)
    if options.address is not None:
        return {options.address: EncodedRows.of(rows, messages)}
    names, places = arrow.words(piece.column("entity"))
    nameless = np.isin(places, [-1, *(at for at, name in enumerate(names) if not name)])
    if nameless.any():
        at = first_row + int(np.argmax(nameless))
        raise RowsRefused(f"Row {at} of its task has no 'entity', and no option names one for all rows.")
    parts: dict[str, EncodedRows] = {}
    for at, name in enumerate(names):
        wanted = places == at
        parts[str(name)] = EncodedRows.of(rows[wanted], messages.filter(pa.array(wanted)))
    return parts


class _Outgoing:
    """The senders that a task has opened, and what it learned about their entities."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._senders: dict[str, ServiceBusSender] = {}
        #: Entities that do not take messages together.
        self._apart: set[str] = set()

    async def send(self, parts: dict[str, EncodedRows]) -> None:
        """Returns when the server has stored them."""
        for entity, messages in parts.items():
            with failing(f"send to '{entity}'"):
                faults = await self._send(entity, messages)
            if faults:
                raise RowsRefused(_sentence(entity, faults))

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.close()
        self._senders.clear()

    async def _send(self, entity: str, messages: EncodedRows) -> list[tuple[int, ClientError]]:
        sender = await self._sender(entity)
        if entity in self._apart:
            return await _send_apart(sender, messages, 0, len(messages))
        cut = list(messages.cut(sender.batch_bytes_max - ENVELOPE_BYTES))
        posted = [await _post(sender, messages, *each) for each in cut]
        results = await asyncio.gather(*posted, return_exceptions=True)
        faults: list[tuple[int, ClientError]] = []
        for part, result in zip(cut, results, strict=True):
            if result is None:
                continue
            if not isinstance(result, ClientError):
                raise result
            faults += await self._once_more(entity, sender, messages, part, result)
        return faults

    async def _once_more(
        self,
        entity: str,
        sender: ServiceBusSender,
        messages: EncodedRows,
        part: tuple[int, int],
        refusal: ClientError,
    ) -> list[tuple[int, ClientError]]:
        first, end = part
        if end - first == 1:
            return [(int(messages.rows[first]), refusal)]
        faults = await _send_apart(sender, messages, first, end)
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


async def _post(
    sender: ServiceBusSender, messages: EncodedRows, first: int, end: int
) -> "asyncio.Future[None]":
    if end - first == 1:
        return await sender.post(messages.message(first), is_batch=False)
    return await sender.post(messages.batch(first, end), is_batch=True)


async def _send_apart(
    sender: ServiceBusSender, messages: EncodedRows, first: int, end: int
) -> list[tuple[int, ClientError]]:
    """One message a transfer, all under way together. Raises what is not the fault of a message."""
    posted = [await _post(sender, messages, at, at + 1) for at in range(first, end)]
    faults: list[tuple[int, ClientError]] = []
    results = await asyncio.gather(*posted, return_exceptions=True)
    for at, result in zip(range(first, end), results, strict=True):
        if isinstance(result, ClientError):
            faults.append((int(messages.rows[at]), result))
        elif result is not None:
            raise result
    if len(faults) == end - first > 1:
        raise faults[0][1]
    return faults


def _sentence(entity: str, faults: list[tuple[int, ClientError]]) -> str:
    named = "; ".join(f"row {at} of its task: {error}" for at, error in faults[:_FAULTS_NAMED])
    more = f"; and {len(faults) - _FAULTS_NAMED} more" if len(faults) > _FAULTS_NAMED else ""
    return f"Could not send {len(faults)} row(s) to '{entity}'. {named}{more}"
