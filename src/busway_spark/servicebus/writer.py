"""Writing rows as messages, in batches and in streams (`busway_spark.writing.two_phase`).

Theory of operation. Each row is for the option's entity, or for the one that the row names. On Busway rows are
staged, and each arrives once.

Services that cannot stage get rows at least once, by AMQP. Each task sends its rows in as large batches as the server
takes, those of one piece under way together while the next piece is encoded. Pieces follow each other, so that rows
reach an entity in their order. Rows are there when they are sent: those of a task that Spark repeats come again. A
row without a `messageId` gets a random one: nothing that Spark tells about a row is the same whenever it is repeated,
and an id that another row had before would make an entity that detects duplicates drop this one. Rows that bring ids
of their own, made of where they come from, are kept once by such an entity; all others arrive at least once, which is
said loudly. Asking whether an entity detects duplicates needs the right Manage and a server that speaks HTTP; where
nobody tells, the worse is said.

A refused batch is all or nothing (S-20), so its messages are sent once more, one by one: either the server does
not take them together (S-23: a partitioned entity, different keys) or one of them is at fault, and its row is
named.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway.client.sender import ServiceBusSender
from busway.client.service_bus_client import ServiceBusClient
from busway_spark.amqp_arrays import arrow
from busway_spark.amqp_arrays.encoding import ENVELOPE_BYTES, EncodedRows, pieces
from busway_spark.amqp_arrays.message_cut import Column, Longs
from busway_spark.servicebus.columns import check_writable
from busway_spark.servicebus.options import ServiceBusOptions
from busway_spark.servicebus.row_messages import UnsendableRow, encode_rows
from busway_spark.wire.bus import BUSWAY, Bus, administration, bridge, failing
from busway_spark.writing.two_phase import (
    RowsRefused,
    RowsStaged,
    TaskStage,
    can_stage,
    say_loudly,
    stage_pieces,
)
from busway_spark.writing.write_names import SinkWrite

_FAULTS_NAMED: Final = 3


def by_entity(
    piece: pa.RecordBatch, first_row: int, place: str, options: ServiceBusOptions
) -> dict[str, tuple[Longs, Column]]:
    """The rows' places in their task and their messages, in the order of the rows. Rows without a message id get
    `place` and their own place as one. Raises RowsRefused."""
    try:
        messages = encode_rows(piece, place, first_row)
    except UnsendableRow as error:
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


def warn_if_rows_can_repeat(schema: StructType, options: ServiceBusOptions) -> None:
    """When a writer is made that sends its rows at once."""
    if "messageId" in schema.names and detects_duplicates(options):
        return
    target = "the entities that rows name" if options.address is None else f"'{options.address}'"
    say_loudly(
        f"Rows are sent to {target} at least once: this service cannot stage them as Busway does, and those of a task"
        " or a batch that Spark repeats are sent again. Each is kept once where the entity has"
        " RequiresDuplicateDetection, with a window longer than the longest pause between a crash and the next start,"
        " and each row brings a messageId made of where it comes from (such as partition and sequenceNumber)."
    )


def detects_duplicates(options: ServiceBusOptions) -> bool | None:
    """None where nobody tells."""
    if options.address is None:
        return None
    return _ask(options.bus, options.address)


@lru_cache(maxsize=64)
def _ask(bus: Bus, address: str) -> bool | None:
    """Once in a process: Spark makes the writer of a stream anew for its batches."""
    try:
        if not (bus.kind() == BUSWAY or bus.is_azure_host()):
            return None
        with administration(bus) as client:
            entity = client.get_queue_or_topic(address)
    except (ClientError, OSError, ValueError):
        return None
    found = entity.properties.get("RequiresDuplicateDetection")
    return found if isinstance(found, bool) else None


@dataclass
class RowsSent(WriterCommitMessage):
    rows: int


def send_rows(record_batches: Iterator[pa.RecordBatch], options: ServiceBusOptions) -> RowsSent:
    """In a task: sends all rows or raises RowsRefused or BusFailure."""
    place = secrets.token_hex(16)
    work = bridge()
    outgoing = _Outgoing(work.client(options.bus))
    under_way: Future[None] | None = None
    rows = 0
    try:
        for record_batch in record_batches:
            for piece in pieces(record_batch):
                found = by_entity(piece, rows, place, options)
                parts = {entity: EncodedRows.of(*each) for entity, each in found.items()}
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
) -> asyncio.Future[None]:
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


class MessageSink:
    """Made on the driver. Raises WrongColumns, BusFailure."""

    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_writable(schema, options)
        self.options = options
        with failing("write"):
            self.stages = can_stage(options.bus, options.operation_s)
        if not self.stages:
            warn_if_rows_can_repeat(schema, options)

    def stage(
        self, rows: Iterator[pa.RecordBatch], name: SinkWrite, warning: str | None = None
    ) -> RowsStaged:
        return stage_pieces(rows, self.options, name, warning, self._put)

    def send(self, rows: Iterator[pa.RecordBatch]) -> RowsSent:
        return send_rows(rows, self.options)

    def _put(self, stage: TaskStage, piece: pa.RecordBatch, first_row: int) -> None:
        for entity, (rows, messages) in by_entity(piece, first_row, stage.id, self.options).items():
            stage.put(entity, None, EncodedRows.framed(rows, messages))
