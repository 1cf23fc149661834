"""Batch reading that deletes what it reads: `mode=receiveAndDelete` together with `allowDestructive=true`.

Each message is gone from the bus when it is sent to us: a task that fails afterwards, or a plan that Spark runs
twice, loses or misses rows. So it is never the default. One task, until nothing came for `maxWaitSeconds` or
`maxMessages` are read; of an entity with sessions one session after the other.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from busway.client.messages import ServiceBusReceivedMessage
from busway.client.receiver import RECEIVE_AND_DELETE as DELETING
from busway.client.receiver import ServiceBusReceiver
from busway_spark.servicebus.columns import check_readable
from busway_spark.servicebus.entrance import Entrance
from busway_spark.servicebus.message_columns import MessageColumns
from busway_spark.servicebus.options import RECEIVE_AND_DELETE, ServiceBusOptions, WrongOption
from busway_spark.wire.bridge import Bridge, bridge
from busway_spark.wire.bus import failing

_PAGE_MESSAGES: Final = 500


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
        entrance = Entrance(work.client(self._options.bus), self._address, DELETING)
        wait_s = self._options.wait_s
        receiver = work.run(entrance.open_next(wait_s))
        while receiver is not None and left != 0:
            page = work.run(receiver.receive_messages(_asked(left), wait_s))
            if page:
                left = None if left is None else left - len(page)
                yield page
            else:
                receiver = work.run(_following(entrance, receiver, wait_s))
        if receiver is not None:
            work.run(receiver.close())


async def _following(
    entrance: Entrance, receiver: ServiceBusReceiver, wait_s: float
) -> ServiceBusReceiver | None:
    """After the last message: the next session, or the end."""
    await receiver.close()
    return await entrance.open_next(wait_s) if entrance.has_sessions else None


def _asked(left: int | None) -> int:
    return _PAGE_MESSAGES if left is None else min(left, _PAGE_MESSAGES)
