"""Batch reading: browsing, which changes nothing, and receiving that deletes, which must be asked for twice.

A partitioned entity of Busway is browsed with one Spark partition for each fragment: the upper bits of a number are
its fragment, and a walk from the first number of a fragment to its last one stays inside. Any other entity, and one
whose fragments the key may not see (that needs Manage), is one walk.

Reading deletes with `mode=receiveAndDelete` together with `allowDestructive=true`. Each message is gone from the bus
when it is sent to us: a task that fails afterwards, or a plan that Spark runs twice, loses or misses rows. So it is
never the default. One task, until nothing came for `maxWaitSeconds` or `maxMessages` are read; of an entity with
sessions one session after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from busway.client.errors import ClientError
from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import RECEIVE_AND_DELETE as DELETING
from busway.client.receiver import ServiceBusReceiver
from busway_spark.servicebus.columns import check_readable
from busway_spark.servicebus.entity_reading import EntityReceivers, encoded_walk, walk
from busway_spark.servicebus.message_columns import FRAGMENT_SHIFT, MessageColumns
from busway_spark.servicebus.options import RECEIVE_AND_DELETE, ServiceBusOptions, WrongOption
from busway_spark.wire.bus import BUSWAY, Bridge, administration, bridge, failing

_SUB_QUEUE_MARK: Final = "/$"
_PAGE_MESSAGES: Final = 500


@dataclass
class NumberRange(InputPartition):
    first: int
    last: int


class BrowseReader(DataSourceReader):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_readable(schema, options)
        self._schema = schema
        self._options = options
        self._address = options.source_address()

    def partitions(self) -> list[InputPartition]:
        first, last = self._options.starting_number, self._options.ending_number
        with failing(f"browse '{self._address}'"):
            # A missing entity or right shows here, once, and not in every task.
            work = bridge()
            next(walk(work, work.client(self._options.bus), self._address, first, first), None)
        return [
            NumberRange(*each) for each in ranges_of(first, last, _fragments(self._options, self._address))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NumberRange)
        columns = MessageColumns(self._schema, self._options, self._address)
        work = bridge()
        with failing(f"browse '{self._address}'"):
            client = work.client(self._options.bus)
            for page in encoded_walk(work, client, self._address, partition.first, partition.last):
                yield columns.batch_of_payloads(page)


def _fragments(options: ServiceBusOptions, address: str) -> list[int]:
    """Their indexes; none where the server does not tell."""
    bus = options.bus
    try:
        if bus.kind(options.operation_s) != BUSWAY:
            return []
        with administration(bus) as client:
            found = client.fragments(address.partition(_SUB_QUEUE_MARK)[0])
    except (ClientError, OSError, ValueError):
        return []
    indexes = [item.get("index") for item in found]
    return sorted(index for index in indexes if isinstance(index, int))


def ranges_of(first: int, last: int, fragments: list[int]) -> list[tuple[int, int]]:
    """The numbers from first to last, cut where fragments begin: whatever the list says, every number is in one."""
    starts = [index << FRAGMENT_SHIFT for index in fragments]
    cuts = [start for start in starts if first < start <= last]
    return [(begin, end - 1) for begin, end in zip([first, *cuts], [*cuts, last + 1], strict=True)]


class DrainReader(DataSourceReader):
    def __init__(self, schema: StructType, options: ServiceBusOptions) -> None:
        check_readable(schema, options)
        if not options.allow_destructive:
            raise WrongOption(
                "mode", f"{RECEIVE_AND_DELETE} deletes what is read; say allowDestructive=true beside it."
            )
        self._schema = schema
        self._options = options
        self._address = options.source_address()

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert partition.value == 0, "there is one"
        columns = MessageColumns(self._schema, self._options, self._address)
        left = self._options.messages_max
        with failing(f"receive from '{self._address}'"):
            for page in self._pages(bridge(), left):
                yield columns.batch(page)

    def _pages(self, work: Bridge, left: int | None) -> Iterator[list[ServiceBusReceivedMessage]]:
        receivers = EntityReceivers(work.client(self._options.bus), self._address, DELETING)
        wait_s = self._options.wait_s
        receiver = work.run(receivers.open_next(wait_s))
        while receiver is not None and left != 0:
            page = work.run(receiver.receive_messages(_asked(left), wait_s))
            if page:
                left = None if left is None else left - len(page)
                yield page
            else:
                receiver = work.run(_following(receivers, receiver, wait_s))
        if receiver is not None:
            work.run(receiver.close())


async def _following(
    receivers: EntityReceivers, receiver: ServiceBusReceiver, wait_s: float
) -> ServiceBusReceiver | None:
    """After the last message: the next session, or the end."""
    await receiver.close()
    return await receivers.open_next(wait_s) if receivers.has_sessions else None


def _asked(left: int | None) -> int:
    return _PAGE_MESSAGES if left is None else min(left, _PAGE_MESSAGES)
